//! Kafka stream processing in which every effect happens exactly once, whatever fails.
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
//! it was consumed are written in one Kafka transaction. Consumers that read the outputs with
//! `isolation.level=read_committed` see each input's effects once, however often processes,
//! machines and brokers die. The guarantee ends where Kafka does: a closure that calls a web
//! service may call it again after a crash. [`exactly_once`] goes through each case.
//!
//! # Where to go on
//! - [`guide`]: concepts, operators and their names in Kafka Streams, error policies, processors, state, stopping, tests
//! - [`from_kafka_streams`]: each method of Kafka Streams, and the code that does the same
//! - [`Stream`]: the operators; [`stream`]: groups, and where the records of one key are
//! - [`Ctx`], [`Processor`], [`processor`]: steps with a context
//! - [`KeyValueStore`], [`state`]: stores; [`windows`]: windows of time
//! - [`ErrorPolicy`]: records that can't be processed; [`errors`]: everything that can end an app
//! - [`codec`]: formats of keys and values
//! - [`App::set`]: Kafka's properties (`docs/configuration.md` lists them); [`run`]: a running app
//! - [`metrics`], [`testing`], [`views`]
//! - [`type_errors`]: compiler messages, their causes and fixes
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

mod change;
pub mod codec;
pub mod metrics;

mod advice;
mod app;
mod async_calls;
pub mod boundary;
mod cogrouped;
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod config;
mod ctx;
mod dedup;
mod error;
mod error_policy;
mod failpoints;
mod failure;
mod global;
mod grouped;
mod joins;
mod keys;
mod nearest;
mod output;
mod own_timer;
mod panics;
mod paused;
mod process_ctx;
mod processors;
mod record;
pub mod reorder;
mod replay;
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
mod sequence;
mod sessions;
mod sides;
mod sliding;
mod store;
mod store_handle;
mod streams;
mod table;
mod table_rows;
mod tables;
mod timer;
mod topic;
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod topology;
pub mod views;
mod windowed;
mod windowed_key;
mod windowed_table;
mod worker;

use eos_client as client;

pub use app::App;
pub use async_calls::Calls;
pub use ctx::Ctx;
pub use eos_client::Headers;
pub use eos_protocol::{Guarantee, Timestamp};
pub use error::{Error, Report, Result};
pub use error_policy::{Backoff, ErrorPolicy};
pub use failure::Failure;
pub use output::Output;
pub use process_ctx::{ProcessCtx, ValuesCtx};
pub use processors::Processor;
pub use record::Record;
pub use runtime::Handle;
pub use sides::Sides;
pub use store::KeyValueStore;
pub use store_handle::Store;
pub use streams::Stream;
pub use tables::Table;
pub use timer::Timer;
pub use topic::{PlainTopic, Topic};

/// Streams of grouped records, and where the records of one key are.
pub mod stream {
    pub use crate::cogrouped::Cogrouped;
    pub use crate::global::GlobalTable;
    pub use crate::grouped::Grouped;
    pub use crate::keys::{Colocated, Partitioned, Scattered};
    pub use crate::streams::timed::{WithTicks, WithTimers};
    pub use crate::table::Nullable;
    pub use crate::tables::GroupedTable;
}

/// Stores: the definitions beside `KeyValueStore`, and what [`Ctx::store`](crate::Ctx::store) returns for
/// each.
pub mod state {
    pub use crate::joins::JoinStore;
    pub use crate::reorder::ReorderStore;
    pub use crate::store::{
        Entries, KeyValueView, OrderedStore, OrderedView, SessionStore, SlidingStore, WindowStore,
        WindowView,
    };
    pub use crate::store_handle::{StoreDef, StoreHandle};
    pub use crate::table_rows::{Rows, RowsView, WindowRowsView};
    pub use crate::tables::ForeignJoin;
}

/// Timers: handles, views and due moments. The definition is [`Timer`].
pub mod timers {
    pub use crate::timer::{Clock, Due, Tick, TimerHandle, TimerView};
}

/// Windows of time: [`Grouped::windowed_by`](crate::stream::Grouped::windowed_by).
pub mod windows {
    pub use eos_protocol::joins::Within;
    pub use eos_protocol::windows::{Hopping, Session, Sliding, Tumbling, Window};

    pub use crate::joins::JoinedStreams;
    pub use crate::sessions::{SessionGroup, SessionTable};
    pub use crate::sides::Sides;
    pub use crate::sliding::{SlidingGroup, SlidingTable};
    pub use crate::windowed::{WindowedGroup, Windows, WindowsOf};
    pub use crate::windowed_key::Windowed;
    pub use crate::windowed_table::WindowedTable;
}

