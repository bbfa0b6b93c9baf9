//! Makes the state of a task whole before its first record: the local database as it is, or brought to
//! the committed offsets from the changelog.
//!
//! What to do is decided in `eos_protocol::state`; here databases are opened, brokers are asked and
//! changelogs are read. Tasks that are ready go on meanwhile.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{
    Bounds, ChangelogOffsets, Family, Identity, Local, Offsets, PerFamily, Position, Restart,
    Restore, Restored, Situation, StoreId, StoresHash, TopicIdentity, TopicUuid, Why, decide,
};
use eos_protocol::{Now, Offset, Stage, TaskId, TopicPartition, TransactionName};
use eos_state::changelog::{Changelog, Entry};
use eos_state::{Batch, StoreBackend, StoreError, StoreKind, TaskStore};

use super::home::{HomeError, TaskHome};
use super::state::TaskState;
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
/// How often a long restore says how far it is.
const TELL: Duration = Duration::from_secs(10);

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
    phase: Phase<R>,
}

enum Phase<R> {
    /// Its database is to be opened.
    Opening,
    /// The changelogs' ends are to be asked for.
    Asking(Box<dyn StoreBackend>),
    Reading(Box<Reader<R>>),
    /// Nothing is left to do.
    Whole(Box<TaskStore>),
}

