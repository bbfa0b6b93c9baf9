//! Faults of records.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::joins::key_of_head;
use eos_protocol::sequence::LetterNumber;
use eos_protocol::{Timestamp, TopicName};

use crate::codec::CodecError;
use crate::failure::{Failure, causes_of};
use crate::own_timer::OwnTimer;
use crate::store::{StateError, window_of};

/// The number of times in a row that handlers may set moments no later than their own one.
pub(crate) const ROUNDS: u32 = 1_000;

/// The reason why a record failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the key can't be decoded: {0}")]
    Key(CodecError),
    #[error("the value can't be decoded: {0}")]
    Value(CodecError),
    #[error("{0}")]
    User(Failure),
    #[error("{0}")]
    Encode(EncodeError),
    #[error("{0}")]
    State(StateError),
    #[error(
        "the output for topic {topic} has {bytes} bytes, but its max.message.bytes is {limit}. Make \
         it smaller, or raise the limit (kafka-configs.sh --alter --topic {topic} --add-config \
         max.message.bytes=..)"
    )]
    Oversize {
        topic: TopicName,
        /// The size of key, value, headers and Kafka's overhead, in bytes.
        bytes: usize,
        limit: usize,
    },
    #[error(
        "the record has no timestamp{}, so no window, join or order by time can include it. Set the timestamp in its \
         producer, let the broker set it (kafka-configs.sh --alter --add-config message.timestamp.type=LogAppendTime), or \
         compute it with `Topic::time_by`",
        .0.map_or(String::new(), |time| format!(" (its value is {} ms)", time.0))
    )]
    NoTime(Option<Timestamp>),
    #[error(
        "the closure of `time_by` returned no time, or a negative one. Return milliseconds since 1970"
    )]
    NoOwnTime,
    #[error(
        "the partitioner of the topic {topic} returned {chosen}, but the topic has {partitions} partitions. Return a \
         smaller number"
    )]
    Partition {
        topic: TopicName,
        chosen: u32,
        partitions: u32,
    },
    #[error(
        "the closure of `route` returned {name:?}, but its topics are {topics}. Add the topic to `route`, or \
         return one of these names"
    )]
    Route { name: String, topics: String },
    #[error("{}: {source}", due_text(.name, .key, *.at, *.of))]
    Due {
        /// The name of the timer, or of the store with the final result.
        name: Arc<str>,
        /// The index of the store.
        store: usize,
        /// The key of the row.
        key: Box<[u8]>,
        at: Timestamp,
        of: DueOf,
        source: Box<Fault>,
    },
    #[error(
        "the handler set the moment of its key into the past {0} times in a row. Set a moment after `due.fired`"
    )]
    Rounds(u32),
    #[error(
        "the call {name} failed{}: {source}",
        if *.tries > 1 { format!(" after {tries} tries") } else { String::new() }
    )]
    Call {
        /// The name of the calls.
        name: Arc<str>,
        tries: u32,
        source: Box<Fault>,
    },
    #[error("it had no result after {0:?}")]
    TimeOut(Duration),
    #[error(
        "an earlier record of its key is a dead letter, and this record follows it as number {}. Replay the letters in \
         order (guide: Dead letters in sequence)",
        .0.n
    )]
    Parked(LetterNumber),
    #[error(
        "the old value of the row can't be subtracted, because its group has no result in the store {store}. Possible \
         causes: the store was added to a running app, an error policy skipped records of the repartition topic, or a closure \
         of `aggregate_or_delete` deleted a group that still has rows. Make that closure delete only groups without rows. Then \
         reset the app's state and offsets (guide: When local state is deleted, and when a task stops), or start the app \
         under a new name"
    )]
    NothingToSubtract { store: Arc<str> },
    #[error(
        "the foreign key {} of the join {join} has other bytes than that key in the topic {topics}, so the partition of its row is \
         unknown. Pass the codec of that topic's keys to `ForeignJoin::with`",
        shown(.key)
    )]
    ForeignKeyBytes {
        join: Arc<str>,
        /// The encoded foreign key.
        key: Box<[u8]>,
        /// The topics of the other table.
        topics: String,
    },
    #[error(
        "the partitioner of the topic {topics} returned {chosen} for the foreign key {} of the join {join}, but the topic has \
         {partitions} partitions. Return a smaller number",
        shown(.key)
    )]
    ForeignKeyPartition {
        join: Arc<str>,
        /// The encoded foreign key.
        key: Box<[u8]>,
        /// The topics of the other table.
        topics: String,
        chosen: u32,
        partitions: u32,
    },
    #[error("the closure panicked: {0}")]
    Panic(String),
    /// Not an error: moments of the record's key are due, and come first as units of their own. The record runs again.
    #[error(
        "a timer of a later step has due moments for the record's key. They run first, and then the record runs again. \
         Return this failure with `?`"
    )]
    MomentsFirst(Vec<OwnTimer>),
    #[error(
        "every transaction that it is part of is aborted{}",
        .0.as_ref().map_or(String::new(), |last| format!(" (last: {last})"))
    )]
    Aborts(Option<String>),
}

