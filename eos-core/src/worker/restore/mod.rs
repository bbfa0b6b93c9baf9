//! Restores the state of a task before its first record: the local database as it is, or brought to the committed
//! offsets from the changelog.
//!
//! `eos_protocol::state` decides what to do. Here databases are opened, brokers are queried and changelogs are read.
//! Tasks that are ready go on meanwhile.

mod deciding;
mod other_store;
mod reading;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use eos_protocol::state::{Identity, PerFamily, Progress, RestartError, RestoreKind, StoreId};
use eos_protocol::windows::Expiry;
use eos_protocol::{Now, Offset, TaskId, Timestamp, TopicPartition, TransactionName};
use eos_state::{StoreBackend, StoreError, StoreKind, TaskStore};

use self::other_store::Names;
use self::reading::Reader;
use self::summary::Summary;
use super::shared::Shared;
use super::storage::{HomeError, TaskHome};
use super::tasks::Tasks;
use super::wake::Wake;
use super::{RecordsOf, WorkerError};
use crate::client::{Client, Source};
use crate::metrics::{Count, RestoringMetrics, WorkerMeter};
use crate::rules;

/// How long one step may restore before the worker looks around again.
const STRETCH: Duration = Duration::from_millis(20);
/// How often the committed offsets are read before one counts as gone or as behind the state: a coordinator that loads
/// has none for a moment, and a task may have moved meanwhile.
const TRIES: u32 = 4;
/// The pause between two of these tries.
pub(in crate::worker) const RETRY: Duration = Duration::from_secs(1);

/// What the group has committed for a task.
#[derive(Debug, Clone)]
pub(super) enum Committed {
    Named(TransactionName),
    Unnamed {
        partition: TopicPartition,
        metadata: String,
    },
    Missing(TopicPartition),
}

/// A task whose state is not whole yet.
struct Restoring<C: Client> {
    task: TaskId,
    /// Where its inputs begin.
    at: Vec<(TopicPartition, Offset)>,
    committed: Committed,
    home: TaskHome,
    identity: Identity,
    stores: Vec<(StoreId, StoreKind)>,
    names: Names,
    /// Its stores of windows, as the program has them.
    windows: Vec<(StoreId, Expiry)>,
    /// As of the last commit.
    stream_time: Option<Timestamp>,
    /// Its changelogs, and the topology's outputs that they are.
    logs: PerFamily<Option<(usize, TopicPartition)>>,
    /// How many partitions the topic has that drives its stage.
    width: u32,
    phase: Phase<C>,
    kind: RestoreKind,
    /// Since when it waits for a broker, by the brokers' time.
    since: Now,
    /// When its last progress was logged.
    logged: Now,
    /// The changelogs that were read, and are assigned still.
    read: Vec<TopicPartition>,
    /// The next offset is not in one of them: where they begin and end is to be queried again.
    out_of_range: bool,
    /// Records and bytes that were read since the last step.
    counts: (u64, u64),
}

enum Phase<C: Client> {
    /// Its database is to be opened.
    Opening,
    /// The changelogs' ends are to be asked for.
    Asking(Box<dyn StoreBackend>),
    /// Its changelogs are to be assigned.
    Decided(Box<Reader<C>>),
    /// They are read.
    Reading(Box<Reader<C>>),
    /// The state is whole.
    Whole(Box<TaskStore>),
}

impl<C: Client> Restoring<C> {
    /// Whether it asks where its changelogs end.
    fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_)) || self.out_of_range
    }

    /// The client says that an offset is not in the log that it was to read: if it is one of these,
    /// nothing more will come of it.
    fn out_of_range(&mut self, partition: &TopicPartition, brokers: Now) {
        let reading = matches!(self.phase, Phase::Reading(_));
        if reading && self.partitions().any(|log| log == *partition) {
            self.out_of_range = true;
            // Since when a broker is waited for.
            self.since = brokers;
        }
    }

    fn task(&self) -> TaskId {
        self.task
    }

    /// How far it is; `None` before it reads.
    fn progress(&self, now: Now) -> Option<Progress> {
        match &self.phase {
            Phase::Decided(reader) | Phase::Reading(reader) => Some(reader.restore.progress(now)),
            Phase::Opening | Phase::Asking(_) | Phase::Whole(_) => None,
        }
    }

    /// The changelogs that are assigned for it.
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

