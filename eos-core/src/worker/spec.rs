//! The settings and the environment of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::async_calls::{Executor, MakeExecutor, Polled};
use crate::client::GroupProtocol;
use crate::global::GlobalTables;
use crate::paused::PauseBoard;
use crate::views::ViewBoard;
use eos_protocol::state::TopicUuid;
use eos_protocol::{
    AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits, MaxIdle, Now, Timestamp,
    TopicName, TransactionalId, WorkerId,
};

use eos_state::CacheMemory;

use super::purge_queue::PurgeQueue;
use super::storage::{Home, InMemory};

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// The application id, which is also the consumer group.
    pub app: AppId,
    /// The worker's number in its process.
    pub id: WorkerId,
    /// `<app>-<instance>-<worker>`: transactional id and, for a static member, instance id.
    pub identity: TransactionalId,
    /// Whether the worker is a static member of the group.
    pub static_member: bool,
    /// The guarantee.
    pub guarantee: Guarantee,
    /// The commit policy.
    pub policy: CommitPolicy,
    /// The longest time that a task waits for an input without records (`max.task.idle.ms`).
    pub max_idle: MaxIdle,
    /// The longest time by which a record may be ahead of the machine's clock, in a stage that refuses records from the
    /// future (`max.timestamp.ahead.ms`). `None` accepts every timestamp.
    pub most_ahead: Option<Duration>,
    /// The limits of the waits for the producer.
    pub limits: Limits,
    /// The start offset of a task without a committed offset.
    pub first_start: FirstStart,
    /// An old layout that is accepted once.
    pub accepted_layout: Option<LayoutHash>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout: Duration,
    /// The group protocol.
    pub protocol: GroupProtocol,
    /// The limit of prefetched records of one partition, in bytes.
    pub prefetch: usize,
    /// The time limit of a revocation, in all cases.
    pub revoke_deadline: Duration,
    /// The time limit until committed offsets are stable.
    pub offsets_deadline: Duration,
    /// The number of partitions of each output topic, by the topology's outputs.
    pub output_partitions: Vec<u32>,
    /// The largest record batch that each output topic accepts in bytes (`max.message.bytes`), if it is known.
    pub output_limits: Vec<Option<usize>>,
    /// The number of partitions of each input topic.
    pub input_partitions: BTreeMap<TopicName, u32>,
    /// The input topics that may lose records to compaction: with `cleanup.policy=compact`, or with unknown settings.
    pub compacted: BTreeSet<TopicName>,
    /// The settings of tasks with stores.
    pub state: StateSpec,
    /// The records that the workers of the process no longer need.
    pub purge_queue: Arc<PurgeQueue>,
    /// The paused tasks of the process.
    pub pauses: Arc<PauseBoard>,
    /// The global tables of the process.
    pub globals: Arc<GlobalTables>,
    /// The tasks of the process that can be viewed.
    pub views: Arc<ViewBoard>,
}

/// The settings of tasks with stores.
#[derive(Debug, Clone)]
pub struct StateSpec {
    /// The storage of the databases.
    pub home: Arc<dyn Home>,
    /// The cluster's id.
    pub cluster: String,
    /// The topic ids, which distinguish topics of the same name.
    pub topic_ids: BTreeMap<TopicName, TopicUuid>,
    /// The ids of changelogs that are declared to be restored completely (`accept.changelog`).
    pub accepted_changelogs: Vec<String>,
    /// `delete.retention.ms` of each changelog.
    pub delete_retention: BTreeMap<TopicName, Duration>,
    /// The cache of recent reads and writes, for all stores of the process.
    pub cache: CacheMemory,
    /// The limit of a transaction's changes, in bytes. Beyond it, the worker commits early. The databases may
    /// still be applying as many bytes of the previous transaction.
    pub uncommitted_bytes: usize,
    /// The largest size of a restore's write, in bytes of memory.
    pub restore_batch: usize,
    /// The memory limit of all records that the worker's restores have read and not written yet, in bytes. If many
    /// tasks restore, each may still use 1 MiB.
    pub restore_bytes: usize,
    /// The longest time without progress in a restore.
    pub patience: Duration,
}

impl Default for StateSpec {
    /// Returns state in memory, no cache, 24 MiB of uncommitted changes, and a minute of patience. Restores have writes
    /// of 8 MiB and 64 MiB of memory.
    fn default() -> Self {
        Self {
            home: Arc::new(InMemory),
            cluster: String::new(),
            topic_ids: BTreeMap::new(),
            accepted_changelogs: Vec::new(),
            delete_retention: BTreeMap::new(),
            cache: CacheMemory::default(),
            uncommitted_bytes: 24 << 20,
            restore_batch: 8 << 20,
            restore_bytes: 64 << 20,
            patience: Duration::from_secs(60),
        }
    }
}

/// The clocks and the random numbers, injected by the caller.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    coarse: Arc<dyn Fn() -> Now + Send + Sync>,
    entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    executors: MakeExecutor,
}

impl Env {
    /// Returns an environment with this clock and these random numbers.
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
            executors: Arc::new(|_| Box::new(Polled::new(true))),
            coarse: Arc::clone(&clock) as Arc<dyn Fn() -> Now + Send + Sync>,
            clock,
            entropy: Arc::new(entropy),
        }
    }

    /// Sets the clock that is read for each record. It may lag some milliseconds behind, but is almost free to read.
    #[must_use]
    pub fn with_coarse_clock(mut self, clock: impl Fn() -> Now + Send + Sync + 'static) -> Self {
        self.coarse = Arc::new(clock);
        self
    }

    /// Sets the time of day, which stamps positions on disk. The default is the time of the clock.
    #[must_use]
    pub fn with_wall_clock(
        mut self,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        self.wall = Arc::new(clock);
        self
    }

    /// Lets asynchronous calls continue after they are aborted, as a call that blocks its thread does.
    #[must_use]
    pub fn with_unstoppable_calls(mut self) -> Self {
        self.executors = Arc::new(|_| Box::new(Polled::new(false)));
        self
    }

    /// Sets the executors of asynchronous calls. The default polls the calls in each step of the worker.
    #[must_use]
    pub(crate) fn with_executors(mut self, executors: MakeExecutor) -> Self {
        self.executors = executors;
        self
    }

    /// Creates the executor of a worker.
    pub(crate) fn executor(&self, waker: Waker) -> Box<dyn Executor> {
        (self.executors)(waker)
    }

    pub(crate) fn wall_clock(&self) -> Timestamp {
        (self.wall)()
    }

    /// Returns the machine's clock.
    pub(crate) fn wall(&self) -> &(dyn Fn() -> Timestamp + Send + Sync) {
        &*self.wall
    }

    pub(crate) fn now(&self) -> Now {
        (self.clock)()
    }

    /// Returns the time, which may be some milliseconds old.
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