impl Fault {
    /// The kind of fault, for a dead letter's header.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "KeyDecodeError",
            Self::Value(_) => "ValueDecodeError",
            Self::User(failure) => failure.kind(),
            Self::Encode(_) => "EncodeError",
            Self::State(_) => "StateError",
            Self::Oversize { .. } => "OversizeOutput",
            Self::NoTime(_) | Self::NoOwnTime => "NoTimestamp",
            Self::Partition { .. } => "UnknownPartition",
            Self::Route { .. } => "UnknownRoute",
            Self::Due { source, .. } | Self::Call { source, .. } => source.kind(),
            Self::TimeOut(_) => "TimeOut",
            Self::Parked(_) => "ParkedKey",
            Self::NothingToSubtract { .. } => "NothingToSubtract",
            Self::ForeignKeyBytes { .. } => "ForeignKey",
            Self::ForeignKeyPartition { .. } => "UnknownPartition",
            Self::Panic(_) => "Panic",
            Self::MomentsFirst(_) => "MomentsFirst",
            Self::Rounds(_) => "TimerInThePast",
            Self::Aborts(_) => "RepeatedAborts",
        }
    }

    /// The causes, one per line.
    pub(crate) fn causes(&self) -> String {
        match self {
            Self::User(failure) => failure.causes(),
            Self::Key(error) | Self::Value(error) => causes_of(error),
            Self::Encode(error) => causes_of(error),
            Self::State(error) => causes_of(error),
            Self::Due { source, .. } | Self::Call { source, .. } => source.causes(),
            _ => String::new(),
        }
    }

    /// Whether a retry is expected to fail as well: the same record gives the same error.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Key(error)
            | Self::Value(error)
            | Self::Encode(EncodeError { source: error, .. }) => {
                !matches!(error, CodecError::Unavailable { .. })
            }
            Self::Rounds(_) | Self::Route { .. } | Self::Partition { .. } | Self::NoTime(_) => true,
            Self::NoOwnTime | Self::NothingToSubtract { .. } => true,
            Self::ForeignKeyBytes { .. } | Self::ForeignKeyPartition { .. } => true,
            Self::State(error) => error.is_permanent(),
            Self::User(failure) => failure.is_permanent(),
            Self::Due { source, .. } | Self::Call { source, .. } => source.is_permanent(),
            _ => false,
        }
    }

    /// Whether the app stops, whatever its policy.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::User(failure) => failure.is_fatal(),
            Self::Due { source, .. } | Self::Call { source, .. } => source.is_fatal(),
            _ => false,
        }
    }

    /// Returns the failure of user code. The error of a store keeps its own kind.
    pub(crate) fn user(failure: Failure) -> Self {
        if failure.is_permanent() {
            return Self::User(failure);
        }
        match failure.downcast::<StateError>() {
            Ok(error) => Self::State(error),
            Err(failure) => Self::User(failure),
        }
    }
}

/// The kind of a due item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DueOf {
    Timer,
    /// The final result of a window. Its start comes before the key.
    Window,
    /// The final result of a session, or of a sliding window.
    Closed,
    /// A record that waited for its turn.
    Waiting,
    /// Records of a join without partners.
    Alone,
    /// The subscribers of a foreign key.
    FanOut,
}

/// Returns the start of the error text of a due item.
fn due_text(name: &str, key: &[u8], at: Timestamp, of: DueOf) -> String {
    let at = at.0;
    match of {
        DueOf::Timer => {
            let key = shown(key);
            format!(
                "the handler of the timer {name} failed for the key {key} and the moment {at} ms"
            )
        }
        DueOf::Window => {
            let start = window_of(key).map_or(0, |start| start.0);
            let key = shown(key.get(8..).unwrap_or_default());
            format!(
                "the final result of the store {name} failed for the key {key} and the window from {start} ms"
            )
        }
        DueOf::Alone => {
            let key = key_of_head(key).map_or(key, |(key, _)| key);
            let key = shown(key);
            format!(
                "the unpaired result of the join {name} failed for the key {key} and the records that closed at {at} ms"
            )
        }
        DueOf::FanOut => {
            let key = shown(key);
            format!("the answers of the join {name} failed for the foreign key {key}")
        }
        DueOf::Waiting => {
            format!("a record that waited in the store {name} until {at} ms failed")
        }
        DueOf::Closed => {
            let key = shown(key);
            format!(
                "the final result of the store {name} failed for the key {key} and the window that closed at {at} ms"
            )
        }
    }
}

/// Returns a key for an error text.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key))
}

/// An output can't be encoded.
#[derive(Debug, thiserror::Error)]
#[error("the output for topic {topic} can't be encoded: {source}")]
pub(crate) struct EncodeError {
    pub(crate) topic: TopicName,
    pub(crate) source: CodecError,
}
