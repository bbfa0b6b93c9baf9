//! Limits log lines about failed and late records.

use std::time::Duration;

use eos_protocol::{Now, TopicName};

/// The time between two warnings of a kind.
const PAUSE: Duration = Duration::from_secs(10);

/// The fate of a record. Each fate has its own log line. Otherwise a topic with many skipped records would hide the
/// dead letters of another topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Skipped,
    DeadLetter(TopicName),
    Late,
}

/// The number of withheld warnings.
#[derive(Debug, Default)]
pub(super) struct LogLimiter(Vec<(Fate, Kind)>);

#[derive(Debug, Default)]
struct Kind {
    warned: Option<Now>,
    withheld: u64,
}

impl LogLimiter {
    /// Returns the number of withheld warnings if this record is to be logged, otherwise `None`.
    pub(super) fn admit(&mut self, fate: &Fate, now: Now) -> Option<u64> {
        let known = self.0.iter().position(|(known, _)| known == fate);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((fate.clone(), Kind::default()));
        }
        let (_, kind) = self.0.get_mut(at)?;
        if kind.warned.is_some_and(|warned| now.since(warned) < PAUSE) {
            kind.withheld += 1;
            return None;
        }
        kind.warned = Some(now);
        Some(std::mem::take(&mut kind.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_is_logged_with_the_number_of_suppressed_ones() {
        let (mut log, start) = (LogLimiter::default(), Now::default());
        assert_eq!(log.admit(&Fate::Skipped, start), Some(0));
        for _ in 0..3 {
            assert_eq!(log.admit(&Fate::Skipped, start.after(PAUSE / 2)), None);
        }
        assert_eq!(log.admit(&Fate::Skipped, start.after(PAUSE)), Some(3));
        assert_eq!(log.admit(&Fate::Skipped, start.after(PAUSE * 2)), Some(0));
    }

    #[test]
    fn what_is_skipped_or_late_hides_no_dead_letter() {
        let (mut log, now) = (LogLimiter::default(), Now::default());
        let [one, other] = ["one-dlq", "other-dlq"].map(|to| Fate::DeadLetter(to.into()));
        assert_eq!(log.admit(&Fate::Skipped, now), Some(0));
        assert_eq!(log.admit(&Fate::Late, now), Some(0));
        assert_eq!(log.admit(&one, now), Some(0));
        assert_eq!(log.admit(&one, now), None);
        assert_eq!(log.admit(&other, now), Some(0));
        assert_eq!(log.admit(&one, now.after(PAUSE)), Some(1));
    }
}
