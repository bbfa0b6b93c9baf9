//! The windows whose final results are emitted.

use std::time::Duration;

use super::{Hopping, ms};
use crate::ids::Timestamp;

/// The position of the last emitted final result of a store, in the order of window and key.
///
/// A result is final once its window is closed. The cursor commits in the transaction of the results, so each result is
/// emitted once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The results of all windows that start before this time are emitted.
    pub(super) start: Timestamp,
    /// In the window that starts at this time, the results up to this key are emitted.
    pub(super) key: Option<Vec<u8>>,
}

impl Cursor {
    /// No result is emitted.
    pub const BEGIN: Cursor = Cursor::before(Timestamp(i64::MIN));

    /// Returns the cursor after the results of all windows that start before this time.
    #[must_use]
    pub const fn before(start: Timestamp) -> Self {
        Self { start, key: None }
    }

    /// Returns the cursor after this result.
    #[must_use]
    pub fn at(start: Timestamp, key: &[u8]) -> Self {
        Self {
            start,
            key: Some(key.to_vec()),
        }
    }

    /// The start of the first window that may have results to emit.
    #[must_use]
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The key of the last emitted result in the window of [`start`](Self::start), if it has one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// Returns whether this result is emitted.
    #[must_use]
    pub fn includes(&self, start: Timestamp, key: &[u8]) -> bool {
        start < self.start || start == self.start && self.key().is_some_and(|last| key <= last)
    }

    /// The start before which windows are closed, because one of their results is emitted, regardless of the grace.
    #[must_use]
    pub fn closed_before(&self) -> Timestamp {
        Timestamp(self.start.0.saturating_add(i64::from(self.key.is_some())))
    }
}

impl Hopping {
    /// The stream time at which the window with this start closes: its end plus the grace.
    #[must_use]
    pub fn closes_at(&self, start: Timestamp) -> Timestamp {
        Timestamp(start.0.saturating_add(ms(self.lifetime())))
    }

    /// The time for which a window takes late records.
    #[must_use]
    pub fn grace_time(&self) -> Duration {
        self.lifetime().saturating_sub(self.size())
    }

    /// The minimum grace with which these windows accept all final results of other windows. A result comes when its
    /// window closes, with the time of one of its records.
    ///
    /// If the results' windows do not overlap, and length and distance of these windows are multiples of the results'
    /// length, each window ends no earlier than the results' windows in it. The minimum is then the grace of the results
    /// plus one millisecond. In all other cases, a window may end right after the time of a result, and the minimum is
    /// the length plus the grace of the results.
    #[must_use]
    pub fn least_grace_behind(&self, results: &Hopping) -> Duration {
        let size = results.size().as_millis().max(1);
        let is_aligned = results.advance() == results.size()
            && self.size().as_millis().is_multiple_of(size)
            && self.advance().as_millis().is_multiple_of(size);
        match is_aligned {
            true => results.grace_time() + Duration::from_millis(1),
            false => results.lifetime(),
        }
    }

    /// The start of the first window that is open at this stream time.
    #[must_use]
    pub fn first_open(&self, stream_time: Timestamp) -> Timestamp {
        let advance = ms(self.advance()).max(1);
        let closed = stream_time.0.saturating_sub(ms(self.lifetime()));
        Timestamp(
            closed
                .div_euclid(advance)
                .saturating_add(1)
                .saturating_mul(advance)
                .max(0),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_is_closed_from_its_moment_on(
            size in 1_u64..20, advance in 1_u64..20, grace in 0_u64..20, time in -5_i64..200,
        ) {
            prop_assume!(advance <= size);
            let ms = Duration::from_millis;
            let windows = Hopping::of(ms(size)).every(ms(advance)).grace(ms(grace));
            let time = Timestamp(time);
            for n in 0..200_i64 {
                let start = Timestamp(n * advance.cast_signed());
                let closed = windows.is_closed(windows.at(start), time);
                prop_assert_eq!(closed, windows.closes_at(start) <= time);
                prop_assert_eq!(closed, start < windows.first_open(time));
            }
        }

        #[test]
        fn windows_with_the_least_grace_take_every_final_result(
            (size, grace) in (1_u64..12, 0_u64..6),
            (later, advance) in (1_u64..30, 1_u64..30),
            overlap in 1_u64..3,
            time in 0_i64..100,
        ) {
            prop_assume!(advance <= later && overlap <= size);
            let ms = Duration::from_millis;
            let results = Hopping::of(ms(size)).every(ms(size / overlap)).grace(ms(grace));
            let windows = Hopping::of(ms(later)).every(ms(advance));
            let windows = windows.grace(windows.least_grace_behind(&results));
            for result in results.windows(Timestamp(time)) {
                let emitted = results.closes_at(result.start);
                for window in windows.windows(Timestamp(time)) {
                    prop_assert!(!windows.is_closed(window, emitted));
                }
            }
        }

        #[test]
        fn a_cursor_includes_what_comes_before_it(
            (start, other) in (0_i64..4, 0_i64..4),
            key in proptest::option::of(proptest::collection::vec(0_u8..2, 0..3)),
            other_key in proptest::collection::vec(0_u8..2, 0..3),
        ) {
            let cursor = Cursor { start: Timestamp(start), key: key.clone() };
            let emitted = match key {
                Some(key) => (other, other_key.clone()) <= (start, key),
                None => other < start,
            };
            prop_assert_eq!(cursor.includes(Timestamp(other), &other_key), emitted);
            // No window with an emitted result takes a record.
            prop_assert!(!emitted || other < cursor.closed_before().0);
        }
    }
}
