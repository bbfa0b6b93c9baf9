//! An in-memory Kafka broker without JVM, container or network.
//!
//! For development and tests only: it has one node, no replication, and its data is lost when it ends. Every API that
//! it advertises behaves as in Apache Kafka 4.3.1. A suite of scenarios that runs on both compares them.
//!
//! ```text
//! broker    the model: step(request, now) -> outputs; pure, deterministic, single-threaded
//!   ├── log            batches kept as bytes, producers, markers, LSO, compaction
//!   ├── transactions   the coordinator of transactional ids
//!   ├── groups         the coordinator of classic groups and committed offsets
//!   └── faults         faults of requests, which tests plant and count
//! wire      the model behind TCP on loopback: `EmbeddedKafka`, the program `eos-broker`
//! ```
//!
//! It does not support, and therefore does not advertise: groups of the consumer protocol (KIP-848), the second
//! transaction protocol (KIP-890), TLS and SASL, several nodes.
#![forbid(unsafe_code)]

pub mod broker;
pub mod faults;
mod groups;
mod log;
mod transactions;
pub mod wire;

pub use kafka_wire::lines::{Follower, Keys};
/// The types of Kafka's protocol in the API of [`broker`] and [`faults`].
pub use kafka_wire::protocol;
pub use wire::EmbeddedKafka;
