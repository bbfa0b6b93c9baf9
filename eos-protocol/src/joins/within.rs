//! The times of records that belong together.

use std::time::Duration;

use super::{JoinKind, Side};
use crate::ids::Timestamp;
use crate::windows::length::{WindowError, checked_ms, ms};

/// The times of records that belong together in a join of two streams (Kafka Streams' `JoinWindows`).
///
/// A left record at `t` and a right record at `u` of one key belong together if `t - before <= u <= t + after`. Both ends
/// are included.
///
/// A record is open until no further partner can arrive in time: a left record until stream time exceeds
/// `t + after + grace`, a right one until it exceeds `u + before + grace`. Then it is closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Within {
    before: Duration,
    after: Duration,
    grace: Duration,
}

impl Within {
    /// A right record may be this much earlier or later than the left one. Without grace.
    #[must_use]
    #[doc(alias = "of_time_difference_with_no_grace")]
    pub const fn of(difference: Duration) -> Self {
        Self {
            before: difference,
            after: difference,
            grace: Duration::ZERO,
        }
    }

    /// Changes the time by which a right record may be earlier than the left one.
    #[must_use]
    pub const fn before(self, before: Duration) -> Self {
        Self { before, ..self }
    }

    /// Changes the time by which a right record may be later than the left one.
    #[must_use]
    pub const fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    /// The time for which late records are taken, in stream time. Zero by default.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Returns the time by which a right record may be earlier.
    #[must_use]
    pub const fn before_time(&self) -> Duration {
        self.before
    }

    /// Returns the time by which a right record may be later.
    #[must_use]
    pub const fn after_time(&self) -> Duration {
        self.after
    }

    /// The time for which late records are taken.
    #[must_use]
    pub const fn grace_time(&self) -> Duration {
        self.grace
    }

    /// Checks the durations.
    ///
    /// # Errors
    /// [`WindowError`] if a duration is far too long.
    pub fn check(&self) -> Result<(), WindowError> {
        let sum = self.before.saturating_add(self.after);
        let parts = [
            ("`before`", self.before, self.before),
            ("`after`", self.after, self.after),
            ("a range", sum, sum.saturating_mul(2)),
            (
                "a grace",
                self.grace,
                sum.saturating_mul(2).saturating_add(self.grace),
            ),
        ];
        for (what, duration, whole) in parts {
            checked_ms(whole).ok_or(WindowError::TooLong { what, duration })?;
        }
        Ok(())
    }

    /// The first and the last time of the other side's records that belong to a record.
    #[must_use]
    pub fn range(&self, side: Side, time: Timestamp) -> (Timestamp, Timestamp) {
        let (before, after) = match side {
            Side::Left => (ms(self.before), ms(self.after)),
            Side::Right => (ms(self.after), ms(self.before)),
        };
        let first = time.0.saturating_sub(before).max(0);
        (Timestamp(first), Timestamp(time.0.saturating_add(after)))
    }

    /// The stream time at which a record of this side closes.
    #[must_use]
    pub fn closes_at(&self, side: Side, time: Timestamp) -> Timestamp {
        let open = self.open_for(side).saturating_add(1);
        Timestamp(time.0.saturating_add(open)).min(Timestamp::LAST_DUE)
    }

    /// The time of the last record of this side that is closed at this stream time.
    #[must_use]
    pub fn last_closed(&self, side: Side, stream_time: Timestamp) -> Timestamp {
        let open = self.open_for(side).saturating_add(1);
        Timestamp(stream_time.0.saturating_sub(open))
    }

    /// Returns whether a record of this side is closed at this stream time. A record at or after
    /// [`Timestamp::LAST_DUE`] is closed.
    #[must_use]
    pub fn is_closed(&self, side: Side, time: Timestamp, stream_time: Timestamp) -> bool {
        self.closes_at(side, time) <= stream_time
    }

    /// Returns the time by which stream time may be ahead of an open record of this side, in milliseconds.
    pub(super) fn open_for(&self, side: Side) -> i64 {
        let partners = match side {
            Side::Left => self.after,
            Side::Right => self.before,
        };
        ms(partners).saturating_add(ms(self.grace))
    }

    /// The length of time of a row: the range of partners, and at least 1 ms. So the partners of a record are in two rows
    /// at most, and one of these is its own row.
    #[must_use]
    pub fn row_length(&self) -> Duration {
        let sum = self.before.saturating_add(self.after);
        sum.max(Duration::from_millis(1))
    }

