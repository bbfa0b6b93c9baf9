//! The terms that a store of a join keeps beside its rows.

use std::fmt;
use std::time::Duration;

use super::{JoinKind, Side, Within};
use crate::ids::Timestamp;
use crate::windows::length::{checked_ms, ms};

/// The terms of a join. They are a part of the store's [`Terms`](crate::windows::Terms), for the next program.
///
/// ```text
/// kind (1 byte) · before (8) · after (8) · grace (8) · left closed before (8) · right closed before (8)
/// ```
///
/// Numbers are big-endian, in milliseconds.
///
/// - **The kind** may not change. An inner join does not record which records have met, so an outer join over its rows would
///   send records alone that were in pairs.
/// - **Before and after** may not change: they are in no row, and the partners of a longer range may be gone.
/// - **The grace** may change. Records that have closed stay closed: with a longer grace, they would meet partners after
///   they went out alone. *Closed before* is the limit of all previous programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinTerms {
    kind: JoinKind,
    within: Within,
    closed_before: [Timestamp; 2],
}

/// A store has the rows of another join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its rows are of `{}`, and this program has `{}`", Shown(*found), Shown(*now))]
pub struct OtherJoin {
    /// The stored join.
    pub found: (JoinKind, Within),
    /// The join of this program.
    pub now: (JoinKind, Within),
}

struct Shown((JoinKind, Within));

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self((kind, within)) = self;
        let (before, after) = (within.before_time(), within.after_time());
        write!(f, "{}, before {before:?}, after {after:?}", kind.method())
    }
}

/// The length of the terms, in bytes.
pub(crate) const LEN: usize = 41;

impl JoinTerms {
    /// The terms of a new store.
    #[must_use]
    pub fn new(kind: JoinKind, within: Within) -> Self {
        Self {
            kind,
            within,
            closed_before: [Timestamp(i64::MIN); 2],
        }
    }

    /// The kind of the join.
    #[must_use]
    pub const fn kind(&self) -> JoinKind {
        self.kind
    }

    /// The times of records that belong together.
    #[must_use]
    pub const fn within(&self) -> &Within {
        &self.within
    }

    /// Returns the time before which records of this side are closed, regardless of the grace.
    #[must_use]
    pub fn closed_before(&self, side: Side) -> Timestamp {
        let [left, right] = self.closed_before;
        match side {
            Side::Left => left,
            Side::Right => right,
        }
    }

    /// Returns whether a record of this side is closed at this stream time.
    #[must_use]
    pub fn is_closed(&self, side: Side, time: Timestamp, stream_time: Timestamp) -> bool {
        time < self.closed_before(side) || self.within.is_closed(side, time, stream_time)
    }

    /// Continues the rows of an earlier program, whose results up to this stream time are out. Returns whether the terms
    /// differ from that program's.
    ///
    /// # Errors
    /// [`OtherJoin`] if the rows are of no use for these terms.
    pub fn take_over(
        &mut self,
        found: &Self,
        stream_time: Option<Timestamp>,
    ) -> Result<bool, OtherJoin> {
        let range = |terms: &Self| (terms.within.before_time(), terms.within.after_time());
        if found.kind != self.kind || range(found) != range(self) {
            return Err(OtherJoin {
                found: (found.kind, found.within),
                now: (self.kind, self.within),
            });
        }
        self.closed_before = found.closed_before;
        if self.within.grace_time() > found.within.grace_time()
            && let Some(now) = stream_time
        {
            for (closed, side) in self.closed_before.iter_mut().zip(Side::ALL) {
                let last = found.within.last_closed(side, now);
                *closed = (*closed).max(Timestamp(last.0.saturating_add(1)));
            }
        }
        Ok(self != found)
    }

    /// Appends the terms as bytes.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.kind.number());
        let within = [
            self.within.before_time(),
            self.within.after_time(),
            self.within.grace_time(),
        ];
        let closed = self.closed_before.map(|time| time.0);
        for number in within.map(ms).into_iter().chain(closed) {
            into.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// Reads the bytes of [`encode`](Self::encode). `None` if they are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, numbers) = bytes.split_first()?;
        let mut numbers = numbers.as_chunks::<8>().0.iter();
        let mut number = || numbers.next().map(|bytes| i64::from_be_bytes(*bytes));
        let kind = JoinKind::from_number(*kind).filter(|_| bytes.len() == LEN)?;
        let mut duration = || {
            let ms = Duration::from_millis(u64::try_from(number()?).ok()?);
            checked_ms(ms).map(|_| ms)
        };
        let (before, after, grace) = (duration()?, duration()?, duration()?);
        let closed_before = [Timestamp(number()?), Timestamp(number()?)];
        let within = Within::of(before).after(after).grace(grace);
        Some(Self {
            kind,
            within,
            closed_before,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn terms(kind: JoinKind, before: u64, after: u64, grace: u64) -> JoinTerms {
        let within = Within::of(MS(before)).after(MS(after)).grace(MS(grace));
        JoinTerms::new(kind, within)
    }

    #[test]
    fn the_format_is_pinned() {
        let mut terms = terms(JoinKind::Left, 1, 2, 3);
        terms.closed_before = [Timestamp(4), Timestamp(-1)];
        let mut bytes = Vec::new();
        terms.encode(&mut bytes);
        let expected =
            b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\
            \xff\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(bytes, expected);
        assert_eq!(JoinTerms::decode(&bytes), Some(terms));
        for len in 0..bytes.len() {
            assert_eq!(JoinTerms::decode(&bytes[..len]), None);
        }
        bytes[0] = 3;
        assert_eq!(JoinTerms::decode(&bytes), None);
    }

    #[test]
    fn another_kind_or_range_is_refused() {
        let stored = terms(JoinKind::Left, 10, 20, 5);
        for other in [
            terms(JoinKind::Inner, 10, 20, 5),
            terms(JoinKind::Outer, 10, 20, 5),
            terms(JoinKind::Left, 11, 20, 5),
            terms(JoinKind::Left, 10, 21, 5),
            terms(JoinKind::Left, 20, 10, 5),
        ] {
            let mut now = other;
            assert!(now.take_over(&stored, None).is_err(), "{other:?}");
        }
    }

    #[test]
    fn records_that_have_closed_stay_closed() {
        let now = Some(Timestamp(1_000));
        let stored = terms(JoinKind::Outer, 10, 20, 5);
        let mut same = stored;
        assert_eq!(same.take_over(&stored, now), Ok(false));
        let mut shorter = terms(JoinKind::Outer, 10, 20, 0);
        assert_eq!(shorter.take_over(&stored, now), Ok(true));
        assert_eq!(shorter.closed_before(Side::Left), Timestamp(i64::MIN));
        let mut longer = terms(JoinKind::Outer, 10, 20, 500);
        assert_eq!(longer.take_over(&stored, now), Ok(true));
        for side in Side::ALL {
            let limit = longer.closed_before(side);
            let closed = |at| {
                stored
                    .within
                    .is_closed(side, Timestamp(at), Timestamp(1_000))
            };
            assert!(closed(limit.0 - 1) && !closed(limit.0));
            assert!(longer.is_closed(side, Timestamp(limit.0 - 1), Timestamp(1_000)));
            assert!(!longer.is_closed(side, limit, Timestamp(1_000)));
        }
        // The limit stays.
        let mut next = terms(JoinKind::Outer, 10, 20, 0);
        assert_eq!(next.take_over(&longer, now), Ok(true));
        assert_eq!(
            next.closed_before(Side::Left),
            longer.closed_before(Side::Left)
        );
    }
}
