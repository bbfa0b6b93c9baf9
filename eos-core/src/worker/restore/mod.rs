//! Restores the state of a task before its first record.
//!
//! The local database is either complete, or the changelog brings it to the committed offsets. `eos_protocol::state`
//! decides. This module opens databases, queries brokers and reads changelogs. Ready tasks continue meanwhile.

mod deciding;
mod other_store;
mod reading;
mod summary;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::{Identity, PerFamily, Progress, RestartError, RestoreKind, StoreId};
use eos_protocol::{Clock, Now, Offset, TaskId, Timestamp, TopicPartition, TransactionName};
use eos_state::{Load, StoreBackend, StoreError, StoreKind, TaskStore};

use self::other_store::Names;
use self::reading::Reader;
use self::summary::Summary;
use super::shared::Shared;
use super::storage::{HomeError, TaskHome};
use super::tasks::Tasks;
use super::trimming::Trimming;
use super::wake::Wake;
use super::windows::{RowStore, Windowed};
use super::{RecordsOf, WorkerError};
use crate::client::{Client, Source};
use crate::metrics::{Count, RestoringMetrics, WorkerMeter};
use crate::rules;

/// The longest time that one step may restore before the worker does other work.
const STRETCH: Duration = Duration::from_millis(20);
/// The longest time of a step if other tasks of the worker have records to process.
const STRETCH_BESIDE: Duration = Duration::from_millis(2);
/// The interval of the checks of writes under way.
const WRITES: Duration = Duration::from_millis(1);
/// The number of reads of the committed offsets before one counts as missing or as behind the state. A coordinator that
/// is loading has no offsets for a moment, and a task may have moved meanwhile.
const TRIES: u32 = 4;
/// The pause between two of these tries.
pub(in crate::worker) const RETRY: Duration = Duration::from_secs(1);

/// The group's committed offsets of a task.
#[derive(Debug, Clone)]
pub(super) enum Committed {
    Named(TransactionName),
    Unnamed {
        partition: TopicPartition,
        metadata: String,
    },
    Missing(TopicPartition),
}

/// A task during its restore.
struct Restoring<C: Client> {
    task: TaskId,
    /// The start offsets of its inputs.
    at: Vec<(TopicPartition, Offset)>,
    committed: Committed,
    home: TaskHome,
    identity: Identity,
    stores: Vec<(StoreId, StoreKind)>,
    /// The stores with moments.
    due: Vec<(StoreId, Clock)>,
    /// The stores of moments whose items are rows of another store, and these stores with their names.
    dated: Vec<(StoreId, (StoreId, Arc<str>))>,
    names: Names,
    /// The windowed stores, as the program defines them.
    windows: Vec<Windowed>,
    /// The stores of sessions and sliding windows, as the program defines them.
    row_stores: Vec<RowStore>,
    /// The stream time of the last commit.
    stream_time: Option<Timestamp>,
    /// The changelogs, with their indexes in the topology's outputs.
    logs: PerFamily<Option<(usize, TopicPartition)>>,
    /// The number of partitions of the topic that drives the stage.
    width: u32,
    phase: Phase<C>,
    /// The unneeded part of the windowed changelog. `None` before the database is open, and without windowed stores.
    trimming: Option<Trimming>,
    kind: RestoreKind,
    /// The begin of the wait for a broker, in broker time.
    since: Now,
    /// The time of the last log line about progress.
    logged: Now,
    /// Changelogs that were read, but are still assigned.
    read: Vec<TopicPartition>,
    /// Whether the next offset of a changelog is out of range: query its bounds again.
    out_of_range: bool,
    /// The number of records and bytes read since the last step.
    counts: (u64, u64),
}

enum Phase<C: Client> {
    /// Open the database.
    Opening,
    /// Query the ends of the changelogs.
    Asking(Box<dyn StoreBackend>),
    /// Assign the changelogs.
    Decided(Box<Reader<C>>),
    /// Read the changelogs.
    Reading(Box<Reader<C>>),
    /// Write the last records.
    Writing(Box<Reader<C>>),
    /// The state is complete.
    Whole(Box<TaskStore>),
}

