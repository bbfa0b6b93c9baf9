//! Makes the state of a task whole before its first record: the local database as it is, or brought to
//! the committed offsets from the changelog.
//!
//! What to do is decided in `eos_protocol::state`; here databases are opened, brokers are asked and
//! changelogs are read. Tasks that are ready go on meanwhile.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{
    Bounds, ChangelogOffsets, Family, Identity, Local, Offsets, PerFamily, Position, Restart,
    RestartError, Restore, Restored, Situation, StoreId, StoresHash, TopicIdentity, TopicUuid, Why,
    decide,
};
use eos_protocol::{
    CommitCause, ErrorClass, Now, Offset, Stage, TaskId, TopicPartition, TransactionName,
};
use eos_state::changelog::{Changelog, Entry};
use eos_state::{Batch, StoreBackend, StoreError, StoreKind, TaskStore};

use super::home::{HomeError, TaskHome};
use super::state::TaskState;
use super::stopping::Stopping;
use super::task::Readiness;
use super::{Worker, WorkerError};
use crate::client::{Client, LogEnds, Message, Records, Source};

/// How many records of a changelog are taken at a time.
const BATCH: usize = 4096;
/// How large the batches are that go into the database.
const WRITE: usize = 1 << 20;
/// How long one step may restore before the worker looks around again.
const STRETCH: Duration = Duration::from_millis(20);
/// How often a database is tried that another worker still has open.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// How often a long restore says how far it is, or what it waits for.
const TELL: Duration = Duration::from_secs(10);
/// How often, and how soon after each other, the group is asked again before an offset is believed to be
/// gone or to be behind the state: a coordinator that loads has none for a moment, and a task may have
/// moved meanwhile.
const TRIES: u32 = 4;
const TRY_STARTING_AGAIN: Duration = Duration::from_secs(1);

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
pub(super) struct Restoring<R> {
    task: TaskId,
    /// Where its inputs begin.
    at: Vec<(TopicPartition, Offset)>,
    committed: Committed,
    home: TaskHome,
    identity: Identity,
    stores: Vec<(StoreId, StoreKind)>,
    /// Its changelogs, and the topology's outputs that they are.
    logs: PerFamily<Option<(usize, TopicPartition)>>,
    /// How many partitions the topic has that drives its stage.
    width: u32,
    phase: Phase<R>,
    since: Now,
    told: Now,
    /// The changelogs that were read, and are assigned still.
    read: Vec<TopicPartition>,
}

enum Phase<R> {
    /// Its database is to be opened.
    Opening,
    /// The changelogs' ends are to be asked for.
    Asking(Box<dyn StoreBackend>),
    /// Its changelogs are to be assigned.
    Decided(Box<Reader<R>>),
    /// They are read.
    Reading(Box<Reader<R>>),
    /// The state is whole.
    Whole(Box<TaskStore>),
}

impl<R> Restoring<R> {
    /// Whether it asks where its changelogs end.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_))
    }

    pub(super) fn task(&self) -> TaskId {
        self.task
    }

    /// The changelogs that are assigned for it.
    pub(super) fn assigned(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let reading = matches!(self.phase, Phase::Reading(_));
        let now = self.partitions().filter(move |_| reading);
        now.chain(self.read.iter().cloned())
    }

    fn partitions(&self) -> impl Iterator<Item = TopicPartition> + '_ {
        let logs = self.logs.iter().filter_map(|(_, log)| log.as_ref());
        logs.map(|(_, partition)| partition.clone())
    }
}

/// Reads changelogs into a database.
struct Reader<R> {
    store: TaskStore,
    restore: Restore,
    pending: Pending,
    records: R,
    began: Now,
}

/// Records that are read and not written yet.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// Store, end of the key in the bytes, and end of the value if there is one.
    writes: Vec<(StoreId, usize, Option<usize>)>,
}

impl Pending {
    fn push(&mut self, store: StoreId, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        let value_end = value.map(|value| {
            self.bytes.extend_from_slice(value);
            self.bytes.len()
        });
        self.writes.push((store, key_end, value_end));
    }