    /// Returns the time for which a row is kept after its start: until no open record can have a partner in it. This
    /// includes closed partners: a record that finds only these is counted.
    #[must_use]
    pub fn retention(&self) -> Duration {
        let sum = self.before.saturating_add(self.after);
        (self.row_length())
            .saturating_add(sum)
            .saturating_add(self.grace)
            .saturating_add(Duration::from_millis(1))
    }

    /// The start of the row of a record. Its time is not negative.
    #[must_use]
    pub fn row_of(&self, time: Timestamp) -> Timestamp {
        let length = ms(self.row_length()).max(1);
        Timestamp(time.0 - time.0.rem_euclid(length))
    }

    /// The starts of the rows with the times of a range. In order.
    pub fn rows(&self, (from, to): (Timestamp, Timestamp)) -> impl Iterator<Item = Timestamp> {
        let length = ms(self.row_length()).max(1);
        let mut next = Some(self.row_of(from));
        std::iter::from_fn(move || {
            let start = next.filter(|start| *start <= to)?;
            next = start.0.checked_add(length).map(Timestamp);
            Some(start)
        })
    }

    /// The longest time between a record and its result alone, in stream time. `None` if the join has no such results.
    #[must_use]
    pub fn held_back(&self, kind: JoinKind) -> Option<Duration> {
        let partners = match kind {
            JoinKind::Inner => return None,
            JoinKind::Left => self.after,
            JoinKind::Outer => self.after.max(self.before),
        };
        let open = partners.saturating_add(self.grace);
        Some(open.saturating_add(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn within(before: u64, after: u64, grace: u64) -> Within {
        Within::of(MS(0))
            .before(MS(before))
            .after(MS(after))
            .grace(MS(grace))
    }

    #[test]
    fn durations_that_are_too_long_are_refused() {
        assert_eq!(within(5, 6, 7).check(), Ok(()));
        assert_eq!(within(0, 0, 0).check(), Ok(()));
        let long = Duration::from_secs(u64::MAX / 1_000);
        for wrong in [
            Within::of(long),
            Within::of(MS(0)).before(long),
            Within::of(MS(0)).after(long),
            Within::of(MS(1)).grace(long),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_record_closes_behind_its_last_partner_and_the_grace() {
        let within = within(2, 5, 10);
        let at = Timestamp(100);
        assert!(!within.is_closed(Side::Left, at, Timestamp(115)));
        assert!(within.is_closed(Side::Left, at, Timestamp(116)));
        assert!(!within.is_closed(Side::Right, at, Timestamp(112)));
        assert!(within.is_closed(Side::Right, at, Timestamp(113)));
        assert_eq!(within.held_back(JoinKind::Inner), None);
        assert_eq!(within.held_back(JoinKind::Left), Some(MS(16)));
        assert_eq!(within.held_back(JoinKind::Outer), Some(MS(16)));
    }

    proptest! {
        #[test]
        fn a_range_is_in_two_rows_at_most_and_one_is_the_records_own(
            (before, after, grace) in (0_u64..9, 0_u64..9, 0_u64..9),
            time in 0_i64..100,
            other in 0_i64..100,
        ) {
            let (within, time, other) = (within(before, after, grace), Timestamp(time), Timestamp(other));
            for side in Side::ALL {
                let range = within.range(side, time);
                let rows: Vec<_> = within.rows(range).collect();
                prop_assert!(rows.len() <= 2 && rows.contains(&within.row_of(time)));
                let back = within.range(side.other(), other);
                let belongs = |(from, to): (Timestamp, Timestamp), at| from <= at && at <= to;
                prop_assert_eq!(belongs(range, other), belongs(back, time));
                if belongs(range, other) {
                    prop_assert!(rows.contains(&within.row_of(other)));
                    // Its row is there while the record is open.
                    let last = within.closes_at(side, time).0 - 1;
                    let retention = i64::try_from(within.retention().as_millis()).unwrap();
                    prop_assert!(within.row_of(other).0 + retention > last);
                    // While both are open, the later one may still come.
                    prop_assert!(!within.is_closed(side.other(), other, time.max(other)));
                }
                let closed = within.last_closed(side, Timestamp(50));
                prop_assert!(within.is_closed(side, closed, Timestamp(50)));
                prop_assert!(!within.is_closed(side, Timestamp(closed.0 + 1), Timestamp(50)));
            }
        }
    }
}
