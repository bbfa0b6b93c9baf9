//! How often records that failed or came too late are told of: a topic full of them must not fill the log.

use std::time::Duration;

use eos_protocol::{Now, TopicName};

/// Between two lines of a kind that are told loudly.
const QUIET: Duration = Duration::from_secs(10);

/// What became of a record. Each has its own line, or a topic whose records are skipped would hide another
/// one's dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Skipped,
    DeadLetter(TopicName),
    Late,
}

/// Counts what is not told loudly.
#[derive(Debug, Default)]
pub(super) struct Quiet(Vec<(Fate, Kind)>);

#[derive(Debug, Default)]
struct Kind {
    told: Option<Now>,
    withheld: u64,
}

impl Quiet {
    /// Whether this one is told loudly, and then how many of its kind before it were not.
    pub(super) fn admit(&mut self, fate: &Fate, now: Now) -> Option<u64> {
        let known = self.0.iter().position(|(known, _)| known == fate);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((fate.clone(), Kind::default()));
        }
        let (_, kind) = self.0.get_mut(at)?;
        if kind.told.is_some_and(|told| now.since(told) < QUIET) {
            kind.withheld += 1;
            return None;
        }
        kind.told = Some(now);
        Some(std::mem::take(&mut kind.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_ten_seconds_is_told_with_the_number_of_those_that_were_not() {
        let (mut quiet, start) = (Quiet::default(), Now::default());
        assert_eq!(quiet.admit(&Fate::Skipped, start), Some(0));
        for _ in 0..3 {
            assert_eq!(quiet.admit(&Fate::Skipped, start.after(QUIET / 2)), None);
        }
        assert_eq!(quiet.admit(&Fate::Skipped, start.after(QUIET)), Some(3));
        assert_eq!(quiet.admit(&Fate::Skipped, start.after(QUIET * 2)), Some(0));
    }

    #[test]
    fn what_is_skipped_or_late_hides_no_dead_letter() {
        let (mut quiet, now) = (Quiet::default(), Now::default());
        let [one, other] = ["one-dlq", "other-dlq"].map(|to| Fate::DeadLetter(to.into()));
        assert_eq!(quiet.admit(&Fate::Skipped, now), Some(0));
        assert_eq!(quiet.admit(&Fate::Late, now), Some(0));
        assert_eq!(quiet.admit(&one, now), Some(0));
        assert_eq!(quiet.admit(&one, now), None);
        assert_eq!(quiet.admit(&other, now), Some(0));
        assert_eq!(quiet.admit(&one, now.after(QUIET)), Some(1));
    }
}
