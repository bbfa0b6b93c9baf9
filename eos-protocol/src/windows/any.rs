//! Windows of any kind.

use std::time::Duration;

use super::{Hopping, Session, Sliding};

/// Windows of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyWindows {
    /// Windows of a fixed length.
    Fixed(Hopping),
    /// Sessions.
    Session(Session),
    /// Sliding windows.
    Sliding(Sliding),
}

impl AnyWindows {
    /// The time for which windows take late records.
    #[must_use]
    pub fn grace(&self) -> Duration {
        match self {
            AnyWindows::Fixed(windows) => windows.grace_time(),
            AnyWindows::Session(session) => session.grace_time(),
            AnyWindows::Sliding(windows) => windows.grace_time(),
        }
    }

    /// The minimum grace with which these windows accept all final results of other windows. A result comes when its
    /// window closes, with the time of one of its records.
    #[must_use]
    pub fn least_grace_behind(&self, results: &AnyWindows) -> Duration {
        match (self, results) {
            (AnyWindows::Fixed(windows), AnyWindows::Fixed(results)) => {
                windows.least_grace_behind(results)
            }
            // A session or sliding window that ends before the result still accepts it.
            _ => results.held_back(),
        }
    }

    /// The longest time from a final result's own time to its emission.
    #[must_use]
    pub fn held_back(&self) -> Duration {
        const MS: Duration = Duration::from_millis(1);
        match self {
            AnyWindows::Fixed(results) => results.lifetime(),
            AnyWindows::Session(results) => results.gap_time() + results.grace_time() + MS,
            AnyWindows::Sliding(results) => results.difference() + results.grace_time() + MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Timestamp;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    proptest! {
        #[test]
        fn the_least_grace_takes_every_final_result(
            (gap, grace, size) in (1_u64..10, 0_u64..6, 1_u64..12),
            time in 0_i64..100,
        ) {
            let (session, time) = (Session::gap(MS(gap)).grace(MS(grace)), Timestamp(time));
            let fixed = Hopping::of(MS(size)).grace(MS(grace));
            let sliding = Sliding::of(MS(gap)).grace(MS(grace));
            let emitted = |of: &AnyWindows| match of {
                AnyWindows::Fixed(windows) => {
                    windows.windows(time).map(|it| windows.closes_at(it.start)).max().unwrap()
                }
                AnyWindows::Session(session) => session.closes_at(time),
                // The latest window of the record begins with it. If it is the last record, the result has its time.
                AnyWindows::Sliding(windows) => windows.closes_at(time),
            };
            let all = [
                AnyWindows::Session(session),
                AnyWindows::Fixed(fixed),
                AnyWindows::Sliding(sliding),
            ];
            for results in all {
                let now = emitted(&results);
                let later = AnyWindows::Session(session).least_grace_behind(&results);
                // A session that the result joins may end a whole gap before it.
                let last = Timestamp(time.0 - i64::try_from(gap).unwrap());
                prop_assert!(!session.grace(later).is_closed(last, now));
                let later = AnyWindows::Fixed(fixed).least_grace_behind(&results);
                let fixed = fixed.grace(later);
                prop_assert!(fixed.windows(time).all(|it| !fixed.is_closed(it, now)));
                let later = AnyWindows::Sliding(sliding).least_grace_behind(&results);
                // The first window of the result ends at it.
                let start = Timestamp(time.0 - sliding.difference_ms());
                prop_assert!(!sliding.grace(later).is_closed(start, now));
                prop_assert!(!sliding.grace(later).is_late(time, now));
            }
        }
    }
}
