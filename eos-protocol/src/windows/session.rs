//! Sessions: windows that records of one key define.

use std::time::Duration;

use super::{Hopping, Sliding, WindowError, checked_ms, ms};
use crate::due::Place;
use crate::ids::Timestamp;

/// Windows of activity: records of a key belong to one session as long as no gap between them is longer than a
/// duration (Kafka Streams' `SessionWindows`).
///
/// A session is closed once stream time is past its last record, the gap, and the *grace* behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    gap: Duration,
    grace: Duration,
}

impl Session {
    /// Creates sessions with this inactivity gap: records of a key that are at most the gap apart share a session. Without
    /// [`grace`](Self::grace), a session closes when stream time passes its last record plus the gap.
    #[must_use]
    #[doc(alias = "of_inactivity_gap")]
    pub const fn gap(gap: Duration) -> Self {
        Self {
            gap,
            grace: Duration::ZERO,
        }
    }

    /// Sets how long after the gap a session accepts late records, in stream time. The default is zero.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Checks the durations.
    ///
    /// # Errors
    /// [`WindowError`] if the gap is shorter than a millisecond, or a duration is far too long.
    pub fn check(&self) -> Result<(), WindowError> {
        if ms(self.gap) == 0 {
            return Err(WindowError::NoGap { gap: self.gap });
        }
        let too_long = |what, asked| WindowError::TooLong { what, asked };
        checked_ms(self.gap).ok_or_else(|| too_long("a gap", self.gap))?;
        checked_ms(self.gap.saturating_add(self.grace))
            .ok_or_else(|| too_long("a grace", self.grace))?;
        Ok(())
    }

    /// The stream time at which a session with this last record closes: the first millisecond after gap and grace. It is at
    /// most [`Place::LAST`], so a session closes even if a record has nanoseconds as its timestamp.
    #[must_use]
    pub fn closes_at(&self, last: Timestamp) -> Timestamp {
        let open = ms(self.gap.saturating_add(self.grace));
        Timestamp(last.0.saturating_add(open).saturating_add(1)).min(Place::LAST)
    }

    /// Whether a session with this last record is closed at this stream time, which includes the current record
    /// (`KStreamSessionWindowAggregate`: one is taken if its end is not before `observedStreamTime - grace - gap`).
    #[must_use]
    pub fn is_closed(&self, last: Timestamp, stream_time: Timestamp) -> bool {
        self.closes_at(last) <= stream_time
    }

    /// Whether a record at this time belongs to the session from `first` to `last`.
    #[must_use]
    pub fn joins(&self, (first, last): (Timestamp, Timestamp), time: Timestamp) -> bool {
        let gap = ms(self.gap);
        first.0.saturating_sub(gap) <= time.0 && time.0 <= last.0.saturating_add(gap)
    }
}

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
            AnyWindows::Session(session) => session.grace,
            AnyWindows::Sliding(windows) => windows.grace_time(),
        }
    }

    /// The least grace with which these windows take all final results of other windows. A result comes when its window
    /// closes, with the time of one of its records.
    #[must_use]
    pub fn least_grace_behind(&self, results: &AnyWindows) -> Duration {
        const MS: Duration = Duration::from_millis(1);
        // The longest time from a result's own time to its emission.
        let held_back = match results {
            AnyWindows::Fixed(results) => results.lifetime(),
            AnyWindows::Session(results) => results.gap + results.grace + MS,
            AnyWindows::Sliding(results) => results.difference() + results.grace_time() + MS,
        };
        match (self, results) {
            (AnyWindows::Fixed(windows), AnyWindows::Fixed(results)) => {
                windows.least_grace_behind(results)
            }
            (AnyWindows::Fixed(_), _) => held_back,
            (AnyWindows::Session(session), _) => held_back.saturating_sub(session.gap),
            (AnyWindows::Sliding(windows), _) => held_back.saturating_sub(windows.difference()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn sessions_need_a_gap() {
        let error = Session::gap(Duration::from_micros(3)).check().unwrap_err();
        assert!(error.to_string().contains("3µs"), "{error}");
        assert!(Session::gap(Duration::MAX).check().is_err());
        assert!(Session::gap(MS(1)).grace(Duration::MAX).check().is_err());
        assert_eq!(Session::gap(MS(1)).check(), Ok(()));
    }

    #[test]
    fn a_session_holds_both_ends_of_its_gap() {
        let session = Session::gap(MS(10)).grace(MS(5));
        let span = (Timestamp(20), Timestamp(30));
        for (time, joins) in [(9, false), (10, true), (40, true), (41, false)] {
            assert_eq!(session.joins(span, Timestamp(time)), joins);
        }
        assert!(!session.is_closed(Timestamp(30), Timestamp(45)));
        assert!(session.is_closed(Timestamp(30), Timestamp(46)));
    }

    proptest! {
        #[test]
        fn the_least_grace_takes_every_final_result(
            (gap, grace, size) in (1_u64..10, 0_u64..6, 1_u64..12),
            time in 0_i64..100,
        ) {
            let (session, time) = (Session::gap(MS(gap)).grace(MS(grace)), Timestamp(time));
            let fixed = Hopping::of(MS(size)).grace(MS(grace));
            let emitted = |of: &AnyWindows| match of {
                AnyWindows::Fixed(windows) => {
                    windows.windows(time).map(|it| windows.closes_at(it.start)).max().unwrap()
                }
                AnyWindows::Session(session) => session.closes_at(time),
                AnyWindows::Sliding(windows) => windows.closes_at(time),
            };
            for results in [AnyWindows::Session(session), AnyWindows::Fixed(fixed)] {
                let now = emitted(&results);
                let later = AnyWindows::Session(session).least_grace_behind(&results);
                prop_assert!(!session.grace(later).is_closed(time, now));
                let later = AnyWindows::Fixed(fixed).least_grace_behind(&results);
                let fixed = fixed.grace(later);
                prop_assert!(fixed.windows(time).all(|it| !fixed.is_closed(it, now)));
            }
        }
    }
}
