//! Proof against a real Kafka: input, an independent judge, and what tests need to run programs.
//!
//! Nothing here knows the framework. `eos-core` is a dev-dependency of the tests only, and the
//! programs under `src/bin` are built from this library, the client of `kafka-wire`, the oracle of
//! `eos-oracle` and nothing else: a verifier that shared code with what it verifies would share its
//! bugs.
#![forbid(unsafe_code)]

pub mod counted;
pub mod data;
pub mod fate;
pub mod faults;
pub mod files;
pub mod fleet;
pub mod judge;
pub mod kill;
pub mod process;
pub mod proxy;
pub mod sweep;
pub mod user;
pub mod wait;

pub use kafka_wire::partitioner;
