//! Kafka's wire protocol: frames, record batches and a synchronous client.
//!
//! Pure Rust: no C code, no threads, no background work. It shares no code with eos or librdkafka on purpose. A judge
//! that was built on the client under test would inherit its bugs. The launcher, the demo, the generator, the judge and
//! the scenarios of `conformance` use the client. The embedded broker uses frames and batches.
//!
//! ```text
//! frame        a length and that many bytes; the header of a request
//! requests     requests for one topic or partition
//! refusal      error responses for each kind of request
//! batch        record batches (format version 2): header, records, markers; the records that read_committed hides
//! connection   one socket to one broker, one request in flight, a deadline on each
//! client       routing, retries, topics, groups, offsets, records
//! producer     Producer: batches, sequences, retries that cannot duplicate a record
//!              TransactionalProducer: each step is a call, for tests that abort, hang or return as a zombie
//! history      the end of each transaction, in the types that an oracle judges by
//! lines        records as lines of text
//! partitioner  Kafka's default partitioner
//! varint       numbers in compact lengths and in records
//! ```
//!
//! Not supported: compression, TLS and SASL, group membership, fetch sessions.
#![forbid(unsafe_code)]

pub mod batch;
mod client;
mod connection;
pub mod frame;
mod history;
pub mod lines;
pub mod partitioner;
mod producer;
pub mod refusal;
pub mod requests;
pub mod varint;

pub use batch::Record;
pub use client::{
    Broker, Client, ClusterMetadata, EndedBy, Fetched, GroupMember, GroupState, Isolation, Node,
    Offsets, Operation, Partition, Resource, Tally,
};
pub use connection::{Connection, Failure, Sent};
pub use history::{
    CONSUMER_OFFSETS, LoggedTransaction, Marker, OpenProducer, Span, TransactionState,
};
pub use kafka_protocol as protocol;
pub use producer::{End, Producer, TransactionalProducer};
