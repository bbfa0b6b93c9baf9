//! Calls that fail and are repeated.

use std::time::Duration;

use eos_protocol::{Backoff, CallSite, Now};

use super::shared::Shared;
use crate::client::ClientError;

/// The pauses before a failed `init`. They grow, so that workers do not flood a server without free connections.
const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(10),
    most: Duration::from_secs(1),
};

/// The longest pause before the outcome of a commit is read again: records wait for it.
const MOST_OF_A_READ: Duration = Duration::from_millis(100);

/// The time from the first failure to the first warning, and the shortest time between two warnings.
const FIRST_WARNING: Duration = Duration::from_secs(5);

/// The time between two warnings about the same error.
const NEXT_WARNING: Duration = Duration::from_secs(60);

/// The failures of one call in a row.
#[derive(Debug, Default)]
pub(super) struct Repeats(Option<FailingCall>);

#[derive(Debug)]
struct FailingCall {
    call: CallSite,
    failures: u32,
    since: Now,
    warn_at: Now,
    /// The time of the last warning, and the text of its error.
    warned: Option<(Now, String)>,
}

/// A call that keeps failing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Warning {
    failures: u32,
    since: Duration,
}

impl Warning {
    pub(super) fn log<C>(&self, shared: &Shared<C>, error: &ClientError) {
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, failures = self.failures,
            seconds = self.since.as_secs(), %error, "a call keeps failing; retrying"
        );
    }
}

impl Repeats {
    /// Counts a failure. Returns a warning if one is due.
    pub(super) fn record(&mut self, call: CallSite, error: &str, now: Now) -> Option<Warning> {
        let failing = match &mut self.0 {
            Some(failing) if failing.call == call => failing,
            other => other.insert(FailingCall {
                call,
                failures: 0,
                since: now,
                warn_at: now.after(FIRST_WARNING),
                warned: None,
            }),
        };
        failing.failures = failing.failures.saturating_add(1);
        // A server that has restarted may refuse for another reason.
        let is_new = |(at, text): &(Now, String)| text != error && now >= at.after(FIRST_WARNING);
        if now < failing.warn_at && !failing.warned.as_ref().is_some_and(is_new) {
            return None;
        }
        failing.warn_at = now.after(NEXT_WARNING);
        failing.warned = Some((now, error.to_owned()));
        Some(Warning {
            failures: failing.failures,
            since: now.since(failing.since),
        })
    }

    /// Returns the pause before the call is repeated. `entropy` is any random number. The pauses of `init` and of reads
    /// of committed offsets grow. The others do not, because an open transaction waits for the call.
    pub(super) fn pause(&self, entropy: u64) -> Duration {
        let Some(failing) = &self.0 else {
            return Duration::ZERO;
        };
        let most = match failing.call {
            CallSite::Init => PAUSES.most,
            CallSite::Committed => MOST_OF_A_READ,
            _ => return PAUSES.first,
        };
        Backoff::jitter(PAUSES.before(failing.failures).min(most), entropy)
    }

    /// Clears the failures after a successful call. Returns whether a warning was logged.
    pub(super) fn reset(&mut self) -> bool {
        let failing = self.0.take();
        failing.is_some_and(|failing| failing.warned.is_some())
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

    /// Returns the pauses after each failure of a call, at their longest.
    fn pauses(repeats: &mut Repeats, call: CallSite, count: usize) -> Vec<Duration> {
        let pause = |_| {
            repeats.record(call, "refused", at(0));
            // One of these numbers leads to the longest wait of `Backoff::jitter`.
            (0..=500_000).step_by(5_000).map(|n| repeats.pause(n)).max()
        };
        (0..count).filter_map(pause).collect()
    }

    #[test]
    fn the_pauses_of_an_init_grow_up_to_a_second() {
        let mut repeats = Repeats::default();
        let expected = [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000].map(ms);
        assert_eq!(pauses(&mut repeats, CallSite::Init, 9), expected);
        assert!(!repeats.reset());
        assert_eq!(repeats.pause(0), ms(0));
        assert_eq!(pauses(&mut repeats, CallSite::Init, 2), [10, 20].map(ms));
    }

    #[test]
    fn the_pauses_of_other_calls_stay_short() {
        let mut repeats = Repeats::default();
        let reads = pauses(&mut repeats, CallSite::Committed, 6);
        assert_eq!(reads, [10, 20, 40, 80, 100, 100].map(ms));
        let commits = pauses(&mut repeats, CallSite::Commit, 6);
        assert_eq!(commits, [ms(10); 6]);
    }

    /// Returns the seconds of the warnings, for a failure in each second with an error that depends on the second.
    fn warned(seconds: u64, error: impl Fn(u64) -> &'static str) -> Vec<(u32, u64)> {
        let mut repeats = Repeats::default();
        let warning = |second: u64| {
            let warning = repeats.record(CallSite::Init, error(second), at(second * 1_000))?;
            Some((warning.failures, warning.since.as_secs()))
        };
        (0..=seconds).filter_map(warning).collect()
    }

    #[test]
    fn a_failing_call_is_logged_once_a_minute() {
        assert_eq!(warned(130, |_| "refused"), [(6, 5), (66, 65), (126, 125)]);
    }

    #[test]
    fn a_new_error_is_logged_five_seconds_after_the_last_warning() {
        let error = |second| if second < 7 { "refused" } else { "read-only" };
        assert_eq!(warned(69, error), [(6, 5), (11, 10)]);
    }

    #[test]
    fn the_end_of_logged_failures_is_known() {
        let mut repeats = Repeats::default();
        for second in 0..=5 {
            repeats.record(CallSite::Init, "refused", at(second * 1_000));
        }
        assert!(repeats.reset());
        assert!(!repeats.reset());
    }

    #[test]
    fn short_failures_are_not_logged() {
        let mut repeats = Repeats::default();
        for second in 0..100 {
            let warning = repeats.record(CallSite::Init, "refused", at(second * 1_000));
            assert_eq!(warning, None);
            assert!(!repeats.reset(), "there was no warning");
        }
    }
}