    fn write(&mut self, store: &mut TaskStore, position: &Position) -> Result<(), StoreError> {
        let mut batch = Batch::with_capacity(self.writes.len());
        let mut from = 0;
        for &(id, key_end, value_end) in &self.writes {
            let key = self.bytes.get(from..key_end).unwrap_or_default();
            let value = value_end.and_then(|end| self.bytes.get(key_end..end));
            batch.write(id, key, value);
            from = value_end.unwrap_or(key_end);
        }
        batch.sort();
        let loaded = store.load(&batch, position);
        self.bytes.clear();
        self.writes.clear();
        loaded
    }
}

impl<C: Client> Worker<C> {
    /// The task's stage has stores: its state comes first.
    pub(super) fn begin_to_restore(
        &mut self,
        task: TaskId,
        stage: &Stage,
        at: Vec<(TopicPartition, Offset)>,
        committed: Committed,
    ) {
        let outputs = self.topology.changelogs(stage.id);
        let logs = outputs.map(|output| {
            let output = output?;
            let topic = self.topology.outputs().get(output)?.name.clone();
            Some((output, TopicPartition::new(topic, task.partition)))
        });
        let stores: Vec<_> = self.topology.stores_of(stage).collect();
        let home = TaskHome {
            task,
            windowed: logs.windowed.is_some(),
        };
        let known = |topic: &eos_protocol::TopicName, partitions: u32| TopicIdentity {
            name: topic.clone(),
            id: self
                .spec
                .state
                .topic_ids
                .get(topic)
                .copied()
                .unwrap_or(TopicUuid(0)),
            partitions,
        };
        let inputs = stage.topics.iter().map(|topic| {
            let count = self.spec.input_partitions.get(topic).copied();
            known(topic, count.unwrap_or_default())
        });
        let changelogs = logs.iter().filter_map(|(_, log)| {
            let (output, partition) = log.as_ref()?;
            let count = self.spec.output_partitions.get(*output).copied();
            Some(known(&partition.topic, count.unwrap_or_default()))
        });
        let identity = Identity {
            cluster: self.spec.state.cluster.clone(),
            app: self.spec.app.clone(),
            task,
            topics: inputs.chain(changelogs).collect(),
            stores: StoresHash::of(stores.iter().map(|store| &*store.name)),
        };
        self.restoring.push(Restoring {
            task,
            at,
            committed,
            home,
            identity,
            stores: stores.iter().map(|s| (s.id, StoreKind::Point)).collect(),
            logs,
            width: self
                .spec
                .input_partitions
                .get(stage.driving_topic())
                .copied()
                .unwrap_or_default(),
            phase: Phase::Opening,
            since: self.env.now(),
            told: self.env.now(),
            read: Vec::new(),
        });
    }

    /// Goes on with the restores.
    ///
    /// To librdkafka any (un)assign is the answer to the rebalance that is under way, one that was not
    /// heard of yet included: partitions would be given away whose transaction is not settled. So
    /// nothing is assigned while a transaction is open, and what may have been answered is heard before
    /// the next one begins.
    pub(super) fn restore(&mut self) -> Result<RestoreStep, WorkerError> {
        self.to_assign = false;
        if self.stopping != Stopping::No {
            self.restoring.clear();
        }
        if self.restoring.is_empty() || !self.quiet() || !self.membership.holds() {
            return Ok(RestoreStep::Nothing);
        }
        let mut restoring = std::mem::take(&mut self.restoring);
        restoring.retain(|one| self.tasks.contains_key(&one.task));
        let done = self.go_on_restoring(&mut restoring);
        self.restoring = restoring;
        if self.to_assign {
            self.commit(CommitCause::Restore);
        }
        done
    }

