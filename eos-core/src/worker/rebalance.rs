//! Answers assignments and revocations, one at a time, in the order in which they came.

use std::collections::BTreeSet;
use std::task::Poll;

use eos_protocol::{
    CommitCause, Committed, Deadline, ErrorClass, Event, FirstStart, Offset, Partition, Revocation,
    Settle, Situation, Stage, Start, State, TaskId, TaskProgress, TopicPartition, TransactionName,
    plan_revocation, plan_start,
};

use super::calls::as_committed;
use super::task::{Readiness, Task};
use super::{Counters, SLICE, Worker, WorkerError};
use crate::client::{Client, CommittedOffset, OffsetBounds, Source};

/// A rebalance event that waits for its answer.
#[derive(Debug)]
pub(super) enum Change {
    Assigned(Vec<TopicPartition>),
    Revoked {
        partitions: Vec<TopicPartition>,
        lost: bool,
    },
}

/// The event that is being answered.
#[derive(Debug)]
pub(super) enum Answering {
    Nothing,
    Revoking(Revoking),
    Resolving(Resolving),
}

#[derive(Debug)]
pub(super) struct Revoking {
    plan: Revocation,
    deadline: Deadline,
}

/// An assignment whose start offsets are being found out.
#[derive(Debug)]
pub(super) struct Resolving {
    partitions: Vec<TopicPartition>,
    deadline: Deadline,
    /// The tasks, once their committed offsets are known.
    starts: Option<Vec<(TaskId, Start)>>,
}

impl<C: Client> Worker<C> {
    /// Goes on with the answer under way, or begins with the next one.
    pub(super) fn answer(&mut self) -> Result<bool, WorkerError> {
        match std::mem::replace(&mut self.answering, Answering::Nothing) {
            Answering::Nothing => match self.changes.pop_front() {
                None => return Ok(false),
                Some(Change::Revoked { partitions, lost }) => self.revoke(partitions, lost),
                Some(Change::Assigned(partitions)) => self.resolve(partitions),
            },
            Answering::Revoking(revoking) => self.go_on_revoking(revoking)?,
            // What is revoked before it ever started is not started.
            Answering::Resolving(_) if self.revoked_next() => {
                self.source.assign(&[]).map_err(WorkerError::Client)?;
            }
            Answering::Resolving(resolving) => self.go_on_resolving(resolving)?,
        }
        // Waiting for others is no reason to spin.
        Ok(!matches!(self.answering, Answering::Resolving(_)) || self.tasks.is_empty())
    }

    fn revoked_next(&self) -> bool {
        matches!(self.changes.front(), Some(Change::Revoked { .. }))
    }

