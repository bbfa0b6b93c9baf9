//! How transactions ended: the batches and markers of a log, and the state that coordinators keep.

/// Where the groups' offsets are kept.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// A batch of records, and the end of the transaction that it is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
    /// How many records lie between them.
    pub records: u32,
    /// Who wrote it, -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// Whether it was written inside a transaction.
    pub transactional: bool,
    /// The next marker of that producer; none while its transaction is open.
    pub end: Option<Marker>,
}

/// A marker, which ends a producer's transaction in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Where it lies.
    pub offset: i64,
    /// The epoch of the producer that it ends. A coordinator that fences one writes the epoch after
    /// its own, and then never a commit.
    pub producer_epoch: i16,
    /// Whether the transaction is committed.
    pub commits: bool,
}

/// A step of a transaction, as its coordinator wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// The transactional id.
    pub transactional_id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// As in [`TransactionState::state`].
    pub state: &'static str,
    /// The partitions that take part: outputs, and those of [`CONSUMER_OFFSETS`].
    pub partitions: Vec<(String, i32)>,
    /// When it was written, in milliseconds since the epoch.
    pub at: i64,
}

/// A transactional id and the state of its latest transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionState {
    /// The transactional id.
    pub transactional_id: String,
    /// The producer id it has now.
    pub producer_id: i64,
    /// `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`,
    /// `PrepareEpochFence` or `Dead`.
    pub state: String,
}

impl TransactionState {
    /// Whether a transaction is begun and its end is not written everywhere.
    pub fn is_open(&self) -> bool {
        self.state == "Ongoing" || self.state.starts_with("Prepare")
    }
}

/// A transaction that a partition's leader knows to be open there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenProducer {
    /// The partition.
    pub partition: i32,
    /// Who writes it.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// Its first offset: from there on nothing is decided.
    pub first_offset: i64,
}
