//! Kafka stream processing in which every effect happens exactly once, whatever dies.
//!
//! ```no_run
//! use eos_core::{App, Report, Topic};
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Deserialize)]
//! # struct Order { id: String, amount: u64 }
//! # #[derive(Serialize)]
//! # struct Priced { id: String, total: u64 }
//! # fn price(order: Order) -> Priced { Priced { id: order.id, total: order.amount * 2 } }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Report> {
//!     let orders = Topic::<String, Order>::json("orders");
//!     let priced = Topic::<String, Priced>::json("orders-priced");
//!     let mut app = App::new("pricing-v1");
//!     app.source(&orders).map(price).to(&priced);
//!     app.run("localhost:9092").await?;
//!     Ok(())
//! }
//! ```
//!
//! A program like this may run any number of times, on one host or many: the consumer group shares
//! the partitions among all of them, and each may die at any moment.
//!
//! # Exactly-once
//! What a record causes (records in any number of output topics, changes of stores) and the fact that
//! it was consumed are written in one Kafka transaction. Whoever reads the outputs with
//! `isolation.level=read_committed` sees each input's effects once, however often processes,
//! machines and brokers die. The guarantee ends where Kafka does: a closure that calls a web
//! service may call it again after a crash. [`exactly_once`] goes through each case.
//!
//! # Where to go on
//! - [`guide`]: concepts, operators and what they are called in Kafka Streams, error policies,
//!   processors, state, stopping, tests
//! - [`Stream`]: one method per shape; [`Ctx`]: several outputs; [`Processor`]: structs
//! - [`Stream::group_by_key`], [`KeyValueStore`]: what is kept per key
//! - [`Grouped::windowed_by`], [`WindowStore`]: what is kept per key and window of time
//! - [`ErrorPolicy`]: what becomes of records that can't be processed
//! - [`App::set`]: Kafka's properties; `docs/configuration.md` lists them
//! - [`metrics`]: what an app has done and how it stands
//!
//! # Features
//! - `kafka` (default): the client on librdkafka, from the crate `eos-kafka`. Without it the crate needs no C compiler,
//!   and [`App::run`] returns [`Error::FeatureMissing`].
//! - `rocksdb`: keeps state on disk. Without it state lives in memory, and is read again from its changelog at each
//!   start. It takes ten minutes and more to compile on two cores.
//! - `prometheus`: serves the metrics.
//! - `ssl`, `gssapi`: TLS, SCRAM and OAUTHBEARER; Kerberos.
//! - `failpoints`: faults compiled into the runtime, for tests of eos itself.
#![forbid(unsafe_code)]

pub mod codec;

mod app;
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod config;
mod ctx;
mod error;
mod error_policy;
#[cfg(feature = "failpoints")]
pub mod failpoints;
#[cfg(not(feature = "failpoints"))]
mod failpoints;
mod failure;
mod grouped;
mod keys;
pub mod metrics;
mod nearest;
mod output;
mod processor;
mod record;
// Without the adapter there is no client to run on; tests of closures don't need one.
mod rules;
#[cfg_attr(
    not(feature = "kafka"),
    allow(
        dead_code,
        unused_imports,
        reason = "without the adapter there is no client to run on"
    )
)]
mod runtime;
mod store;
mod stream;
mod table;
mod topic;
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod topology;
mod windowed;
mod windowed_key;
pub mod worker;

pub use app::App;
pub use config::{Origin, SettingsError};
pub use ctx::{Ctx, ProcessCtx, SourceRecord, ValuesCtx};
pub use eos_client as client;
pub use eos_client::{Header, Headers};
pub use eos_protocol::state::RestartError;
pub use eos_protocol::windows::{Tumbling, Window, WindowError};
pub use eos_protocol::{
    CommitCause, FirstStart, Guarantee, Offset, Partition, StartError, State, TaskId, Timestamp,
    TopicChange, TopicChanged, TopicName, TopicPartition, TopicRole,
};
pub use error::{Error, Report, Result};
pub use error_policy::{Backoff, ErrorPolicy, PolicyError, Retry};
pub use failure::{Failure, IntoOutcome};
pub use grouped::{Grouped, Table};
pub use keys::{Colocated, Partitioned, Scattered};
pub use metrics::Metrics;
pub use output::Output;
pub use processor::{OnDiscard, Processor, ValueProcessor};
pub use record::Record;
pub use runtime::{
    Handle, MissingTopic, PreflightError, Running, SlotError, UncreatedTopic, Unfit, UnfitTopic,
};
pub use store::{
    Entries, KeyValueStore, KeyValueView, OrderedStore, OrderedView, Store, StoreDef, StoreHandle,
    WindowStore, WindowView,
};
pub use stream::Stream;
pub use table::Nullable;
pub use topic::{PlainTopic, Topic};
pub use topology::{Description, Guarantees, Mermaid, Mistake, TopologyError};
pub use windowed::{WindowedGroup, WindowedTable};
pub use windowed_key::Windowed;
pub use worker::{StopMode, WorkerError};

/// An app whose workers somebody else steps: for test kits and simulations. Programs don't need it.
pub mod stepped {
    #[cfg(feature = "rocksdb")]
    pub use crate::runtime::on_disk;
    pub use crate::runtime::{Process, Stepped};
    pub use crate::store::{RawRows, RowsError, RowsOf, StoreRows, live_rows};
    pub use crate::topic::codecs;
    pub use crate::worker::{
        Env, Home, HomeError, InMemory, InputStanding, Step, StopMode, TaskHome, Worker,
        WorkerError,
    };
}

#[cfg(doc)]
#[doc = include_str!("../../docs/guide.md")]
pub mod guide {}

#[cfg(doc)]
#[doc = include_str!("../../docs/exactly-once.md")]
pub mod exactly_once {}

/// The code of the page on metrics, as a test.
#[cfg(all(doctest, feature = "prometheus"))]
#[doc = include_str!("../../docs/metrics.md")]
struct MetricsPage;

/// The README's Rust code, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