/// Deduplication by record id, by sequence numbers and by versions. The entry points are
/// [`Stream::dedup`](crate::Stream::dedup), [`Stream::dedup_by_sequence`](crate::Stream::dedup_by_sequence) and
/// [`Stream::newest`](crate::Stream::newest). The rest of this page is about ids.
///
/// A record is a duplicate if the store has the id of an earlier processed record with the same scope and replay
/// generation, and the window of that record contains it. Only the first copy is passed on.
///
/// | window | a record is a duplicate if its timestamp is |
/// |---|---|
/// | [`fixed`](identity::SeenIds::fixed) | less than the window from that of the first record |
/// | [`sliding`](identity::SeenIds::sliding) | less than the window from that of a repetition, and less than `at_most` after the first record |
/// | [`time_embedded`](identity::SeenIds::time_embedded) | any. The time in the id is less than the window behind stream time |
/// | [`for_ever`](identity::SeenIds::for_ever) | any |
///
/// | record | default | changed by |
/// |---|---|---|
/// | new | passed on, its id is stored | |
/// | duplicate | dropped and counted | `duplicates_to` |
/// | further behind stream time than the lateness, and its id is not stored | fails: `TooOld` | `too_old_to`, `pass_too_old` |
/// | with an id whose time is further behind stream time than the window (`time_embedded`) | fails: `OldId` | `too_old_to`, `pass_too_old` |
/// | without an id, or with an empty one | fails: `NoId` | `pass_without_id` |
/// | more than an hour ahead of the machine's clock (`max.timestamp.ahead.ms`) | fails: `FutureTimestamp` | `trust_times` |
/// | with an id that is no UUIDv7 or ULID (`time_embedded`) | fails: `Format` | |
/// | with an id whose time is more than ten minutes ahead of stream time (`time_embedded`) | fails: `FutureId` | |
/// | with an invalid header `eos-replay-generation` | fails: `Generation` | |
/// | without a timestamp, or with a negative one (not with `for_ever`) | fails | |
/// | with a key or a field that can't be encoded | fails | |
///
/// The error policy of the source decides about failed records. By default, the app stops. `judge_by` forwards records of
/// the first five rows with their status.
pub mod identity {
    pub mod presets;

    pub use crate::dedup::{
        ContentId, Dedup, IdentityError, Judged, KeyedSeenIds, Seen, SeenIds, SeenWindowError,
        Selected, Sizing, TimedIdError, TimedIdFormat, Unselected, WholeValue,
    };
    pub use crate::sequence::{BySequence, Gaps, HighWatermarks, Newest, Sequence, Versions};
}

/// Asynchronous calls: the argument of the closure of [`Stream::map_async_record`](crate::Stream::map_async_record).
pub mod calls {
    pub use eos_protocol::calls::CallId;

    pub use crate::async_calls::Call;
}

/// The replay of dead letters. The entry point is [`App::replay`](crate::App::replay).
pub mod replays {
    pub use eos_protocol::sequence::SequenceError;

    pub use crate::replay::{Replay, ReplayError};
}

/// Processors of values, and what a context says about its record.
pub mod processor {
    pub use eos_client::Header;
    pub use eos_protocol::{Offset, Partition, TaskId};

    pub use crate::ctx::SourceRecord;
    pub use crate::processors::{OnDiscard, ValueProcessor};
}

/// A running app, and the description of one.
pub mod run {
    pub use eos_protocol::FirstStart;

    pub use crate::paused::{PauseId, Paused, PausedAt, Resume, ResumeError};
    pub use crate::runtime::{AppState, Running};
    pub use crate::topology::{Description, Guarantees, Mermaid, Stores};
    pub use crate::worker::StopMode;
}

/// Errors and their parts: each `Error` holds one of them.
pub mod errors {
    pub use eos_protocol::calls::CallPlanError;
    pub use eos_protocol::global::{GlobalStalled, StaleCopy};
    pub use eos_protocol::state::{AddedStep, RestartError};
    pub use eos_protocol::windows::WindowError;
    pub use eos_protocol::{
        StartError, TopicChange, TopicChanged, TopicName, TopicPartition, TopicRole,
    };

    pub use crate::config::{Origin, SettingsError};
    pub use crate::error_policy::{Pause, PolicyError, Retry};
    pub use crate::failure::IntoOutcome;
    pub use crate::runtime::{
        GlobalError, MissingTopic, PreflightError, SlotError, UncreatedTopic, Unfit, UnfitTopic,
    };
    pub use crate::topology::{Mistake, TopologyError};
    pub use crate::worker::{RecordFault, TwoOwners, UnknownStore, WorkerError};
}

/// Tests of an app, without a broker: the crate `eos-testkit` has a `TestDriver` that runs it in memory, kills it at
/// every step, and compares the results.
pub mod testing {}

/// The runtime's parts, for test kits, simulations and other clients. It is not a part of the public API: any version
/// may change it.
#[doc(hidden)]
pub mod spi {
    pub use eos_client as client;
    pub use eos_protocol::State;

    /// Faults at named steps.
    #[cfg(feature = "failpoints")]
    pub mod failpoints {
        pub use crate::failpoints::*;
    }

    /// The replay of one dead letter, and the limits of a round.
    pub mod replay {
        pub use crate::replay::{replayed, with_limits};
    }

    /// Workers.
    pub mod worker {
        pub use crate::worker::*;
    }

    /// An app whose workers a test kit steps.
    pub mod stepped {
        #[cfg(feature = "rocksdb")]
        pub use crate::runtime::on_disk;
        pub use crate::runtime::{Process, Stepped};
        pub use crate::store::{RawRows, RowsError, RowsOf, StoreRows, live_rows};
        pub use crate::topic::{chosen_partition, codecs};
        pub use crate::worker::{
            Env, Home, HomeError, InMemory, InputStanding, Step, StopMode, TaskHome, Worker,
            WorkerError,
        };
    }
}

#[cfg(doc)]
#[doc = include_str!("../../docs/guide.md")]
pub mod guide {}

#[cfg(doc)]
#[doc = include_str!("../../docs/from-kafka-streams.md")]
pub mod from_kafka_streams {}

#[cfg(doc)]
#[doc = include_str!("../../docs/exactly-once.md")]
pub mod exactly_once {}

#[cfg(doc)]
#[doc = include_str!("../../docs/type-errors.md")]
pub mod type_errors {}

/// The code of the page on metrics, as a test.
#[cfg(all(doctest, feature = "prometheus"))]
#[doc = include_str!("../../docs/metrics.md")]
struct MetricsPage;

/// The README's Rust code, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
