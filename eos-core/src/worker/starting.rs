//! Where assigned tasks start: committed offsets first, then the bounds of the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{PerFamily, TopicDigest};
use eos_protocol::{
    CommitCause, Committed, Deadline, ErrorClass, FirstStart, MissingOffsets, Now, Offset,
    Partition, Situation, Stage, Start, State, TaskId, TaskProgress, TopicPartition,
    TransactionName, plan_start,
};

use super::doubt::as_committed;
use super::foreign::Proofs;
use super::restoring::Committed as Kept;
use super::task::{Readiness, Task};
use super::{SLICE, Worker, WorkerError};
use crate::client::{Client, CommittedOffset, OffsetBounds, Source};
use crate::failpoints::{self, Defence};
use crate::metrics::Count;

/// How long after an error the brokers are asked again where a task starts.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Assigned partitions whose start offsets are being found out.
#[derive(Debug)]
pub(super) struct Resolving {
    /// Those whose committed offsets are not stable yet.
    pub(super) partitions: Vec<TopicPartition>,
    /// By when they have to be, by the brokers' time.
    deadline: Deadline,
    /// Those whose offsets are known, and how their tasks start.
    pub(super) starts: Vec<Found>,
    /// Nobody is asked again before: an answer that comes at once may be the same again.
    pub(super) not_before: Option<Now>,
    /// Committed offsets that were not in the log any more. An owner of before may have gone on, and what
    /// it had done with was deleted: they are asked for once more before they are believed.
    pub(super) gone: BTreeMap<TopicPartition, Offset>,
    /// Committed offsets that the group does not have: it is asked again before that is believed.
    missing: MissingOffsets,
    pub(super) proofs: Proofs,
}

impl Resolving {
    fn by(deadline: Deadline) -> Self {
        Self {
            partitions: Vec::new(),
            deadline,
            starts: Vec::new(),
            not_before: None,
            gone: BTreeMap::new(),
            missing: MissingOffsets::default(),
            proofs: Proofs::default(),
        }
    }

    /// These partitions belong to another worker now.
    pub(super) fn forget_missing(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.missing.forget(partition);
        }
    }
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) driving: TopicPartition,
    pub(super) task: TaskId,
    pub(super) start: Start,
    /// What is beside the offset of the driving partition.
    metadata: String,
}

impl<C: Client> Worker<C> {
    /// Answers an assignment at once, with nothing: until it is answered, librdkafka delivers
    /// nothing of any partition, and the group can't rebalance. Partitions follow when their
    /// offsets are stable.
    pub(super) fn resolve(&mut self, partitions: Vec<TopicPartition>) -> Result<(), WorkerError> {
        // The classic protocol also tells those to whom nothing changed.
        if !partitions.is_empty() {
            tracing::info!(app = %self.spec.app, worker = %self.spec.id, ?partitions, "partitions assigned");
        }
        self.meter.count(Count::Rebalances, 1);
        self.note_member();
        self.source.assign(&[]).map_err(WorkerError::Client)?;
        // A consumer that closes gives up what it is assigned without a further revocation.
        if self.membership.leaves() {
            return Ok(());
        }
        let deadline = Deadline::after(self.brokers.at(self.env.now()), self.spec.offsets_deadline);
        let resolving = self
            .resolving
            .get_or_insert_with(|| Resolving::by(deadline));
        resolving.partitions.extend(partitions);
        resolving.deadline = deadline;
        Ok(())
    }

    /// Finds out once more where the task of this partition starts, but not before then.
    pub(super) fn resolve_again(&mut self, partition: TopicPartition, not_before: Now) {
        let deadline = Deadline::after(self.brokers.at(self.env.now()), self.spec.offsets_deadline);
        let resolving = self
            .resolving
            .get_or_insert_with(|| Resolving::by(deadline));
        resolving.partitions.push(partition);
        resolving.deadline = deadline;
        resolving.not_before = Some(not_before);
    }

