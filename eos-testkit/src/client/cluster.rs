//! A cluster in this process.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use eos_protocol::CallSite;
use kafka_wire::batch::Record;

use super::admin::{self, Transaction, Written};
use super::fabric::Clock;
use super::facts;
use super::watcher::{Edge, Effect, Reaction, Watcher};
use super::world::World;
use eos_broker::broker::Broker;

/// A watcher without faults.
#[derive(Debug, Clone, Copy, Default)]
struct Well;

impl Watcher for Well {}

/// A cluster of one broker in this process, with clients on it. A copy is the same cluster.
#[derive(Clone)]
pub struct Cluster {
    world: Arc<Mutex<World>>,
    clock: Clock,
}

impl Cluster {
    /// A cluster without faults, at this time (milliseconds since the epoch).
    #[must_use]
    pub fn new(broker: Broker, now: i64) -> Cluster {
        Cluster::watched(broker, now, Well)
    }

    /// A cluster whose faults this watcher decides.
    #[must_use]
    pub fn watched(broker: Broker, now: i64, watcher: impl Watcher + 'static) -> Cluster {
        let world = World::new(broker, Box::new(watcher), now);
        Cluster {
            clock: world.fabric.clock(),
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// Lets time pass until then: requests and responses arrive, members send heartbeats, timeouts end.
    pub fn pass(&self, until: i64) {
        self.with(|world| world.pass(until));
    }

    /// The time of the next event that no call causes, in milliseconds since the epoch.
    #[must_use]
    pub fn next_event(&self) -> Option<i64> {
        self.with(|world| world.next_event())
    }

    /// The `client.id` of each client to which a response has arrived since the last call. A caller may step only
    /// these workers, and those whose wait is over.
    #[must_use]
    pub fn take_arrivals(&self) -> Vec<String> {
        self.with(World::take_arrivals)
    }

    /// Gives access to the broker, to read or change it.
    pub fn broker<T>(&self, act: impl FnOnce(&mut Broker) -> T) -> T {
        self.with(|world| act(&mut world.fabric.broker))
    }

    /// Sets the maximum bytes of a partition in one fetch (`max.partition.fetch.bytes`); at least one batch.
    pub fn fetch_at_most(&self, bytes: i32) {
        self.with(|world| world.fabric.fetch_bytes = bytes);
    }

    /// Freezes clients whose `client.id` has this prefix: SIGSTOP, as far as their own threads go.
    pub fn freeze(&self, prefix: &str) {
        self.with(|world| world.members.freeze(prefix));
    }

    /// Continues the frozen clients: SIGCONT.
    pub fn thaw(&self, prefix: &str) {
        self.with(|world| world.members.thaw(prefix));
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// Kafka's error: an invalid name, or a topic that exists already.
    pub fn add_topic(&self, name: &str, partitions: i32) -> Result<(), String> {
        self.with(|world| world.fabric.broker.add_topic(name, partitions, &[]))
    }

    /// Deletes a topic, its records, and the offsets that groups have committed for it.
    ///
    /// # Errors
    /// Kafka's error: no such topic.
    pub fn delete_topic(&self, name: &str) -> Result<(), String> {
        self.with(|world| facts::delete_topic(&mut world.fabric, name))
    }

    /// Deletes a topic and creates it again: empty, with a new id, the same partition count and the same settings.
    ///
    /// # Errors
    /// Kafka's error: no such topic.
    pub fn recreate_topic(&self, name: &str) -> Result<(), String> {
        self.with(|world| facts::recreate_topic(&mut world.fabric, name))
    }

    /// Raises the partition count of a topic to `partitions`.
    ///
    /// # Errors
    /// Kafka's error: no such topic, or it already has this many partitions.
    pub fn grow_topic(&self, name: &str, partitions: i32) -> Result<(), String> {
        self.with(|world| facts::grow_topic(&mut world.fabric, name, partitions))
    }

    /// Writes a record as a producer without transactions does, at once, and returns its offset.
    ///
    /// # Errors
    /// The error code of the broker.
    pub fn produce(&self, topic: &str, partition: i32, record: &Written<'_>) -> Result<i64, i16> {
        self.with(|world| admin::produce(&mut world.fabric, topic, partition, record))
    }

    /// Writes a record in a new transaction of another producer, at once, and returns its offset. The transaction stays open
    /// until [`end_transaction`](Self::end_transaction).
    ///
    /// # Errors
    /// The error code of the broker.
    pub fn write_in_transaction(
        &self,
        id: &str,
        topic: &str,
        partition: i32,
        record: &Written<'_>,
    ) -> Result<(Transaction, i64), i16> {
        self.with(|world| {
            admin::write_in_transaction(&mut world.fabric, id, (topic, partition), record)
        })
    }

    /// Commits or aborts a transaction of another producer.
    ///
    /// # Errors
    /// The error code of the broker.
    pub fn end_transaction(&self, transaction: &Transaction, commits: bool) -> Result<(), i16> {
        self.with(|world| admin::end_transaction(&mut world.fabric, transaction, commits))
    }

    /// The committed records of a partition, from the beginning.
    ///
    /// # Panics
    /// If the log has a batch that is compressed or can't be read. Only a test that writes to the
    /// [broker](Self::broker) can cause that.
    #[must_use]
    pub fn read(&self, topic: &str, partition: i32) -> Vec<Record> {
        self.read_from(topic, partition, 0)
    }

    /// The committed records of a partition, from this offset on.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[must_use]
    pub fn read_from(&self, topic: &str, partition: i32, offset: i64) -> Vec<Record> {
        self.with(|world| admin::read(&mut world.fabric, topic, partition, offset))
    }

    /// Whether a partition has committed records at this offset or later.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[must_use]
    pub fn has_records_from(&self, topic: &str, partition: i32, offset: i64) -> bool {
        self.with(|world| admin::has_records(&mut world.fabric, topic, partition, offset))
    }

    /// The partition count of a topic; 0 if the topic does not exist.
    #[must_use]
    pub fn partitions(&self, topic: &str) -> i32 {
        self.with(|world| world.fabric.broker.partitions_of(topic))
    }

    /// The end offsets of a partition: for a reader of committed records, and for a reader of all records. Due markers and
    /// timeouts of the broker do not run first.
    #[must_use]
    pub fn ends(&self, topic: &str, partition: i32) -> (i64, i64) {
        self.with(|world| admin::ends(&mut world.fabric, topic, partition))
    }

    /// The first offset of a partition. Earlier records were deleted.
    #[must_use]
    pub fn begin(&self, topic: &str, partition: i32) -> i64 {
        self.with(|world| admin::begin(&mut world.fabric, topic, partition))
    }

    /// A group's committed offset of a partition; `Err` while a transaction holds it.
    ///
    /// # Errors
    /// The code: UNSTABLE_OFFSET_COMMIT.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Result<Option<i64>, i16> {
        self.with(|world| admin::committed(&mut world.fabric, group, topic, partition))
    }

    /// Commits an offset for a group, as `kafka-consumer-groups.sh --reset-offsets` does. The group must have no
    /// members.
    ///
    /// # Errors
    /// The code, such as that of UNKNOWN_MEMBER_ID.
    pub fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) -> Result<(), i16> {
        self.with(|world| admin::commit(&mut world.fabric, group, topic, partition, offset))
    }

    /// A group's committed offset of each partition of a topic, by partition. An entry is `None` without an offset, and
    /// while an open transaction withholds it.
    #[must_use]
    pub fn all_committed(&self, group: &str, topic: &str) -> Vec<Option<i64>> {
        self.with(|world| admin::all_committed(&mut world.fabric, group, topic))
    }

    /// Calls in an invalid order, such as an abort after a commit without a response. They were refused.
    #[must_use]
    pub fn misuses(&self) -> Vec<String> {
        self.with(|world| world.misuses.clone())
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn before(&self, call: CallSite, client_id: &str) {
        self.at(call, client_id, Edge::Before);
    }

    pub(super) fn after(&self, call: CallSite, client_id: &str) {
        self.at(call, client_id, Edge::After);
    }

    fn at(&self, call: CallSite, client_id: &str, edge: Edge) {
        if let Some(time) = self.stalls(call, client_id, edge) {
            self.with(|world| world.pass(world.fabric.now() + time));
        }
    }

    /// Announces one side of a call to a ledger.
    pub fn announce(&self, call: CallSite, worker: &str, edge: Edge) {
        self.at(call, worker, edge);
    }

    /// Announces one side of a call. Returns for how many milliseconds the call stalls there.
    pub(super) fn stalls(&self, call: CallSite, client_id: &str, edge: Edge) -> Option<i64> {
        let effect = Effect {
            call,
            client_id,
            edge,
        };
        match self.with(|world| world.fabric.effect(&effect)) {
            Reaction::Nothing => None,
            Reaction::Stalls(time) => Some(time),
            // Without the panic hook, because the panic is intended.
            Reaction::Dies(with) => std::panic::resume_unwind(with),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}
