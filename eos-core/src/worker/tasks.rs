//! The tasks of a worker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::Family;
use eos_protocol::{
    BacklogTurns, DryStep, Guarantee, Nonce, Now, Offset, Taken, TaskId, Timestamp, TopicPartition,
};

use super::WorkerError;
use super::task::{Readiness, Task};
use crate::client::{LogEnds, OffsetToCommit, Records};
use crate::rules;
use crate::topology::Topology;

/// A partition and the offset to seek to.
pub(super) type Seek = (TopicPartition, Offset);

/// The tasks, by id and by driving partition.
pub(super) struct Tasks<R> {
    by_id: BTreeMap<TaskId, Task<R>>,
    /// The assigned partitions and their tasks.
    owned: BTreeMap<TopicPartition, TaskId>,
    /// The position of the task that has the first turn.
    turn: usize,
    /// The choice of tasks with a backlog for the open transaction.
    backlog: BacklogTurns,
}

impl<R> Default for Tasks<R> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            owned: BTreeMap::new(),
            turn: 0,
            backlog: BacklogTurns::default(),
        }
    }
}

impl<R> Tasks<R> {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.by_id.keys().copied()
    }

    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Task<R>> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task<R>> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Task<R>> {
        self.by_id.values()
    }

    /// Returns whether a task is ready for records.
    pub(super) fn any_ready(&self) -> bool {
        self.values().any(|task| task.readiness == Readiness::Ready)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Task<R>> {
        self.by_id.values_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut Task<R>)> {
        self.by_id.iter_mut().map(|(id, task)| (*id, task))
    }

    /// Returns the first task after this one that fulfils a condition.
    pub(super) fn next_after(
        &self,
        id: Option<TaskId>,
        wanted: impl Fn(&Task<R>) -> bool,
    ) -> Option<TaskId> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        let mut tasks = self.by_id.range((from, Bound::Unbounded));
        tasks.find(|(_, task)| wanted(task)).map(|(id, _)| *id)
    }

    pub(super) fn owned(&self) -> &BTreeMap<TopicPartition, TaskId> {
        &self.owned
    }

    /// Returns whether no partition of a running task is assigned.
    pub(super) fn owns_nothing(&self) -> bool {
        self.owned.is_empty()
    }
}

impl<R: Records> Tasks<R> {
    /// Adds the task of an assigned partition.
    pub(super) fn insert(&mut self, driving: TopicPartition, task: Task<R>) {
        let id = task.progress.task;
        self.owned.insert(driving, id);
        self.by_id.insert(id, task);
    }

    /// Removes a task whose partition stays assigned, and returns that partition.
    pub(super) fn release(&mut self, id: TaskId) -> Option<TopicPartition> {
        self.by_id.remove(&id);
        let mut owned = self.owned.iter();
        let driving = owned.find(|(_, task)| **task == id)?.0.clone();
        self.owned.remove(&driving);
        Some(driving)
    }

    /// Closes tasks, and their databases with them.
    pub(super) fn close(&mut self, ids: &[TaskId]) {
        for id in ids {
            self.by_id.remove(id);
        }
    }

    /// Removes these partitions, which now belong to other members.
    pub(super) fn disown(&mut self, partitions: &[TopicPartition]) {
        let gone: BTreeSet<&TopicPartition> = partitions.iter().collect();
        self.owned.retain(|partition, _| !gone.contains(partition));
    }

    /// Returns the ids in the order of their turns.
    pub(super) fn turns(&self) -> VecDeque<TaskId> {
        let mut turns: VecDeque<TaskId> = self.ids().collect();
        turns.rotate_left(self.turn % turns.len().max(1));
        turns
    }

    /// Returns the number of further tasks with a backlog that the open transaction may touch.
    pub(super) fn more_with_backlog(&mut self, interval: Duration) -> usize {
        if !self.values().any(|task| task.progress.touched())
            && let Some(&turn) = self.turns().front()
        {
            let first = self.backlog.begin(turn);
            self.turn = self.position(first);
        }
        let (mut backlogged, mut touched) = (0, 0);
        for task in self.values().filter(|task| task.has_backlog) {
            backlogged += 1;
            touched += usize::from(task.progress.touched());
        }
        self.backlog
            .limit(backlogged, interval)
            .saturating_sub(touched)
    }

    /// Returns whether this task has a backlog, and the open transaction has not touched it.
    pub(super) fn would_touch_backlog(&self, id: TaskId) -> bool {
        let task = self.get(id);
        task.is_some_and(|task| task.has_backlog && !task.progress.touched())
    }

    /// Leaves the records of this task to the next transaction.
    pub(super) fn skip(&mut self, id: TaskId) {
        self.backlog.skip(id);
    }

    /// Records that a task had records.
    pub(super) fn fed(&mut self) {
        self.backlog.fed();
    }

    /// Returns the decision after a step in which no task had a record.
    pub(super) fn dry_step(&mut self, now: Now) -> DryStep {
        self.backlog.dry_step(now)
    }

