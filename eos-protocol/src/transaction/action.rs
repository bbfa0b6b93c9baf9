//! What the machine hears and what it asks for.

use std::time::Duration;

use crate::errors::{CallSite, ErrorClass};
use crate::outcome::Outcome;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The worker starts.
    Start,
    /// A new producer is there.
    Built,
    /// Its `init_transactions` is done.
    Initialized,
    /// A task has, or is about to have, an effect: a record, a timer, an offset.
    Touched,
    /// The open transaction should be committed.
    CommitDue,
    /// Nothing is under way any more and everything that belongs to the transaction is in it.
    Sealed,
    /// `send_offsets` is done.
    OffsetsSent,
    /// Everything sent is acknowledged.
    Drained,
    /// The commit is done.
    Committed,
    /// The abort is done.
    Aborted,
    /// Partitions were lost: another member may own them already.
    Lost,
    /// A control request left and was never answered.
    Unanswered,
    /// The outcome of a transaction in doubt was read.
    Resolved(Outcome),
    /// A call failed.
    Failed(CallSite, ErrorClass),
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Make a producer after this wait (to be jittered).
    Build {
        /// The wait.
        after: Duration,
    },
    /// Destroy the producer.
    Drop,
    /// `init_transactions`.
    Init,
    /// `begin_transaction`.
    Begin,
    /// Stop intake, finish what is under way, seal the overlay.
    Seal,
    /// `send_offsets_to_transaction` for every touched task, with fresh group metadata.
    SendOffsets,
    /// Wait until everything sent is acknowledged.
    Flush,
    /// `commit_transaction`.
    Commit,
    /// Commit the offsets through the consumer (at-least-once only).
    CommitThroughConsumer,
    /// `abort_transaction`.
    Abort,
    /// The transaction is committed: apply state, move the touched tasks' positions.
    Apply,
    /// The transaction is gone: drop the overlay, rewind every touched task.
    Discard,
    /// Read the stable committed offsets of every touched task that is still owned.
    ReadOutcome,
    /// Stop the worker.
    Stop(StopReason),
}

/// Why the machine gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// A call failed for good.
    Error {
        /// The call.
        call: CallSite,
        /// The class.
        class: ErrorClass,
    },
    /// `init_transactions` did not end in time.
    InitTimedOut,
    /// Fenced again and again: another live process uses the same transactional id.
    FencedAgain {
        /// How often within the window.
        times: u32,
    },
    /// The same records abort every transaction.
    RepeatedAborts {
        /// How many aborts in a row.
        times: u32,
    },
    /// The outcome of a transaction in doubt is neither ours nor the one before.
    Dirty,
}

/// A few actions, in order, without allocating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actions {
    items: [Option<Action>; 4],
}

impl Actions {
    pub(super) const fn none() -> Self {
        Self { items: [None; 4] }
    }

    pub(super) const fn one(action: Action) -> Self {
        Self {
            items: [Some(action), None, None, None],
        }
    }

    pub(super) const fn two(first: Action, second: Action) -> Self {
        Self {
            items: [Some(first), Some(second), None, None],
        }
    }

    /// These, then those. Nothing in the machine adds up to more than three.
    pub(super) fn then(mut self, more: Self) -> Self {
        for action in more {
            if let Some(free) = self.items.iter_mut().find(|slot| slot.is_none()) {
                *free = Some(action);
            }
        }
        self
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items[0].is_none()
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Action>, 4>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter().flatten()
    }
}
