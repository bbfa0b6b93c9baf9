//! The worker as a group member.
//!
//! This part never touches the open transaction. A step returns the required action, and the worker carries it out.

mod coverage;
mod foreign;
mod gone_offsets;
mod log_gaps;
mod membership;
mod rebalance;
mod resolving;
mod seeks;
mod start;
mod topics;

use std::collections::{BTreeSet, VecDeque};

use eos_protocol::{Revocation, Settle, Stage, TaskId, TopicPartition, TopicWatch};

use super::shared::Shared;
use super::tasks::{Seek, Tasks};
use super::wake::Wake;
use super::{RecordsOf, WorkerError};
use crate::client::{Client, Source};

pub(super) use membership::{JOIN, Membership, has_left, subscribed};
pub(super) use seeks::{Seeks, Sought};
pub(super) use start::NewTask;
pub(super) use topics::watch;

use coverage::Coverage;
use log_gaps::LogGaps;
use rebalance::{Change, Revoking};
use resolving::Resolving;

/// The result of a rebalance step.
#[derive(Debug)]
pub(super) enum GroupStep {
    /// There is nothing to do, or the worker waits for a response.
    Idle,
    Moved,
    /// A revocation begins: settle the open transaction.
    Settle(Settle),
    /// The deadline of the revocation has passed: abort the open transaction.
    Overdue,
    /// Give back the revoked partitions.
    Close(Revocation),
    /// All owned partitions are lost.
    Lost,
    /// Start these tasks.
    Start(Vec<NewTask>),
}

/// The state of the open transaction, as far as a rebalance depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Whether no transaction is open or in flight.
    pub(super) settled: bool,
    /// Whether the outcome of the transaction is unknown.
    pub(super) in_doubt: bool,
}

/// The worker's membership in its consumer group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) membership: Membership,
    pub(super) seeks: Seeks,
    /// Offsets and records that are missing in the logs.
    gaps: LogGaps,
    /// The app's topics at its start.
    topics: TopicWatch,
    /// The queue of rebalance events.
    changes: VecDeque<Change>,
    /// The revocation in progress. Assignments are handled at once.
    revoking: Option<Revoking>,
    /// The assigned partitions whose start offsets are being read.
    resolving: Option<Resolving>,
    coverage: Coverage,
    /// The partitions whose committed offsets another writer moved.
    moved: Vec<TopicPartition>,
    /// Whether the group has assigned anything, even an empty set.
    joined: bool,
    pub(super) wake: Wake,
}

impl Group {
    pub(super) fn new(topics: TopicWatch) -> Self {
        Self {
            membership: Membership::default(),
            seeks: Seeks::default(),
            gaps: LogGaps::default(),
            topics,
            changes: VecDeque::new(),
            revoking: None,
            resolving: None,
            coverage: Coverage::default(),
            moved: Vec::new(),
            joined: false,
            wake: Wake::default(),
        }
    }

    /// Returns whether no rebalance is queued or in progress.
    pub(super) fn is_quiet(&self) -> bool {
        self.changes.is_empty() && self.revoking.is_none()
    }

    /// Returns whether all assigned tasks have started.
    pub(super) fn is_ready(&self) -> bool {
        self.joined && self.is_quiet() && self.resolving.is_none() && self.seeks.are_done()
    }

    /// Returns whether the worker may take records.
    pub(super) fn takes_records(&self) -> bool {
        self.membership.holds()
            && !self.seeks.reassigns()
            && self.revoking.is_none()
            && self.moved.is_empty()
    }

    /// Returns whether the worker waits for a broker's response: the next step should be soon.
    pub(super) fn is_waiting(&self) -> bool {
        self.revoking.is_some() || self.resolving.is_some()
    }

    /// Returns whether the group has assigned anything, even an empty set.
    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    /// Returns whether the start offsets of tasks are being read, or an assignment is queued.
    pub(super) fn is_resolving(&self) -> bool {
        self.resolving.is_some() || !self.changes.is_empty()
    }

    /// Returns the tasks whose start offsets are being read.
    pub(super) fn starting(&self, stages: &[Stage]) -> BTreeSet<TaskId> {
        let queued = self.changes.iter().flat_map(|change| match change {
            Change::Assigned(partitions) => &partitions[..],
            Change::Revoked { .. } => &[],
        });
        let resolving = self.resolving.iter();
        let partitions = queued.chain(resolving.clone().flat_map(|it| &it.partitions));
        let tasks = partitions.filter_map(|partition| start::task_of(stages, partition));
        let found = resolving.flat_map(|it| &it.starts).map(|found| found.task);
        tasks.chain(found).collect()
    }

    pub(super) fn assigned(&mut self, partitions: Vec<TopicPartition>) {
        self.joined = true;
        self.changes.push_back(Change::Assigned(partitions));
    }

    pub(super) fn revoked(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        self.changes.push_back(Change::Revoked { partitions, lost });
    }

    /// Records that another writer moved the committed offsets of these partitions.
    pub(super) fn moved(&mut self, partitions: Vec<TopicPartition>) {
        self.moved.extend(partitions);
    }

    /// Takes the moved partitions, once no transaction is open and no rebalance is in progress. librdkafka treats any
    /// change of the assignment as the response to a rebalance.
    pub(super) fn take_moved(&mut self, settled: bool) -> Option<Vec<TopicPartition>> {
        let ready = !self.moved.is_empty() && settled && self.is_quiet();
        ready.then(|| std::mem::take(&mut self.moved))
    }

    /// Continues the rebalance in progress, or begins the next one.
    pub(super) fn step<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: Standing,
        source: &mut C::Source,
        tasks: &Tasks<RecordsOf<C>>,
    ) -> Result<GroupStep, WorkerError> {
        if self.revoking.is_some() {
            return Ok(self.go_on_revoking(shared, txn));
        }
        match self.changes.pop_front() {
            Some(Change::Revoked { partitions, lost }) => {
                Ok(self.revoke(shared, txn, tasks, partitions, lost))
            }
            Some(Change::Assigned(partitions)) => self.resolve(shared, source, tasks, partitions),
            None => self.go_on_resolving(shared, txn, source, tasks),
        }
    }

    /// Removes these partitions, which now belong to other members.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        self.seeks.forget(partitions);
        self.moved.retain(|it| !partitions.contains(it));
    }

    /// Rewinds to these offsets.
    pub(super) fn seek(&mut self, back: impl IntoIterator<Item = Seek>) {
        for seek in back {
            self.seeks.push(seek);
        }
    }

    /// Returns the topics that the consumer watches.
    #[cfg(test)]
    pub(super) fn topics(&self) -> &TopicWatch {
        &self.topics
    }
}

/// Returns the longest time that a query may block: zero while other tasks have work.
fn patience<R: crate::client::Records>(tasks: &Tasks<R>) -> std::time::Duration {
    match tasks.is_empty() {
        true => super::SLICE,
        false => std::time::Duration::ZERO,
    }
}

fn unassign<C: Client>(
    source: &mut C::Source,
    partitions: &[TopicPartition],
) -> Result<(), WorkerError> {
    source.unassign(partitions).map_err(WorkerError::Client)
}
