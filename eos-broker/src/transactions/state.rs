//! One transactional id.

use std::collections::BTreeSet;

/// A log that a transaction writes to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Participant {
    Partition(String, i32),
    /// Offsets of this group.
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
    /// As DescribeTransactions spells it.
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

    /// Every name that a filter may say, those included that never last here.
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

    /// Markers are being written.
    pub(crate) fn is_prepared(self) -> bool {
        matches!(self, State::PrepareCommit | State::PrepareAbort)
    }
}

/// What the coordinator knows of a transactional id.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) state: State,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The epoch before the last bump that its owner asked for: it may ask again.
    pub(crate) last_epoch: i16,
    /// The id before the epochs ran out.
    pub(crate) previous_id: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) participants: BTreeSet<Participant>,
    /// When it became Ongoing; -1 otherwise.
    pub(crate) started: i64,
}

/// The largest epoch that a client is given: one is left for fencing it.
pub(crate) const LAST_EPOCH: i16 = i16::MAX - 1;

impl Transaction {
    pub(crate) fn is_exhausted(&self) -> bool {
        self.epoch >= LAST_EPOCH
    }
}
