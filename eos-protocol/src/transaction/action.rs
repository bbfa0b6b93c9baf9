//! The events and actions of the machine.

use std::time::Duration;

use crate::errors::{CallSite, ErrorClass};
use crate::outcome::Outcome;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The worker starts.
    Start,
    /// A new producer exists.
    Built,
    /// `init_transactions` has returned.
    Initialized,
    /// A task has, or is about to have, an effect: a record, a timer, an offset.
    Touched,
    /// The open transaction should be committed.
    CommitDue,
    /// No work is under way, and the transaction is complete.
    Sealed,
    /// `send_offsets` has returned.
    OffsetsSent,
    /// All sent records are acknowledged.
    Drained,
    /// The commit has returned.
    Committed,
    /// The abort has returned.
    Aborted,
    /// Partitions were lost: another member may own them already.
    Lost,
    /// A control request left and got no response.
    Unanswered,
    /// The outcome of a transaction in doubt was read.
    Resolved(Outcome),
    /// A call failed.
    Failed(CallSite, ErrorClass),
    /// Time has passed.
    Tick,
}

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Build a producer after this wait (to be jittered).
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
    /// Stop intake, finish the records under way, seal the overlay.
    Seal,
    /// `send_offsets_to_transaction` for every touched task, with fresh group metadata.
    SendOffsets,
    /// Wait until all sent records are acknowledged.
    Flush,
    /// `commit_transaction`.
    Commit,
    /// At most once: gather the offsets behind the fetched records of every task, and commit them through the consumer.
    Claim,
    /// These offsets are committed: the records before them may be processed.
    Claimed,
    /// A commit through the consumer had no clear response and may arrive later: leave the group before the next one,
    /// if a late commit can do harm.
    Leave,
    /// Commit the offsets through the consumer (without transactions only).
    CommitThroughConsumer,
    /// `abort_transaction`.
    Abort,
    /// The transaction is committed: apply state, move the touched tasks' positions.
    Apply,
    /// The transaction is lost: drop the overlay, rewind every touched task.
    Discard,
    /// Read the stable committed offsets of every touched task that is still owned.
    ReadOutcome,
    /// Stop the worker.
    Stop(StopReason),
}

/// The reason why the machine stops the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// A call failed permanently.
    Error {
        /// The call.
        call: CallSite,
        /// The class.
        class: ErrorClass,
    },
    /// `init_transactions` did not return in time.
    InitTimedOut,
    /// The producer was fenced repeatedly: another live process uses the same transactional id.
    FencedAgain {
        /// The number of fences within the window.
        times: u32,
    },
    /// The same records abort every transaction.
    RepeatedAborts {
        /// The number of aborts in a row.
        times: u32,
    },
    /// The outcome of a transaction in doubt is neither ours nor the previous one.
    Dirty,
}

/// A few actions in order, without allocation.
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

    /// Appends the other actions. No event of the machine leads to more than four.
    pub(super) fn then(mut self, more: Self) -> Self {
        for action in more {
            if let Some(free) = self.items.iter_mut().find(|slot| slot.is_none()) {
                *free = Some(action);
            }
        }
        self
    }

    /// Returns whether the list is empty.
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
