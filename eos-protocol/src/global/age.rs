//! The time until which the copy of a running reader is complete.

use std::time::Duration;

use super::{StaleCopy, too_old};
use crate::ids::Timestamp;

/// The shortest limit of the age of a copy that is being read.
const LEAST: Duration = Duration::from_secs(60);

/// The time until which a copy is complete, by this host's clock.
///
/// A reader queries the ends of the topic, and reads up to them. Then the copy has all records from before the query.
/// Later tombstones may be compacted away half of `delete.retention.ms` after the query. A reader queries every few
/// seconds, so a topic with `delete.retention.ms` below two minutes is treated as one with two minutes.
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalAge {
    current: Timestamp,
    /// The time of the query of the ends that are not reached yet.
    asked: Option<Timestamp>,
    /// The end and the duration of the start, until ends that were queried after it are reached.
    opened: Option<(Timestamp, Duration)>,
}

/// The reason why a reader that finds records may have missed tombstones before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissedTombstones {
    /// The process was suspended, or saw no broker for hours.
    Suspended(StaleCopy),
    /// The start read for longer than tombstones exist.
    SlowStart {
        /// The duration of the start.
        took: Duration,
    },
}

impl GlobalAge {
    /// Returns the age of a reader that starts with a copy that was complete at the time `current`. It queried the ends
    /// at the time `asked`.
    #[must_use]
    pub fn starting(current: Timestamp, asked: Timestamp) -> Self {
        Self {
            current,
            asked: Some(asked),
            opened: None,
        }
    }

    /// The time until which the copy is complete.
    #[must_use]
    pub fn current(&self) -> Timestamp {
        self.current
    }

    /// Returns whether the reader has queried ends that it has not reached yet.
    #[must_use]
    pub fn has_targets(&self) -> bool {
        self.asked.is_some()
    }

    /// Notes that the reader queries the ends.
    pub fn asks(&mut self, now: Timestamp) {
        self.asked = self.asked.or(Some(now));
    }

    /// Notes that the reader has reached the ends. Returns whether a query was open.
    pub fn reached(&mut self) -> bool {
        let Some(asked) = self.asked.take() else {
            return false;
        };
        self.current = asked;
        self.opened = self.opened.filter(|(opened, _)| asked < *opened);
        true
    }

    /// Notes the end of the start. The reader has reached the ends, and the table is open to the tasks.
    pub fn opens(&mut self, now: Timestamp) {
        let current = self.asked.unwrap_or(self.current);
        let took = Duration::from_millis(now.0.abs_diff(current.0));
        self.opened = Some((now, took));
    }

    /// Returns why an open table that finds records now may have missed tombstones, if it may.
    ///
    /// A start may take the whole of `delete.retention.ms`, as Kafka documents it: a reader from the first offset that is not
    /// slower sees each deletion.
    #[must_use]
    pub fn missed(&self, now: Timestamp, delete_retention: Duration) -> Option<MissedTombstones> {
        let half = (delete_retention / 2).max(LEAST);
        let Some((opened, took)) = self.opened else {
            return too_old(self.current, now, half).map(MissedTombstones::Suspended);
        };
        if took > delete_retention.max(LEAST * 2) {
            return Some(MissedTombstones::SlowStart { took });
        }
        too_old(opened, now, half).map(MissedTombstones::Suspended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000;

    fn seconds(n: i64) -> Timestamp {
        Timestamp(n * SECOND)
    }

    /// A table that was opened after a start of this length.
    fn opened_after(took: i64) -> GlobalAge {
        let mut age = GlobalAge::starting(seconds(0), seconds(0));
        assert!(age.reached());
        age.opens(seconds(took));
        age
    }

    #[test]
    fn a_reader_that_stood_still_for_long_may_have_missed_tombstones() {
        let mut age = opened_after(0);
        age.asks(seconds(1));
        age.reached();
        let at = |now: i64, retention| age.missed(seconds(1 + now), retention).is_some();
        let (day, half) = (Duration::from_secs(24 * 3600), 12 * 3600);
        assert_eq!(
            (at(half, day), at(half + 1, day), at(-half - 1, day)),
            (false, true, true)
        );
        // The reader only finds out every few seconds that it is up to date.
        let none = Duration::ZERO;
        assert_eq!((at(60, none), at(61, none)), (false, true));
    }

    /// The process was down for a day, and no record was written meanwhile.
    #[test]
    fn a_start_that_has_nothing_to_read_takes_no_time() {
        let day = 24 * 3600;
        let mut age = GlobalAge::starting(seconds(0), seconds(day));
        age.opens(seconds(day + 1));
        let missed = age.missed(seconds(day + 2), Duration::from_secs(3600));
        assert_eq!(missed, None);
    }

    /// A large topic whose `delete.retention.ms` is a minute, and whose start takes longer than half of it.
    #[test]
    fn a_start_may_take_the_whole_retention() {
        let minute = Duration::from_secs(60);
        let age = opened_after(90);
        assert_eq!(age.missed(seconds(91), minute), None);
        let hour = minute * 60;
        assert_eq!(opened_after(3600).missed(seconds(3601), hour), None);
        let took = Duration::from_secs(3601);
        let slow = Some(MissedTombstones::SlowStart { took });
        assert_eq!(opened_after(3601).missed(seconds(3601), hour), slow);
    }

    /// A restart would be as slow, so the error must not advise one.
    #[test]
    fn a_start_that_took_longer_is_no_suspended_process() {
        let minute = Duration::from_secs(60);
        let took = Duration::from_secs(180);
        let slow = Some(MissedTombstones::SlowStart { took });
        let mut age = opened_after(180);
        assert_eq!(age.missed(seconds(180), minute), slow);
        // Ends that were queried before the start was over do not make the start shorter.
        age.asks(seconds(179));
        age.reached();
        assert_eq!(age.missed(seconds(180), minute), slow);
    }

    #[test]
    fn a_process_that_stands_still_after_its_start_is_suspended() {
        let missed = opened_after(90).missed(seconds(151), Duration::from_secs(60));
        assert!(matches!(missed, Some(MissedTombstones::Suspended(_))));
    }
}
