//! Internal topics. The app creates them and is their only writer.

use eos_protocol::StageId;
use eos_protocol::state::Family;

/// An internal topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Internal {
    /// The output that writes to it.
    pub(crate) output: usize,
    pub(crate) purpose: Purpose,
}

/// The purpose of an internal topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Brings all records of a key into one partition.
    Repartition,
    /// Is between the tasks of a foreign-key join.
    ForeignJoin,
    /// Contains the state of a stage's stores.
    Changelog(StageId, Family),
}

impl Purpose {
    /// Whether its records are read once, by the app itself.
    pub(crate) const fn is_read_once(self) -> bool {
        matches!(self, Self::Repartition | Self::ForeignJoin)
    }
}
