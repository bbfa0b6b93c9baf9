//! The history of transactions: spans and coordinator states.

/// The topic of the committed offsets of groups.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// A batch of records, and the end of the transaction that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first offset.
    pub first: i64,
    /// The last offset.
    pub last: i64,
    /// The number of records in the batch.
    pub records: u32,
    /// The producer id, or -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// Whether the batch belongs to a transaction.
    pub transactional: bool,
    /// The next marker of that producer, or `None` while its transaction is open.
    pub end: Option<Marker>,
}

/// A marker, which ends a producer's transaction in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The offset of the marker.
    pub offset: i64,
    /// The epoch of the producer whose transaction ends. A coordinator that fences a producer writes the epoch after
    /// the producer's own, and then always an abort.
    pub producer_epoch: i16,
    /// Whether the transaction is committed.
    pub commits: bool,
}

/// A step of a transaction, from the coordinator's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// The transactional id.
    pub transactional_id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The state, as in [`TransactionState::state`].
    pub state: &'static str,
    /// The partitions of the transaction: outputs, and those of [`CONSUMER_OFFSETS`].
    pub partitions: Vec<(String, i32)>,
    /// The time of the entry, in milliseconds since the epoch.
    pub at: i64,
}

/// A transactional id and the state of its latest transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionState {
    /// The transactional id.
    pub transactional_id: String,
    /// The current producer id of the transactional id.
    pub producer_id: i64,
    /// `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`,
    /// `PrepareEpochFence` or `Dead`.
    pub state: String,
}

impl TransactionState {
    /// Returns whether a transaction has begun and the coordinator has not written its end to all partitions.
    pub fn is_open(&self) -> bool {
        self.state == "Ongoing" || self.state.starts_with("Prepare")
    }
}

/// An open transaction, as a partition's leader reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenProducer {
    /// The partition.
    pub partition: i32,
    /// The producer id.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub producer_epoch: i16,
    /// The first offset of the transaction. The outcome of records from this offset on is open.
    pub first_offset: i64,
}
