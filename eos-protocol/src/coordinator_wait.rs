//! Detection of calls that wait for a removed coordinator.

use std::time::Duration;

use crate::Now;

/// The requests of a producer, at one moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The number of requests that were sent so far, of the kinds that a call may wait for.
    pub sent: u64,
    /// The number of these requests without a response.
    pub in_flight: u32,
}

/// Detects a call that waits for a coordinator without a request under way.
///
/// librdkafka 2.12.1 may wait for a connection to a coordinator that it has just removed from its list of brokers
/// (librdkafka #5511, `rd_kafka_coord_req_fsm`). It looks up the coordinator again when any connection opens or closes.
/// So the remedy is to close one. While none of these requests is in flight, this loses no response to one.
#[derive(Debug, Default)]
pub struct CoordinatorWait {
    /// The requests at the last change, and its time.
    quiet: Option<(Traffic, Now)>,
}

impl CoordinatorWait {
    /// The time without any request after which a call counts as stuck. librdkafka repeats a request after 500 ms, and
    /// looks up a coordinator once per second at most.
    pub const PATIENCE: Duration = Duration::from_millis(1250);

    /// Returns whether the call under way is stuck, so that a connection must be closed. `None`: no call is under way.
    ///
    /// Returns true after [`PATIENCE`](Self::PATIENCE) without a request, and again after the same time.
    pub fn is_stuck(&mut self, now: Now, traffic: Option<Traffic>) -> bool {
        let Some(traffic) = traffic.filter(|traffic| traffic.in_flight == 0) else {
            self.quiet = None;
            return false;
        };
        match self.quiet {
            Some((before, since)) if before == traffic => {
                let stuck = now.0.saturating_sub(since.0) >= Self::PATIENCE;
                if stuck {
                    self.quiet = Some((traffic, now));
                }
                stuck
            }
            _ => {
                self.quiet = Some((traffic, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every 250 ms, and returns the times in ms at which the call was stuck.
    fn stuck_at(traffic: impl Fn(u64) -> Option<Traffic>) -> Vec<u64> {
        let mut wait = CoordinatorWait::default();
        let looks = (0..=4000).step_by(250);
        looks
            .filter(|ms| wait.is_stuck(Now(Duration::from_millis(*ms)), traffic(*ms)))
            .collect()
    }

    fn idle(sent: u64) -> Option<Traffic> {
        Some(Traffic { sent, in_flight: 0 })
    }

    #[test]
    fn a_call_without_requests_is_stuck_again_and_again() {
        assert_eq!(stuck_at(|_| idle(7)), [1250, 2500, 3750]);
    }

    #[test]
    fn calls_that_send_requests_are_never_stuck() {
        // A rare check may take two calls for one. Each call sends requests.
        assert_eq!(stuck_at(|ms| idle(ms / 1000)), []);
    }

    #[test]
    fn a_request_without_a_response_is_waited_for() {
        let waits = |_| {
            Some(Traffic {
                sent: 7,
                in_flight: 1,
            })
        };
        assert_eq!(stuck_at(waits), []);
    }

    #[test]
    fn the_time_begins_with_the_call_and_with_the_response() {
        assert_eq!(
            stuck_at(|ms| (ms >= 1000).then(|| idle(7)).flatten()),
            [2250, 3500]
        );
        let answered = |ms| {
            Some(Traffic {
                sent: 7,
                in_flight: u32::from(ms < 1500),
            })
        };
        assert_eq!(stuck_at(answered), [2750, 4000]);
        let two_calls = |ms| (ms != 1500).then(|| idle(7)).flatten();
        assert_eq!(stuck_at(two_calls), [1250, 3000]);
    }

    #[test]
    fn no_call_is_never_stuck() {
        assert_eq!(stuck_at(|_| None), []);
    }
}
