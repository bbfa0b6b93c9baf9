//! A broker in the box: Kafka's behaviour without a JVM, a container or a network. And an oracle, which tells
//! whether what an application left behind is exactly once.
//!
//! For development and tests only: everything is in memory, on one node, without replication.
//! What it says it does, it does as Apache Kafka 4.3.1 does; a suite of scenarios that runs on both
//! compares them.
//!
//! ```text
//! broker    the model: step(request, now) -> outputs; pure, deterministic, single-threaded
//!   ├── log            batches kept as bytes, producers, markers, LSO, compaction
//!   ├── transactions   the coordinator of transactional ids
//!   ├── groups         the coordinator of classic groups and committed offsets
//!   └── faults         what is done to requests on purpose, and counted
//! wire      the model behind TCP on loopback
//! client    the clients of `eos-core` on the model, under virtual time
//!   ├── driver   an app under test: `TestDriver`
//!   └── sim      seeded runs with faults at every action
//! conformance   what a codec or a store engine of your own has to pass
//! oracle    inputs, outputs, offsets and state in, a verdict out; knows neither the broker nor a client
//! ```
//!
//! What it deliberately leaves out, and therefore does not advertise: groups of the consumer protocol
//! (KIP-848), the second transaction protocol (KIP-890), TLS and SASL, several nodes.
#![forbid(unsafe_code)]

pub mod broker;
#[cfg(feature = "driver")]
pub mod client;
#[cfg(feature = "driver")]
pub mod conformance;
#[cfg(feature = "driver")]
mod crash_backend;
#[cfg(feature = "driver")]
mod disk;
#[cfg(feature = "driver")]
pub mod driver;
pub mod faults;
mod groups;
mod log;
pub mod oracle;
#[cfg(feature = "driver")]
pub mod sim;
mod transactions;
pub mod wire;

#[cfg(feature = "driver")]
pub use client::Edge;
#[cfg(feature = "driver")]
pub use driver::{CrashPoint, Input, OutputRecord, TestDriver, crash_everywhere};
#[cfg(feature = "driver")]
pub use eos_protocol::CallSite;
pub use wire::EmbeddedKafka;

/// The code of the page on tests, as a test.
#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../../docs/testing.md")]
struct TestingPage;
