//! The traits of the Kafka client that the runtime uses.
//!
//! The worker in `eos-core` is generic over [`Client`]. `eos-kafka` implements it on librdkafka, and
//! `eos-testkit` on a model of a broker, under virtual time and with several workers on one thread.
//! Users of `eos-core` do not need this crate.
//!
//! | trait | stands for |
//! |---|---|
//! | [`Client`] | a cluster: creates sources and producers, queries and changes topics |
//! | [`Source`] | a member of a consumer group that reads committed records |
//! | [`Records`], [`Message`] | fetched records of one partition |
//! | [`GroupMetadata`] | the group's view of the member |
//! | [`Producer`] | a transactional producer |
//!
//! Calls of a running worker return [`Poll`] if they may wait. No client calls back into the worker: a rebalance is a
//! [`SourceEvent`]. Implementations make no decisions. They report events, and `eos-protocol` decides.
//!
//! ```
//! use eos_client::{Message, Records};
//!
//! /// Copies the values of all records.
//! fn values(records: &mut impl Records) -> Vec<Vec<u8>> {
//!     let mut values = Vec::new();
//!     while let Some(record) = records.first() {
//!         values.push(record.value().unwrap_or_default().to_vec());
//!         records.drop_first();
//!     }
//!     values
//! }
//! ```
#![forbid(unsafe_code)]

mod error;
mod record;
mod spec;

use std::task::{Poll, Waker};
use std::time::Duration;

use eos_protocol::{Offset, Partition, TopicName, TopicPartition};

pub use error::ClientError;
pub use record::{Change, Header, Headers, Message, Outgoing, Records};
pub use spec::{
    BrokerLimits, ClusterFacts, CommittedOffset, GroupMetadata, GroupProtocol, LogEnds, NewTopic,
    OffsetBounds, OffsetToCommit, ProducerSpec, SourceEvent, SourceSpec, TopicFacts, Verification,
};

/// The result of a client call.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// A Kafka cluster, as one application uses it.
pub trait Client {
    /// A consumer of input topics, as a member of a consumer group.
    type Source: Source;
    /// A transactional producer.
    type Producer: Producer<Member = <Self::Source as Source>::Member>;

    /// Returns the facts of the cluster and of these topics. A topic that does not exist is listed without facts. Fails
    /// after `within`.
    fn facts(&self, topics: &[TopicName], within: Duration) -> Result<ClusterFacts>;

    /// Creates topics, and returns a result for each of them, in the same order. A topic that exists already is a
    /// success, regardless of its settings. Fails after `within`.
    fn create_topics(
        &self,
        topics: &[NewTopic],
        within: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>>;

    /// Deletes all records before these offsets permanently, and returns the new log start offset of each partition, in
    /// the same order. An offset beyond the high watermark fails (OFFSET_OUT_OF_RANGE). An offset before the log start
    /// is no error. Fails after `within`, but the broker may still delete the records.
    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>>;

    /// Returns whether the producers need the input record of each output.
    fn keeps_origins(&self) -> bool {
        false
    }

    /// Returns whether a commit leaves markers in the logs, which delay the next transaction.
    fn has_markers(&self) -> bool {
        true
    }

    /// Creates a consumer without a subscription.
    fn source(&self, spec: &SourceSpec) -> Result<Self::Source>;

    /// Creates a producer, not initialised yet. A second producer with the same transactional id fences the first as
    /// soon as its [`Producer::init`] returns.
    fn producer(&self, spec: &ProducerSpec) -> Result<Self::Producer>;
}

/// A member of a consumer group that reads committed records only.
///
/// `slice` is the longest time that a call may block. After [`Poll::Pending`], repeat the call with the same arguments.
pub trait Source {
    /// Fetched records. Dropping them frees their memory.
    type Records: Records;
    /// The live group metadata.
    type Member: GroupMetadata;

    /// Joins the group for these topics.
    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()>;

    /// Leaves the group permanently, also as a static member: its partitions move at once. The assigned partitions
    /// arrive as a [`SourceEvent::Revoked`], which the caller still has to handle.
    fn unsubscribe(&mut self) -> Result<()>;

    /// Takes the next event, if there is one. Never waits. Counts as a poll for `max.poll.interval.ms`.
    fn poll(&mut self) -> Option<SourceEvent>;

    /// Waits until there may be an event or a record, or until `at_most` has passed. Records that a [`Source::take`]
    /// left behind because of `max` do not end the wait: the caller knows of them, and may not want them now.
    fn wait(&mut self, at_most: Duration);

    /// Returns a waker that ends the current [`wait`](Self::wait), or the next one.
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    /// Replaces the records in `into` by up to `max` fetched records of one assigned partition.
    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut Self::Records) -> Result<()>;

    /// Returns the group's *stable* committed offsets. An offset in an open transaction's pending commit is not stable
    /// (KIP-447, `require_stable`). Returns all offsets, or after a while the stable ones, at least one. Pending while
    /// none is stable. One such query is in flight at a time. A query for other partitions abandons it.
    fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>>;