impl<C: Client> Restoring<C> {
    /// Returns whether the restore queries the ends of its changelogs.
    fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_)) || self.out_of_range
    }

    /// Records the client's report of an offset out of range. The client delivers no more records of such a changelog.
    fn out_of_range(&mut self, partition: &TopicPartition, brokers: Now) {
        let reading = matches!(self.phase, Phase::Reading(_));
        if reading && self.partitions().any(|log| log == *partition) {
            self.out_of_range = true;
            // The wait for a broker begins now.
            self.since = brokers;
        }
    }

    fn task(&self) -> TaskId {
        self.task
    }

    /// Returns the progress, or `None` before the changelogs are read.
    fn progress(&self, now: Now) -> Option<Progress> {
        match &self.phase {
            Phase::Decided(reader) | Phase::Reading(reader) | Phase::Writing(reader) => {
                Some(reader.restore.progress(now))
            }
            Phase::Opening | Phase::Asking(_) | Phase::Whole(_) => None,
        }
    }

    /// Returns whether the database is writing.
    fn is_writing(&self) -> bool {
        match &self.phase {
            Phase::Reading(reader) | Phase::Writing(reader) => reader.is_writing(),
            Phase::Opening | Phase::Asking(_) | Phase::Decided(_) | Phase::Whole(_) => false,
        }
    }

    /// Returns the assigned changelogs of the task.
    fn assigned(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let reading = matches!(self.phase, Phase::Reading(_));
        let now = self.partitions().filter(move |_| reading);
        now.chain(self.read.iter().cloned())
    }

    fn take_counts(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.counts)
    }

    fn partitions(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let logs = self.logs.iter().filter_map(|(_, log)| log.as_ref());
        logs.map(|(_, partition)| partition.clone())
    }
}

/// The limits of one step.
#[derive(Debug, Clone, Copy)]
struct Turn {
    ends: Now,
    /// The size of a write, in bytes.
    load: usize,
}

/// The result of a restore step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoreStep {
    Nothing,
    /// More work is due at once.
    Moved,
    /// An (un)assign may have responded to a revocation: read the revocation first.
    Reassigned,
}

/// The restores of tasks.
pub(super) struct Restorer<C: Client> {
    restoring: Vec<Restoring<C>>,
    /// Whether partitions wait for an assignment, which requires that no transaction is open.
    to_assign: bool,
    /// The restore that has the first turn in the next step.
    first: usize,
    /// The next task to query alone, after a batched query failed.
    ask_singly: Option<usize>,
    /// The number of restarts of each task.
    restarts: BTreeMap<TaskId, u32>,
    /// The partitions of tasks that have to start over.
    released: Vec<TopicPartition>,
    /// Record counts that are not in the meter yet.
    records: u64,
    bytes: u64,
    summary: Summary,
    pub(super) wake: Wake,
}

impl<C: Client> Default for Restorer<C> {
    fn default() -> Self {
        Self {
            restoring: Vec::new(),
            to_assign: false,
            first: 0,
            ask_singly: None,
            restarts: BTreeMap::new(),
            released: Vec::new(),
            records: 0,
            bytes: 0,
            summary: Summary::default(),
            wake: Wake::default(),
        }
    }
}

impl<C: Client> Restorer<C> {
    pub(super) fn is_empty(&self) -> bool {
        self.restoring.is_empty()
    }

    /// Returns whether a query for the ends of changelogs is in flight.
    pub(super) fn is_asking(&self) -> bool {
        self.restoring.iter().any(Restoring::is_asking)
    }

    /// Returns whether a changelog is assigned.
    #[cfg(test)]
    pub(super) fn reads(&self) -> bool {
        self.restoring
            .iter()
            .any(|one| one.assigned().next().is_some())
    }

