//! Faults of records.

use eos_protocol::{Timestamp, TopicName};

use crate::codec::CodecError;
use crate::failure::Failure;
use crate::store::StateError;

/// Why a record did not get through.
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
        "the output for topic {topic} has {bytes} bytes, but its max.message.bytes is {limit}: make \
         it smaller, or raise the limit (kafka-configs.sh --alter --topic {topic} --add-config \
         max.message.bytes=..)"
    )]
    Oversize {
        topic: TopicName,
        /// Key, value, headers and what Kafka adds to them.
        bytes: usize,
        limit: usize,
    },
    #[error(
        "the record has no time ({}), so it is in no window: have its producer set one, or the topic's \
         brokers (kafka-configs.sh --alter --add-config message.timestamp.type=LogAppendTime). To go on \
         without such records, choose another error policy for the source, with `.on_error(..)`",
        .0.map_or("none".to_owned(), |time| format!("{} ms", time.0))
    )]
    NoTime(Option<Timestamp>),
    #[error(
        "the partitioner of the topic {topic} returned {chosen}, but the topic has {partitions} partitions: return a \
         number below that"
    )]
    Partition {
        topic: TopicName,
        chosen: u32,
        partitions: u32,
    },
    #[error(
        "the closure of `route` returned {name:?}, but its topics are {topics}: add the topic to `route`, or \
             return one of these names"
    )]
    Route { name: String, topics: String },
    #[error("the closure panicked: {0}")]
    Panic(String),
    #[error(
        "every transaction that it is part of is aborted{}",
        .0.as_ref().map_or(String::new(), |last| format!(" (last: {last})"))
    )]
    Aborts(Option<String>),
}

impl Fault {
    /// What kind of fault it is, for a dead letter's header.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "KeyDecodeError",
            Self::Value(_) => "ValueDecodeError",
            Self::User(failure) => failure.kind(),
            Self::Encode(_) => "EncodeError",
            Self::State(_) => "StateError",
            Self::Oversize { .. } => "OversizeOutput",
            Self::NoTime(_) => "NoTimestamp",
            Self::Partition { .. } => "UnknownPartition",
            Self::Route { .. } => "UnknownRoute",
            Self::Panic(_) => "Panic",
            Self::Aborts(_) => "RepeatedAborts",
        }
    }

    /// What caused it, a line each.
    pub(crate) fn causes(&self) -> String {
        match self {
            Self::User(failure) => failure.causes(),
            _ => String::new(),
        }
    }

    /// Whether the record fails again whenever it is tried: its bytes do not change.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Key(error) | Self::Value(error) => {
                !matches!(error, CodecError::Unavailable { .. })
            }
            Self::User(failure) => failure.is_permanent(),
            _ => false,
        }
    }

    /// The failure that user code returned. The error of a store keeps its own kind.
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

/// An output has no bytes.
#[derive(Debug, thiserror::Error)]
#[error("the output for topic {topic} can't be encoded: {source}")]
pub(crate) struct EncodeError {
    pub(crate) topic: TopicName,
    pub(crate) source: CodecError,
}
