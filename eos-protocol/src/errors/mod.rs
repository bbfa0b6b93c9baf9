//! The classes of failed client calls.
//!
//! One table maps (code, call site) to a class.
//!
//! Codes are Kafka's protocol error codes (positive) and librdkafka's `RD_KAFKA_RESP_ERR__…` (negative). The three
//! flags are those of `rd_kafka_error_t`. Error texts decide nothing.

pub mod code;
mod table;
#[cfg(test)]
mod table_test;

use std::fmt;

pub use table::{Calls, Row, TABLE, classify};

/// The client call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallSite {
    /// Creating a client from its configuration.
    Create,
    /// Querying metadata and broker configuration.
    Facts,
    /// Creating the app's own topics.
    CreateTopics,
    /// Deleting records that are no longer needed.
    DeleteRecords,
    /// Joining or leaving the group.
    Subscribe,
    /// The consumer reported an error itself.
    Poll,
    /// Taking fetched records.
    Take,
    /// Reading committed offsets.
    Committed,
    /// Reading the first and last offsets of partitions.
    Bounds,
    /// Responding to an assignment.
    Assign,
    /// Responding to a revocation.
    Unassign,
    /// Seeking.
    Seek,
    /// Reading the group metadata.
    Member,
    /// Committing through the consumer (without transactions).
    ConsumerCommit,
    /// Closing the consumer.
    Close,
    /// `init_transactions`.
    Init,
    /// `begin_transaction`.
    Begin,
    /// Passing a record to the producer.
    Send,
    /// `send_offsets_to_transaction`.
    SendOffsets,
    /// Waiting for acknowledgements.
    Flush,
    /// `commit_transaction`.
    Commit,
    /// `abort_transaction`.
    Abort,
}

impl CallSite {
    /// Every call site.
    pub const ALL: [Self; 22] = [
        Self::Create,
        Self::Facts,
        Self::CreateTopics,
        Self::DeleteRecords,
        Self::Subscribe,
        Self::Poll,
        Self::Take,
        Self::Committed,
        Self::Bounds,
        Self::Assign,
        Self::Unassign,
        Self::Seek,
        Self::Member,
        Self::ConsumerCommit,
        Self::Close,
        Self::Init,
        Self::Begin,
        Self::Send,
        Self::SendOffsets,
        Self::Flush,
        Self::Commit,
        Self::Abort,
    ];
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "creating the client",
            Self::Facts => "querying the cluster",
            Self::CreateTopics => "creating topics",
            Self::DeleteRecords => "deleting records",
            Self::Subscribe => "subscribing",
            Self::Poll => "consuming",
            Self::Take => "taking records",
            Self::Committed => "reading committed offsets",
            Self::Bounds => "reading partition bounds",
            Self::Assign => "assigning partitions",
            Self::Unassign => "unassigning partitions",
            Self::Seek => "seeking",
            Self::Member => "reading group metadata",
            Self::ConsumerCommit => "committing offsets through the consumer",
            Self::Close => "closing the consumer",
            Self::Init => "init_transactions",
            Self::Begin => "begin_transaction",
            Self::Send => "sending a record",
            Self::SendOffsets => "send_offsets_to_transaction",
            Self::Flush => "flushing",
            Self::Commit => "commit_transaction",
            Self::Abort => "abort_transaction",
        })
    }
}

/// An error code with the flags that librdkafka's transactional calls set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The code.
    pub code: i32,
    /// `rd_kafka_error_is_retriable`.
    pub retriable: bool,
    /// `rd_kafka_error_txn_requires_abort`.
    pub abortable: bool,
    /// `rd_kafka_error_is_fatal`.
    pub fatal: bool,
}

impl Fault {
    /// A code without flags.
    #[must_use]
    pub const fn plain(code: i32) -> Self {
        Self {
            code,
            retriable: false,
            abortable: false,
            fatal: false,
        }
    }
}

/// The reaction to an error. Each error has exactly one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// Repeat the same call with the same arguments until its deadline.
    Retriable,
    /// Abort the transaction, rewind and continue with the same producer.
    Abortable,
    /// Like [`Abortable`](Self::Abortable), for a cause outside of this worker that passes: a lock of another
    /// transaction, or a full disk. Such aborts repeat as often as necessary.
    Contended,
    /// The group has moved on without this member. Abort; the rebalance shows the remaining tasks.
    GroupFenced,
    /// This producer is fenced, and a new one with the same id may continue. Its epoch is old: another producer has
    /// the id, or the coordinator aborted the transaction after its timeout.
    ProducerFenced,
    /// This producer can't continue, but it was not fenced. The coordinator has no such transaction, or the sequence
    /// of records is broken.
    ProducerLost,
    /// Required data is missing: an offset is out of range. Going on would lose or double records.
    Corrupted,
    /// Only an operator can fix the cause: a missing permission, a missing topic, a wrong configuration.
    Fatal,
}

/// Returns whether the content of a record can have caused this error, so that the same record causes it again. An
/// absent broker, a timeout or a fence does not depend on the records that it hits. A search for a culprit among them
/// would condemn an innocent record.
#[must_use]
pub const fn blames_a_record(code: i32) -> bool {
    matches!(
        code,
        code::MESSAGE_TOO_LARGE
            | code::RECORD_LIST_TOO_LARGE
            | code::INVALID_TIMESTAMP
            | code::UNSUPPORTED_FOR_MESSAGE_FORMAT
            | code::INVALID_RECORD
            | code::LEDGER_REFUSED
    )
}
