//! The traits of a ledger.

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use eos_client::Headers;
use eos_protocol::ledger::{Expected, Move, Taken};
use eos_protocol::state::TopicUuid;
use eos_protocol::{Offset, Timestamp, TopicName, TopicPartition};

/// The result of a call of a ledger.
pub type Answer<T = ()> = std::result::Result<T, LedgerError>;

/// A store that takes effects and positions in one transaction.
///
/// Each worker has one [`Session`] and one [`Positions`], and uses both on its own thread.
///
/// # Exactly-once
/// The obligations L1 to L8 of this [module](super).
pub trait Ledger: fmt::Debug + Send + Sync + 'static {
    /// The name in logs, errors and `describe()`, such as `postgres shop`. It contains no password.
    fn name(&self) -> String;

    /// Checks the ledger before the app starts: versions, places, permissions. If the ledger is not available,
    /// `check` tries again until `within` has passed.
    ///
    /// # Errors
    /// [`LedgerFailure::Retriable`] if the ledger is not available, or [`LedgerFailure::Fatal`] with all mistakes and
    /// their fixes.
    fn check(&self, plan: &Plan, within: Duration) -> Answer;

    /// Returns the reader of positions of a worker. It connects at its first call.
    ///
    /// # Errors
    /// [`LedgerFailure::Fatal`] for invalid settings.
    fn positions(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Positions>>;

    /// Returns a session of a worker. [`Session::init`] connects it.
    ///
    /// # Errors
    /// [`LedgerFailure::Fatal`] for invalid settings.
    fn session(&self, plan: &Plan, identity: &Identity) -> Answer<Box<dyn Session>>;

    /// Returns the counters of all sessions in this process, for the metrics of the app. Must not block.
    ///
    /// The default returns zeros.
    fn totals(&self) -> LedgerTotals {
        LedgerTotals::default()
    }
}

/// Counters of a ledger's sessions in this process. They count transactions that are known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerTotals {
    /// Rows. Each call of a statement or closure counts as one row. Includes rows of refused records and of repeated messages.
    pub rows: u64,
    /// Records skipped because the database refused one of their rows.
    pub skipped: u64,
    /// Records that became dead letters because the database refused one of their rows.
    pub dead_letters: u64,
    /// Transactions whose records ran again, one by one or in batches, to find a refused row.
    pub careful_transactions: u64,
}

/// The app of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The name of the app, which is its consumer group.
    pub app: String,
    /// The id of the Kafka cluster, if its brokers report one.
    pub cluster_id: Option<String>,
    /// The input topics, with their ids, if the brokers report them.
    pub topics: Vec<(TopicName, Option<TopicUuid>)>,
    /// The names of the places for rows. [`Effect::place`] is an index.
    pub places: Vec<String>,
    /// The places of dead letters: the key, the value and the headers of a record that failed, as bytes. Headers whose
    /// names begin with `eos-` name the origin and the error.
    pub dead_letters: Vec<usize>,
    /// The longest time of a transaction: `transaction.timeout.ms`.
    pub transaction_timeout: Duration,
}

/// A worker of an app, as a ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of the worker among all processes of the app: its transactional id. At most one live session has it.
    pub worker: String,
    /// A random number of this process, to tell two processes with the same identity apart.
    pub owner: u64,
}

/// An input record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The partition of the record.
    pub partition: &'a TopicPartition,
    /// The offset of the record.
    pub offset: Offset,
}

/// A row to write.
#[derive(Debug, Clone, Copy)]
pub struct Effect<'a> {
    /// The place, as an index into [`Plan::places`].
    pub place: usize,
    /// The input record that caused the row.
    pub origin: Origin<'a>,
    /// The encoded key.
    pub key: Option<&'a [u8]>,
    /// The encoded row, in the format of the place.
    pub row: Option<&'a [u8]>,
    /// The timestamp of the row's record.
    pub timestamp: Option<Timestamp>,
    /// The headers of the row's record.
    pub headers: &'a Headers,
}