    /// Serves the task after this one first in the next step.
    pub(super) fn end_turn(&mut self, id: TaskId) {
        let next = self.by_id.keys().position(|one| *one > id);
        self.turn = next.unwrap_or_default();
    }

    /// Serves this task first in the next step, and in the next transaction.
    pub(super) fn begin_turn(&mut self, id: TaskId) {
        self.backlog.begin_next_with(id);
        self.turn = self.position(id);
    }

    fn position(&self, id: TaskId) -> usize {
        let position = self.by_id.keys().position(|one| *one == id);
        position.unwrap_or_default()
    }

    /// Returns whether a task reads this partition.
    pub(super) fn any_reads(&self, partition: &TopicPartition) -> bool {
        self.values().any(|task| task.reads(partition))
    }

    /// Returns the next offset of a partition, if a task reads it.
    pub(super) fn next_offset(&self, partition: &TopicPartition) -> Option<Offset> {
        let mut inputs = self.values().flat_map(|task| task.progress.inputs());
        let input = inputs.find(|input| input.partition == *partition)?;
        Some(input.next)
    }

    /// Drops the fetched records of a partition before a seek. Returns the seeks of other partitions.
    pub(super) fn rewind(&mut self, partition: &TopicPartition) -> Vec<Seek> {
        let mut seeks = Vec::new();
        for task in self.by_id.values_mut() {
            let mut inputs = task.progress.inputs().iter();
            let Some(input) = inputs.position(|input| input.partition == *partition) else {
                continue;
            };
            seeks.extend(task.rewind(input));
            if matches!(task.readiness, Readiness::Ready | Readiness::Unclaimed) {
                task.readiness = Readiness::Rewinding;
            }
        }
        seeks
    }

    /// Marks all seeks as done.
    pub(super) fn rewound(&mut self) {
        let rewinding = |task: &&mut Task<R>| task.readiness == Readiness::Rewinding;
        self.values_mut().filter(rewinding).for_each(Task::rewound);
    }

    /// Returns whether a task waits for the commit of its start.
    pub(super) fn has_unclaimed(&self) -> bool {
        self.values()
            .any(|task| task.readiness == Readiness::Unclaimed)
    }

    /// Adds the starts that are not committed yet to the open transaction.
    pub(super) fn claim(&mut self) {
        let unclaimed = |task: &&mut Task<R>| task.readiness == Readiness::Unclaimed;
        for task in self.values_mut().filter(unclaimed) {
            task.progress.touch();
        }
    }

    /// Returns whether the offsets of an idle task expire soon.
    pub(super) fn has_overdue(&self, now: Now) -> bool {
        self.values().any(|task| task.is_overdue(now))
    }

    /// Adds the offsets of idle tasks to the open transaction.
    pub(super) fn recommit(&mut self, now: Now) {
        for task in self.values_mut().filter(|task| task.is_overdue(now)) {
            task.recommits = !task.progress.recommit().is_empty();
            if !task.recommits {
                task.progress.touch();
            }
        }
    }

