//! A test driver for eos apps, and conformance suites.
//!
//! [`TestDriver`] runs an app without Kafka. The suites test codecs and store engines.
//!
//! ```text
//! client        the clients of `eos-client` on the model of `eos-broker`, under virtual time
//!   └── driver  `TestDriver`, which steps an app under test
//! conformance   suites for codecs and store engines
//! idempotence   `assert_idempotent`, for effects outside Kafka
//! ```
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod client;
pub mod conformance;
#[doc(hidden)]
pub mod crash_backend;
#[doc(hidden)]
pub mod disk;
pub mod driver;
mod idempotence;
pub mod ledger;
#[doc(hidden)]
pub mod rng;

pub use client::Edge;
pub use driver::{CrashPoint, Input, OutputRecord, TestDriver, crash_everywhere};
pub use eos_protocol::CallSite;
pub use idempotence::assert_idempotent;

/// The code of the page on tests, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct TestingPage;