    fn revoke(&mut self, partitions: Vec<TopicPartition>, lost: bool) {
        let open = !self.settled();
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, ?partitions, lost, open, "partitions revoked"
        );
        Counters::add(&self.counters.rebalances, 1);
        let plan = plan_revocation(&self.owned, partitions, lost, open);
        match plan.settle {
            Settle::Nothing => {}
            Settle::Commit => self.commit(CommitCause::Revoke),
            Settle::Abort => self.feed(Event::Lost),
        }
        let deadline = Deadline::after(self.env.now(), self.spec.revoke_deadline);
        self.answering = Answering::Revoking(Revoking { plan, deadline });
    }

    /// Rule 4: settled first, unassigned last; bounded by one deadline, whatever hangs.
    fn go_on_revoking(&mut self, revoking: Revoking) -> Result<(), WorkerError> {
        let late = revoking.deadline.passed(self.env.now());
        // In doubt: the successor waits for stable offsets, we need not.
        if !self.settled() && self.machine.state() != State::InDoubt && !late {
            self.answering = Answering::Revoking(revoking);
            return Ok(());
        }
        if late && !self.settled() {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, state = ?self.machine.state(),
                "the transaction did not settle in time, partitions go back without it"
            );
            self.feed(Event::Lost);
        }
        let plan = revoking.plan;
        for id in &plan.close {
            self.tasks.remove(id);
        }
        let gone: BTreeSet<&TopicPartition> = plan.unassign.iter().collect();
        self.owned.retain(|partition, _| !gone.contains(partition));
        self.rewinds
            .retain(|(partition, _)| !gone.contains(partition));
        self.source
            .unassign(&plan.unassign)
            .map_err(WorkerError::Client)
    }

    fn resolve(&mut self, partitions: Vec<TopicPartition>) {
        tracing::info!(app = %self.spec.app, worker = %self.spec.id, ?partitions, "partitions assigned");
        Counters::add(&self.counters.rebalances, 1);
        let deadline = Deadline::after(self.env.now(), self.spec.offsets_deadline);
        self.answering = Answering::Resolving(Resolving {
            partitions,
            deadline,
            starts: None,
        });
    }

    fn go_on_resolving(&mut self, mut resolving: Resolving) -> Result<(), WorkerError> {
        if resolving.partitions.is_empty() {
            return self.source.assign(&[]).map_err(WorkerError::Client);
        }
        if resolving.deadline.passed(self.env.now()) {
            return Err(WorkerError::OffsetsUnstable {
                partitions: resolving.partitions.len(),
                waited_s: self.spec.offsets_deadline.as_secs(),
                last: self.last_error.take(),
            });
        }
        let starts = match resolving.starts.take() {
            Some(starts) => starts,
            None => match self.read_starts(&resolving.partitions)? {
                Some(starts) => starts,
                None => {
                    self.answering = Answering::Resolving(resolving);
                    return Ok(());
                }
            },
        };
        match self.first_offsets(&starts)? {
            Some(bounds) => self.start(starts, &bounds),
            None => {
                resolving.starts = Some(starts);
                self.answering = Answering::Resolving(resolving);
                Ok(())
            }
        }
    }

    /// Where each task starts, by its stable committed offsets; `None` while they are not there.
    fn read_starts(
        &mut self,
        assigned: &[TopicPartition],
    ) -> Result<Option<Vec<(TaskId, Start)>>, WorkerError> {
        let mut asked: Vec<TopicPartition> = Vec::new();
        for partition in assigned {
            if let Some(stage) = stage_of(self.topology.stages(), partition) {
                asked.extend(
                    stage
                        .topics
                        .iter()
                        .map(|t| TopicPartition::new(t.clone(), partition.partition)),
                );
                if self.spec.first_start == FirstStart::Latest {
                    asked.push(eldest_of(stage));
                }
            }
        }
        asked.sort();
        asked.dedup();
        let slice = self.patience();
        let committed = match self.source.committed(&asked, slice) {
            Poll::Pending => return Ok(None),
            Poll::Ready(Ok(committed)) => committed,
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                self.last_error = Some(error);
                return Ok(None);
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        };
        let mut starts = Vec::with_capacity(assigned.len());
        for partition in assigned {
            let Some(stage) = stage_of(self.topology.stages(), partition) else {
                continue;
            };
            let task = TaskId {
                stage: stage.id,
                partition: partition.partition,
            };
            let eldest = find(&committed, &eldest_of(stage))
                .and_then(|c| TransactionName::parse(&c.metadata).ok().flatten());
            let situation = Situation {
                task,
                group: self.spec.app.as_str(),
                layout: stage.layout(),
                accepted: self.spec.accepted_layout,
                first_start: self.spec.first_start,
                // There are no stores yet.
                state_exists: false,
                eldest: eldest.as_ref(),
            };
            let inputs: Vec<Committed> = stage
                .topics
                .iter()
                .filter_map(|t| {
                    find(
                        &committed,
                        &TopicPartition::new(t.clone(), partition.partition),
                    )
                })
                .map(as_committed)
                .collect();
            starts.push((task, plan_start(&situation, &inputs)?));
        }
        Ok(Some(starts))
    }

    /// The bounds of the partitions that start for the first time; `None` while they are not there.
    fn first_offsets(
        &mut self,
        starts: &[(TaskId, Start)],
    ) -> Result<Option<Vec<OffsetBounds>>, WorkerError> {
        let mut asked = Vec::new();
        for (_, start) in starts {
            if let Start::First { partitions, .. } = start {
                asked.extend_from_slice(partitions);
            }
        }
        if asked.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let slice = self.patience();
        match self.source.bounds(&asked, slice) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(bounds)) => Ok(Some(bounds)),
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                self.last_error = Some(error);
                Ok(None)
            }
            Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
        }
    }

    fn start(
        &mut self,
        starts: Vec<(TaskId, Start)>,
        bounds: &[OffsetBounds],
    ) -> Result<(), WorkerError> {
        let mut at = Vec::new();
        for (task, start) in starts {
            let Some(stage) = self.topology.stage(task.stage) else {
                continue;
            };
            let (inputs, name, claimed) = match start {
                Start::Resume { at, name } => (at, name, true),
                Start::First { partitions, from } => {
                    let offset = |partition: &TopicPartition| {
                        let bounds = bounds.iter().find(|b| b.partition == *partition);
                        bounds.map_or(Offset::ZERO, |b| match from {
                            FirstStart::Earliest => b.first,
                            FirstStart::Latest => b.end,
                        })
                    };
                    let inputs = partitions.iter().map(|p| (p.clone(), offset(p))).collect();
                    (inputs, None, false)
                }
            };
            tracing::info!(
                app = %self.spec.app, worker = %self.spec.id, %task, offsets = ?inputs, claimed,
                "task starts"
            );
            let known = self
                .spec
                .input_partitions
                .get(stage.driving_topic())
                .copied()
                .unwrap_or(0);
            let width = known.max(task.partition.get().unsigned_abs() + 1);
            at.extend(inputs.iter().cloned());
            let progress = TaskProgress::resume(task, stage.layout(), width, inputs, name);
            let chains = self.topology.instantiate(stage);
            let driving = TopicPartition::new(stage.driving_topic().clone(), task.partition);
            self.owned.insert(driving, task);
            self.tasks
                .insert(task, Task::new(progress, chains, claimed));
        }
        self.source.assign(&at).map_err(WorkerError::Client)
    }

    /// How long a query may block: not at all while other tasks have work.
    fn patience(&self) -> std::time::Duration {
        if self.tasks.is_empty() {
            SLICE
        } else {
            std::time::Duration::ZERO
        }
    }

    /// Rule 10: a start offset that a policy resolved is committed before the first record.
    pub(super) fn claim(&mut self) -> bool {
        let unclaimed = |t: &&mut Task<_>| t.readiness == Readiness::Unclaimed;
        if !self.accepts() || !self.tasks.values_mut().any(|t| unclaimed(&t)) {
            return false;
        }
        self.feed(Event::Touched);
        if self.machine.state() != State::Open {
            return true;
        }
        for task in self.tasks.values_mut().filter(unclaimed) {
            task.progress.touch();
        }
        self.commit(CommitCause::FirstStart);
        true
    }

    /// Rule 8: goes back to the last commit. No task takes a record before that is confirmed.
    pub(super) fn rewind(&mut self) -> Result<bool, WorkerError> {
        if self.rewinds.is_empty() {
            return Ok(false);
        }
        match self.source.seek(&self.rewinds, SLICE) {
            Poll::Pending => return Ok(true),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                // The fetcher has not started yet: assigning explicitly does the same.
                tracing::debug!(worker = %self.spec.id, %error, "assigning again instead of seeking");
                let partitions: Vec<_> = self.rewinds.iter().map(|(p, _)| p.clone()).collect();
                self.source
                    .unassign(&partitions)
                    .map_err(WorkerError::Client)?;
                self.source
                    .assign(&self.rewinds)
                    .map_err(WorkerError::Client)?;
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        }
        self.rewinds.clear();
        for task in self
            .tasks
            .values_mut()
            .filter(|t| t.readiness == Readiness::Rewinding)
        {
            task.rewound();
        }
        Ok(true)
    }
}

/// The stage that this topic drives.
fn stage_of<'a>(stages: &'a [Stage], partition: &TopicPartition) -> Option<&'a Stage> {
    stages
        .iter()
        .find(|stage| *stage.driving_topic() == partition.topic)
}

/// Partition 0 was there from the beginning.
fn eldest_of(stage: &Stage) -> TopicPartition {
    TopicPartition::new(stage.driving_topic().clone(), Partition::ZERO)
}

fn find<'a>(
    committed: &'a [CommittedOffset],
    partition: &TopicPartition,
) -> Option<&'a CommittedOffset> {
    committed.iter().find(|c| c.partition == *partition)
}
