//! Tests for eos apps: an app under test without a Kafka, and suites for codecs and store engines.
//!
//! ```text
//! client        the clients of `eos-client` on the model of `eos-broker`, under virtual time
//!   └── driver  an app under test: `TestDriver`
//! conformance   suites for codecs and store engines
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
#[doc(hidden)]
pub mod rng;

pub use client::Edge;
pub use driver::{CrashPoint, Input, OutputRecord, TestDriver, crash_everywhere};
pub use eos_protocol::CallSite;

/// The code of the page on tests, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing.md")]
struct TestingPage;
