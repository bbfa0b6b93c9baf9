//! The stream time of a task whose inputs are idle.

use std::time::Duration;

use crate::ids::Timestamp;
use crate::time::Now;

/// The maximum time between two pieces of evidence that prove the time between them: four times the interval of the
/// queries.
const STRETCH: Duration = Duration::from_secs(2);

/// Advances stream time with the clock while the brokers confirm that no record is unread.
///
/// Evidence is a response of the brokers that the task has taken all records of all inputs, including those of open
/// transactions. It proves that no record is unread now. It does not prove that no older record will arrive: after an
/// outage, producers send buffered records. So only stretches between two pieces of evidence count, at most two seconds
/// apart, by the monotonic clock of one owner. A longer gap adds nothing. After a gap longer than the configured time,
/// the count starts at zero. The last record is evidence as well: the worker received it in a response at that time.
///
/// The resulting stream time is part of a position once an item is handled at it. It never goes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleTime {
    after: Duration,
    /// Stream time at the first evidence.
    begun: Option<Timestamp>,
    /// The sum of the proven stretches since then.
    proven: Duration,
    /// The time of the last evidence, or of the last record.
    last: Option<Now>,
    /// Whether evidence was missing since then.
    broken: bool,
    /// The time of the last record. An earlier query proves nothing.
    since: Now,
}

impl IdleTime {
    /// The maximum duration of a query that is evidence. A slower response may come after an outage of any length.
    pub const LONGEST_QUERY: Duration = Duration::from_secs(1);
    /// The minimum configurable time.
    pub const LEAST: Duration = Duration::from_secs(1);

    /// Creates the state of a task. Stream time advances once the inputs are idle for `after`.
    #[must_use]
    pub fn new(after: Duration) -> Self {
        Self {
            after,
            begun: None,
            proven: Duration::ZERO,
            last: None,
            broken: false,
            since: Now::default(),
        }
    }

    /// Starts again, because a record was taken at this time.
    pub fn reset(&mut self, now: Now) {
        self.restart();
        self.since = now;
        self.last = Some(now);
    }

    /// Starts again, because the open transaction was discarded.
    pub fn restart(&mut self) {
        *self = Self {
            since: self.since,
            ..Self::new(self.after)
        };
    }

    /// Records the evidence of a query that began at this time, for a task with this stream time.
    pub fn proved(&mut self, queried_at: Now, stream_time: Timestamp) {
        if queried_at < self.since {
            return;
        }
        if let Some(last) = self.last {
            let stretch = queried_at.since(last);
            if !self.broken && stretch <= STRETCH {
                self.proven += stretch;
            } else if stretch > self.after {
                self.restart();
            }
        }
        self.begun.get_or_insert(stream_time);
        self.last = self.last.max(Some(queried_at));
        self.broken = false;
    }

    /// Records that a query found no evidence, or failed.
    pub fn missed(&mut self) {
        self.broken = true;
    }

    /// Returns the stream time of the idle task. `None` without evidence.
    #[must_use]
    pub fn stream_time(&self) -> Option<Timestamp> {
        let on = self.proven.saturating_sub(self.after);
        let on = i64::try_from(on.as_millis()).unwrap_or(i64::MAX);
        Some(Timestamp(self.begun?.0.saturating_add(on)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now::default().after(Duration::from_millis(ms))
    }

    fn idle(seconds: u64) -> IdleTime {
        IdleTime::new(Duration::from_secs(seconds))
    }

    const TAKEN: Timestamp = Timestamp(7);

    #[track_caller]
    fn check(idle: &mut IdleTime, proofs: &[u64], runs_on: i64) {
        for ms in proofs {
            // Stream time of the task is ahead once an item is handled.
            let handled = idle.stream_time().unwrap_or(TAKEN);
            idle.proved(at(*ms), handled);
        }
        assert_eq!(idle.stream_time(), Some(Timestamp(TAKEN.0 + runs_on)));
    }

    #[test]
    fn time_runs_on_behind_the_clock() {
        let mut idle = idle(3);
        assert_eq!(idle.stream_time(), None);
        check(&mut idle, &[0, 1_000, 2_000, 3_000], 0);
        check(&mut idle, &[4_500], 1_500);
        check(&mut idle, &[5_500, 6_500], 3_500);
        idle.reset(at(6_900));
        // This query began before the record.
        idle.proved(at(6_500), Timestamp(50));
        assert_eq!(idle.stream_time(), None);
        idle.proved(at(7_000), Timestamp(50));
        assert_eq!(idle.stream_time(), Some(Timestamp(50)));
        // The time since the record counts.
        idle.proved(at(8_900), Timestamp(50));
        idle.proved(at(9_901), Timestamp(50));
        assert_eq!(idle.stream_time(), Some(Timestamp(51)));
    }

    #[test]
    fn the_time_since_a_record_counts_only_with_evidence() {
        let mut idle = idle(1);
        // The first evidence comes too late, so the time before it does not count.
        idle.reset(at(1_000));
        check(&mut idle, &[3_001, 4_000], 0);
        // A query found records that are not taken yet, or failed.
        idle.reset(at(5_000));
        idle.missed();
        check(&mut idle, &[6_000, 7_000, 7_001], 1);
        // The open transaction was discarded, so the record is not taken.
        idle.reset(at(8_000));
        idle.restart();
        check(&mut idle, &[9_000, 10_000, 10_001], 1);
    }

    /// Producers that were cut off write their records first.
    #[test]
    fn an_outage_adds_nothing_and_a_long_one_resets() {
        let mut idle = idle(3);
        check(&mut idle, &[0, 2_000, 4_000], 1_000);
        // A short gap: the time before it counts, and the gap does not.
        idle.missed();
        check(&mut idle, &[6_000, 7_000], 2_000);
        // Another one, without a failed query.
        check(&mut idle, &[9_900], 2_000);
        // Three hours.
        let hours = 3 * 3_600_000;
        check(&mut idle, &[hours, hours + 2_000, hours + 3_000], 2_000);
        check(&mut idle, &[hours + 4_000], 3_000);
    }

    #[test]
    fn a_long_gap_without_a_failed_query_adds_nothing_either() {
        let mut idle = idle(60);
        check(&mut idle, &[0, 2_001, 4_000], 0);
        assert_eq!(idle.proven, Duration::from_millis(1_999));
    }
}
