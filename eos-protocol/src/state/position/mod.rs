//! The position of a task's database.

pub(crate) mod codec;

pub use codec::PositionError;

use super::{Identity, PerFamily};
use crate::ids::{Nonce, Offset, Seq, Timestamp, TopicPartition};

/// The last record of a transaction in each changelog partition that it wrote. It names the task's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitRecord {
    /// Its number.
    pub seq: Seq,
    /// Its attempt.
    pub nonce: Nonce,
}

/// The description of a task's database, written in the same atomic batch as the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The identity of the task.
    pub identity: Identity,
    /// The content of the database.
    pub standing: Standing,
    /// The offset in each changelog from which a restore has to read; `None` is the beginning. A restore from an
    /// earlier offset does no harm, since values are absolute.
    pub changelogs: PerFamily<Option<Offset>>,
}

/// The content of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The exact state after this transaction of the task.
    At {
        /// The transaction's number.
        seq: Seq,
        /// Its attempt.
        nonce: Nonce,
        /// The offsets of all inputs that it committed.
        inputs: Vec<(TopicPartition, Offset)>,
        /// The last commit record in each changelog.
        commit_records: PerFamily<Option<Seq>>,
        /// The highest record time that the task had seen.
        stream_time: Option<Timestamp>,
        /// The time of the commit, by this host's clock.
        wall_time: Timestamp,
    },
    /// A part of a changelog: a restore is under way, or was interrupted. No transaction has this state, so it has no
    /// number.
    Restoring {
        /// The time by this host's clock up to which every deletion is in this database or in the rest of the
        /// changelog. It is the time when reading began, or when the initial copy was committed. Tombstones disappear
        /// `delete.retention.ms` after they were written.
        since: Timestamp,
        /// The last commit record that was read from each changelog.
        seen: PerFamily<Option<Seq>>,
    },
}
