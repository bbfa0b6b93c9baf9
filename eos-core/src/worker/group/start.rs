//! Reads the start offsets of assigned tasks.
//!
//! Committed offsets come first, then the bounds of the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{PerFamily, TopicDigest};
use eos_protocol::{
    Committed, Deadline, FirstStart, Now, Offset, Partition, Situation, Stage, Start, TaskId,
    TopicPartition, TransactionName, plan_start,
};

use super::foreign;
use super::resolving::{Found, Resolving, by_partition};
use super::{Group, GroupStep, Standing, gone_offsets, patience};
use crate::client::{Client, CommittedOffset, GroupMetadata, OffsetBounds, Source};
use crate::metrics::Count;
use crate::worker::shared::Shared;
use crate::worker::tasks::{Seek, Tasks};
use crate::worker::transaction::as_committed;
use crate::worker::{RecordsOf, WorkerError};

/// A task to start.
#[derive(Debug)]
pub(in crate::worker) struct NewTask {
    pub(in crate::worker) id: TaskId,
    /// The driving partition of the task.
    pub(in crate::worker) driving: TopicPartition,
    /// The start offsets of the inputs.
    pub(in crate::worker) at: Vec<Seek>,
    /// The name of the task's last transaction.
    pub(in crate::worker) name: Option<TransactionName>,
    /// The metadata of the driving partition's offset. `None` without an offset.
    pub(in crate::worker) metadata: Option<String>,
    /// Whether a committed offset covers the start.
    pub(in crate::worker) claimed: bool,
}

impl NewTask {
    /// Returns whether the committed name refers to replaced changelogs. Such a start is committed at once, so that the
    /// metadata names the accepted new changelogs even if the task stays idle.
    pub(in crate::worker) fn names_other_changelogs(
        &self,
        now: &PerFamily<Option<TopicDigest>>,
    ) -> bool {
        let Some(name) = &self.name else {
            return false;
        };
        let mut pairs = name.topics.iter().zip(now.iter());
        pairs.any(|((_, found), (_, now))| {
            let both = found.as_ref().zip(now.as_ref());
            both.is_some_and(|(found, now)| found != now)
        })
    }
}

impl Group {
    /// Responds to an assignment at once, with an empty set: until the response, librdkafka delivers no records of any
    /// partition, and the group can't rebalance. The partitions follow when their offsets are stable.
    pub(super) fn resolve<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &Tasks<RecordsOf<C>>,
        partitions: Vec<TopicPartition>,
    ) -> Result<GroupStep, WorkerError> {
        // The classic protocol also reports assignments without changes.
        if !partitions.is_empty() {
            tracing::info!(
                app = %shared.spec.app, worker = %shared.spec.id, ?partitions, "partitions assigned"
            );
        }
        shared.meter.count(Count::Rebalances, 1);
        let member = source.member();
        let id = member.map_or(String::new(), |member| member.member_id().to_owned());
        let mut step = GroupStep::Moved;
        if tasks.owns_nothing() && self.resolving.is_none() {
            self.membership.begin(id);
        } else if !self.membership.is_member(shared, &id) {
            step = GroupStep::Lost;
        }
        source.assign(&[]).map_err(WorkerError::Client)?;
        // A consumer that closes gives up its assignment without another revocation.
        if !self.membership.leaves() {
            self.add_to_resolve(shared, partitions);
        }
        Ok(step)
    }

    fn add_to_resolve<C>(
        &mut self,
        shared: &Shared<C>,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> &mut Resolving {
        let deadline = Deadline::after(shared.broker_time(), shared.spec.offsets_deadline);
        let resolving = self
            .resolving
            .get_or_insert_with(|| Resolving::by(deadline));
        resolving.partitions.extend(partitions);
        resolving.deadline = deadline;
        resolving
    }

    /// Reads the start offset of this partition's task again, but not before `not_before`.
    pub(in crate::worker) fn resolve_again<C>(
        &mut self,
        shared: &Shared<C>,
        partition: TopicPartition,
        not_before: Now,
    ) {
        let resolving = self.add_to_resolve(shared, [partition]);
        resolving.not_before = Some(not_before);
    }

    /// Continues to read start offsets.
    pub(super) fn go_on_resolving<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: Standing,
        source: &mut C::Source,
        tasks: &Tasks<RecordsOf<C>>,
    ) -> Result<GroupStep, WorkerError> {
        let Some(mut resolving) = self.resolving.take() else {
            return Ok(GroupStep::Idle);
        };
        if resolving.partitions.is_empty() && resolving.starts.is_empty() {
            return Ok(GroupStep::Moved);
        }
        if self.membership.leaves() {
            return Ok(GroupStep::Moved);
        }
        if resolving.deadline.passed(shared.broker_time()) {
            return Err(resolving.unresolved(shared.spec.offsets_deadline));
        }
        let wait = resolving.not_before.map(|at| at.since(shared.now()));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            self.wake.after(wait);
            self.resolving = Some(resolving);
            return Ok(GroupStep::Idle);
        }
        // Only one query of a kind at a time: an in-doubt commit and gaps come first.
        let mut started = Vec::new();
        if !txn.in_doubt && !self.explains() {
            resolving.not_before = None;
            started = query_starts(shared, &mut resolving, source, patience(tasks))?;
        }
        self.resolving = Some(resolving);
        // The step is idle while it waits for a response, so that the worker does not spin.
        Ok(match started.is_empty() {
            true => GroupStep::Idle,
            false => GroupStep::Start(started),
        })
    }
}

