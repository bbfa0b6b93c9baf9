//! The expiry of windows in a store.

use std::time::Duration;

use super::{OtherWindows, Terms, ms};
use crate::ids::Timestamp;
use crate::joins::{JoinTerms, OtherJoin};

/// The number of deletions per retention. A deletion of a range has a cost, and expired windows in the database have
/// no effect.
const STEPS: i64 = 8;
/// The same for buckets.
const STEPS_OF_BUCKETS: i64 = 64;

/// The time for which a store keeps its windows, in stream time.
///
/// A window that starts at `s` is kept as long as `s + retention > stream time`. With a retention of its length and
/// grace (the default, as in Kafka Streams), it is kept until it is closed. From then on, the store no longer *reads*
/// it. The database drops it later, in steps: [`due`](Self::due) runs at each commit. Buckets have smaller steps:
/// [`of_buckets`](Self::of_buckets).
///
/// An expired window stays expired, also for a program with a longer retention: see [`Terms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    size: i64,
    /// The distance between the starts of windows.
    advance: i64,
    retention: i64,
    step: i64,
    /// Whether all rows are in windows that start at multiples of their length.
    are_buckets: bool,
    /// Windows that start before this were expired for a previous program.
    prior_expired_before: Timestamp,
    /// Windows that start before this are closed, because their final results are emitted.
    closed: Timestamp,
    /// The database has deleted the windows that start before this.
    forgotten: Option<Timestamp>,
    /// The join whose rows the store has.
    join: Option<JoinTerms>,
}

impl Expiry {
    /// Creates the expiry of windows of length `size`. Each window is kept for `retention` after its start.
    #[must_use]
    pub fn new(retention: Duration, size: Duration) -> Self {
        let (retention, size) = (ms(retention), ms(size));
        Self {
            size,
            advance: size,
            retention,
            step: (retention / STEPS).max(size).max(1),
            are_buckets: false,
            prior_expired_before: Timestamp(i64::MIN),
            closed: Timestamp(i64::MIN),
            forgotten: None,
            join: None,
        }
    }

    /// Creates the expiry of buckets, which start at the multiples of their length. The database drops a bucket with the first
    /// commit after its expiry, or with the next one if a retention has more than 64 buckets.
    #[must_use]
    pub fn of_buckets(retention: Duration, length: Duration) -> Self {
        let expiry = Self::new(retention, length);
        Self {
            step: (expiry.retention / STEPS_OF_BUCKETS)
                .max(expiry.size)
                .max(1),
            are_buckets: true,
            ..expiry
        }
    }

    /// Creates the expiry of a join's rows.
    #[must_use]
    pub fn of_join(join: JoinTerms) -> Self {
        let within = join.within();
        Self {
            join: Some(join),
            ..Self::new(within.retention(), within.row_length())
        }
    }

    /// Sets the distance between the starts of windows.
    #[must_use]
    pub fn every(self, advance: Duration) -> Self {
        Self {
            advance: ms(advance),
            ..self
        }
    }

    /// The terms to write beside the windows.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            size: self.size,
            advance: self.advance,
            retention: self.retention,
            expired_before: self.prior_expired_before,
            cursor: None,
            join: self.join,
        }
    }

    /// The join whose rows the store has.
    #[must_use]
    pub fn join(&self) -> Option<&JoinTerms> {
        self.join.as_ref()
    }

    /// Takes over the terms of a join in the store. The results up to this stream time are emitted. Returns whether the
    /// terms differ from the current ones. Rows are kept as long as the longest grace so far needs, because some of
    /// them wait for moments of an earlier program.
    ///
    /// # Errors
    /// [`OtherJoin`] if this join can't use the rows.
    pub fn take_over_join(
        &mut self,
        found: &Terms,
        stream_time: Option<Timestamp>,
    ) -> Result<bool, OtherJoin> {
        let (Some(join), Some(stored)) = (&mut self.join, &found.join) else {
            return Ok(false);
        };
        let is_other = join.take_over(stored, stream_time)?;
        self.retention = self.retention.max(found.retention);
        Ok(is_other)
    }

    /// Takes over the terms in the store: its windows were kept on these terms up to this committed stream time.
    /// Returns whether they differ from the current terms.
    ///
    /// # Errors
    /// [`OtherWindows`] if they have another length or distance.
    pub fn take_over(
        &mut self,
        found: &Terms,
        stream_time: Option<Timestamp>,
    ) -> Result<bool, OtherWindows> {
        if (found.size, found.advance) != (self.size, self.advance) {
            let terms = self.terms();
            return Err(OtherWindows {
                found: found.size(),
                found_every: found.advance(),
                now: terms.size(),
                every: terms.advance(),
            });
        }
        let over = expired_before(found.retention, stream_time);
        self.prior_expired_before = self
            .prior_expired_before
            .max(found.expired_before)
            .max(over);
        Ok(found.retention != self.retention)
    }

    /// Closes the windows that start before this time. A longer grace would open them again after their final results
    /// were emitted.
    pub fn close_before(&mut self, start: Timestamp) {
        self.closed = self.closed.max(start);
    }

    /// Returns whether the window with this start accepts no record, regardless of its grace.
    #[must_use]
    pub fn is_closed(&self, start: Timestamp) -> bool {
        start < self.closed
    }

    /// Returns whether the windows are buckets: see [`of_buckets`](Self::of_buckets).
    #[must_use]
    pub fn has_buckets(&self) -> bool {
        self.are_buckets
    }

    /// The minimum advance of stream time between two deletions of expired windows.
    #[must_use]
    pub fn step(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.step).unwrap_or(0))
    }

    /// The time for which a window is kept after its start.
    #[must_use]
    pub fn retention(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.retention).unwrap_or(0))
    }

    /// The start before which windows are expired at this stream time. `None` without a stream time: no record had a
    /// time.
    #[must_use]
    pub fn expired_before(&self, stream_time: Option<Timestamp>) -> Timestamp {
        expired_before(self.retention, stream_time).max(self.prior_expired_before)
    }

    /// Returns whether the window with this start is expired.
    #[must_use]
    pub fn is_expired(&self, start: Timestamp, stream_time: Option<Timestamp>) -> bool {
        start < self.expired_before(stream_time)
    }

    /// The windows that the database drops with the commit at this stream time, as a half-open range of starts. `None`
    /// while they are too few.
    ///
    /// Windows that expired before the database was opened are unknown, so the first call returns all expired
    /// windows.
    #[must_use]
    pub fn due(&self, stream_time: Option<Timestamp>) -> Option<(Option<Timestamp>, Timestamp)> {
        // No window starts before 1970.
        let mut over = Some(self.expired_before(stream_time)).filter(|over| over.0 > 0)?;
        if self.are_buckets {
            // No bucket starts between this and the next multiple.
            let size = self.size.max(1);
            over.0 = over
                .0
                .saturating_add((size - over.0.rem_euclid(size)) % size);
        }
        match self.forgotten {
            Some(before) if over.0 < before.0.saturating_add(self.step) => None,
            before => Some((before, over)),
        }
    }

    /// Records that the database has dropped the windows that start before this.
    pub fn forgot(&mut self, before: Timestamp) {
        self.forgotten = self.forgotten.max(Some(before));
    }
}

fn expired_before(retention: i64, stream_time: Option<Timestamp>) -> Timestamp {
    // `s + retention <= t` is `s < t - retention + 1`.
    let over = |time: Timestamp| time.0.saturating_sub(retention).saturating_add(1);
    Timestamp(stream_time.map_or(i64::MIN, over))
}
