//! Opens a task's database and compares it with the changelogs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eos_protocol::joins::JoinRow;
use eos_protocol::state::{
    Bounds, Identity, Local, Offsets, PerFamily, Reading, Restart, Restore, RestoreKind, Situation,
    Standing, StoreNames, StoresHash, TopicIdentity, TopicUuid, Why, decide,
};
use eos_protocol::{ErrorClass, Stage, TopicName, TopicPartition};
use eos_state::{Defences, Load, StoreBackend, TaskStore};

use super::other_store::Names;
use super::reading::Reader;
use super::{Committed, Phase, Restorer, Restoring, no_home, store_failed};
use crate::client::{Client, LogEnds, Source};
use crate::rules;
use crate::worker::shared::Shared;
use crate::worker::storage::{HomeError, TaskHome};
use crate::worker::tasks::Tasks;
use crate::worker::trimming::Trimming;
use crate::worker::wake::Wake;
use crate::worker::windows::{RowStore, Windowed, all_over};
use crate::worker::{NewTask, RecordsOf, WorkerError};

/// The interval between two attempts to open a database that another worker still has open.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// The interval between two log lines about a waiting restore.
const TELL: Duration = Duration::from_secs(10);
/// The default of Kafka's `delete.retention.ms`.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 3600);

impl<C: Client> Restorer<C> {
    /// Begins the restore of a task whose stage has stores, before its first record.
    pub(in crate::worker) fn begin(&mut self, shared: &Shared<C>, stage: &Stage, new: &NewTask) {
        self.restoring.push(Restoring::new(shared, stage, new));
    }
}

impl<C: Client> Restoring<C> {
    fn new(shared: &Shared<C>, stage: &Stage, new: &NewTask) -> Self {
        let (spec, topology, task) = (&shared.spec, &shared.topology, new.id);
        let committed = match (&new.name, &new.metadata) {
            (Some(name), _) => Committed::Named(name.clone()),
            (None, None) => Committed::Missing(new.driving.clone()),
            (None, Some(metadata)) => Committed::Unnamed {
                partition: new.driving.clone(),
                metadata: metadata.clone(),
            },
        };
        let outputs = topology.changelogs(stage.id);
        let logs = outputs.map(|output| {
            let output = output?;
            let topic = topology.outputs().get(output)?.name.clone();
            Some((output, TopicPartition::new(topic, task.partition)))
        });
        let stores: Vec<_> = topology.stores_of(stage).collect();
        let home = TaskHome {
            task,
            windowed: logs.windowed.is_some(),
        };
        let known = |topic: &TopicName, partitions: u32| TopicIdentity {
            name: topic.clone(),
            id: spec
                .state
                .topic_ids
                .get(topic)
                .copied()
                .unwrap_or(TopicUuid(0)),
            partitions,
        };
        let inputs = stage.topics.iter();
        let inputs = inputs.map(|topic| known(topic, shared.width(topic)));
        let changelogs = logs.iter().filter_map(|(_, log)| {
            let (output, partition) = log.as_ref()?;
            let count = spec.output_partitions.get(*output).copied();
            Some(known(&partition.topic, count.unwrap_or_default()))
        });
        let identity = Identity {
            cluster: spec.state.cluster.clone(),
            app: spec.app.clone(),
            task,
            topics: inputs.chain(changelogs).collect(),
            stores: StoresHash::of(stores.iter().map(|s| (&*s.name, s.id.family()))),
        };
        let (stream_time, kept) = match &committed {
            Committed::Named(name) => (name.stream_time, name.stores.clone()),
            _ => (None, StoreNames::default()),
        };
        Self {
            task,
            at: new.at.clone(),
            committed,
            home,
            identity,
            windows: (stores.iter()).filter_map(|s| Windowed::of(s)).collect(),
            row_stores: (stores.iter()).filter_map(|s| RowStore::of(s)).collect(),
            stream_time,
            stores: stores.iter().map(|s| (s.id, s.kind)).collect(),
            due: (stores.iter())
                .filter_map(|s| Some((s.id, s.clock?)))
                .collect(),
            dated: (stores.iter())
                .filter_map(|s| Some((s.id, (s.rows_with_moments()?, Arc::clone(&s.name)))))
                .collect(),
            names: Names::of(&stores, kept),
            logs,
            width: shared.width(stage.driving_topic()),
            phase: Phase::Opening,
            trimming: None,
            kind: RestoreKind::Exact,
            since: shared.broker_time(),
            logged: shared.now(),
            read: Vec::new(),
            out_of_range: false,
            counts: (0, 0),
        }
    }

