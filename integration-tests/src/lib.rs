//! Tests on a real Kafka: the input, an independent judge, and test processes.
//!
//! This library does not use the framework. `eos-core` is a dev-dependency of the tests only. The programs under
//! `src/bin` use only this library, `kafka-wire` and `eos-oracle`. A verifier that shared code with the verified
//! program would share its bugs.
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
pub mod shop;
pub mod soak;
pub mod sweep;
pub mod user;
pub mod wait;

pub use kafka_wire::partitioner;
