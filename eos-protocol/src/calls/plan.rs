//! The limits of calls.

use std::time::Duration;

use crate::backoff::Backoff;

/// The admitted records per call that may run at once.
const AHEAD: usize = 4;

/// The limits of a task's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallPlan {
    /// The maximum number of calls that run at once.
    pub at_once: usize,
    /// The longest time of one try.
    pub time_out: Option<Duration>,
    /// The further tries of a failed call.
    pub retry: Option<CallRetry>,
}

/// The further tries of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRetry {
    /// The maximum number of further tries.
    pub times: u32,
    /// The waits between tries.
    pub backoff: Backoff,
    /// Whether waits are random between half and all of their length.
    pub is_jittered: bool,
}

/// Limits that calls can't have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallPlanError {
    /// The number of calls is 0 or too large.
    #[error("{at_once} calls at once are not possible. Use 1 to {most}")]
    AtOnce {
        /// The number.
        at_once: usize,
        /// The largest possible number.
        most: usize,
    },
    /// The timeout is too short.
    #[error("a timeout of {0:?} is too short. Use at least 1 ms")]
    TimeOut(Duration),
    /// There are no further tries.
    #[error("0 retries are not possible. Set at least 1, or remove the retry")]
    NoRetry,
    /// The waits of a backoff shrink.
    #[error(
        "the waits go from {from:?} to {to:?}, but the second argument of `exponential(from, to)` is the longest wait. \
         Set `to` to at least {from:?}"
    )]
    Backoff {
        /// The first wait.
        from: Duration,
        /// The longest wait.
        to: Duration,
    },
}

impl CallPlan {
    /// The largest number of calls that may run at once.
    pub const MOST_AT_ONCE: usize = 10_000;

    /// The maximum number of admitted records.
    #[must_use]
    pub fn max_admitted(&self) -> usize {
        self.at_once.saturating_mul(AHEAD)
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// [`CallPlanError`] names the limit and the possible values.
    pub fn check(&self) -> Result<(), CallPlanError> {
        if !(1..=Self::MOST_AT_ONCE).contains(&self.at_once) {
            return Err(CallPlanError::AtOnce {
                at_once: self.at_once,
                most: Self::MOST_AT_ONCE,
            });
        }
        if let Some(time_out) = self.time_out.filter(|it| *it < Duration::from_millis(1)) {
            return Err(CallPlanError::TimeOut(time_out));
        }
        match self.retry {
            Some(retry) if retry.times == 0 => Err(CallPlanError::NoRetry),
            Some(retry) if retry.backoff.most < retry.backoff.first => {
                Err(CallPlanError::Backoff {
                    from: retry.backoff.first,
                    to: retry.backoff.most,
                })
            }
            _ => Ok(()),
        }
    }
}

impl CallRetry {
    /// The wait after this number of failures. `entropy` is any random number.
    pub(super) fn wait(&self, failures: u32, entropy: u64) -> Duration {
        let wait = self.backoff.before(failures);
        match self.is_jittered {
            true => Backoff::jitter(wait, entropy),
            false => wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plan(at_once: usize, time_out: Option<Duration>, retry: Option<(u32, u64)>) -> CallPlan {
        let retry = retry.map(|(times, most)| CallRetry {
            times,
            backoff: Backoff {
                first: SECOND,
                most: Duration::from_secs(most),
            },
            is_jittered: false,
        });
        CallPlan {
            at_once,
            time_out,
            retry,
        }
    }

    #[test]
    fn impossible_limits_are_refused_with_the_possible_ones() {
        let error = |plan: CallPlan| plan.check().unwrap_err().to_string();
        let most = CallPlan::MOST_AT_ONCE;
        assert_eq!(
            error(plan(0, None, None)),
            "0 calls at once are not possible. Use 1 to 10000"
        );
        assert_eq!(
            error(plan(most + 1, None, None)),
            "10001 calls at once are not possible. Use 1 to 10000"
        );
        assert_eq!(
            error(plan(1, Some(Duration::from_micros(999)), None)),
            "a timeout of 999µs is too short. Use at least 1 ms"
        );
        assert_eq!(
            error(plan(1, None, Some((0, 1)))),
            "0 retries are not possible. Set at least 1, or remove the retry"
        );
        assert!(error(plan(1, None, Some((1, 0)))).starts_with("the waits go from 1s to 0ns"));
        for good in [
            plan(1, Some(Duration::from_millis(1)), Some((1, 1))),
            plan(most, None, None),
        ] {
            assert_eq!(good.check(), Ok(()));
        }
        assert_eq!(plan(50, None, None).max_admitted(), 200);
    }
}
