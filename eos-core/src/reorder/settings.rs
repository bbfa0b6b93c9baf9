//! The settings of an order by numbers.

use std::time::Duration;

use eos_protocol::Timestamp;

use crate::timer::Clock;

/// The action when missing numbers do not arrive: the gap is longer than `max_gap`, a record has waited for `max_wait`,
/// or the waiting records of the task take more than 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnGap {
    /// Gives up the missing numbers, and forwards the waiting records in order. The metric `eos_reorder_gaps_total`
    /// counts the gap.
    PassOn,
    /// The record fails with [`ReorderError`](super::ReorderError). The error policy of the source decides about it.
    /// If the record is too far ahead, and the policy skips it or writes a dead letter, the wait for the missing
    /// numbers continues. So later numbers that are too far ahead fail as well, until the missing ones arrive or the wait of
    /// an earlier record ends.
    ///
    /// If the gap stops the app or pauses the task, write the missing records to the topic and restart the app. A record whose
    /// wait ended before the task started waits once more for `max_wait`, and the task reads on. For a record that is too far
    /// ahead, also raise `max_gap`.
    Fail,
    /// The record becomes a dead letter. The error policy of the source must end in a dead-letter topic.
    /// As with `Fail`, later numbers that are too far ahead become dead letters, too.
    DeadLetter,
}

/// The settings of [`Stream::reorder_by`](crate::Stream::reorder_by): how far and how long a record waits for the
/// numbers before it.
///
/// ```
/// # use eos_core::reorder::{OnGap, Reorder};
/// # use eos_core::timers::Clock;
/// # use std::time::Duration;
/// let settings = Reorder::max_gap(100)
///     .max_wait(Duration::from_secs(60), Clock::Stream)
///     .on_gap(OnGap::PassOn)
///     .starts_at(1);
/// ```
///
/// A later version of the program may change all settings except the clock. A new `starts_at` applies to keys without
/// earlier records, and a new `max_wait` to later records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reorder {
    pub(crate) gap: u64,
    pub(crate) wait: Duration,
    pub(crate) clock: Clock,
    pub(crate) on_gap: OnGap,
    pub(crate) first: u64,
}

/// The longest distance of a record from the next number. Call [`max_wait`](Self::max_wait) next.
#[derive(Debug, Clone, Copy)]
#[must_use = "call `max_wait` and `on_gap`"]
pub struct MaxGap(u64);

/// The longest distance and the longest wait of a record. Call [`on_gap`](Self::on_gap) next.
#[derive(Debug, Clone, Copy)]
#[must_use = "call `on_gap`"]
pub struct MaxWait {
    gap: u64,
    wait: Duration,
    clock: Clock,
}

impl Reorder {
    /// The longest `max_gap`.
    pub const LONGEST_GAP: u64 = 10_000;

    /// Sets the longest distance of a waiting record from the next number of its key, from 1 to 10,000.
    pub fn max_gap(numbers: u64) -> MaxGap {
        MaxGap(numbers)
    }

    /// Returns the end of a wait that begins now.
    pub(crate) fn until(&self, now: Timestamp) -> Timestamp {
        let wait = i64::try_from(self.wait.as_millis()).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_add(wait))
    }

    /// Sets the first number of each key. Without this call it is 0.
    #[must_use]
    pub fn starts_at(self, first: u64) -> Self {
        Self { first, ..self }
    }
}

impl MaxGap {
    /// Sets how long a record waits for the numbers before it. The stream's clock advances with the timestamps of
    /// records. The machine's clock also advances without records.
    pub fn max_wait(self, wait: Duration, clock: Clock) -> MaxWait {
        let Self(gap) = self;
        MaxWait { gap, wait, clock }
    }
}

impl MaxWait {
    /// Sets the action when missing numbers do not arrive.
    pub fn on_gap(self, on_gap: OnGap) -> Reorder {
        let Self { gap, wait, clock } = self;
        Reorder {
            gap,
            wait,
            clock,
            on_gap,
            first: 0,
        }
    }
}
