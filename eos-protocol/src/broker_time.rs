//! A clock that pauses while no broker responds.

use std::time::Duration;

use crate::time::Now;

/// Measures the time during which brokers are reachable.
///
/// Deadlines for the work of a broker (to make offsets stable, to send records) run on this clock, so that a
/// temporary outage does not end the app. The brokers count as away when no response has arrived for
/// [`SILENCE`](Self::SILENCE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerTime {
    /// The time of the last response.
    answered: Now,
    /// The total time without brokers before the last response.
    away: Duration,
}

impl BrokerTime {
    /// The longest time without a response from reachable brokers. The runtime queries the topics every ten
    /// seconds, so one query may get lost.
    pub const SILENCE: Duration = Duration::from_secs(30);

    /// A running clock: `now` counts as the time of the last response.
    #[must_use]
    pub const fn new(now: Now) -> Self {
        Self {
            answered: now,
            away: Duration::ZERO,
        }
    }

    /// Records a response from a broker.
    pub fn answered(&mut self, now: Now) {
        self.away += self.silence(now);
        self.answered = self.answered.max(now);
    }

    /// The time on this clock.
    #[must_use]
    pub fn at(&self, now: Now) -> Now {
        Now(now.since(Now(self.away + self.silence(now))))
    }

    /// Returns the time for which the brokers have been away at `now`.
    fn silence(&self, now: Now) -> Duration {
        now.since(self.answered.after(Self::SILENCE))
    }
}

/// One moment on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The worker's clock.
    pub now: Now,
    /// [`BrokerTime`], which pauses while no broker responds.
    pub brokers: Now,
}

impl From<Now> for Moment {
    /// A moment before any outage.
    fn from(now: Now) -> Self {
        Self { now, brokers: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Now {
        Now(Duration::from_secs(seconds))
    }

    #[test]
    fn it_runs_while_brokers_answer() {
        let mut time = BrokerTime::new(s(5));
        for now in (5..500).step_by(10) {
            assert_eq!(time.at(s(now)), s(now));
            time.answered(s(now));
        }
    }

    #[test]
    fn it_stands_still_while_they_are_away_and_resumes_there() {
        let mut time = BrokerTime::new(s(0));
        for now in (0..=100).step_by(20) {
            time.answered(s(now));
        }
        assert_eq!(time.at(s(130)), s(130));
        for now in [131, 200, 400] {
            assert_eq!(time.at(s(now)), s(130));
        }
        time.answered(s(400));
        assert_eq!(time.at(s(400)), s(130));
        assert_eq!(time.at(s(410)), s(140));
        assert_eq!(time.at(s(500)), s(160));
        time.answered(s(600));
        assert_eq!(time.at(s(600)), s(160));
    }
}
