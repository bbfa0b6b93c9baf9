//! The worker as a member of its consumer group: rebalances, starts of tasks, seeks.
//!
//! Nothing here touches the open transaction. A step returns what has to become of it, and the worker does it.

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

use std::collections::VecDeque;

use eos_protocol::{Revocation, Settle, TopicPartition, TopicWatch};

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

/// What a step of a rebalance came to.
#[derive(Debug)]
pub(super) enum GroupStep {
    /// There is nothing to do, or a response is awaited.
    Idle,
    Moved,
    /// A revocation begins: the open transaction is to be settled.
    Settle(Settle),
    /// Its deadline has passed: the open transaction is to be aborted.
    Overdue,
    /// Its partitions are to be given back.
    Close(Revocation),
    /// Everything that the worker owned is lost.
    Lost,
    /// These tasks start.
    Start(Vec<NewTask>),
}

/// What the open transaction allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// No transaction is open or under way.
    pub(super) settled: bool,
    /// Its outcome is not known.
    pub(super) in_doubt: bool,
}

/// The worker's part in its consumer group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) membership: Membership,
    pub(super) seeks: Seeks,
    /// Offsets and records that the logs lack.
    gaps: LogGaps,
    /// The app's topics, as of its start.
    topics: TopicWatch,
    /// Rebalance events that wait for their answers.
    changes: VecDeque<Change>,
    /// The revocation that is being answered. An assignment is answered at once.
    revoking: Option<Revoking>,
    /// Assigned partitions whose start offsets are being read.
    resolving: Option<Resolving>,
    coverage: Coverage,
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
            joined: false,
            wake: Wake::default(),
        }
    }

    /// Whether no rebalance waits for an answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.changes.is_empty() && self.revoking.is_none()
    }

    /// Whether the worker has what the group assigned, and no task of it is on its way.
    pub(super) fn is_ready(&self) -> bool {
        self.joined && self.is_quiet() && self.resolving.is_none() && self.seeks.are_done()
    }

    /// Whether records may be taken.
    pub(super) fn takes_records(&self) -> bool {
        self.membership.holds() && !self.seeks.reassigns() && self.revoking.is_none()
    }

    /// Whether a response of a broker is awaited: the next step should be soon.
    pub(super) fn is_waiting(&self) -> bool {
        self.revoking.is_some() || self.resolving.is_some()
    }

    /// Whether the group has assigned anything, even an empty set.
    pub(super) fn has_joined(&self) -> bool {
        self.joined
    }

    pub(super) fn assigned(&mut self, partitions: Vec<TopicPartition>) {
        self.joined = true;
        self.changes.push_back(Change::Assigned(partitions));
    }

    pub(super) fn revoked(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        self.changes.push_back(Change::Revoked { partitions, lost });
    }

    /// Goes on with the rebalance under way, or begins to answer the next one.
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

    /// These partitions belong to other members from now on.
    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        self.seeks.forget(partitions);
    }

    /// Goes back to these offsets.
    pub(super) fn seek(&mut self, back: impl IntoIterator<Item = Seek>) {
        for seek in back {
            self.seeks.push(seek);
        }
    }

    /// The topics that the consumer watches.
    #[cfg(test)]
    pub(super) fn topics(&self) -> &TopicWatch {
        &self.topics
    }
}

/// How long a query may block: not at all while other tasks have work.
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
