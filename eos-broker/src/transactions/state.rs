//! The state of one transactional id.

use std::collections::BTreeSet;

/// A log that belongs to a transaction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Participant {
    Partition(String, i32),
    /// The offsets of this group.
    Group(String),
}

/// The state of a transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl State {
    /// Returns the name in DescribeTransactions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
        }
    }

    /// Returns whether a filter may contain this name. This includes states that never last in this broker.
    pub(crate) fn is_name(name: &str) -> bool {
        matches!(
            name,
            "Empty"
                | "Ongoing"
                | "PrepareCommit"
                | "PrepareAbort"
                | "CompleteCommit"
                | "CompleteAbort"
                | "Dead"
                | "PrepareEpochFence"
        )
    }

    /// Returns whether markers are being written.
    pub(crate) fn is_prepared(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }
}

/// The coordinator's data about a transactional id.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) state: State,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The epoch before the last bump that its owner requested. The owner may repeat the request.
    pub(crate) last_epoch: i16,
    /// The producer id before its epochs were exhausted.
    pub(crate) previous_id: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) participants: BTreeSet<Participant>,
    /// The time when the transaction became Ongoing, or -1 otherwise.
    pub(crate) started: i64,
}

/// The largest epoch that a client receives. One epoch is left to fence that client.
pub(crate) const LAST_EPOCH: i16 = i16::MAX - 1;

impl Transaction {
    pub(crate) fn is_exhausted(&self) -> bool {
        self.epoch >= LAST_EPOCH
    }
}
