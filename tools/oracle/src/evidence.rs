//! The evidence of a run, in a compact form.

use kafka_wire::{LoggedTransaction, OpenProducer, Span, TransactionState};

use super::fold::{Contents, Fold};
use super::input::Input;
use super::keys::Keys;
use super::records::Row;

/// The evidence of a run: millions of rows fit into memory. The default contains nothing, not even the group's offsets.
#[derive(Debug, Default, Clone)]
pub struct Evidence {
    /// The keys that rows refer to.
    pub keys: Keys,
    /// The whole input.
    pub input: Input,
    /// The outputs that a read_committed reader receives.
    pub outputs: Vec<Output>,
    /// The group's offset for each input partition, or `None` while an open transaction withholds some of them.
    pub committed: Option<Vec<Option<i64>>>,
    /// The transactions that have not ended.
    pub open: Vec<TransactionState>,
    /// The transactions that the coordinators decided to commit.
    pub commits: Vec<LoggedTransaction>,
    /// Offsets of any group in a transaction that no coordinator lists as open. Empty if the group's offsets can be
    /// read.
    pub hanging_offsets: Vec<OpenProducer>,
    /// The remaining state: changelogs and databases. Not compared while `committed` is `None`.
    pub state: Vec<StateCopy>,
}

impl Evidence {
    /// Returns the committed offset of an input partition, or 0 if the group committed none.
    pub(super) fn committed_at(&self, partition: i32) -> i64 {
        let offsets = self.committed.iter().flatten();
        let mut offset = offsets.skip(partition as usize);
        offset.next().copied().flatten().unwrap_or(0)
    }
}

/// An output topic.
#[derive(Debug, Default, Clone)]
pub struct Output {
    /// The topic.
    pub topic: String,
    /// The rows visible to read_committed, partition by partition in offset order.
    pub rows: Vec<Row>,
    /// The number of rows that a read_uncommitted reader receives. It is larger if transactions were aborted.
    pub uncommitted: u64,
    /// The batches that a read_uncommitted reader receives, and the markers that end them, by partition in offset
    /// order. Rows without a batch are treated as committed.
    pub spans: Vec<Vec<Span>>,
    /// The transactions that are open in this topic although no coordinator lists them as open.
    pub hanging: Vec<OpenProducer>,
    /// The end of each partition.
    pub ends: Vec<LogEnd>,
    /// The fold of a running value, such as a count, that the rows carry. Each value must be the fold's result for its
    /// input. `None` if the rows carry no such value.
    pub running: Option<Fold>,
}

/// The end of a partition, for each kind of reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The last stable offset.
    pub last_stable: i64,
    /// The end of the replicated data. It is above `last_stable` while a transaction is open.
    pub high_watermark: i64,
}

/// A copy of the state of a task: a compacted changelog, or a database.
#[derive(Debug, Clone)]
pub struct StateCopy {
    /// The name in reports: "changelog of counts", "database of task 0_1".
    pub name: String,
    /// The fold that gives the expected contents.
    pub fold: Fold,
    /// The input partition whose records are folded.
    pub partition: i32,
    /// The contents.
    pub contents: Contents,
    /// The input offset that the copy stores as its position, if any. Records below it are in the copy.
    pub position: Option<i64>,
    /// Whether the copy may be behind the committed offset, like the database of a killed process. The contents must
    /// still match the position. Otherwise, inputs would be applied to it twice.
    pub may_lag: bool,
}

impl StateCopy {
    /// Returns a copy without a position that may not lag.
    pub fn new(
        name: impl Into<String>,
        fold: &Fold,
        partition: i32,
        contents: Contents,
    ) -> StateCopy {
        StateCopy {
            name: name.into(),
            fold: fold.clone(),
            partition,
            contents,
            position: None,
            may_lag: false,
        }
    }
}

/// The expected progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// Every input is processed and committed.
    Finished,
    /// The run was stopped early: exactly the inputs below the committed offsets are processed.
    Behind,
}
