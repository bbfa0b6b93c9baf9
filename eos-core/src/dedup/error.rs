//! Errors of deduplication.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::identity::{MOST_SKEW, TimedIdError, TimedIdFormat};

/// An error of a record that deduplication can't judge. The error policy of the source decides about the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The record has no id, or an empty one.
    #[error(
        "the record has no id (store {store}). Set the id in the producer, or call `.pass_without_id()`"
    )]
    NoId {
        /// The name of the `SeenIds`.
        store: Arc<str>,
    },
    /// The record is too old: its id may have expired.
    #[error(
        "the timestamp of the record ({} ms since 1970) is {behind:?} behind stream time; the limit of store {store} is \
         {lateness:?}. The id of the record may have expired. Raise `SeenIds::lateness`, or call `.too_old_to(&topic)` or \
         `.pass_too_old()`. If it is a replayed dead letter, replay it with `.as_generation(1)`",
        .time.0
    )]
    TooOld {
        /// The name of the `SeenIds`.
        store: Arc<str>,
        /// The timestamp of the record.
        time: Timestamp,
        /// The time from the record to stream time.
        behind: Duration,
        /// The accepted time behind stream time.
        lateness: Duration,
    },
    /// The time in the id is too old: the id may have expired.
    #[error(
        "the time in the id ({} ms since 1970) is {behind:?} behind stream time; the store {store} remembers ids for \
         {remember:?}. The id may have expired. Call `.too_old_to(&topic)` or `.pass_too_old()`. A longer duration of \
         `SeenIds::time_embedded` requires another app name. If the record is a replayed dead letter, replay it with \
         `.as_generation(1)`",
        .time.0
    )]
    OldId {
        /// The name of the `SeenIds`.
        store: Arc<str>,
        /// The time in the id.
        time: Timestamp,
        /// The time from the id to stream time.
        behind: Duration,
        /// The time for which the store remembers ids.
        remember: Duration,
    },
    /// The time in the id is far ahead of stream time.
    #[error(
        "the time in the id ({} ms since 1970) is {ahead:?} ahead of stream time; the limit of store {store} is {limit:?}. \
         Correct the clock of the component that makes the ids",
        .time.0, limit = MOST_SKEW
    )]
    FutureId {
        /// The name of the `SeenIds`.
        store: Arc<str>,
        /// The time in the id.
        time: Timestamp,
        /// The time from stream time to the id.
        ahead: Duration,
    },
    /// The id has no time, because it is not of the declared format.
    #[error(
        "the id {id:?} is not a {}: {source} (store {store}). Send such ids, or use `SeenIds::fixed` with `.by(..)`",
        match .format {
            TimedIdFormat::UuidV7 => "UUID of version 7",
            TimedIdFormat::Ulid => "ULID",
        }
    )]
    Format {
        /// The name of the `SeenIds`.
        store: Arc<str>,
        /// The first 64 bytes of the id, with replacement characters for bytes that are not UTF-8.
        id: String,
        /// The declared format.
        format: TimedIdFormat,
        /// The cause.
        source: TimedIdError,
    },
    /// The timestamp of the record is far ahead of the machine's clock. All current records would be late or too old
    /// after it.
    #[error(
        "the timestamp of the record ({} ms since 1970) is {ahead:?} ahead of the machine's clock; the limit is {limit:?} \
         (`max.timestamp.ahead.ms`), because the store {store} depends on stream time. Correct the clock of the producer. To \
         accept such records, call `Stream::trust_times`, or `SeenIds::trust_times` for a deduplication store",
        .time.0
    )]
    FutureTimestamp {
        /// The name of the store, which depends on stream time.
        store: Arc<str>,
        /// The timestamp of the record.
        time: Timestamp,
        /// The time from the machine's clock to the record.
        ahead: Duration,
        /// The largest accepted time (`max.timestamp.ahead.ms`).
        limit: Duration,
    },
    /// The record has no producer, or one with an empty name.
    #[error(
        "the record has no producer name (store {store}). Set it in the producer, or call `.pass_without_producer()`"
    )]
    NoProducer {
        /// The name of the `HighWatermarks`.
        store: Arc<str>,
    },
    /// Numbers are missing between the last record of a producer and this one.
    #[error(
        "the number {number} of producer {producer:?} does not follow {last}; missing numbers: {missing} (store {store}). \
         Records were lost, or several threads write under one producer name. Give each thread its own name, or accept \
         gaps with `HighWatermarks::gaps(Gaps::Accept)`"
    )]
    Gap {
        /// The name of the `HighWatermarks`.
        store: Arc<str>,
        /// The first 64 bytes of the producer's name, with replacement characters for bytes that are not UTF-8.
        producer: String,
        /// The highest number so far.
        last: u128,
        /// The number of the record.
        number: u128,
        /// The count of missing numbers.
        missing: u128,
    },
    /// A dead letter came back, and its number is not above the high watermark.
    #[error(
        "the replayed number {number} of producer {producer:?} is not above {last} (store {store}), so it may have been \
         processed. If it was not, replay it with `.as_generation(1)`. If it was, leave the letter in its topic"
    )]
    ReplayedNumber {
        /// The name of the `HighWatermarks`.
        store: Arc<str>,
        /// The first 64 bytes of the producer's name, with replacement characters for bytes that are not UTF-8.
        producer: String,
        /// The number of the record.
        number: u128,
        /// The highest number so far.
        last: u128,
    },
    /// The record has no key.
    #[error(
        "the record has no key, but versions are compared within a key (store {store}). Set the key in the producer"
    )]
    NoKey {
        /// The name of the `Versions`.
        store: Arc<str>,
    },
    /// The header `eos-replay-generation` is not a number.
    #[error(
        "the header eos-replay-generation has the value {value:?}, which is not a number from 0 to 2^64 - 1. Set it to \
         the number of the replay, or remove it"
    )]
    Generation {
        /// The value, with replacement characters for bytes that are not UTF-8.
        value: String,
    },
}
