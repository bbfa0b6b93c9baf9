//! Kafka stream processing in which every effect happens exactly once, whatever dies.
//!
//! ```no_run
//! use eos_core::{App, Topic};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)]
//! # struct Order { id: String, amount: u64 }
//! # #[derive(Serialize, Deserialize)]
//! # struct Priced { id: String, total: u64 }
//! # fn price(order: Order) -> Priced { Priced { id: order.id, total: order.amount * 2 } }
//!
//! #[tokio::main]
//! async fn main() -> eos_core::Result<()> {
//!     let orders = Topic::<String, Order>::json("orders");
//!     let priced = Topic::<String, Priced>::json("orders-priced");
//!     let mut app = App::new("pricing-v1");
//!     app.source(&orders).map(price).to(&priced);
//!     app.run("localhost:9092").await
//! }
//! ```
//!
//! # Exactly-once
//! What a record causes (records in any number of output topics) and the fact that it was consumed
//! are written in one Kafka transaction. Whoever reads the outputs with
//! `isolation.level=read_committed` sees each input's effects once, however often processes,
//! machines and brokers die. The guarantee ends where Kafka does: a closure that calls a web
//! service may call it again after a crash.

pub mod client;
pub mod codec;

mod app;
#[cfg_attr(not(feature = "kafka"), allow(dead_code))]
mod config;
mod ctx;
mod error;
mod error_policy;
mod failure;
#[cfg(feature = "kafka")]
mod kafka;
mod processor;
mod record;
// Without the adapter there is no client to run on; tests of closures don't need one.
#[cfg_attr(not(feature = "kafka"), allow(dead_code, unused_imports))]
mod runtime;
mod stream;
mod topic;
mod topology;
pub mod worker;

pub use app::App;
pub use client::{Header, Headers};
pub use config::{Origin, SettingsError};
pub use ctx::Ctx;
pub use eos_protocol::{
    FirstStart, Guarantee, Offset, StartError, TaskId, Timestamp, TopicName, TopicPartition,
};
pub use error::{Error, Result};
pub use error_policy::{ErrorPolicy, PolicyError, Retry};
pub use failure::{Done, Failure};
pub use processor::{OnDiscard, Processor};
pub use record::Record;
pub use runtime::{Handle, PreflightError, Running, SlotError};
pub use stream::{Output, Partitioned, Scattered, Stream};
pub use topic::Topic;
pub use topology::{Description, Guarantees, TopologyError};
pub use worker::{Counts, StopMode, WorkerError};

/// The README's Rust code, as a test.
#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../../README.md")]
struct Readme;