    /// Answers whether there is reason to look again at once.
    pub(super) fn go_on_resolving(&mut self) -> Result<bool, WorkerError> {
        let Some(mut resolving) = self.resolving.take() else {
            return Ok(false);
        };
        if resolving.partitions.is_empty() && resolving.starts.is_empty() {
            return Ok(true);
        }
        if self.membership.leaves() {
            return Ok(true);
        }
        let now = self.env.now();
        if resolving.deadline.passed(self.brokers.at(now)) {
            return Err(self.unresolved(&resolving));
        }
        if let Some(wait) = resolving.not_before.map(|at| at.since(now))
            && !wait.is_zero()
        {
            self.nap_at_most(Some(wait));
            self.resolving = Some(resolving);
            return Ok(false);
        }
        // One query of a kind at a time: what is in doubt, or gone, comes first.
        if self.machine.state() != State::InDoubt
            && self.out_of_range.is_empty()
            && self.gaps.is_empty()
        {
            resolving.not_before = None;
            if resolving.starts.is_empty() {
                let read = self.read_starts(&resolving.partitions);
                resolving.starts = self.or_later(read, &mut resolving.not_before)?;
                self.doubt_missing(&mut resolving);
                let found = |p: &TopicPartition| resolving.starts.iter().any(|f| f.driving == *p);
                resolving.partitions.retain(|p| !found(p));
            }
            if !resolving.starts.is_empty() {
                let bounds = self.offset_bounds(&resolving.starts);
                if let Some(bounds) = self.or_later(bounds, &mut resolving.not_before)? {
                    self.look_for_gone(&mut resolving, &bounds)?;
                    let proven = self.prove_repartitions(&mut resolving, &bounds);
                    if self.or_later(proven, &mut resolving.not_before)? {
                        let starts = std::mem::take(&mut resolving.starts);
                        if !starts.is_empty() {
                            self.start(starts, &bounds)?;
                        }
                    }
                }
            }
        }
        self.resolving = Some(resolving);
        // Waiting for others is no reason to spin.
        Ok(false)
    }

    /// Leaves out the tasks that would start over because an offset is missing, until the group has
    /// reported it missing often enough.
    fn doubt_missing(&self, resolving: &mut Resolving) {
        if failpoints::undefended(Defence::Missing) {
            return;
        }
        let found = std::mem::take(&mut resolving.starts);
        let all = found.len();
        let missing = &mut resolving.missing;
        resolving.starts = found
            .into_iter()
            .filter(|found| missing.confirm(&found.driving, &found.start))
            .collect();
        if resolving.starts.len() < all {
            tracing::debug!(
                app = %self.spec.app, worker = %self.spec.id, tasks = all - resolving.starts.len(),
                "the group has no committed offset; it is asked again"
            );
            resolving.not_before = Some(self.env.now().after(MissingOffsets::PAUSE));
        }
    }

    /// An answer, or nothing yet where a broker could not give one; it is asked again a little later.
    fn or_later<T: Default>(
        &mut self,
        answer: Result<T, WorkerError>,
        not_before: &mut Option<Now>,
    ) -> Result<T, WorkerError> {
        match answer {
            Err(WorkerError::Client(error)) if error.class() == ErrorClass::Retriable => {
                self.last_error = Some(error);
                *not_before = Some(self.env.now().after(ASK_AGAIN));
                Ok(T::default())
            }
            answer => answer,
        }
    }

    /// Why an assignment did not start in time.
    fn unresolved(&mut self, resolving: &Resolving) -> WorkerError {
        let last = self.last_error.take();
        if resolving.partitions.is_empty()
            && let Some(error) = last
        {
            return WorkerError::Client(error);
        }
        WorkerError::OffsetsUnstable {
            partitions: resolving.partitions.len() + resolving.starts.len(),
            waited_s: self.spec.offsets_deadline.as_secs(),
            last,
        }
    }

