//! Answers assignments and revocations, one at a time, in the order in which they came.

use std::collections::BTreeSet;

use eos_protocol::{
    CommitCause, Deadline, Event, Revocation, Settle, State, TaskId, TopicPartition,
    plan_revocation,
};

use super::restoring::Restoring;
use super::{Worker, WorkerError};
use crate::client::{Client, Source};
use crate::failpoints::{self, Defence, Point};
use crate::metrics::Count;

/// A rebalance event that waits for its answer.
#[derive(Debug)]
pub(super) enum Change {
    Assigned(Vec<TopicPartition>),
    Revoked {
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
}

/// The event that is being answered. An assignment is answered at once.
#[derive(Debug)]
pub(super) enum Answering {
    Nothing,
    Revoking(Revoking),
}

#[derive(Debug)]
pub(super) struct Revoking {
    plan: Revocation,
    deadline: Deadline,
}

impl<C: Client> Worker<C> {
    /// Goes on with the answer under way, or begins with the next one.
    pub(super) fn answer(&mut self) -> Result<bool, WorkerError> {
        match std::mem::replace(&mut self.answering, Answering::Nothing) {
            Answering::Revoking(revoking) => {
                self.go_on_revoking(revoking)?;
                return Ok(matches!(self.answering, Answering::Nothing));
            }
            Answering::Nothing => match self.changes.pop_front() {
                Some(Change::Revoked { partitions, lost }) => self.revoke(partitions, lost),
                Some(Change::Assigned(partitions)) => self.resolve(partitions)?,
                None => return self.go_on_resolving(),
            },
        }
        Ok(true)
    }

    fn revoke(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        let open = !self.settled();
        if !partitions.is_empty() {
            tracing::info!(
                app = %self.spec.app, worker = %self.spec.id, ?partitions, lost, open,
                "partitions revoked"
            );
        }
        self.meter.count(Count::Rebalances, 1);
        // What never started has nothing to settle.
        if let Some(resolving) = &mut self.resolving
            && !failpoints::undefended(Defence::RevokedStart)
        {
            resolving.partitions.retain(|p| !partitions.contains(p));
            resolving.forget_missing(&partitions);
            resolving
                .starts
                .retain(|found| !partitions.contains(&found.driving));
        }
        let inputs_of = |task: TaskId| {
            let inputs = self.tasks.get(&task).map(|task| task.progress.inputs());
            let partitions = inputs.into_iter().flatten();
            partitions.map(|input| input.partition.clone()).collect()
        };
        let plan = plan_revocation(&self.owned, partitions, inputs_of, lost, open);
        match plan.settle {
            Settle::Nothing => {}
            _ if failpoints::undefended(Defence::Settle) => {}
            Settle::Abort if failpoints::undefended(Defence::Loss) => {
                self.commit(CommitCause::Revoke);
            }
            Settle::Commit => self.commit(CommitCause::Revoke),
            Settle::Abort => self.feed(Event::Lost),
        }
        if let Err(error) = failpoints::hit(Point::InRevoke)
            && !self.settled()
        {
            self.failed(error);
        }
        let deadline = Deadline::after(self.env.now(), self.spec.revoke_deadline);
        self.answering = Answering::Revoking(Revoking { plan, deadline });
    }

    /// Rule 4: settled first, unassigned last; bounded by one deadline, whatever hangs.
    fn go_on_revoking(&mut self, revoking: Revoking) -> Result<(), WorkerError> {
        let late =
            revoking.deadline.passed(self.env.now()) || failpoints::undefended(Defence::Settle);
        // In doubt: the successor waits for stable offsets, we need not.
        if !self.settled() && self.machine.state() != State::InDoubt && !late {
            self.answering = Answering::Revoking(revoking);
            return Ok(());
        }
        if late && !self.settled() && !failpoints::undefended(Defence::Settle) {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, state = ?self.machine.state(),
                "the transaction did not settle in time, partitions go back without it"
            );
            self.feed(Event::Lost);
        }
        let mut plan = revoking.plan;
        // Their changelogs go with them, and their databases close before others may open them.
        let close = &plan.close;
        let (gone, stay) = std::mem::take(&mut self.restoring)
            .into_iter()
            .partition(|one| close.contains(&one.task()));
        self.restoring = stay;
        let gone: Vec<Restoring<_>> = gone;
        let read = gone.iter().flat_map(Restoring::assigned);
        plan.unassign.extend(read.collect::<Vec<_>>());
        drop(gone);
        let close = match failpoints::undefended(Defence::Close) {
            true => &[],
            false => &plan.close[..],
        };
        for id in close {
            self.tasks.remove(id);
        }
        if self
            .held
            .is_some_and(|held| plan.close.contains(&held.task))
        {
            self.held = None;
            self.scratch.get_mut().clear();
        }
        let gone: BTreeSet<&TopicPartition> = plan.unassign.iter().collect();
        self.owned.retain(|partition, _| !gone.contains(partition));
        self.rewinds
            .retain(|(partition, _)| !gone.contains(partition));
        for partition in &plan.unassign {
            self.isolation.revoked(partition);
        }
        self.source
            .unassign(&plan.unassign)
            .map_err(WorkerError::Client)
    }
}
