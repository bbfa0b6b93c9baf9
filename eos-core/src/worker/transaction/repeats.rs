//! Failures of a call that the worker repeats.

use std::time::Duration;

use eos_protocol::{Backoff, CallSite, Now};

/// The pauses before a failed `init` is repeated: a server that has no connection left must not get a hundred attempts
/// per second. The other calls belong to an open transaction, and always pause for the first of them.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(10),
    most: Duration::from_secs(1),
};

/// How long a call may fail before an operator has to know.
const FIRST_WARNING: Duration = Duration::from_secs(5);

/// The time between two warnings.
const NEXT_WARNING: Duration = Duration::from_secs(60);

/// The failures of one call in a row.
#[derive(Debug, Default)]
pub(super) struct Repeats(Option<Failing>);

#[derive(Debug)]
struct Failing {
    call: CallSite,
    times: u32,
    since: Now,
    warn_at: Now,
}

/// What follows from a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    /// The longest pause before the next attempt.
    pub(super) pause: Duration,
    /// How often and for how long the call has failed, if it is time for a warning.
    pub(super) warning: Option<(u32, Duration)>,
}

impl Repeats {
    /// Counts a failure.
    pub(super) fn failed(&mut self, call: CallSite, now: Now) -> Repeat {
        let failing = match &mut self.0 {
            Some(failing) if failing.call == call => failing,
            other => other.insert(Failing {
                call,
                times: 0,
                since: now,
                warn_at: now.after(FIRST_WARNING),
            }),
        };
        failing.times = failing.times.saturating_add(1);
        let is_due = now >= failing.warn_at;
        if is_due {
            failing.warn_at = now.after(NEXT_WARNING);
        }
        Repeat {
            pause: match call {
                CallSite::Init => PAUSES.before(failing.times),
                _ => PAUSES.first,
            },
            warning: is_due.then(|| (failing.times, now.since(failing.since))),
        }
    }

    /// Forgets the failures: a call succeeded.
    pub(super) fn succeeded(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Now {
        Now(Duration::from_millis(ms))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_pauses_of_an_init_grow_up_to_a_second() {
        let mut repeats = Repeats::default();
        let pauses: Vec<_> = (0..9)
            .map(|_| repeats.failed(CallSite::Init, at(0)).pause)
            .collect();
        let expected = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000].map(ms);
        assert_eq!(pauses, expected);

        repeats.succeeded();
        assert_eq!(repeats.failed(CallSite::Init, at(1)).pause, ms(10));
        for _ in 0..9 {
            assert_eq!(repeats.failed(CallSite::Commit, at(2)).pause, ms(10));
        }
    }

    #[test]
    fn a_call_that_goes_on_failing_is_reported_once_a_minute() {
        let mut repeats = Repeats::default();
        let mut warned = Vec::new();
        for second in 0..=130 {
            if let Some((times, since)) = repeats.failed(CallSite::Init, at(second * 1_000)).warning
            {
                warned.push((times, since.as_secs()));
            }
        }
        assert_eq!(warned, [(6, 5), (66, 65), (126, 125)]);
    }

    #[test]
    fn short_failures_are_not_reported() {
        let mut repeats = Repeats::default();
        for second in 0..100 {
            assert_eq!(
                repeats.failed(CallSite::Init, at(second * 1_000)).warning,
                None
            );
            repeats.succeeded();
        }
    }
}
