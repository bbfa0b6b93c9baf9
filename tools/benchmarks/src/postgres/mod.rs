//! Benchmarks that write records from Kafka to PostgreSQL.
//!
//! ```text
//! database   a server, a database per run, its CPU time, the positions of eos
//! views      the tables and the statement, and the app that writes them
//! bare       a loop that commits its offsets after the rows
//! connect    Kafka Connect with Debezium's JDBC sink
//! table_check    every row, by SQL
//! ```

pub(crate) mod bare;
pub(crate) mod connect;
pub(crate) mod database;
pub(crate) mod table_check;
pub(crate) mod views;
