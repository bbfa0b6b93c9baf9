//! Tests for eos apps: an app under test without a Kafka, suites for codecs and store engines, and an oracle.
//!
//! ```text
//! client        the clients of `eos-client` on the model of `eos-broker`, under virtual time
//!   ├── driver  an app under test: `TestDriver`
//!   └── sim     seeded runs with faults at every action
//! conformance   suites for codecs and store engines
//! oracle        inputs, outputs, offsets and state in, a verdict out; knows neither the broker nor a client
//! ```
#![forbid(unsafe_code)]

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
pub mod oracle;
#[cfg(feature = "driver")]
pub mod sim;

#[cfg(feature = "driver")]
pub use client::Edge;
#[cfg(feature = "driver")]
pub use driver::{CrashPoint, Input, OutputRecord, TestDriver, crash_everywhere};
#[cfg(feature = "driver")]
pub use eos_protocol::CallSite;

/// The code of the page on tests, as a test.
#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../../docs/testing.md")]
struct TestingPage;
