//! The facts at the start of a task with stores.

use std::time::Duration;

use crate::guarantee::Guarantee;
use crate::ids::{Offset, Timestamp, TopicName, TopicPartition};
use crate::name::TransactionName;
use crate::state::{Identity, PerFamily, Position, PositionError};

/// The facts at the start of a task with stores.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The guarantee of the app.
    pub guarantee: Guarantee,
    /// The consumer group.
    pub group: &'a str,
    /// The expected identity of the state.
    pub identity: &'a Identity,
    /// The number of partitions of its stage's driving topic.
    pub width: u32,
    /// The local state.
    pub local: Local<'a>,
    /// Whether all its windows are expired at the committed stream time. True if it holds none.
    pub windows_over: bool,
    /// The stable committed offsets of all inputs, after [`plan_start`](crate::plan_start) found that they agree.
    /// Brokers report "no offset" for a moment while a coordinator loads: repeat the query before you trust it.
    pub offsets: Offsets<'a>,
    /// The task's partition of each changelog of the stage, queried *after* the offsets.
    pub changelogs: PerFamily<Option<Bounds>>,
    /// Ids of changelogs that the operator declares complete (`accept.changelog`), although the offset metadata
    /// names other topics.
    pub accepted: &'a [String],
    /// This host's clock.
    pub now: Timestamp,
}

/// The local state of a task.
#[derive(Debug, Clone, Copy)]
pub enum Local<'a> {
    /// No database, or an empty one.
    Nothing,
    /// A database with this position.
    Position(&'a Position),
    /// A database whose position can't be read.
    Unreadable(&'a PositionError),
}

/// The committed offsets of a task.
#[derive(Debug, Clone, Copy)]
pub enum Offsets<'a> {
    /// Offsets under one name of ours.
    Named {
        /// The name.
        name: &'a TransactionName,
        /// The offsets of all inputs.
        at: &'a [(TopicPartition, Offset)],
    },
    /// Offsets that another program set.
    Unnamed {
        /// One of the partitions.
        partition: &'a TopicPartition,
        /// The metadata of the offset.
        metadata: &'a str,
    },
    /// No offset, for at least one input.
    Missing {
        /// The partition.
        partition: &'a TopicPartition,
    },
}

/// One partition of a changelog, as the broker has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The topic.
    pub topic: TopicName,
    /// The first offset that is still there.
    pub start: Offset,
    /// The end as seen *read_uncommitted* (the high watermark). A read_committed reader gets the LSO, which is too
    /// early while a transaction is open.
    pub end: Offset,
    /// `delete.retention.ms` of the topic.
    pub delete_retention: Duration,
}

impl Bounds {
    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}
