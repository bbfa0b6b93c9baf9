//! What a worker is told, and what it needs of the world.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::GroupProtocol;
use eos_protocol::{
    AppId, CommitPolicy, FirstStart, Guarantee, LayoutHash, Limits, MaxIdle, Now, TopicName,
    TransactionalId, WorkerId,
};

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
}

/// Time and chance, from outside.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    coarse: Arc<dyn Fn() -> Now + Send + Sync>,
    entropy: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Env {
    /// A world with this clock and these random numbers.
    pub fn new(
        clock: impl Fn() -> Now + Send + Sync + 'static,
        entropy: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let clock = Arc::new(clock);
        Self {
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
