//! How often failed records are told of: a topic full of them must not fill the log.

use std::time::Duration;

use eos_protocol::{Now, TopicName};

/// Between two lines of a kind that are told loudly.
const QUIET: Duration = Duration::from_secs(10);

/// Counts what is not told loudly: by dead letter topic, and what was skipped. Each has its own line,
/// or a topic whose records are skipped would hide another one's dead letters.
#[derive(Debug, Default)]
pub(super) struct Quiet(Vec<(Option<TopicName>, Kind)>);

#[derive(Debug, Default)]
struct Kind {
    told: Option<Now>,
    withheld: u64,
}

impl Quiet {
    /// Whether this one is told loudly, and then how many of its kind before it were not.
    pub(super) fn admit(&mut self, dead_letters: Option<&TopicName>, now: Now) -> Option<u64> {
        let known = self
            .0
            .iter()
            .position(|(to, _)| to.as_ref() == dead_letters);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((dead_letters.cloned(), Kind::default()));
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
        assert_eq!(quiet.admit(None, start), Some(0));
        for _ in 0..3 {
            assert_eq!(quiet.admit(None, start.after(QUIET / 2)), None);
        }
        assert_eq!(quiet.admit(None, start.after(QUIET)), Some(3));
        assert_eq!(quiet.admit(None, start.after(QUIET * 2)), Some(0));
    }

    #[test]
    fn what_is_skipped_hides_no_dead_letter() {
        let (mut quiet, now) = (Quiet::default(), Now::default());
        let (one, other) = ("one-dlq".into(), "other-dlq".into());
        assert_eq!(quiet.admit(None, now), Some(0));
        assert_eq!(quiet.admit(Some(&one), now), Some(0));
        assert_eq!(quiet.admit(Some(&one), now), None);
        assert_eq!(quiet.admit(Some(&other), now), Some(0));
        assert_eq!(quiet.admit(Some(&one), now.after(QUIET)), Some(1));
    }
}
