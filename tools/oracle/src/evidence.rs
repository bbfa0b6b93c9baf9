//! What a run left behind, in compact form: millions of rows fit into memory.

use kafka_wire::{LoggedTransaction, OpenProducer, Span, TransactionState};

use super::fold::{Contents, Fold};
use super::input::Input;
use super::keys::Keys;
use super::records::Row;

/// Everything a verdict rests on. By default nothing was read, not even the group's offsets.
#[derive(Debug, Default, Clone)]
pub struct Evidence {
    /// The keys that rows refer to.
    pub keys: Keys,
    /// The input, all of it.
    pub input: Input,
    /// The outputs as a read_committed reader sees them.
    pub outputs: Vec<Output>,
    /// The group's offset for each input partition; `None` when an unfinished transaction still
    /// holds some of them.
    pub committed: Option<Vec<Option<i64>>>,
    /// The transactions that are not at their end.
    pub open: Vec<TransactionState>,
    /// The transactions that the coordinators decided to commit.
    pub commits: Vec<LoggedTransaction>,
    /// Offsets of any group that are held by a transaction which no coordinator knows to be open; not
    /// looked for while the group's offsets can be read.
    pub hanging_offsets: Vec<OpenProducer>,
    /// The state that is left: changelogs, databases. Not compared while `committed` is `None`.
    pub state: Vec<StateCopy>,
}

impl Evidence {
    /// The committed offset of an input partition; 0 if the group committed none.
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
    /// How many rows a read_uncommitted reader sees: more, where transactions were aborted.
    pub uncommitted: u64,
    /// What a read_uncommitted reader sees, batch by batch, and how the markers end it: by partition,
    /// in offset order. Rows that are in no batch are taken for committed.
    pub spans: Vec<Vec<Span>>,
    /// The transactions that are open here although no coordinator knows them to be.
    pub hanging: Vec<OpenProducer>,
    /// Where each partition ends.
    pub ends: Vec<LogEnd>,
    /// What its rows carry, if that is a running value such as a count: each has to be what the fold answers
    /// for its input. None where there is nothing to compare.
    pub running: Option<Fold>,
}

/// Where a partition ends, for either kind of reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The end of what is decided.
    pub last_stable: i64,
    /// The end of what is replicated; above `last_stable` while a transaction is open.
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
    /// The input offset that the copy names as its position, if any. Records below it are in the copy.
    pub position: Option<i64>,
    /// Whether it may be behind the committed offset, like the database of a killed process. The contents must
    /// still match the position, or inputs would go into it twice.
    pub may_lag: bool,
}

impl StateCopy {
    /// A copy without a position that may not lag.
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
