//! Errors of stores.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_state::StoreError;

use crate::codec::CodecError;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("the store belongs to another app. Declare it with `app.store(..)` of this app")]
    OtherApp,
    #[error(
        "this step does not have the store {store}. Add `.with_store(&{store})` before it, and after any step that \
         changes the key"
    )]
    Elsewhere { store: Arc<str> },
    #[error(
        "this step does not have the timer {timer}. Add `.on_timer(&{timer}, ..)` before it, or `.with_timer(&{timer})` \
         before a step of a `Processor`"
    )]
    TimerElsewhere { timer: Arc<str> },
    #[error("the key for the store {store} can't be encoded: {source}")]
    Key { store: Arc<str>, source: CodecError },
    #[error("the value for the store {store} can't be encoded: {source}")]
    Value { store: Arc<str>, source: CodecError },
    #[error(
        "null can't be a value in the store {store}. `delete` the key instead, or return another value from the closure"
    )]
    NullValue { store: Arc<str> },
    #[error(
        "null can't be a key in the store {store}. Drop records without a key before this step: \
         `.filter_record(|record| record.key.is_some())`. For `app.table(..)`, use \
         `app.source(..).filter_record(..).to_table(..)`"
    )]
    NullKey { store: Arc<str> },
    #[error(
        "null can't be a foreign key of the join {join}. For a row without a partner, return `None` from the closure of the \
         foreign key"
    )]
    NullForeignKey { join: Arc<str> },
    #[error(
        "the record has no key, so the join with the store {store} finds no partner. Drop such records before the join: \
         `.filter_record(|record| record.key.is_some())`"
    )]
    NoJoinKey { store: Arc<str> },
    #[error(
        "the record has no value, so the join with the store {store} can't pair it. Drop such records before the join: \
         `.filter_record(|record| record.value.is_some())`"
    )]
    NoJoinValue { store: Arc<str> },
    #[error(
        "the value of this key in the store {store} can't be decoded: {source}. If the codec changed, restore it. If the value \
         type changed, make it accept old values, e.g. with `#[serde(default)]` on a new field. To start with empty state, give the \
         app another name"
    )]
    Unreadable { store: Arc<str>, source: CodecError },
    #[error(
        "the row of this key in the global table {table} can't be decoded: {source}. An earlier version of the program \
         accepted it. Restore the codec, or make the type accept old values, e.g. with `#[serde(default)]` on a new field. Or \
         delete the directory globals/{table} in the slot, and restart: all rows are read and checked again"
    )]
    GlobalRow { table: Arc<str>, source: CodecError },
    #[error("the store {store}: {source}")]
    Store { store: Arc<str>, source: StoreError },
    #[error(
        "the timer {timer} can't be set to {} ms since 1970: the maximum is {} ms. Pass milliseconds, not nanoseconds",
        .at.0, eos_protocol::Place::LAST.0
    )]
    Moment { timer: Arc<str>, at: Timestamp },
    #[error(
        "the store {store} expires rows by stream time, but no record of this task had a timestamp. Set the timestamp in the \
         producer, or use a store without `expire_after`"
    )]
    NoStreamTime { store: Arc<str> },
    #[error(
        "the window of the store {store} that starts at {} ms since 1970 is {ahead:?} ahead of the machine's clock; the limit is \
         {limit:?} (`max.timestamp.ahead.ms`). The changelog would be kept until then. Pass milliseconds, or call \
         `Stream::trust_times`",
        .start.0
    )]
    FutureWindow {
        store: Arc<str>,
        start: Timestamp,
        ahead: Duration,
        limit: Duration,
    },
    #[error(
        "a step set the time of the record to {} ms since 1970, which is {ahead:?} ahead of the machine's clock; the limit is \
         {limit:?} (`max.timestamp.ahead.ms`). The store {store} would keep the record until then. Pass milliseconds, or call \
         `Stream::trust_times`",
        .time.0
    )]
    FutureRecord {
        store: Arc<str>,
        time: Timestamp,
        ahead: Duration,
        limit: Duration,
    },
    #[error(
        "`set_in` of the timer {timer} failed: the record has no timestamp. Use `set`, or set the timestamp in the \
         producer"
    )]
    NoTime { timer: Arc<str> },
}

impl StateError {
    /// Whether a retry is expected to fail as well.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Key { source, .. }
            | Self::Value { source, .. }
            | Self::GlobalRow { source, .. }
            | Self::Unreadable { source, .. } => !matches!(source, CodecError::Unavailable { .. }),
            Self::OtherApp
            | Self::Elsewhere { .. }
            | Self::TimerElsewhere { .. }
            | Self::NullValue { .. }
            | Self::NullKey { .. }
            | Self::NullForeignKey { .. }
            | Self::NoJoinKey { .. }
            | Self::NoJoinValue { .. }
            | Self::Moment { .. }
            | Self::NoStreamTime { .. }
            | Self::FutureWindow { .. }
            | Self::FutureRecord { .. }
            | Self::NoTime { .. } => true,
            Self::Store { .. } => false,
        }
    }

    /// Returns the error again. An error that can't be cloned becomes [`StateError::OtherApp`].
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Elsewhere { store } => Self::Elsewhere {
                store: Arc::clone(store),
            },
            Self::TimerElsewhere { timer } => Self::TimerElsewhere {
                timer: Arc::clone(timer),
            },
            _ => Self::OtherApp,
        }
    }
}