    /// Where tasks start, by their committed offsets: those whose offsets are all stable by now. A
    /// dead peer's transaction holds up its own partitions only.
    fn read_starts(&mut self, assigned: &[TopicPartition]) -> Result<Vec<Found>, WorkerError> {
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
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        asked.sort();
        asked.dedup();
        let slice = self.patience();
        let committed = match self.source.committed(&asked, slice) {
            Poll::Pending => return Ok(Vec::new()),
            Poll::Ready(Ok(committed)) => committed,
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
            let inputs = stage.topics.iter().filter_map(|t| {
                find(
                    &committed,
                    &TopicPartition::new(t.clone(), partition.partition),
                )
            });
            let inputs: Vec<Committed> = inputs.map(as_committed).collect();
            let eldest = find(&committed, &eldest_of(stage));
            if inputs.len() < stage.topics.len()
                || (self.spec.first_start == FirstStart::Latest && eldest.is_none())
            {
                continue;
            }
            let eldest = eldest.and_then(|c| TransactionName::parse(&c.metadata).ok().flatten());
            let situation = Situation {
                task,
                group: self.spec.app.as_str(),
                layout: stage.layout(),
                accepted: self.spec.accepted_layout,
                keeps: PerFamily::from_fn(|family| {
                    let mut stores = self.topology.stores_of(stage);
                    stores.any(|store| store.id.family() == family)
                }),
                first_start: self.spec.first_start,
                // Whether there is state is found out before the first record (`restoring.rs`).
                state_exists: false,
                eldest: eldest.as_ref(),
            };
            starts.push(Found {
                driving: partition.clone(),
                task,
                start: plan_start(&situation, &inputs)?,
                metadata: inputs
                    .into_iter()
                    .next()
                    .map(|c| c.metadata)
                    .unwrap_or_default(),
            });
        }
        Ok(starts)
    }