    /// Returns whether partitions wait for an assignment, once no transaction is open.
    pub(super) fn needs_commit(&self) -> bool {
        self.to_assign
    }

    /// Skips a step. The restores then wait for no commit.
    pub(super) fn skip_step(&mut self) {
        self.to_assign = false;
    }

    /// Forgets all restores.
    pub(super) fn clear(&mut self) {
        self.restoring.clear();
        self.to_assign = false;
    }

    /// Forgets these tasks. Returns their assigned changelogs.
    pub(super) fn forget(&mut self, tasks: &[TaskId]) -> Vec<TopicPartition> {
        let gone = |one: &mut Restoring<C>| tasks.contains(&one.task());
        let gone = self.restoring.extract_if(.., gone);
        gone.flat_map(|one| one.assigned().collect::<Vec<_>>())
            .collect()
    }

    /// Records the client's report of an offset out of range.
    pub(super) fn out_of_range(&mut self, partition: &TopicPartition, brokers: Now) {
        for one in &mut self.restoring {
            one.out_of_range(partition, brokers);
        }
    }

    /// Takes the partitions of tasks that have to start over.
    pub(super) fn take_released(&mut self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.released)
    }

    /// Returns the progress of all restores.
    pub(super) fn progress(&self, now: Now) -> Vec<RestoringMetrics> {
        let restoring = self.restoring.iter();
        let progress = restoring.map(|one| RestoringMetrics::new(one.task(), one.progress(now)));
        progress.collect()
    }

    /// Adds the counts of this step to the meter.
    pub(super) fn count(&mut self, meter: &WorkerMeter) {
        meter.count(Count::RestoredRecords, std::mem::take(&mut self.records));
        meter.count(Count::RestoredBytes, std::mem::take(&mut self.bytes));
    }

    /// Continues the restores.
    ///
    /// librdkafka treats any (un)assign as the response to the current rebalance, even to an unreported one. The worker
    /// would give away partitions with an unsettled transaction. So no partition is assigned while a transaction is
    /// open, and a revocation that may have been responded to is read before the next transaction begins.
    pub(super) fn step(
        &mut self,
        shared: &Shared<C>,
        settled: bool,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> Result<RestoreStep, WorkerError> {
        self.to_assign = false;
        self.restoring.retain(|one| tasks.contains(one.task));
        if self.restoring.is_empty() {
            // A revocation has ended the last restore. An idle worker reads no clock here.
            if self.summary.has_begun() {
                self.summary.log(&shared.spec, shared.now());
            }
            return Ok(RestoreStep::Nothing);
        }
        let begun = shared.now();
        self.summary.begin(begun);
        let turn = self.turn(shared, tasks, begun);
        let is_late = || shared.now() >= turn.ends;
        let mut busy = false;
        for one in &mut self.restoring {
            one.open_database(shared, &mut self.wake)?;
            if is_late() {
                busy = true;
                break;
            }
        }
        self.ask_for_ends(shared, settled, source, tasks)?;
        // Each restore gets its turn, even if another one takes all the time of a step.
        self.first = self.first.wrapping_add(1);
        let mut n = 0;
        while n < self.restoring.len() && !is_late() {
            let at = (self.first + n) % self.restoring.len();
            if let Some(one) = self.restoring.get_mut(at) {
                let read = one.read_changelogs(shared, source, turn);
                let (records, bytes) = one.take_counts();
                self.records += records;
                self.summary.add_records(records);
                self.bytes += bytes;
                if let Err(error) = read
                    && self.start_over(shared, settled, source, tasks, at, error)?
                {
                    return Ok(RestoreStep::Reassigned);
                }
            }
            n += 1;
        }
        let is_whole = |one: &Restoring<_>| matches!(one.phase, Phase::Whole(_));
        if !rules::restores_each_task() && self.restoring.iter().any(is_whole) {
            (self.restoring.iter_mut()).try_for_each(Restoring::cut_short)?;
        }
        busy |= is_late();
        if self.restoring.iter().any(Restoring::is_writing) {
            self.wake.after(WRITES);
        }
        if self.assign(shared, settled, source, tasks)? {
            return Ok(RestoreStep::Reassigned);
        }
        Ok(match busy {
            true => RestoreStep::Moved,
            false => RestoreStep::Nothing,
        })
    }

    /// Returns the limits of this step. All restores of the worker share its memory for records that were read. Each
    /// restore has a load under way and the next one.
    fn turn(&self, shared: &Shared<C>, tasks: &Tasks<RecordsOf<C>>, begun: Now) -> Turn {
        let stretch = match tasks.any_ready() {
            true => STRETCH_BESIDE,
            false => STRETCH,
        };
        let state = &shared.spec.state;
        let part = state.restore_bytes / 2 / self.restoring.len().max(1);
        Turn {
            ends: begun.after(stretch),
            load: part.max(Load::LEAST_TABLE).min(state.restore_batch),
        }
    }

    /// Assigns the changelogs of restores that read, and the inputs of complete tasks.
    fn assign(
        &mut self,
        shared: &Shared<C>,
        settled: bool,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> Result<bool, WorkerError> {
        let ready = |one: &Restoring<_>| matches!(one.phase, Phase::Decided(_) | Phase::Whole(_));
        if !self.restoring.iter().any(ready) {
            return Ok(false);
        }
        if !settled {
            self.to_assign = true;
            return Ok(false);
        }
        let mut at = Vec::new();
        let read = self.restoring.iter_mut().flat_map(|one| one.read.drain(..));
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            source.unassign(&read).map_err(WorkerError::Client)?;
        }
        for one in &mut self.restoring {
            at.extend(one.take_offsets());
        }
        let is_whole = |one: &mut Restoring<_>| matches!(one.phase, Phase::Whole(_));
        for one in self.restoring.extract_if(.., is_whole) {
            self.restarts.remove(&one.task);
            at.extend(one.at.iter().cloned());
            self.summary.add_task(one.kind);
            one.finish(shared, tasks)?;
        }
        if self.restoring.is_empty() {
            self.summary.log(&shared.spec, shared.now());
        }
        source.assign(&at).map_err(WorkerError::Client)?;
        Ok(true)
    }

    /// Reads the committed offsets again from the beginning, because they may have changed or may be missing for a
    /// moment. Returns false while a transaction is open, which has to end first.
    fn start_over(
        &mut self,
        shared: &Shared<C>,
        settled: bool,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
        at: usize,
        error: WorkerError,
    ) -> Result<bool, WorkerError> {
        let passes = match &error {
            WorkerError::Restart(error) => matches!(
                **error,
                RestartError::OffsetGone { .. }
                    | RestartError::OffsetsBehind { .. }
                    // Compaction removes the named commit record once a new owner has written another one.
                    | RestartError::ChangelogLost { .. }
                    | RestartError::OtherHistory { .. }
                    | RestartError::TrimmedMeanwhile { .. }
            ),
            _ => false,
        };
        if !passes || !rules::rereads_offsets_behind() {
            return Err(error);
        }
        if !settled {
            // The same error occurs again once no transaction is open.
            self.to_assign = true;
            return Ok(false);
        }
        let one = self.restoring.swap_remove(at);
        let tries = self.restarts.entry(one.task).or_default();
        *tries += 1;
        if *tries >= TRIES {
            return Err(error);
        }
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, task = %one.task, %error,
            "re-reading committed offsets before failing"
        );
        let read: Vec<_> = one.assigned().collect();
        if !read.is_empty() {
            source.unassign(&read).map_err(WorkerError::Client)?;
        }
        self.released.extend(tasks.release(one.task));
        Ok(true)
    }
}

fn no_home(task: TaskId, source: HomeError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Home { task, source }
}

fn store_failed(task: TaskId, source: StoreError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Store { task, source }
}
