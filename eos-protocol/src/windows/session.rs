//! Session windows.

use std::time::Duration;

use super::{WindowError, checked_ms, ms};
use crate::due::Place;
use crate::ids::Timestamp;

/// Without final results, a closed session stays in its store for at most this many times the sum of gap and grace.
const KEPT: i64 = 3;

/// Windows of activity (Kafka Streams' `SessionWindows`). Records of a key belong to one session as long as no gap
/// between them is longer than a duration.
///
/// A session is closed once stream time is later than its last record plus the gap plus the *grace*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    gap: Duration,
    grace: Duration,
}

impl Session {
    /// Creates sessions with this inactivity gap: records of a key that are at most the gap apart share a session.
    /// Without [`grace`](Self::grace), a session closes when stream time passes its last record plus the gap.
    #[must_use]
    #[doc(alias = "of_inactivity_gap")]
    pub const fn gap(gap: Duration) -> Self {
        Self {
            gap,
            grace: Duration::ZERO,
        }
    }

    /// Sets the time for which a session accepts late records after the gap, in stream time. The default is zero.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The inactivity gap.
    #[must_use]
    pub const fn gap_time(&self) -> Duration {
        self.gap
    }

    /// The time after the gap for which a session accepts late records.
    #[must_use]
    pub const fn grace_time(&self) -> Duration {
        self.grace
    }

    /// Checks the durations.
    ///
    /// # Errors
    /// [`WindowError`] if the gap is shorter than a millisecond, or a duration is far too long.
    pub fn check(&self) -> Result<(), WindowError> {
        if ms(self.gap) == 0 {
            return Err(WindowError::NoGap { gap: self.gap });
        }
        let too_long = |what, duration| WindowError::TooLong { what, duration };
        checked_ms(self.gap).ok_or_else(|| too_long("a gap", self.gap))?;
        checked_ms(self.gap.saturating_add(self.grace))
            .ok_or_else(|| too_long("a grace", self.grace))?;
        Ok(())
    }

    /// The stream time at which a session with this last record closes: the first millisecond after gap and grace. It
    /// is at most [`Place::LAST`], so a session closes even if a record has nanoseconds as its timestamp.
    #[must_use]
    pub fn closes_at(&self, last: Timestamp) -> Timestamp {
        let open = ms(self.gap.saturating_add(self.grace));
        Timestamp(last.0.saturating_add(open).saturating_add(1)).min(Place::LAST)
    }

    /// Returns the stream time at which the task removes a session that closed at this time, if nothing waits for its
    /// end. The delay is [`KEPT`] times the sum of gap and grace. The task therefore visits the row of a key with
    /// regular records less often.
    #[must_use]
    pub(super) fn removed_at(&self, closed: Timestamp) -> Timestamp {
        let open = ms(self.gap.saturating_add(self.grace));
        Timestamp(closed.0.saturating_add(open.saturating_mul(KEPT))).min(Place::LAST)
    }

    /// Returns whether a session with this last record is closed at this stream time, which includes the current record
    /// (`KStreamSessionWindowAggregate`: a session accepts a record if its end is not before
    /// `observedStreamTime - grace - gap`).
    #[must_use]
    pub fn is_closed(&self, last: Timestamp, stream_time: Timestamp) -> bool {
        self.closes_at(last) <= stream_time
    }

    /// Returns whether a record at this time belongs to the session from `first` to `last`.
    #[must_use]
    pub fn joins(&self, (first, last): (Timestamp, Timestamp), time: Timestamp) -> bool {
        let gap = ms(self.gap);
        first.0.saturating_sub(gap) <= time.0 && time.0 <= last.0.saturating_add(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