/// Reads and takes over positions.
///
/// `slice` is the longest time that a call may block. After [`Poll::Pending`], the worker repeats the call, or makes
/// another one, which abandons it.
pub trait Positions: Send {
    /// Raises the epochs of these partitions, and returns their positions: all, or after a while those that are known,
    /// at least one. It waits for a transaction that has moved one of them, and ends that transaction's session if the
    /// session does not finish.
    ///
    /// # Errors
    /// [`LedgerFailure::Retriable`] while the ledger is not available, or [`LedgerFailure::Fatal`].
    fn take_over(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Answer<Vec<Taken>>>;

    /// Returns the committed positions of these partitions, and changes nothing. [`Taken::epoch`] is the stored epoch.
    ///
    /// # Errors
    /// As [`take_over`](Self::take_over).
    fn look(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Answer<Vec<Taken>>>;

    /// Discards the result of a pending call. The next call is a new one, even for the same partitions.
    ///
    /// The calls of one reader take effect in order. So a discarded take-over cannot raise an epoch after a later
    /// take-over.
    fn forget(&mut self) {}
}

/// Writes the transactions of a worker, one after the other.
///
/// `slice` is the longest time that a call may block. After [`Poll::Pending`], the worker repeats the call with the same
/// arguments before it makes another call. There are two exceptions. The worker may [`abort`](Self::abort) at any time.
/// After a pending [`write`](Self::write), it calls [`flush`](Self::flush), and then `write` again, even if the flush is
/// pending. Only [`init`](Self::init) may return [`LedgerFailure::Retriable`].
pub trait Session: Send {
    /// Connects, and ends all older sessions of this worker.
    ///
    /// # Errors
    /// [`LedgerFailure::Superseded`] if a newer session of this worker exists, [`LedgerFailure::Retriable`] while the
    /// ledger is not available.
    fn init(&mut self, slice: Duration) -> Poll<Answer>;

    /// Begins a transaction. Never waits.
    ///
    /// # Errors
    /// [`LedgerFailure::Abortable`] if the session has ended.
    fn begin(&mut self) -> Answer;

    /// Locks positions early, before the first row of their records, so that a frozen session is found by the locks
    /// that it holds. Never waits: its failure is returned by a later call.
    ///
    /// # Errors
    /// [`LedgerFailure::Moved`], [`LedgerFailure::Abortable`].
    fn hold(&mut self, expected: &[Expected]) -> Answer;

    /// Copies a row into the transaction. Pending while the queue of the session is full: flush, then try again.
    ///
    /// # Errors
    /// The error of this row, or of an earlier call.
    fn write(&mut self, effect: &Effect<'_>) -> Poll<Answer>;

    /// Moves the positions, after the last [`write`](Self::write) of the transaction.
    ///
    /// # Errors
    /// [`LedgerFailure::Moved`] with the positions that are not as expected, and the errors of earlier calls.
    fn set(&mut self, moves: &[Move], slice: Duration) -> Poll<Answer>;

    /// Waits until the ledger has taken all rows.
    ///
    /// # Errors
    /// The errors of earlier calls.
    fn flush(&mut self, slice: Duration) -> Poll<Answer>;

    /// Commits, after [`set`](Self::set) and [`flush`](Self::flush) have succeeded. `slice` is all the remaining time.
    ///
    /// # Errors
    /// Any error: the transaction may be committed or not, and [`is_spoiled`](Self::is_spoiled) is true.
    fn commit(&mut self, slice: Duration) -> Poll<Answer>;

    /// Ends the transaction without effects. A session without a connection succeeds and is spoiled.
    ///
    /// # Errors
    /// [`LedgerFailure::Abortable`] if the outcome is unknown; the session is spoiled.
    fn abort(&mut self, slice: Duration) -> Poll<Answer>;

    /// Whether the worker must replace the session before the next transaction, because its connection is gone or a
    /// request has no result.
    fn is_spoiled(&self) -> bool;
}

/// The required reaction to a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerFailure {
    /// Repeat the call until its deadline: the ledger is not available.
    Retriable,
    /// Abort the transaction and process its records again.
    Abortable,
    /// Abort the transaction, wait, and process its records again, as often as necessary: another transaction was in the
    /// way, or the ledger lacks a resource such as disk space.
    Contended,
    /// Another worker took over these positions, or they went back. Abort, and read them again.
    Moved(Vec<TopicPartition>),
    /// A newer session of the same worker exists.
    Superseded,
    /// Only an operator can fix the cause.
    Fatal,
}

/// A failed call of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct LedgerError {
    /// The required reaction.
    pub failure: LedgerFailure,
    /// Whether the content of a record may have caused the error, so that the record causes it again. The worker then
    /// searches for the record, and applies its error policy.
    pub blames_a_record: bool,
    /// The name of the ledger, the failed statement, the cause and the fix. It contains no row values.
    pub text: String,
}

impl LedgerError {
    /// Returns an error that no record is to blame for.
    pub fn new(failure: LedgerFailure, text: impl Into<String>) -> Self {
        Self {
            failure,
            blames_a_record: false,
            text: text.into(),
        }
    }

    /// Blames a record of the transaction.
    #[must_use]
    pub fn blaming_a_record(mut self) -> Self {
        self.blames_a_record = true;
        self
    }
}