    pub(super) fn open_database(
        &mut self,
        shared: &Shared<C>,
        wake: &mut Wake,
    ) -> Result<(), WorkerError> {
        if !matches!(self.phase, Phase::Opening) {
            return Ok(());
        }
        let state = &shared.spec.state;
        let opened = state.home.open(&self.home);
        match opened.map_err(|source| no_home(self.task, source))? {
            Some(backend) => self.phase = Phase::Asking(backend),
            None => {
                wake.after(TRY_AGAIN);
                let what = "another worker of this process to close its database";
                let waited = self.waits(shared, what);
                if waited >= state.patience {
                    let waited_s = waited.as_secs();
                    return Err(no_home(self.task, HomeError::InUse { waited_s }));
                }
            }
        }
        Ok(())
    }

    /// Logs the reason for the wait periodically. Returns the waiting time, in broker time.
    fn waits(&mut self, shared: &Shared<C>, what: &str) -> Duration {
        let (spec, now) = (&shared.spec, shared.now());
        let waited = shared.broker_time().since(self.since);
        if now.since(self.logged) >= TELL {
            self.logged = now;
            tracing::warn!(
                app = %spec.app, worker = %spec.id, task = %self.task,
                waited_s = waited.as_secs(), "a task waits for {what}"
            );
        }
        waited
    }

    /// Decides whether to keep the local state, and which changelog records to read.
    fn decide(
        &mut self,
        shared: &Shared<C>,
        backend: Box<dyn StoreBackend>,
        ends: &BTreeMap<TopicPartition, LogEnds>,
    ) -> Result<Phase<C>, WorkerError> {
        let restart = self.restart(shared, &*backend, ends)?;
        let local = backend.position().map_or(Local::Nothing, Local::Position);
        self.check_stores(local, &*backend)?;
        self.kind = restart.kind();
        tracing::debug!(
            app = %shared.spec.app, worker = %shared.spec.id, task = %self.task,
            restart = restart.row(), local = local_text(local), committed = self.committed_text(),
            "restart decision"
        );
        let (discard, reading) = match restart {
            Restart::Exact => (None, None),
            Restart::Replay(reading) => (None, Some(reading)),
            Restart::Rebuild { why, reading } => (Some(why), Some(reading)),
            Restart::First { discard } => (discard, None),
            Restart::FirstIfEmpty { discard, reading } => (discard, Some(reading)),
        };
        let backend = match discard {
            Some(why) => self.start_afresh(shared, backend, &why)?,
            None => Some(backend),
        };
        match backend {
            Some(backend) => self.begin_reading(shared, backend, reading),
            None => Ok(Phase::Opening),
        }
    }

    /// Returns the matching row of the restart table.
    fn restart(
        &self,
        shared: &Shared<C>,
        backend: &dyn StoreBackend,
        ends: &BTreeMap<TopicPartition, LogEnds>,
    ) -> Result<Restart, WorkerError> {
        let spec = &shared.spec;
        let situation = Situation {
            guarantee: spec.guarantee,
            group: spec.app.as_str(),
            identity: &self.identity,
            width: self.width,
            local: backend.position().map_or(Local::Nothing, Local::Position),
            windows_over: all_over(backend, &self.windows, self.stream_time),
            offsets: match &self.committed {
                Committed::Named(name) => Offsets::Named { name, at: &self.at },
                Committed::Unnamed {
                    partition,
                    metadata,
                } => Offsets::Unnamed {
                    partition,
                    metadata,
                },
                Committed::Missing(partition) => Offsets::Missing { partition },
            },
            changelogs: self.bounds(shared, ends),
            accepted: &spec.state.accepted_changelogs,
            now: shared.env.wall_clock(),
        };
        if let (Local::Position(_), Committed::Named(_)) = (situation.local, &self.committed)
            && !rules::judges_local_state()
        {
            return Ok(Restart::Exact);
        }
        let restart = decide(&situation).map_err(|e| WorkerError::Restart(Box::new(e)))?;
        Ok(match is_believed(situation.local, &restart) {
            true => Restart::Exact,
            false => restart,
        })
    }

