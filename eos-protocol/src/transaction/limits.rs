//! The timeouts and the maximum tries of the machine.

use std::time::Duration;

use crate::backoff::Backoff;

/// The machine's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time from sealing to the response to the commit. One deadline covers the whole chain. Its last quarter is
    /// reserved for EndTxn ([`end_floor`](Self::end_floor)).
    pub commit: Duration,
    /// The time for an abort.
    pub abort: Duration,
    /// The time for `init_transactions`, which waits for the open transaction of an earlier producer: up to
    /// `transaction.timeout.ms` and the coordinator's sweep.
    pub init: Duration,
    /// The wait before a new producer, after several in a row.
    pub backoff: Backoff,
    /// This number of fences …
    pub fences: u32,
    /// … within this time means that another live process has the same id.
    pub fence_window: Duration,
    /// The number of aborts without a commit that stop the worker. It is high enough for halving to find a culprit
    /// ([`Isolation`](crate::Isolation)).
    pub aborts_in_a_row: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            commit: Duration::from_secs(10),
            abort: Duration::from_secs(10),
            init: Duration::from_secs(60),
            backoff: Backoff {
                first: Duration::from_millis(100),
                most: Duration::from_secs(5),
            },
            fences: 3,
            fence_window: Duration::from_secs(60),
            aborts_in_a_row: 32,
        }
    }
}

impl Limits {
    /// The part of the commit's time that offsets and outputs leave for EndTxn, however slow they are. A commit
    /// without time for its response would be in doubt, while an abort before it is clean.
    #[must_use]
    pub fn end_floor(&self) -> Duration {
        self.commit / 4
    }
}
