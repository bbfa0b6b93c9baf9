//! What the runtime needs of a Kafka client, as traits.
//!
//! The worker in `eos-core` is generic over [`Client`]. `eos-kafka` implements it on librdkafka, and
//! `eos-testkit` on a model of a broker, under virtual time and with several workers on one thread.
//! Users of `eos-core` do not need this crate.
//!
//! | trait | stands for |
//! |---|---|
//! | [`Client`] | a cluster: makes sources and producers, queries and changes topics |
//! | [`Source`] | a member of a consumer group that reads committed records |
//! | [`Records`], [`Message`] | fetched records of one partition |
//! | [`GroupMetadata`] | the group's view of the member |
//! | [`Producer`] | a transactional producer |
//!
//! Calls of a running worker return [`Poll`] if they may wait. No client calls back into the
//! worker: a rebalance is a [`SourceEvent`]. No decision lives behind these traits: an implementation
//! reports what happened, and `eos-protocol` decides.
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

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Offset, TopicName, TopicPartition};

pub use error::ClientError;
pub use record::{Header, Headers, Message, Outgoing, Records};
pub use spec::{
    BrokerLimits, ClusterFacts, CommittedOffset, GroupMetadata, GroupProtocol, LogEnds, NewTopic,
    OffsetBounds, OffsetToCommit, ProducerSpec, SourceEvent, SourceSpec, TopicFacts, Verification,
};

/// What a client call answers.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// A Kafka cluster, seen by one application: makes sources and producers.
pub trait Client {
    /// Reads input topics as a member of a consumer group.
    type Source: Source;
    /// Writes in transactions.
    type Producer: Producer<Member = <Self::Source as Source>::Member>;

    /// What the cluster says of itself and of these topics; a topic that does not exist is listed
    /// without facts. Waits until `within` has passed, then fails.
    fn facts(&self, topics: &[TopicName], within: Duration) -> Result<ClusterFacts>;

    /// Creates topics, and returns a result for each of them, in their order. A topic that exists
    /// already is a success, whatever its settings. Fails after `within`.
    fn create_topics(
        &self,
        topics: &[NewTopic],
        within: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>>;

    /// Deletes all records before these offsets, for good and for everybody, and answers for each
    /// partition where its log begins now, in their order. An offset beyond the high watermark is
    /// refused (OFFSET_OUT_OF_RANGE), one that is gone already is fine. Waits until `within` has passed,
    /// then fails; what was ordered may still be done.
    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>>;

    /// A new consumer, subscribed to nothing yet.
    fn source(&self, spec: &SourceSpec) -> Result<Self::Source>;

    /// A new producer, not initialised yet. A second one with the same transactional id fences the
    /// first as soon as its [`Producer::init`] is done.
    fn producer(&self, spec: &ProducerSpec) -> Result<Self::Producer>;
}

/// A member of a consumer group that reads committed records only.
///
/// `slice` is how long a call may block; [`Poll::Pending`] means "not yet, ask again", with the
/// same arguments.
pub trait Source {
    /// Fetched records; dropping them frees them.
    type Records: Records;
    /// The live group metadata.
    type Member: GroupMetadata;

    /// Joins the group for these topics.
    fn subscribe(&mut self, topics: &[TopicName]) -> Result<()>;

    /// Leaves the group for good, a static member too: its partitions move at once. What is
    /// assigned comes back as a [`SourceEvent::Revoked`] that must still be answered.
    fn unsubscribe(&mut self) -> Result<()>;

    /// Takes the next event, if there is one; never waits. Counts as the poll that
    /// `max.poll.interval.ms` asks for.
    fn poll(&mut self) -> Option<SourceEvent>;

    /// Waits until an event or a record may have come, or `at_most` has passed. Records that a
    /// [`Source::take`] left behind because `max` was reached do not end it: the caller knows that
    /// there may be more, and whether it wants them now.
    fn wait(&mut self, at_most: Duration);

    /// Replaces `into` by up to `max` records of one assigned partition, as far as they are here
    /// already.
    fn take(&mut self, from: &TopicPartition, max: usize, into: &mut Self::Records) -> Result<()>;

    /// The group's committed offsets, as far as they are *stable*: an open transaction holds those
    /// that it is about to commit (KIP-447, `require_stable`). Answers with all, or after a while
    /// with those that are stable, at least one; pending while none is. One such query is under way
    /// at a time; one for other partitions abandons it.
    fn committed(
        &mut self,
        of: &[TopicPartition],
        slice: Duration,
    ) -> Poll<Result<Vec<CommittedOffset>>>;