    /// Returns the first offset and the end (for a reader of committed records) of each partition. One such query is in
    /// flight at a time.
    fn bounds(&mut self, of: &[TopicPartition], slice: Duration)
    -> Poll<Result<Vec<OffsetBounds>>>;

    /// Returns the beginning and the end of partitions, assigned or not, for a restore. The end for a reader of
    /// committed records may be before records whose transaction is about to commit. One such query is in flight at a
    /// time.
    fn ends(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Result<Vec<LogEnds>>>;

    /// Returns the last stable offset of an assigned partition, once all records before it were taken. It counts
    /// transaction markers. Returns `None` before that, or if a query to a broker would be necessary.
    fn drained(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// Returns the end of a partition for a reader of committed records. Returns `None` if a query to a broker would be
    /// necessary, and before the first fetch since the partition was assigned or sought.
    ///
    /// If the end is beyond the last record taken, more records may arrive. A reader that keeps an order across
    /// partitions waits for them (KIP-695). If all records before the last stable offset were taken, the end is the
    /// offset after the last record taken (or the assigned or sought offset). A reader does not wait for transaction
    /// markers at the end of the log, aborted records or records of open transactions.
    fn end(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// Returns the distance in offsets from an assigned partition's last stable offset to its high watermark: the
    /// records held back by an open transaction. Returns `None` if a query to a broker would be necessary, above all
    /// before all stable records were taken.
    fn held_back(&mut self, of: &TopicPartition) -> Option<u64>;

    /// Returns the high watermark of an assigned partition as of the last fetch. It counts records of open
    /// transactions. Returns `None` before the first fetch since the partition was assigned or sought.
    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// Responds to an assignment: adds these partitions, from these offsets, to the assigned ones.
    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()>;

    /// Responds to a whole revocation with one call: no more records of these partitions are delivered. Some of the
    /// partitions may never have been assigned.
    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()>;

    /// Seeks to these offsets. Once ready, no record that was fetched before is delivered.
    fn seek(&mut self, to: &[(TopicPartition, Offset)], slice: Duration) -> Poll<Result<()>>;

    /// Returns the assigned partitions of all group members, as the coordinator reports them. `None` during a
    /// rebalance.
    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>>;

    /// Returns the current group metadata. Read it right before each [`Producer::send_offsets`].
    fn member(&mut self) -> Result<Self::Member>;

    /// Commits offsets through the consumer. Never in a mode whose transactions commit them (design rule 11). An app with
    /// a ledger copies its positions with it, for tools that show lag.
    fn commit(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>>;

    /// Closes the consumer. A static member keeps its partitions for its session timeout. A dynamic member leaves the
    /// group. The caller still has to handle events meanwhile, so call [`Source::poll`] between two tries.
    fn close(&mut self, slice: Duration) -> Poll<Result<()>>;
}

/// A transactional producer; without a transactional id, an idempotent one.
pub trait Producer {
    /// The group metadata that [`Source::member`] returns.
    type Member;

    /// Fences every older producer with this transactional id, and ends its open transaction.
    fn init(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Begins a transaction, without a request to a broker.
    fn begin(&mut self) -> Result<()>;

    /// Names the input record of the following [`send`](Self::send) calls. The worker calls it only for a client that
    /// [keeps the origins](Client::keeps_origins) of outputs.
    fn begin_record(&mut self, partition: &TopicPartition, offset: Offset) {
        let _ = (partition, offset);
    }

    /// Copies a record into the open transaction. Pending while the client's queue is full: flush, then try again.
    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>>;

    /// Copies changes into the open transaction, in their order, as records of one partition. Returns the number of the
    /// copied ones: fewer than all if the client's queue is full. After an error, some of them may be copied.
    fn send_changes(
        &mut self,
        topic: usize,
        partition: Partition,
        changes: &[Change<'_>],
    ) -> Result<usize> {
        let headers = Headers::new();
        for (copied, change) in changes.iter().enumerate() {
            let record = Outgoing {
                topic,
                partition,
                timestamp: None,
                key: Some(change.key),
                value: change.value,
                headers: &headers,
            };
            match self.send(&record) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => return Ok(copied),
            }
        }
        Ok(changes.len())
    }

    /// Adds consumed offsets to the open transaction. Implementations that cannot be interrupted block for longer than
    /// `slice` and never return pending.
    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &Self::Member,
        slice: Duration,
    ) -> Poll<Result<()>>;

    /// Waits for the acknowledgement of all sent records.
    fn flush(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Commits the open transaction. Flush all records before. `slice` is all the remaining time: a client may not be
    /// able to continue an interrupted commit.
    fn commit(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Aborts the open transaction and drops queued records.
    fn abort(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Returns whether a control request of this producer got no response, or the client may confuse the results of two
    /// calls. Such a request may reach the broker late and affect the *next* transaction: librdkafka has no KIP-890
    /// (design rule 7).
    fn unanswered(&self) -> bool;
}