    /// Returns the beginning and the end of each changelog.
    fn bounds(
        &self,
        shared: &Shared<C>,
        ends: &BTreeMap<TopicPartition, LogEnds>,
    ) -> PerFamily<Option<Bounds>> {
        PerFamily::from_fn(|family| {
            let (_, partition) = self.logs.get(family).as_ref()?;
            let found = ends.get(partition)?;
            let retention = shared.spec.state.delete_retention.get(&partition.topic);
            Some(Bounds {
                topic: partition.topic.clone(),
                start: found.first,
                end: if rules::restores_to_the_end() {
                    found.end
                } else {
                    found.stable
                },
                delete_retention: retention.copied().unwrap_or(DELETE_RETENTION),
            })
        })
    }

    /// Returns the store of a database, and the reader of its changelogs if there are records to read.
    fn begin_reading(
        &mut self,
        shared: &Shared<C>,
        backend: Box<dyn StoreBackend>,
        reading: Option<Reading>,
    ) -> Result<Phase<C>, WorkerError> {
        let spec = &shared.spec;
        let noted = |store: TaskStore| match self.windows.is_empty() {
            true => store,
            false => store.with_notes(),
        };
        let store = TaskStore::new(backend, self.stores.iter().copied())
            .map(noted)
            .and_then(|store| store.with_due(self.due.iter().copied()))
            .and_then(|store| {
                let mut dated = self.dated.iter();
                dated.try_fold(store, |store, (items, (rows, name))| {
                    store.with_dated(*items, (*rows, name), |key, row| {
                        JoinRow::moment(key, row).map_err(|error| error.to_string())
                    })
                })
            })
            .map_err(|source| store_failed(self.task, source))?
            .cached(&spec.state.cache)
            .limited(&self.changelog_limits(shared))
            .defended(Defences {
                applies_in_order: rules::applies_in_order(),
                reads_in_flight: rules::reads_changes_in_flight(),
                removes_handled: rules::removes_handled_moments(),
                lists_behind_mark: rules::lists_behind_mark(),
                forgets_next_due: rules::forgets_next_due(),
                lists_loaded: rules::lists_loaded_moments(),
            });
        let windows: Vec<_> = self.windows.iter().map(Windowed::expiry).collect();
        let trimming = Trimming::open(self.task, &store, &windows, self.stream_time);
        self.trimming = trimming.map_err(|source| store_failed(self.task, source))?;
        let Some(reading) = reading else {
            return Ok(Phase::Whole(Box::new(store)));
        };
        let now = shared.now();
        let restore = Restore::new(reading, spec.state.patience, now, shared.broker_time());
        let from: Vec<_> = restore.wanted().collect();
        tracing::debug!(
            app = %spec.app, worker = %spec.id, task = %self.task, ?from, "restoring state"
        );
        Ok(Phase::Decided(Box::new(Reader {
            store,
            restore,
            pending: Load::new(),
            records: RecordsOf::<C>::default(),
            began: now,
        })))
    }

    /// Returns the limits of record batches of the task's changelogs.
    fn changelog_limits(&self, shared: &Shared<C>) -> PerFamily<Option<usize>> {
        PerFamily::from_fn(|family| {
            let (output, _) = self.logs.get(family).as_ref()?;
            shared.spec.output_limits.get(*output).copied().flatten()
        })
    }

    /// Discards a database. Returns the new one, if it is open already.
    fn start_afresh(
        &self,
        shared: &Shared<C>,
        backend: Box<dyn StoreBackend>,
        why: &Why,
    ) -> Result<Option<Box<dyn StoreBackend>>, WorkerError> {
        if why.is_loud() {
            tracing::warn!(
                app = %shared.spec.app, worker = %shared.spec.id, task = %self.task, %why,
                "discarding local state; rebuilding it from the changelog"
            );
        }
        if backend.position().is_none() {
            return Ok(Some(backend));
        }
        drop(backend);
        let home = &shared.spec.state.home;
        let discarded = home.discard(&self.home);
        if !discarded.map_err(|source| no_home(self.task, source))? {
            // The search for orphaned state has the database locked, or a child process between `fork` and `exec` has
            // it. The database is opened and compared again later. Otherwise the restore would write on top of the old
            // state.
            return Ok(None);
        }
        let opened = home.open(&self.home);
        opened.map_err(|source| no_home(self.task, source))
    }