/// What came of a step of the restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoreStep {
    Nothing,
    /// There is more to do at once.
    Moved,
    /// Something was (un)assigned, which may have answered a revocation: it is read before anything else.
    Reassigned,
}

/// Restores of tasks.
pub(super) struct Restorer<C: Client> {
    restoring: Vec<Restoring<C>>,
    /// Partitions are to be assigned, which waits until no transaction is open.
    to_assign: bool,
    /// The restore that comes first in the next step.
    turn: usize,
    /// After a batched query failed: the next task to query alone.
    ask_singly: Option<usize>,
    /// How often tasks were started over.
    restarts: BTreeMap<TaskId, u32>,
    /// Partitions of tasks that are to be started over.
    released: Vec<TopicPartition>,
    /// Counts that the meter does not have yet.
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
            turn: 0,
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

    /// Whether a query for the ends of changelogs is under way.
    pub(super) fn is_asking(&self) -> bool {
        self.restoring.iter().any(Restoring::is_asking)
    }

    /// Whether a changelog is assigned.
    #[cfg(test)]
    pub(super) fn reads(&self) -> bool {
        self.restoring
            .iter()
            .any(|one| one.assigned().next().is_some())
    }

    /// Whether partitions are to be assigned, once no transaction is open.
    pub(super) fn needs_commit(&self) -> bool {
        self.to_assign
    }

    /// The restores do not go on in this step, so they wait for no commit.
    pub(super) fn skip_step(&mut self) {
        self.to_assign = false;
    }

    /// Forgets all restores.
    pub(super) fn clear(&mut self) {
        self.restoring.clear();
        self.to_assign = false;
    }

    /// Forgets these tasks. Returns the changelogs that are assigned for them.
    pub(super) fn forget(&mut self, tasks: &[TaskId]) -> Vec<TopicPartition> {
        let gone = |one: &mut Restoring<C>| tasks.contains(&one.task());
        let gone = self.restoring.extract_if(.., gone);
        gone.flat_map(|one| one.assigned().collect::<Vec<_>>())
            .collect()
    }

    /// The client reported that an offset is not in the log.
    pub(super) fn out_of_range(&mut self, partition: &TopicPartition, brokers: Now) {
        for one in &mut self.restoring {
            one.out_of_range(partition, brokers);
        }
    }

    /// The partitions of tasks that are to be started over since the last call.
    pub(super) fn take_released(&mut self) -> Vec<TopicPartition> {
        std::mem::take(&mut self.released)
    }

    /// Progress of all restores.
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

    /// Goes on with the restores.
    ///
    /// To librdkafka any (un)assign is the answer to the rebalance that is under way, one that was not reported yet
    /// included: partitions would be given away whose transaction is not settled. So nothing is assigned while a
    /// transaction is open, and a revocation that may have been answered is read before the next one begins.
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
            return Ok(RestoreStep::Nothing);
        }
        let begun = shared.now();
        self.summary.begin(begun);
        let is_late = || shared.now().since(begun) >= STRETCH;
        let mut busy = false;
        for one in &mut self.restoring {
            one.open_database(shared, &mut self.wake)?;
            if is_late() {
                busy = true;
                break;
            }
        }
        self.ask_for_ends(shared, settled, source, tasks)?;
        // Each gets its turn, however long one takes.
        self.turn = self.turn.wrapping_add(1);
        let mut n = 0;
        while n < self.restoring.len() && !is_late() {
            let at = (self.turn + n) % self.restoring.len();
            if let Some(one) = self.restoring.get_mut(at) {
                let read = one.read_changelogs(shared, source, begun);
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
        if self.assign(shared, settled, source, tasks)? {
            return Ok(RestoreStep::Reassigned);
        }
        Ok(match busy {
            true => RestoreStep::Moved,
            false => RestoreStep::Nothing,
        })
    }

    /// Assigns the changelogs of those that are to read, and the inputs of those that are whole.
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
        let read = self.restoring.iter().flat_map(|one| one.read.iter());
        let read: Vec<_> = read.cloned().collect();
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

    /// The committed offsets may have changed, or may not be there yet: they are read again, from the beginning. Returns
    /// false while a transaction is open, which has to end first.
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
                    // Compaction takes the named commit record away once a new owner has written another one.
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
            // The same error comes again once nothing is open any more.
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