/// Queries the unknown offsets. Returns the tasks to start.
fn query_starts<C: Client>(
    shared: &Shared<C>,
    resolving: &mut Resolving,
    source: &mut C::Source,
    slice: Duration,
) -> Result<Vec<NewTask>, WorkerError> {
    let now = shared.now();
    if resolving.starts.is_empty() {
        let read = read_starts(shared, source, &resolving.partitions, slice);
        resolving.starts = resolving.or_later(shared, now, read)?;
        resolving.doubt_missing(shared);
        let found: BTreeSet<_> = resolving.starts.iter().map(|f| &f.driving).collect();
        resolving.partitions.retain(|p| !found.contains(p));
    }
    if resolving.starts.is_empty() {
        return Ok(Vec::new());
    }
    let bounds = offset_bounds(shared, source, &resolving.starts, slice);
    let Some(bounds) = resolving.or_later(shared, now, bounds)? else {
        return Ok(Vec::new());
    };
    gone_offsets::recheck(shared, resolving, &bounds)?;
    let proven = foreign::prove_repartitions(shared, source, resolving, &bounds, slice);
    if !resolving.or_later(shared, now, proven)? {
        return Ok(Vec::new());
    }
    let starts = std::mem::take(&mut resolving.starts).into_iter();
    let bounds = by_partition(&bounds);
    Ok(starts
        .map(|found| new_task(shared, found, &bounds))
        .collect())
}