    /// Returns the group's committed offsets, for the log.
    fn committed_text(&self) -> String {
        match &self.committed {
            Committed::Named(name) => name.seq.0.to_string(),
            Committed::Unnamed { .. } => "no name".to_owned(),
            Committed::Missing(_) => "none".to_owned(),
        }
    }

    /// Handles a changelog offset out of range. If the log still has the wanted records, the changelog is assigned
    /// again, because the client has stopped there. (If that has no effect, the restore stands still.)
    fn read_again(
        &mut self,
        reader: Box<Reader<C>>,
        ends: &BTreeMap<TopicPartition, LogEnds>,
    ) -> Result<Phase<C>, WorkerError> {
        for (family, log) in self.logs.iter() {
            let Some((_, partition)) = log else { continue };
            let Some(found) = ends.get(partition) else {
                continue;
            };
            let asked = reader.restore.asked(family, found.first, found.end);
            if let Err(error) = asked {
                self.phase = Phase::Reading(reader);
                return Err(WorkerError::Restart(Box::new(error)));
            }
        }
        self.out_of_range = false;
        self.read = self.partitions().collect();
        Ok(Phase::Decided(reader))
    }
}

impl<C: Client> Restorer<C> {
    /// Queries the ends of the changelogs for all tasks at once, after the committed offsets are stable.
    pub(super) fn ask_for_ends(
        &mut self,
        shared: &Shared<C>,
        settled: bool,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> Result<(), WorkerError> {
        let restoring = &mut self.restoring;
        let asking: Vec<usize> = (0..restoring.len())
            .filter(|&n| restoring.get(n).is_some_and(Restoring::is_asking))
            .collect();
        if asking.is_empty() {
            return Ok(());
        }
        // One partition without a leader fails the whole query: after that, each task has its own query.
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
        let ends: BTreeMap<_, _> = match source.ends(&logs, Duration::ZERO) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(ends)) => {
                shared.broker_answered();
                self.ask_singly = None;
                let ends = ends.into_iter();
                ends.map(|log| (log.partition.clone(), log)).collect()
            }
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                self.ask_singly = Some(self.ask_singly.map_or(0, |turn| turn.wrapping_add(1)));
                for n in asked {
                    let what = "a broker that says where its changelog ends";
                    if let Some(one) = restoring.get_mut(n)
                        && one.waits(shared, what) >= shared.spec.state.patience
                    {
                        return Err(WorkerError::Client(error));
                    }
                }
                return Ok(());
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        };
        for n in asked.into_iter().rev() {
            let Some(one) = self.restoring.get_mut(n) else {
                continue;
            };
            let outcome = match std::mem::replace(&mut one.phase, Phase::Opening) {
                Phase::Asking(backend) => one.decide(shared, backend, &ends),
                Phase::Reading(reader) => one.read_again(reader, &ends),
                other => Ok(other),
            };
            match outcome {
                Ok(phase) => one.phase = phase,
                Err(error) => {
                    self.start_over(shared, settled, source, tasks, n, error)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a copy that is behind counts as exact, because a row of the restart table is missing in a test.
fn is_believed(local: Local<'_>, restart: &Restart) -> bool {
    let (Local::Position(position), Restart::Replay(_)) = (local, restart) else {
        return false;
    };
    match position.standing {
        Standing::At { .. } => !rules::replays_old_copies(),
        Standing::Restoring { .. } => !rules::repeats_interrupted_restores(),
    }
}

/// Returns the position of the local state, for the log.
fn local_text(local: Local<'_>) -> String {
    match local {
        Local::Nothing => "none".to_owned(),
        Local::Unreadable(_) => "unreadable".to_owned(),
        Local::Position(position) => match &position.standing {
            Standing::At { seq, .. } => seq.0.to_string(),
            Standing::Restoring { .. } => "restoring".to_owned(),
        },
    }
}
