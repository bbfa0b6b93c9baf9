//! Where a task's database stands.

mod codec;

pub use codec::PositionError;

use super::{Identity, PerFamily};
use crate::ids::{Nonce, Offset, Seq, Timestamp, TopicPartition};

/// The last record of a transaction in each changelog partition that it wrote: which transaction of
/// the task it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitRecord {
    /// Its number.
    pub seq: Seq,
    /// Its attempt.
    pub nonce: Nonce,
}

/// What a task's database says of itself, written in the same atomic batch as the data it speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Whose state it is.
    pub identity: Identity,
    /// What it holds.
    pub standing: Standing,
    /// From where each changelog has to be read to bring this database up to date; `None` is from its
    /// beginning. Reading from an earlier offset does no harm, since values are absolute.
    pub changelogs: PerFamily<Option<Offset>>,
}

/// What a database holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Exactly what the task's transactions up to this one made.
    At {
        /// The transaction's number.
        seq: Seq,
        /// Its attempt.
        nonce: Nonce,
        /// The offsets that it committed, of all inputs.
        inputs: Vec<(TopicPartition, Offset)>,
        /// The last commit record in each changelog.
        commit_records: PerFamily<Option<Seq>>,
        /// The highest record time that the task had seen.
        stream_time: Option<Timestamp>,
        /// When it was committed, by this host's clock.
        wall_time: Timestamp,
    },
    /// A part of a changelog: a restore is under way, or was interrupted. It is the state of no
    /// transaction, so it has no number.
    Restoring {
        /// As of when every deletion is sure to be in here or in the rest of the changelog, by this
        /// host's clock: reading began then, or what it began from was committed then. Tombstones go
        /// `delete.retention.ms` after they were written.
        since: Timestamp,
        /// The last commit record that was read from each changelog.
        seen: PerFamily<Option<Seq>>,
    },
}
