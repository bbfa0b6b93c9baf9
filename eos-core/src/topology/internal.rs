//! Internal topics: the app creates them and is their only writer.

use eos_protocol::StageId;
use eos_protocol::state::Family;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Internal {
    /// The output that writes to it.
    pub(crate) output: usize,
    pub(crate) purpose: Purpose,
}

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Brings the records of a key together again.
    Repartition,
    /// Keeps what the stores of a stage hold.
    Changelog(StageId, Family),
}
