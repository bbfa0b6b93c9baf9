//! Benchmarks with PostgreSQL.
//!
//! ```text
//! database   a server, a database per run, its CPU time, the positions of eos
//! views      the tables and the statement, and the app that writes them
//! bare       a loop that commits its offsets after the rows
//! connect    Kafka Connect with Debezium's JDBC sink
//! table_check    every row, by SQL
//! pruning    the latency of messages while old ids of the inbox are deleted
//! ```

pub(crate) mod bare;
pub(crate) mod connect;
pub(crate) mod database;
pub(crate) mod pruning;
pub(crate) mod table_check;
pub(crate) mod views;

use crate::side::Side;
use crate::work::Work;

/// Returns the sides of a work that writes rows. Kafka Connect has no statements.
pub(crate) fn sides(work: Work) -> &'static [Side] {
    match work {
        Work::Statements => &[Side::Bare, Side::Eos],
        _ => &[Side::Bare, Side::Eos, Side::Connect],
    }
}