    /// Where the logs of all inputs begin and end; `None` while that is not known.
    fn offset_bounds(
        &mut self,
        starts: &[Found],
    ) -> Result<Option<Vec<OffsetBounds>>, WorkerError> {
        let inputs = starts.iter().flat_map(|found| match &found.start {
            Start::First { partitions, .. } => partitions.clone(),
            Start::Resume { at, .. } => at.iter().map(|(p, _)| p.clone()).collect(),
            Start::Grow { inputs, .. } => inputs.iter().map(|(p, _)| p.clone()).collect(),
        });
        let asked: BTreeSet<TopicPartition> = inputs.chain(self.fed_by(starts)).collect();
        let asked: Vec<TopicPartition> = asked.into_iter().collect();
        let slice = self.patience();
        match self.source.bounds(&asked, slice) {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok(bounds)) => Ok(Some(bounds)),
            Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
        }
    }

    fn start(&mut self, starts: Vec<Found>, bounds: &[OffsetBounds]) -> Result<(), WorkerError> {
        let (mut at, mut started, mut unclaimed) = (Vec::new(), Vec::new(), Vec::new());
        // What is in a topic of our own was written for us, however early: the policy is about others'.
        let own = self.repartitions.clone();
        let end_of = |partition: &TopicPartition, from: FirstStart| {
            let bounds = bounds.iter().find(|b| b.partition == *partition);
            bounds.map_or(Offset::ZERO, |b| match from {
                FirstStart::Latest if !own.contains(&partition.topic) => b.end,
                _ => b.first,
            })
        };
        for Found {
            driving,
            task,
            start,
            metadata,
        } in starts
        {
            let topology = Arc::clone(&self.topology);
            let Some(stage) = topology.stage(task.stage) else {
                continue;
            };
            let stateful = topology.stores_of(stage).next().is_some();
            let missing = matches!(start, Start::First { .. });
            let (inputs, name, claimed) = match start {
                Start::Resume { at, name } => (at, name, true),
                Start::Grow { inputs, from, name } => {
                    let inputs = inputs.into_iter().map(|(partition, at)| {
                        let at = at.unwrap_or_else(|| end_of(&partition, from));
                        (partition, at)
                    });
                    (inputs.collect(), Some(name), false)
                }
                Start::First { partitions, from } => {
                    let inputs = partitions.iter().map(|p| (p.clone(), end_of(p, from)));
                    (inputs.collect(), None, false)
                }
            };
            started.push(task.to_string());
            if !claimed {
                unclaimed.push(task.to_string());
            }
            let known = self
                .spec
                .input_partitions
                .get(stage.driving_topic())
                .copied()
                .unwrap_or(0);
            let width = known.max(task.partition.get().unsigned_abs() + 1);
            if stateful {
                let committed = match &name {
                    Some(name) => Kept::Named(name.clone()),
                    None if missing => Kept::Missing(driving.clone()),
                    None => Kept::Unnamed {
                        partition: driving.clone(),
                        metadata,
                    },
                };
                self.begin_to_restore(task, stage, inputs.clone(), committed);
            } else {
                at.extend(inputs.iter().cloned());
            }
            let changelogs = self.changelog_topics(stage);
            // A changelog that was made anew, and accepted: the name is to say so before the task is idle for long.
            let claimed = claimed
                && !name
                    .as_ref()
                    .is_some_and(|it| names_others(it, &changelogs));
            let progress = TaskProgress::resume(task, stage.layout(), width, inputs, name)
                .with_changelogs(changelogs);
            let chains = self.topology.instantiate(stage);
            self.owned.insert(driving, task);
            let now = self.env.now();
            let mut started = Task::new(progress, chains, claimed, self.spec.max_idle, now);
            if stateful {
                started.readiness = Readiness::Restoring;
            }
            self.tasks.insert(task, started);
        }
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, tasks = started.join(" "),
            unclaimed = unclaimed.join(" "), offsets = ?at, "tasks start"
        );
        self.source.assign(&at).map_err(WorkerError::Client)
    }

    /// Which topics the changelogs of a stage are.
    fn changelog_topics(&self, stage: &Stage) -> PerFamily<Option<TopicDigest>> {
        let outputs = self.topology.changelogs(stage.id);
        outputs.map(|output| {
            let topic = &self.topology.outputs().get(output?)?.name;
            self.spec.state.topic_ids.get(topic)?.digest()
        })
    }

    /// How long a query may block: not at all while other tasks have work.
    pub(super) fn patience(&self) -> Duration {
        if self.tasks.is_empty() {
            SLICE
        } else {
            Duration::ZERO
        }
    }

    /// Rule 10: a start offset that a policy resolved is committed before the first record.
    pub(super) fn claim(&mut self) -> bool {
        let unclaimed = |t: &&mut Task<_>| t.readiness == Readiness::Unclaimed;
        if !self.accepts() || !self.tasks.values_mut().any(|t| unclaimed(&t)) {
            return false;
        }
        if !self.has_begun() {
            return true;
        }
        for task in self.tasks.values_mut().filter(unclaimed) {
            task.progress.touch();
        }
        self.commit(CommitCause::FirstStart);
        true
    }

    /// Commits the offsets of idle tasks again, before the broker forgets them.
    pub(super) fn recommit(&mut self) {
        const LOOK: Duration = Duration::from_secs(60);
        let now = self.env.about_now();
        if now.since(self.looked_for_idle) < LOOK || !self.accepts() {
            return;
        }
        self.looked_for_idle = now;
        if !self.tasks.values().any(|task| task.is_overdue(now)) || !self.has_begun() {
            return;
        }
        for task in self.tasks.values_mut().filter(|task| task.is_overdue(now)) {
            task.recommits = !task.progress.recommit().is_empty();
            if !task.recommits {
                task.progress.touch();
            }
        }
        self.commit(CommitCause::Idle);
    }
}

/// Whether a committed name has other changelogs than there are now.
fn names_others(name: &TransactionName, now: &PerFamily<Option<TopicDigest>>) -> bool {
    let mut pairs = name.topics.iter().zip(now.iter());
    pairs.any(|((_, found), (_, now))| {
        found
            .as_ref()
            .zip(now.as_ref())
            .is_some_and(|(a, b)| a != b)
    })
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
