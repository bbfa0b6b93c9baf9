//! Errors of reordering.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;

/// Why a record can't be put in order. The error policy of the source decides about the record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReorderError {
    /// The record is so late that later records may have been forwarded.
    #[error(
        "the timestamp of the record ({} ms since 1970) is {behind:?} behind stream time, and records wait for {within:?} \
         (store {store}), so later ones may have been forwarded. Raise the time of `reorder_by_time`, or call \
         `.late_to(&topic)`, `.pass_late()` or `.drop_late()`",
        .time.0
    )]
    Late {
        /// The name of the store.
        store: Arc<str>,
        /// The timestamp of the record.
        time: Timestamp,
        /// The time from the record to stream time.
        behind: Duration,
        /// How long records wait.
        within: Duration,
    },
    /// The number of the record was forwarded or given up before, or a record with this number waits.
    #[error(
        "the number {number} of the key came before or was given up; the next number is {next} (store {store}). If the key \
         began anew or its numbers do not begin at the value of `Reorder::starts_at`, change the numbers. To accept such \
         records, call `.late_to(&topic)`, `.pass_late()` or `.drop_late()`"
    )]
    Repeated {
        /// The name of the store.
        store: Arc<str>,
        /// The number of the record.
        number: u64,
        /// The next number of the key.
        next: u128,
    },
    /// Numbers are missing, and the record may not wait for them any longer.
    #[error(
        "the numbers from {expected} to {number} (exclusive) are missing (store {store}): the gap is longer than `max_gap`, \
         or the record has waited for `max_wait`. Find the missing records, or pass on without them: `OnGap::PassOn`"
    )]
    Gap {
        /// The name of the store.
        store: Arc<str>,
        /// The number that is missing.
        expected: u128,
        /// The number of the record.
        number: u64,
    },
    /// The waiting records of the task take too much space.
    #[error(
        "{bytes} bytes of records wait in one task of the store {store}, and the limit is {limit}. Let records wait for a \
         shorter time"
    )]
    Full {
        /// The name of the store.
        store: Arc<str>,
        /// The bytes of the waiting records, with this one.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}