/// Reads the committed offsets of the tasks whose offsets are all stable. The transaction of a dead peer delays only
/// its own partitions.
fn read_starts<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    assigned: &[TopicPartition],
    slice: Duration,
) -> Result<Vec<Found>, WorkerError> {
    let stages = shared.topology.stages();
    let latest = shared.spec.first_start == FirstStart::Latest;
    let mut asked: Vec<TopicPartition> = Vec::new();
    for partition in assigned {
        if let Some(stage) = stage_of(stages, partition) {
            asked.extend(inputs_of(stage, partition));
            asked.extend(latest.then(|| eldest_of(stage)));
        }
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    asked.sort();
    asked.dedup();
    let committed = match source.committed(&asked, slice) {
        Poll::Pending => return Ok(Vec::new()),
        Poll::Ready(committed) => committed.map_err(WorkerError::Client)?,
    };
    shared.broker_answered();
    let committed: BTreeMap<_, _> = committed.iter().map(|c| (&c.partition, c)).collect();
    let find = |partition: &TopicPartition| committed.get(partition).copied();
    let mut starts = Vec::with_capacity(assigned.len());
    for partition in assigned {
        let Some(stage) = stage_of(stages, partition) else {
            continue;
        };
        let inputs = inputs_of(stage, partition).filter_map(|input| find(&input));
        let inputs: Vec<Committed> = inputs.map(as_committed).collect();
        let eldest = find(&eldest_of(stage));
        if inputs.len() < stage.topics.len() || (latest && eldest.is_none()) {
            continue;
        }
        starts.push(plan(shared, stage, partition, inputs, eldest)?);
    }
    Ok(starts)
}

/// Plans the start of a task.
fn plan<C>(
    shared: &Shared<C>,
    stage: &Stage,
    driving: &TopicPartition,
    inputs: Vec<Committed>,
    eldest: Option<&CommittedOffset>,
) -> Result<Found, WorkerError> {
    let task = TaskId {
        stage: stage.id,
        partition: driving.partition,
    };
    let eldest = eldest.and_then(|c| TransactionName::parse(&c.metadata).ok().flatten());
    let situation = Situation {
        task,
        group: shared.spec.app.as_str(),
        layout: stage.layout(),
        accepted: shared.spec.accepted_layout,
        keeps: PerFamily::from_fn(|family| {
            let mut stores = shared.topology.stores_of(stage);
            stores.any(|store| store.id.family() == family)
        }),
        first_start: shared.spec.first_start,
        // A restore finds out whether there is state, before the first record.
        state_exists: false,
        eldest: eldest.as_ref(),
    };
    let start = plan_start(&situation, &inputs)?;
    let metadata = inputs.into_iter().next().map(|c| c.metadata);
    Ok(Found {
        driving: driving.clone(),
        task,
        start,
        metadata: metadata.unwrap_or_default(),
    })
}

/// Returns the beginning and the end of all input logs, or `None` while they are unknown.
fn offset_bounds<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    starts: &[Found],
    slice: Duration,
) -> Result<Option<Vec<OffsetBounds>>, WorkerError> {
    let inputs = starts.iter().flat_map(|found| match &found.start {
        Start::First { partitions, .. } => partitions.clone(),
        Start::Resume { at, .. } => at.iter().map(|(p, _)| p.clone()).collect(),
        Start::Grow { inputs, .. } => inputs.iter().map(|(p, _)| p.clone()).collect(),
    });
    let asked: BTreeSet<TopicPartition> = inputs.chain(foreign::fed_by(shared, starts)).collect();
    let asked: Vec<TopicPartition> = asked.into_iter().collect();
    match source.bounds(&asked, slice) {
        Poll::Pending => Ok(None),
        Poll::Ready(Err(error)) => Err(WorkerError::Client(error)),
        Poll::Ready(Ok(bounds)) => {
            shared.broker_answered();
            Ok(Some(bounds))
        }
    }
}

/// Returns a task to start, with the start offsets of its inputs.
fn new_task<C>(
    shared: &Shared<C>,
    found: Found,
    bounds: &BTreeMap<&TopicPartition, &OffsetBounds>,
) -> NewTask {
    // The app itself wrote its own topics, and reads them from the beginning: the policy is for other topics.
    let end_of = |partition: &TopicPartition, from: FirstStart| {
        let bounds = bounds.get(partition);
        bounds.map_or(Offset::ZERO, |b| match from {
            FirstStart::Latest if !shared.topology.is_repartition(&partition.topic) => b.end,
            _ => b.first,
        })
    };
    let mut metadata = Some(found.metadata);
    let (at, name, claimed) = match found.start {
        Start::Resume { at, name } => (at, name, true),
        Start::Grow { inputs, from, name } => {
            let inputs = inputs.into_iter().map(|(partition, at)| {
                let at = at.unwrap_or_else(|| end_of(&partition, from));
                (partition, at)
            });
            (inputs.collect(), Some(name), false)
        }
        Start::First { partitions, from } => {
            metadata = None;
            let inputs = partitions.iter().map(|p| (p.clone(), end_of(p, from)));
            (inputs.collect(), None, false)
        }
    };
    NewTask {
        id: found.task,
        driving: found.driving,
        at,
        name,
        metadata,
        claimed,
    }
}

/// Returns the stage that this topic drives.
fn stage_of<'a>(stages: &'a [Stage], partition: &TopicPartition) -> Option<&'a Stage> {
    stages
        .iter()
        .find(|stage| *stage.driving_topic() == partition.topic)
}

/// Returns the task that this partition drives.
pub(super) fn task_of(stages: &[Stage], partition: &TopicPartition) -> Option<TaskId> {
    let stage = stage_of(stages, partition)?.id;
    let partition = partition.partition;
    Some(TaskId { stage, partition })
}

/// Returns the inputs of the task that this partition drives.
fn inputs_of(stage: &Stage, driving: &TopicPartition) -> impl Iterator<Item = TopicPartition> {
    let topics = stage.topics.iter();
    topics.map(|topic| TopicPartition::new(topic.clone(), driving.partition))
}

/// Returns partition 0, which exists since the creation of the topic.
fn eldest_of(stage: &Stage) -> TopicPartition {
    TopicPartition::new(stage.driving_topic().clone(), Partition::ZERO)
}