    /// The first offset and the end (for a reader of committed records) of each partition. One
    /// such query is under way at a time.
    fn bounds(&mut self, of: &[TopicPartition], slice: Duration)
    -> Poll<Result<Vec<OffsetBounds>>>;

    /// Where partitions, assigned or not, begin and end, for a restore: what a reader of committed
    /// records calls the end may be before records whose transaction is about to commit. One such
    /// query is under way at a time.
    fn ends(&mut self, of: &[TopicPartition], slice: Duration) -> Poll<Result<Vec<LogEnds>>>;

    /// The last stable offset of an assigned partition, once everything before it was taken: markers of
    /// transactions included. `None` before that, or while it is not known without asking a broker.
    fn drained(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// Where a partition ends for a reader of committed records, as far as this is known without
    /// asking a broker; `None` before anything was heard since the partition was assigned or
    /// sought.
    ///
    /// Beyond the record that was taken last, something is on its way or may be: a reader that
    /// wants to keep an order across partitions waits for it (KIP-695). When everything before the
    /// last stable offset was taken, this is the offset after the last record taken (or the one
    /// that was assigned or sought): markers of transactions at the end of the log, aborted
    /// records and records of open transactions are nothing to wait for.
    fn end(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// How many offsets an assigned partition's last stable offset is behind its high watermark:
    /// what is written, but held back by an open transaction. `None` while that is not known
    /// without asking a broker: before everything stable was taken, above all.
    fn held_back(&mut self, of: &TopicPartition) -> Option<u64>;

    /// The high watermark of an assigned partition: it counts records of open transactions, too. As of the
    /// last fetch; `None` before the first one since the partition was assigned or sought.
    fn high_watermark(&mut self, of: &TopicPartition) -> Option<Offset>;

    /// Answers an assignment: these partitions, from these offsets, in addition to what is
    /// assigned already.
    fn assign(&mut self, at: &[(TopicPartition, Offset)]) -> Result<()>;

    /// Answers a revocation, all of it with one call: nothing of these partitions is delivered any
    /// more. Those that were never assigned may be among them.
    fn unassign(&mut self, partitions: &[TopicPartition]) -> Result<()>;

    /// Goes to these offsets. Once ready, nothing fetched before is delivered any more.
    fn seek(&mut self, to: &[(TopicPartition, Offset)], slice: Duration) -> Poll<Result<()>>;

    /// What all members of the group are assigned, by its coordinator; `None` while it rebalances.
    fn assigned(&mut self) -> Poll<Result<Option<Vec<TopicPartition>>>>;

    /// The group metadata of this moment. Read right before each [`Producer::send_offsets`].
    fn member(&mut self) -> Result<Self::Member>;

    /// Commits offsets through the consumer. At-least-once mode only: in exactly-once mode nothing
    /// ever does (design rule 11).
    fn commit(&mut self, offsets: &[OffsetToCommit], slice: Duration) -> Poll<Result<()>>;

    /// Stops being a consumer. A static member keeps its partitions for its session time-out, any
    /// other one leaves. Events that come up meanwhile must still be answered, so call
    /// [`Source::poll`] between two tries.
    fn close(&mut self, slice: Duration) -> Poll<Result<()>>;
}

/// A transactional producer; without a transactional id, an idempotent one.
pub trait Producer {
    /// What [`Source::member`] answers.
    type Member;

    /// Fences every older producer of this id and ends what it left open.
    fn init(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Begins a transaction; no network.
    fn begin(&mut self) -> Result<()>;

    /// Takes a record into the open transaction, copying it. Pending while the client's queue is
    /// full: flush, then try again.
    fn send(&mut self, record: &Outgoing<'_>) -> Poll<Result<()>>;

    /// Adds consumed offsets to the open transaction. Implementations that cannot be interrupted
    /// block for longer than `slice` and never answer pending.
    fn send_offsets(
        &mut self,
        offsets: &[OffsetToCommit],
        member: &Self::Member,
        slice: Duration,
    ) -> Poll<Result<()>>;

    /// Pending until everything sent is acknowledged.
    fn flush(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Commits the open transaction. Everything should be flushed before. `slice` is all the time that
    /// is left: a client may not be able to go on with a commit that was interrupted.
    fn commit(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Aborts the open transaction and drops what is queued.
    fn abort(&mut self, slice: Duration) -> Poll<Result<()>>;

    /// Whether a control request left and was never answered since this producer was made, or the
    /// client may mistake one call's outcome for another's. Such a
    /// request may reach the broker late and hit the *next* transaction: librdkafka has no KIP-890
    /// (design rule 7).
    fn unanswered(&self) -> bool;
}