    fn go_on_restoring(
        &mut self,
        restoring: &mut Vec<Restoring<super::RecordsOf<C>>>,
    ) -> Result<RestoreStep, WorkerError> {
        let begun = self.env.now();
        let mut busy = false;
        let is_late = |this: &Self| this.env.now().since(begun) >= STRETCH;
        for one in restoring.iter_mut() {
            self.open_database(one)?;
            if is_late(self) {
                busy = true;
                break;
            }
        }
        self.ask_for_ends(restoring)?;
        // Each gets its turn, however long one takes.
        self.restore_turn = self.restore_turn.wrapping_add(1);
        let mut n = 0;
        while n < restoring.len() && !is_late(self) {
            let at = (self.restore_turn + n) % restoring.len();
            if let Some(one) = restoring.get_mut(at) {
                match self.read_changelogs(one, begun) {
                    Ok(()) => {}
                    Err(error) => {
                        self.start_over(restoring, at, error)?;
                        return Ok(RestoreStep::Reassigned);
                    }
                }
            }
            n += 1;
        }
        busy |= is_late(self);
        if self.assign_for_restores(restoring)? {
            return Ok(RestoreStep::Reassigned);
        }
        Ok(if busy {
            RestoreStep::Moved
        } else {
            RestoreStep::Nothing
        })
    }

    /// Assigns the changelogs of those that are to read, and the inputs of those that are whole.
    fn assign_for_restores(
        &mut self,
        restoring: &mut Vec<Restoring<super::RecordsOf<C>>>,
    ) -> Result<bool, WorkerError> {
        let ready = |one: &Restoring<_>| matches!(one.phase, Phase::Decided(_) | Phase::Whole(_));
        if !restoring.iter().any(ready) {
            return Ok(false);
        }
        if !self.settled() {
            self.to_assign = true;
            return Ok(false);
        }
        let (mut at, mut whole) = (Vec::new(), Vec::new());
        let read = restoring.iter().flat_map(|one| one.read.iter().cloned());
        let read: Vec<_> = read.collect();
        if !read.is_empty() {
            self.source.unassign(&read).map_err(WorkerError::Client)?;
        }
        for mut one in std::mem::take(restoring) {
            match one.phase {
                Phase::Decided(reader) => {
                    let wanted = reader.restore.wanted().filter_map(|(family, offset)| {
                        let (_, partition) = one.logs.get(family).as_ref()?;
                        Some((partition.clone(), offset))
                    });
                    at.extend(wanted);
                    one.phase = Phase::Reading(reader);
                    restoring.push(one);
                }
                Phase::Whole(store) => {
                    at.extend(one.at.iter().cloned());
                    one.phase = Phase::Opening;
                    whole.push((one, *store));
                }
                _ => restoring.push(one),
            }
        }
        for (one, store) in whole {
            self.restored(one, store);
        }
        self.source.assign(&at).map_err(WorkerError::Client)?;
        Ok(true)
    }

