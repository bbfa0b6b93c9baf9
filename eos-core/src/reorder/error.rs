//! Errors of records that are put in order.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{Timestamp, TopicName};

/// An error of a record that can't be put in order. The error policy of the source decides about the record.
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
        /// The wait of each record.
        within: Duration,
    },
    /// The number of the record was forwarded or given up before, or a record with this number waits.
    #[error(
        "the number {number} of the key was forwarded or given up before, or a record with it waits; the next number is \
         {next} (store {store}). If the key restarted its numbers, or if they do not begin at the value of \
         `Reorder::starts_at`, change the numbers. To accept such records, call `.late_to(&topic)`, `.pass_late()` or \
         `.drop_late()`"
    )]
    Repeated {
        /// The name of the store.
        store: Arc<str>,
        /// The number of the record.
        number: u64,
        /// The next number of the key.
        next: u128,
    },
    /// The record is too far ahead to wait for the missing numbers.
    #[error(
        "the numbers from {expected} to {number} (exclusive) are missing (store {store}), which is more than `max_gap` \
         ({gap}). Raise `max_gap` (at most {longest}) and restart the app, so that the record waits for them, or give their \
         numbers up with `OnGap::PassOn`",
        longest = super::Reorder::LONGEST_GAP
    )]
    TooFar {
        /// The name of the store.
        store: Arc<str>,
        /// The number that is missing.
        expected: u128,
        /// The number of the record.
        number: u64,
        /// The value of `max_gap`.
        gap: u64,
    },
    /// Numbers are missing, and the record has waited for them for `max_wait`.
    #[error(
        "the numbers from {expected} to {number} (exclusive) are missing (store {store}), and the record has waited for \
         `max_wait`. Write the missing records to the topic and restart the app, or give their numbers up with \
         `OnGap::PassOn`"
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
        "{bytes} bytes of records wait in one task of the store {store}, and the limit is {limit}. Let the error policy skip \
         this record or write a dead letter. In `reorder_by`, `OnGap::PassOn` forwards the waiting records. A shorter wait \
         applies to later records only"
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

/// An error in the declaration of an order of records. The app does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The time of `reorder_by_time` is shorter than a millisecond.
    #[error(
        "records wait for {0:?} (`reorder_by_time`), but the resolution of timestamps is 1 ms. Set at least 1 ms"
    )]
    Within(Duration),
    /// The limits of `reorder_by` are invalid.
    #[error(
        "`max_gap` is {gap} and `max_wait` is {wait:?}. Set a gap from 1 to {longest} and a wait of at least 1 ms",
        longest = super::Reorder::LONGEST_GAP
    )]
    Limits {
        /// The declared gap.
        gap: u64,
        /// The declared wait.
        wait: Duration,
    },
    /// Gaps become dead letters, but the policy of a source has no topic for them.
    #[error(
        "gaps become dead letters, but the error policy of {0} has no dead-letter topic. Set it with \
         `.on_error(ErrorPolicy::dead_letter(..))`"
    )]
    NoLetters(TopicName),
    /// A deduplication follows the order.
    #[error(
        "the deduplication {0} comes after this step. It would use the time at which a record leaves this step. Call the \
         deduplication before this step"
    )]
    Deduplication(String),
    /// Windows behind the order would drop its waiting records as late.
    #[error(
        "the windows of the store {windows} would drop records as late, because they wait in this order first. Give the \
         windows of {windows} a grace of at least {least:?}"
    )]
    ShortGrace {
        /// The store of the windows.
        windows: String,
        /// The minimum grace.
        least: Duration,
    },
    /// All records that wait in an earlier order arrive too late for this one.
    #[error(
        "records wait in the store {before} first, so they arrive here too late. Set a wait of at least {least:?} \
         (`reorder_by_time`)"
    )]
    ShortWait {
        /// The store of the first order.
        before: String,
        /// The minimum time.
        least: Duration,
    },
}
