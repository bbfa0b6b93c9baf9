//! How long the machine waits, and how often it tries.

use std::time::Duration;

use crate::backoff::Backoff;

/// The machine's patience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From sealing to the answer of the commit. One deadline for the whole chain, the last quarter
    /// of which is EndTxn's ([`end_floor`](Self::end_floor)).
    pub commit: Duration,
    /// For an abort.
    pub abort: Duration,
    /// For `init_transactions`, which waits for what an earlier producer left open: up to
    /// `transaction.timeout.ms` and the coordinator's sweep.
    pub init: Duration,
    /// Before a new producer, when several were needed in a row.
    pub backoff: Backoff,
    /// Being fenced this often …
    pub fences: u32,
    /// … within this time means that another live process has our id.
    pub fence_window: Duration,
    /// This many aborts without a commit between them stop the worker. Enough of them for a record
    /// that is to blame to be found by halving ([`Isolation`](crate::Isolation)).
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
    /// What offsets and outputs leave of the commit's time, however slow they are: EndTxn has it for
    /// itself. A commit that is sent with no time to wait for its answer would be in doubt, where an
    /// abort before it is clean.
    #[must_use]
    pub fn end_floor(&self) -> Duration {
        self.commit / 4
    }
}