    /// What the group said may not be so any more, or not yet: it is asked again, from the beginning.
    fn start_over(
        &mut self,
        restoring: &mut Vec<Restoring<super::RecordsOf<C>>>,
        at: usize,
        error: WorkerError,
    ) -> Result<(), WorkerError> {
        let passes = match &error {
            WorkerError::Restart(error) => matches!(
                **error,
                RestartError::OffsetGone { .. }
                    | RestartError::OffsetsBehind { .. }
                    | RestartError::OtherHistory { .. }
                    | RestartError::TrimmedMeanwhile { .. }
            ),
            _ => false,
        };
        if !passes {
            return Err(error);
        }
        if !self.settled() {
            // It says so again once nothing is open any more.
            self.to_assign = true;
            return Ok(());
        }
        let one = restoring.swap_remove(at);
        let tries = self.restarts.entry(one.task).or_default();
        *tries += 1;
        if *tries >= TRIES {
            return Err(error);
        }
        tracing::warn!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task, %error,
            "asking the group again before this is believed"
        );
        let read: Vec<_> = one.assigned().collect();
        if !read.is_empty() {
            self.source.unassign(&read).map_err(WorkerError::Client)?;
        }
        let owned = self.owned.iter().find(|(_, task)| **task == one.task);
        let driving = owned.map(|(partition, _)| partition.clone());
        self.tasks.remove(&one.task);
        if let Some(driving) = driving {
            self.owned.remove(&driving);
            self.resolve_again(driving, self.env.now().after(TRY_STARTING_AGAIN));
        }
        Ok(())
    }

    fn open_database(
        &mut self,
        one: &mut Restoring<super::RecordsOf<C>>,
    ) -> Result<(), WorkerError> {
        if !matches!(one.phase, Phase::Opening) {
            return Ok(());
        }
        let opened = self.spec.state.home.open(&one.home);
        match opened.map_err(|source| no_home(one.task, source))? {
            Some(backend) => one.phase = Phase::Asking(backend),
            None => {
                self.nap_at_most(Some(TRY_AGAIN));
                let waited =
                    self.waits(one, "another worker of this process to close its database");
                if waited >= self.spec.state.patience {
                    let waited_s = waited.as_secs();
                    return Err(no_home(one.task, HomeError::InUse { waited_s }));
                }
            }
        }
        Ok(())
    }

    /// Says once in a while what a task waits for. Answers how long it has.
    fn waits(&self, one: &mut Restoring<super::RecordsOf<C>>, what: &str) -> Duration {
        let now = self.env.now();
        let waited = now.since(one.since);
        if now.since(one.told) >= TELL {
            one.told = now;
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, task = %one.task,
                waited_s = waited.as_secs(), "a task waits for {what}"
            );
        }
        waited
    }

    /// After the committed offsets are stable, and for all tasks at once: where their changelogs end.
    fn ask_for_ends(
        &mut self,
        restoring: &mut Vec<Restoring<super::RecordsOf<C>>>,
    ) -> Result<(), WorkerError> {
        let asking: Vec<usize> = (0..restoring.len())
            .filter(|&n| restoring.get(n).is_some_and(Restoring::is_asking))
            .collect();
        if asking.is_empty() {
            return Ok(());
        }
        // One partition without a leader costs the whole question its answer: after that, each task has
        // a question of its own.
        let asked: Vec<usize> = match self.ask_singly {
            Some(turn) => asking
                .get(turn % asking.len())
                .copied()
                .into_iter()
                .collect(),
            None => asking,
        };
        let logs = asked.iter().filter_map(|&n| restoring.get(n));
        let mut logs: Vec<TopicPartition> = logs.flat_map(Restoring::partitions).collect();
        logs.sort();
        let ends = match self.source.ends(&logs, Duration::ZERO) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(ends)) => {
                self.ask_singly = None;
                ends
            }
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                self.ask_singly = Some(self.ask_singly.map_or(0, |turn| turn.wrapping_add(1)));
                for n in asked {
                    if let Some(one) = restoring.get_mut(n)
                        && self.waits(one, "a broker that says where its changelog ends")
                            >= self.spec.state.patience
                    {
                        return Err(WorkerError::Client(error));
                    }
                }
                self.last_error = Some(error);
                return Ok(());
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        };
        for n in asked.into_iter().rev() {
            let Some(one) = restoring.get_mut(n) else {
                continue;
            };
            if let Phase::Asking(backend) = std::mem::replace(&mut one.phase, Phase::Opening) {
                match self.decided(one, backend, &ends) {
                    Ok(phase) => one.phase = phase,
                    Err(error) => self.start_over(restoring, n, error)?,
                }
            }
        }
        Ok(())
    }

    fn decided(
        &mut self,
        one: &Restoring<super::RecordsOf<C>>,
        backend: Box<dyn StoreBackend>,
        ends: &[LogEnds],
    ) -> Result<Phase<super::RecordsOf<C>>, WorkerError> {
        let bounds = PerFamily::from_fn(|family| {
            let (_, partition) = one.logs.get(family).as_ref()?;
            let found = ends.iter().find(|log| log.partition == *partition)?;
            let retention = self.spec.state.delete_retention.get(&partition.topic);
            Some(Bounds {
                topic: partition.topic.clone(),
                start: found.first,
                end: found.end,
                delete_retention: retention.copied().unwrap_or(DELETE_RETENTION),
            })
        });
        let situation = Situation {
            group: self.spec.app.as_str(),
            identity: &one.identity,
            width: one.width,
            local: backend.position().map_or(Local::Nothing, Local::Position),
            offsets: match &one.committed {
                Committed::Named(name) => Offsets::Named { name, at: &one.at },
                Committed::Unnamed {
                    partition,
                    metadata,
                } => Offsets::Unnamed {
                    partition,
                    metadata,
                },
                Committed::Missing(partition) => Offsets::Missing { partition },
            },
            changelogs: bounds,
            now: self.env.wall_clock(),
        };
        let restart = decide(&situation).map_err(|e| WorkerError::Restart(Box::new(e)))?;
        let (discard, reading) = match restart {
            Restart::Exact => (None, None),
            Restart::Replay(reading) => (None, Some(reading)),
            Restart::Rebuild { why, reading } => (Some(why), Some(reading)),
            Restart::First { discard } => (discard, None),
            Restart::FirstIfEmpty { discard, reading } => (discard, Some(reading)),
        };
        let backend = match discard {
            Some(why) => self.start_afresh(one, backend, &why)?,
            None => Some(backend),
        };
        let Some(backend) = backend else {
            return Ok(Phase::Opening);
        };
        let now = self.env.now();
        let store = TaskStore::new(backend, one.stores.iter().copied())
            .map_err(|source| store_failed(one.task, source))?;
        let Some(reading) = reading else {
            return Ok(Phase::Whole(Box::new(store)));
        };
        let restore = Restore::new(reading, self.spec.state.patience, now);
        let from: Vec<_> = restore.wanted().collect();
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task, ?from, "restoring state"
        );
        Ok(Phase::Decided(Box::new(Reader {
            store,
            restore,
            pending: Pending::default(),
            records: Default::default(),
            began: now,
        })))
    }

    /// Throws a database away.
    fn start_afresh(
        &mut self,
        one: &Restoring<super::RecordsOf<C>>,
        backend: Box<dyn StoreBackend>,
        why: &Why,
    ) -> Result<Option<Box<dyn StoreBackend>>, WorkerError> {
        if why.is_loud() {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, task = %one.task, %why,
                "local state is thrown away and made anew from the changelog"
            );
        }
        if backend.position().is_none() {
            return Ok(Some(backend));
        }
        drop(backend);
        let home = &self.spec.state.home;
        let opened = home.discard(&one.home).and_then(|()| home.open(&one.home));
        opened.map_err(|source| no_home(one.task, source))
    }

    /// Reads for a while.
    fn read_changelogs(
        &mut self,
        one: &mut Restoring<super::RecordsOf<C>>,
        begun: Now,
    ) -> Result<(), WorkerError> {
        let task = one.task;
        let Phase::Reading(reader) = &mut one.phase else {
            return Ok(());
        };
        for family in Family::ALL {
            if let Some((_, partition)) = one.logs.get(family) {
                let ids = one.stores.iter().map(|(id, _)| *id);
                let ids = ids.filter(|id| id.family() == family).collect();
                let log = Changelog::new(partition.clone(), family, ids);
                self.read_changelog(task, reader, family, partition, &log, begun)?;
            }
        }
        let now = self.env.now();
        let whole = match reader.restore.finish(now) {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => return Err(WorkerError::Restart(Box::new(error))),
            Poll::Ready(Ok(restored)) => Some(restored),
        };
        match whole {
            Some(Restored::At(position)) => {
                let written = reader.pending.write(&mut reader.store, &position);
                written.map_err(|source| store_failed(task, source))?;
            }
            Some(Restored::First) => {}
            None => {
                if let Some(stalled) = reader.restore.stalled(now) {
                    return Err(WorkerError::Stalled(Box::new(stalled)));
                }
                if now.since(one.told) >= TELL {
                    one.told = now;
                    let progress = reader.restore.progress(now);
                    tracing::info!(
                        app = %self.spec.app, worker = %self.spec.id, %task,
                        records = progress.records, bytes = progress.bytes,
                        remaining = progress.remaining,
                        eta_s = progress.eta.map(|eta| eta.as_secs()), "restoring state"
                    );
                }
                return Ok(());
            }
        }
        let records = reader.restore.progress(now).records;
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, %task, records,
            took_ms = now.since(reader.began).as_millis(), "state is read"
        );
        let read: Vec<_> = one.partitions().collect();
        if let Phase::Reading(reader) = std::mem::replace(&mut one.phase, Phase::Opening) {
            one.phase = Phase::Whole(Box::new(reader.store));
            one.read = read;
        }
        Ok(())
    }

    fn read_changelog(
        &mut self,
        task: TaskId,
        reader: &mut Reader<super::RecordsOf<C>>,
        family: Family,
        partition: &TopicPartition,
        log: &Changelog,
        begun: Now,
    ) -> Result<(), WorkerError> {
        let restart = |e| WorkerError::Restart(Box::new(e));
        while reader.restore.wanted().any(|(wanted, _)| wanted == family) {
            let taken = self.source.take(partition, BATCH, &mut reader.records);
            taken.map_err(WorkerError::Client)?;
            let now = self.env.now();
            if reader.records.first().is_none() {
                if let Some(stable) = self.source.drained(partition) {
                    reader.restore.ended(family, stable, now);
                }
                return Ok(());
            }
            while let Some(record) = reader.records.first() {
                let (key, value) = (record.key(), record.value());
                let entry = log.read(record.offset(), key, value);
                let entry = entry.map_err(|e| WorkerError::Changelog(Box::new(e)))?;
                let commit = match entry {
                    Entry::Commit(commit) => Some(commit),
                    _ => None,
                };
                let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
                let wanted = reader
                    .restore
                    .took(family, record.offset(), bytes, commit, now)
                    .map_err(restart)?;
                match entry {
                    Entry::Put { store, key, value } if wanted => {
                        reader.pending.push(store, key, Some(value));
                    }
                    Entry::Delete { store, key } if wanted => reader.pending.push(store, key, None),
                    _ => {}
                }
                reader.records.drop_first();
                self.restored_records += u64::from(wanted);
            }
            if reader.pending.bytes.len() >= WRITE {
                let position = reader.restore.checkpoint();
                let written = reader.pending.write(&mut reader.store, &position);
                written.map_err(|source| store_failed(task, source))?;
            }
            if now.since(begun) >= STRETCH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The state is whole: the task may take records.
    fn restored(&mut self, one: Restoring<super::RecordsOf<C>>, store: TaskStore) {
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task,
            exact = one.read.is_empty(), "state is whole"
        );
        self.restarts.remove(&one.task);
        let stored = store.position().map(|position| position.changelogs);
        let Some(task) = self.tasks.get_mut(&one.task) else {
            return;
        };
        let outputs = one.logs.map(|log| log.map(|(output, _)| output));
        let offsets = ChangelogOffsets::opened(stored.unwrap_or_default());
        task.state = Some(TaskState::new(store, one.identity, outputs, offsets));
        task.readiness = if task.claimed {
            Readiness::Ready
        } else {
            Readiness::Unclaimed
        };
    }
}

/// What came of a look at the restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoreStep {
    Nothing,
    /// There is more to do at once.
    Moved,
    /// Something was (un)assigned, which may have answered a revocation: it is heard before anything else.
    Reassigned,
}

/// Kafka's default of `delete.retention.ms`.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 3600);

fn no_home(task: TaskId, source: HomeError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Home { task, source }
}

fn store_failed(task: TaskId, source: StoreError) -> WorkerError {
    let source = Box::new(source);
    WorkerError::Store { task, source }
}