/// Reads changelogs into a database.
struct Reader<R> {
    store: TaskStore,
    restore: Restore,
    pending: Pending,
    records: R,
    began: Now,
    told: Now,
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
            phase: Phase::Opening,
        });
    }

    /// Goes on with the restores. Answers whether there is more to do at once.
    pub(super) fn restore(&mut self) -> Result<bool, WorkerError> {
        if self.restoring.is_empty() {
            return Ok(false);
        }
        let mut restoring = std::mem::take(&mut self.restoring);
        // What was revoked meanwhile is gone, and its database closed.
        restoring.retain(|r| self.tasks.contains_key(&r.task));
        let done = self.go_on_restoring(&mut restoring);
        self.restoring = restoring;
        done
    }

    fn go_on_restoring(
        &mut self,
        restoring: &mut Vec<Restoring<super::RecordsOf<C>>>,
    ) -> Result<bool, WorkerError> {
        for one in restoring.iter_mut() {
            self.open_database(one)?;
        }
        self.ask_for_ends(restoring)?;
        let begun = self.env.now();
        let (mut busy, mut n) = (false, 0);
        while n < restoring.len() {
            let Some(one) = restoring.get_mut(n) else {
                break;
            };
            match self.read_changelogs(one, begun)? {
                Poll::Ready(()) => {
                    let done = restoring.swap_remove(n);
                    self.restored(done)?;
                    busy = true;
                }
                Poll::Pending => {
                    busy |= self.env.now().since(begun) >= STRETCH;
                    n += 1;
                }
            }
        }
        Ok(busy)
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
            None => self.nap_at_most(Some(TRY_AGAIN)),
        }
        Ok(())
    }

    /// After the committed offsets are stable, and for all tasks at once: where their changelogs end.
    fn ask_for_ends(
        &mut self,
        restoring: &mut [Restoring<super::RecordsOf<C>>],
    ) -> Result<(), WorkerError> {
        let asking = |one: &&mut Restoring<_>| matches!(one.phase, Phase::Asking(_));
        let logs = restoring.iter_mut().filter(asking).flat_map(|one| {
            let logs = one.logs.iter();
            logs.filter_map(|(_, log)| log.as_ref().map(|(_, partition)| partition.clone()))
                .collect::<Vec<_>>()
        });
        let mut asked: Vec<TopicPartition> = logs.collect();
        if asked.is_empty() {
            return Ok(());
        }
        asked.sort();
        let ends = match self.source.ends(&asked, Duration::ZERO) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(ends)) => ends,
            Poll::Ready(Err(error)) if error.class() == eos_protocol::ErrorClass::Retriable => {
                self.last_error = Some(error);
                return Ok(());
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        };
        for one in restoring.iter_mut() {
            let phase = std::mem::replace(&mut one.phase, Phase::Opening);
            one.phase = match phase {
                Phase::Asking(backend) => self.decided(one, backend, &ends)?,
                other => other,
            };
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
            width: match &one.committed {
                Committed::Named(name) => name.width,
                _ => 0,
            },
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
        let from = restore.wanted().filter_map(|(family, offset)| {
            let (_, partition) = one.logs.get(family).as_ref()?;
            Some((partition.clone(), offset))
        });
        let from: Vec<_> = from.collect();
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task, ?from, "restoring state"
        );
        if !from.is_empty() {
            self.source.assign(&from).map_err(WorkerError::Client)?;
        }
        Ok(Phase::Reading(Box::new(Reader {
            store,
            restore,
            pending: Pending::default(),
            records: Default::default(),
            began: now,
            told: now,
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

    /// Reads for a while. Ready once the state is whole.
    fn read_changelogs(
        &mut self,
        one: &mut Restoring<super::RecordsOf<C>>,
        begun: Now,
    ) -> Result<Poll<()>, WorkerError> {
        let Restoring {
            task,
            logs,
            stores,
            phase,
            ..
        } = one;
        let reader = match phase {
            Phase::Reading(reader) => reader,
            Phase::Whole(_) => return Ok(Poll::Ready(())),
            _ => return Ok(Poll::Pending),
        };
        for family in Family::ALL {
            if let Some((_, partition)) = logs.get(family) {
                let ids = stores.iter().map(|(id, _)| *id);
                let ids = ids.filter(|id| id.family() == family).collect();
                let log = Changelog::new(partition.clone(), family, ids);
                self.read_changelog(*task, reader, family, partition, &log, begun)?;
            }
        }
        let now = self.env.now();
        match reader.restore.finish(now) {
            Poll::Pending => {}
            Poll::Ready(Err(error)) => return Err(WorkerError::Restart(Box::new(error))),
            Poll::Ready(Ok(Restored::First)) => return Ok(Poll::Ready(())),
            Poll::Ready(Ok(Restored::At(position))) => {
                let written = reader.pending.write(&mut reader.store, &position);
                written.map_err(|source| store_failed(*task, source))?;
                return Ok(Poll::Ready(()));
            }
        }
        if let Some(stalled) = reader.restore.stalled(now) {
            return Err(WorkerError::Stalled(Box::new(stalled)));
        }
        if now.since(reader.told) >= TELL {
            reader.told = now;
            let progress = reader.restore.progress(now);
            tracing::info!(
                app = %self.spec.app, worker = %self.spec.id, %task, records = progress.records,
                bytes = progress.bytes, remaining = progress.remaining,
                eta_s = progress.eta.map(|eta| eta.as_secs()), "restoring state"
            );
        }
        Ok(Poll::Pending)
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
    fn restored(&mut self, one: Restoring<super::RecordsOf<C>>) -> Result<(), WorkerError> {
        let now = self.env.now();
        let (store, records, took) = match one.phase {
            Phase::Whole(store) => (*store, 0, Duration::ZERO),
            Phase::Reading(reader) => {
                let records = reader.restore.progress(now).records;
                let logs = one.logs.iter().filter_map(|(_, log)| log.as_ref());
                let read: Vec<_> = logs.map(|(_, partition)| partition.clone()).collect();
                self.source.unassign(&read).map_err(WorkerError::Client)?;
                (reader.store, records, now.since(reader.began))
            }
            _ => return Ok(()),
        };
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task, records,
            took_ms = took.as_millis(), "state is whole"
        );
        self.source.assign(&one.at).map_err(WorkerError::Client)?;
        let stored = store.position().map(|position| position.changelogs);
        let Some(task) = self.tasks.get_mut(&one.task) else {
            return Ok(());
        };
        let outputs = one.logs.map(|log| log.map(|(output, _)| output));
        let offsets = ChangelogOffsets::opened(stored.unwrap_or_default());
        task.state = Some(TaskState::new(store, one.identity, outputs, offsets));
        task.readiness = if task.claimed {
            Readiness::Ready
        } else {
            Readiness::Unclaimed
        };
        Ok(())
    }
}

/// Kafka's default of `delete.retention.ms`.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 3600);

fn no_home(task: TaskId, source: HomeError) -> WorkerError {
    WorkerError::Home { task, source }
}

fn store_failed(task: TaskId, source: StoreError) -> WorkerError {
    WorkerError::Store { task, source }
}
