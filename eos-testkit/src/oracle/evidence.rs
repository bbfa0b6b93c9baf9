//! What a run left behind, in compact form: millions of rows fit into memory.

use kafka_wire::{LoggedTransaction, OpenProducer, Span, TransactionState};

use super::fold::Fold;
use super::input::Input;
use super::keys::{Key, Keys};
use super::state::StateCopy;

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

/// One record: its number, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number in its value; none when the value holds no number.
    pub seq: Option<u64>,
    /// Its key.
    pub key: Key,
    /// The partition it is in.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// What else its value holds: in an output the running value (see [`Output::running`]), in an input what
    /// a [`Fold`] makes use of. 0 where it is nothing; of what is no number, a hash.
    pub value: i64,
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