    /// Returns the records that the open transaction has taken.
    pub(super) fn taken(&self) -> impl Iterator<Item = Taken> + '_ {
        self.values().flat_map(|task| task.progress.taken())
    }

    /// Returns the input partitions of all tasks that the transaction touched.
    pub(super) fn touched_partitions(&self) -> Vec<TopicPartition> {
        let touched = self.values().filter(|task| task.progress.touched());
        let inputs = touched.flat_map(|task| task.progress.inputs());
        inputs.map(|input| input.partition.clone()).collect()
    }

    /// At most once: claims all fetched records, and the starts and idle tasks whose offsets have to be committed. Returns
    /// their offsets.
    pub(super) fn claim_fetched(&mut self, nonce: Nonce, now: Now) -> Vec<OffsetToCommit> {
        let claimed = self
            .values_mut()
            .flat_map(|task| task.seal_claim(nonce, now));
        claimed.map(to_commit).collect()
    }

    /// At most once: the claims are committed.
    pub(super) fn claimed(&mut self, now: Now) {
        self.values_mut().for_each(|task| task.take_claim(now));
    }

    /// Rule 2: returns the offsets of all inputs of every touched task, under one name per task. At most once: of those
    /// tasks that have claimed more than they have processed.
    pub(super) fn seal(&mut self, nonce: Nonce, guarantee: Guarantee) -> Vec<OffsetToCommit> {
        let sealed = self.values_mut().flat_map(|task| {
            let is_done = guarantee == Guarantee::AtMostOnce
                && task.claimed
                && !task.recommits
                && task.progress.has_processed_claims();
            let mut offsets = if task.progress.touched() || !task.recommits {
                task.seal(nonce)
            } else {
                task.progress.recommit()
            };
            if !rules::commits_sibling_offsets() {
                offsets.truncate(1);
            }
            if is_done {
                offsets.clear();
            }
            offsets
        });
        sealed.map(to_commit).collect()
    }

    /// Without rule 2: returns the offsets of any owned task, preferably of an untouched one. They fence the
    /// transaction, but not by its records.
    pub(super) fn offsets_of_any(&self) -> Option<Vec<OffsetToCommit>> {
        let mut idle = self.values().map(|task| task.progress.recommit());
        let any = idle.find(|offsets| !offsets.is_empty())?;
        Some(any.into_iter().map(to_commit).collect())
    }

    /// Returns whether the transaction touched a task with stores.
    pub(super) fn changed_state(&self) -> bool {
        self.values()
            .any(|task| task.progress.touched() && task.state.is_some())
    }

    /// Begins to write the changes of a committed transaction to the databases of all touched tasks.
    pub(super) fn apply(&mut self, now: Timestamp) -> Result<(), WorkerError> {
        let mut applied = Ok(());
        for task in self.values_mut().filter(|t| t.progress.touched()) {
            let Some(state) = &mut task.state else {
                continue;
            };
            if let Err(source) = state.apply(&task.progress, now) {
                let (task, source) = (task.progress.task, Box::new(source));
                applied = applied.and(Err(WorkerError::Store { task, source }));
            }
        }
        applied
    }

    /// Returns whether a database may still be applying a transaction.
    pub(super) fn is_applying(&self) -> bool {
        let mut states = self.values().filter_map(|task| task.state.as_ref());
        states.any(|state| state.store.is_applying())
    }

    /// Takes the results of the finished database writes of the last transaction. With `wait`, blocks until all
    /// writes have finished. Returns whether any write has finished.
    pub(super) fn end_apply(&mut self, wait: bool) -> Result<bool, WorkerError> {
        let mut ended = Ok(false);
        for task in self.values_mut() {
            let Some(state) = &mut task.state else {
                continue;
            };
            if !state.store.is_applying() {
                continue;
            }
            match state.store.end_apply(wait) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => ended = ended.map(|_| true),
                Poll::Ready(Err(source)) => {
                    let (task, source) = (task.progress.task, Box::new(source));
                    ended = ended.and(Err(WorkerError::Store { task, source }));
                }
            }
        }
        ended
    }

    /// Updates the tasks after a commit. `held` has processed a record that is not part of it.
    pub(super) fn committed(&mut self, now: Now, held: Option<TaskId>) {
        for (id, task) in self.iter_mut() {
            task.committed(now, held == Some(id));
        }
        self.backlog.committed();
    }

    /// Discards the transaction. Returns the offsets to which the tasks rewind.
    pub(super) fn discard(&mut self, in_rebalance: bool) -> Vec<Seek> {
        let mut back = Vec::new();
        for task in self.values_mut() {
            back.extend(task.discard(in_rebalance));
        }
        self.backlog.discarded();
        back
    }

    /// Without rule 6: drops the changes together with the producer whose commit is in doubt.
    pub(super) fn drop_changes(&mut self) {
        let states = self.values_mut().filter_map(|task| task.state.as_mut());
        states.for_each(|state| state.store.discard());
    }

    /// Returns the changelogs of all tasks.
    pub(super) fn changelogs(&self, topology: &Topology) -> Vec<TopicPartition> {
        let tasks = self.values();
        let states =
            tasks.filter_map(|task| Some((task.progress.task.partition, task.state.as_ref()?)));
        let logs = states.flat_map(|(partition, state)| {
            let topics = state.topics(topology);
            topics.map(move |(_, topic)| TopicPartition::new(topic.clone(), partition))
        });
        logs.collect()
    }

    /// Records the ends of changelogs, as the brokers reported them.
    pub(super) fn changelogs_end(&mut self, topology: &Topology, ends: &[LogEnds]) {
        let ends = ends.iter().map(|log| {
            let TopicPartition { topic, partition } = &log.partition;
            ((topic, *partition), log.stable)
        });
        let ends: BTreeMap<_, _> = ends.collect();
        for task in self.values_mut() {
            let partition = task.progress.task.partition;
            let Some(state) = &mut task.state else {
                continue;
            };
            let found = state.topics(topology).filter_map(|(family, topic)| {
                let stable = ends.get(&(topic, partition))?;
                Some((family, *stable))
            });
            for (family, stable) in found.collect::<Vec<_>>() {
                state.offsets.observe(family, stable);
                if let (Family::Windowed, Some(trimming)) = (family, &mut state.trimming) {
                    trimming.observe(stable, task.progress.stream_time());
                }
            }
        }
    }

    pub(super) fn keep_to_cache_limit(&mut self) {
        let states = self.values_mut().filter_map(|task| task.state.as_mut());
        states.for_each(|state| state.store.keep_to_cache_limit());
    }
}

fn to_commit((partition, offset, metadata): (TopicPartition, Offset, String)) -> OffsetToCommit {
    OffsetToCommit {
        partition,
        offset,
        metadata,
    }
}
