//! A small synchronous Kafka client: pure Rust, no C, no threads, no background work.
//!
//! The launcher asks it whether a cluster is ready, the demo and the generator produce with it,
//! and the judge reads with it what a run left behind. It shares no code with the framework nor
//! with librdkafka on purpose: a verifier built on the client under test would inherit its bugs.
//!
//! ```text
//! Client ──► routing: any broker | leader of a partition | coordinator of a group or transaction
//!   │            └── connection: one socket per broker, one request in flight, deadline on each
//!   ├── topics, offsets, groups, transactions: ask and answer
//!   ├── fetch ──► records of a batch, without what read_committed hides
//!   ├── tally: how much of which kind lies in the log
//!   └── spans, transaction_log: how each transaction ended, as markers and the coordinators say; in the
//!       types of the oracle, which judges by them
//! Producer ──► batches, sequences, retries that cannot double a record
//! TransactionalProducer: for tests that play a program which aborts, hangs or returns as a zombie
//! ```
//!
//! What it deliberately leaves out: compression, TLS and SASL, group membership, fetch sessions.

mod acls;
mod client;
mod cluster;
mod configs;
mod connection;
mod failure;
mod fetch;
mod groups;
mod offsets;
pub mod partitioner;
mod producer;
mod quotas;
mod routing;
mod spans;
mod tally;
mod topics;
mod transaction_log;
mod transactional;
mod transactions;
mod versions;

pub use acls::{Operation, Resource};
pub use client::Client;
pub use cluster::{Broker, ClusterMetadata, Partition};
pub use eos_testkit::oracle::{LoggedTransaction, Marker, OpenProducer, Span, TransactionState};
pub use eos_testkit::records::Record;
pub use fetch::{Fetched, Isolation};
pub use groups::{GroupMember, GroupState, Offsets};
pub use kafka_protocol as protocol;
pub use producer::Producer;
pub use routing::Node;
pub use tally::{EndedBy, Tally};
pub use transactional::{End, TransactionalProducer};
