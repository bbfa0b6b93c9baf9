//! Errors of deduplication.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;

/// Why deduplication can't judge a record. The error policy of the source decides about the record.
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
         {lateness:?}. Its id may have expired. Raise `SeenIds::lateness`, or call `.too_old_to(&topic)` or \
         `.pass_too_old()`",
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
    /// The timestamp of the record is far ahead of the machine's clock. All current records would be too old after it.
    #[error(
        "the timestamp of the record ({} ms since 1970) is {ahead:?} ahead of the machine's clock; the limit of store {store} \
         is one hour. Correct the clock of the producer, or call `SeenIds::trust_times`",
        .time.0
    )]
    FutureTimestamp {
        /// The name of the `SeenIds`.
        store: Arc<str>,
        /// The timestamp of the record.
        time: Timestamp,
        /// The time from the machine's clock to the record.
        ahead: Duration,
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
        "the number {number} of producer {producer:?} does not follow {last}: {missing} are missing (store {store}). Were \
         records lost, or do several threads write under one producer name? Give each thread its own name, or accept gaps \
         with `HighWatermarks::gaps(Gaps::Accept)`"
    )]
    Gap {
        /// The name of the `HighWatermarks`.
        store: Arc<str>,
        /// The name of the producer, with replacement characters for bytes that are not UTF-8.
        producer: String,
        /// The highest number so far.
        last: u128,
        /// The number of the record.
        number: u128,
        /// How many numbers are missing.
        missing: u128,
    },
    /// The record has no key.
    #[error(
        "the record has no key, and versions are compared within a key (store {store}). Set the key in the producer"
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
