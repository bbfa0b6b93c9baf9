//! What a worker is told, and what it needs of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::GroupProtocol;
use eos_protocol::state::TopicUuid;
use eos_protocol::{
    AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits, MaxIdle, Now, Timestamp,
    TopicName, TransactionalId, WorkerId,
};

use eos_state::CacheMemory;

use super::purge_queue::PurgeQueue;
use super::storage::{Home, InMemory};

/// What a worker is told when it is made.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// The application; also the consumer group.
    pub app: AppId,
    /// The worker's number in its process.
    pub id: WorkerId,
    /// `<app>-<instance>-<worker>`: transactional id and, for a static member, instance id.
    pub identity: TransactionalId,
    /// Whether the worker is a static member of the group.
    pub static_member: bool,
    /// What is promised.
    pub guarantee: Guarantee,
    /// When to commit.
    pub policy: CommitPolicy,
    /// How long a task waits for an input that has no record (`max.task.idle.ms`).
    pub max_idle: MaxIdle,
    /// How long to wait for the producer.
    pub limits: Limits,
    /// Where a first start begins.
    pub first_start: FirstStart,
    /// An old layout that is accepted once.
    pub accepted_layout: Option<LayoutHash>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout: Duration,
    /// How it is a member of its group.
    pub protocol: GroupProtocol,
    /// How many bytes of records one partition may have waiting.
    pub prefetch: usize,
    /// By when a revocation is answered, whatever hangs.
    pub revoke_deadline: Duration,
    /// By when committed offsets must be stable.
    pub offsets_deadline: Duration,
    /// How many partitions each output topic has, by the topology's outputs.
    pub output_partitions: Vec<u32>,
    /// The largest record batch that each output topic takes (`max.message.bytes`), if that is
    /// known.
    pub output_limits: Vec<Option<usize>>,
    /// How many partitions each input topic has.
    pub input_partitions: BTreeMap<TopicName, u32>,
    /// The input topics that may lose records to compaction: those with `cleanup.policy=compact`, and those
    /// whose settings are not known.
    pub compacted: BTreeSet<TopicName>,
    /// What tasks with stores need.
    pub state: StateSpec,
    /// The records that the workers of the process no longer need.
    pub purge_queue: Arc<PurgeQueue>,
}

/// What tasks with stores need.
#[derive(Debug, Clone)]
pub struct StateSpec {
    /// Where their databases are.
    pub home: Arc<dyn Home>,
    /// The cluster's id.
    pub cluster: String,
    /// What tells topics from others of the same name.
    pub topic_ids: BTreeMap<TopicName, TopicUuid>,
    /// Ids of changelogs that are declared to be restored completely (`accept.changelog`).
    pub accepted_changelogs: Vec<String>,
    /// `delete.retention.ms` of each changelog.
    pub delete_retention: BTreeMap<TopicName, Duration>,
    /// Memory for what was read or written lately, of all stores of the process.
    pub cache: CacheMemory,
    /// How many bytes of changes a transaction may hold before it is committed early.
    pub uncommitted_bytes: usize,
    /// How many bytes a restore gathers before it writes them into the database.
    pub restore_batch: usize,
    /// How long a restore may stand still.
    pub patience: Duration,
}

impl Default for StateSpec {
    /// State in memory, no cache, 24 MiB of uncommitted changes, a mebibyte at a time, a minute of
    /// patience.
    fn default() -> Self {
        Self {
            home: Arc::new(InMemory),
            cluster: String::new(),
            topic_ids: BTreeMap::new(),
            accepted_changelogs: Vec::new(),
            delete_retention: BTreeMap::new(),
            cache: CacheMemory::default(),
            uncommitted_bytes: 24 << 20,
            restore_batch: 1 << 20,
            patience: Duration::from_secs(60),
        }
    }
}

/// Time and chance, from outside.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    coarse: Arc<dyn Fn() -> Now + Send + Sync>,
    entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Env {
    /// A world with this clock and these random numbers.
    pub fn new(
        clock: impl Fn() -> Now + Send + Sync + 'static,
        entropy: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let clock = Arc::new(clock);
        let began = Arc::clone(&clock);
        let wall = move || {
            let since = began().since(Now::default()).as_millis();
            Timestamp(i64::try_from(since).unwrap_or(i64::MAX))
        };
        Self {
            wall: Arc::new(wall),
            coarse: Arc::clone(&clock) as Arc<dyn Fn() -> Now + Send + Sync>,
            clock,
            entropy: Arc::new(entropy),
        }
    }

    /// With another clock for each record: one that may lag some milliseconds behind, but costs
    /// next to nothing to read.
    #[must_use]
    pub fn with_coarse_clock(mut self, clock: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        self.coarse = Arc::new(clock);
        self
    }

    /// With the time of day, which positions on disk are stamped with; the clock's own time otherwise.
    #[must_use]
    pub fn with_wall_clock(
        mut self,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        self.wall = Arc::new(clock);
        self
    }

    pub(crate) fn wall_clock(&self) -> Timestamp {
        (self.wall)()
    }

    pub(crate) fn now(&self) -> Now {
        (self.clock)()
    }

    /// The time, some milliseconds old perhaps.
    pub(crate) fn about_now(&self) -> Now {
        (self.coarse)()
    }

    pub(crate) fn entropy(&self) -> u64 {
        (self.entropy)()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}
