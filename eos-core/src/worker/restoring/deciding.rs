//! What a task's state is made whole from: its database is opened, its changelogs' ends are asked for,
//! and `eos_protocol::state` decides.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::state::{
    Bounds, Identity, Local, Offsets, PerFamily, Restart, Restore, RestoreKind, Situation,
    Standing, StoresHash, TopicIdentity, TopicUuid, Why, decide,
};
use eos_protocol::{ErrorClass, Offset, Stage, TaskId, TopicPartition};
use eos_state::{StoreBackend, TaskStore};

use super::other_store::Names;
use super::reading::{Pending, Reader};
use super::{Committed, Phase, Restoring, no_home, store_failed};
use crate::client::{Client, LogEnds, Source};
use crate::failpoints::{self, Defence};
use crate::worker::home::{HomeError, TaskHome};
use crate::worker::windows::all_over;
use crate::worker::{RecordsOf, Worker, WorkerError};

/// How often a database is tried that another worker still has open.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// How often a long restore says what it waits for.
const TELL: Duration = Duration::from_secs(10);
/// Kafka's default of `delete.retention.ms`.
const DELETE_RETENTION: Duration = Duration::from_secs(24 * 3600);

impl<C: Client> Worker<C> {
    /// The task's stage has stores: its state comes first.
    pub(in crate::worker) fn begin_to_restore(
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
            stores: StoresHash::of(stores.iter().map(|s| (&*s.name, s.id.family()))),
        };
        let stream_time = match &committed {
            Committed::Named(name) => name.stream_time,
            _ => None,
        };
        self.restoring.push(Restoring {
            task,
            at,
            committed,
            home,
            identity,
            windows: (stores.iter())
                .filter_map(|s| Some((s.id, s.expiry?)))
                .collect(),
            stream_time,
            stores: stores.iter().map(|s| (s.id, s.kind)).collect(),
            names: Names::of(&stores),
            logs,
            width: self
                .spec
                .input_partitions
                .get(stage.driving_topic())
                .copied()
                .unwrap_or_default(),
            phase: Phase::Opening,
            kind: RestoreKind::Exact,
            since: self.env.now(),
            told: self.env.now(),
            read: Vec::new(),
            out_of_range: false,
        });
    }

    pub(super) fn open_database(
        &mut self,
        one: &mut Restoring<RecordsOf<C>>,
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
    fn waits(&self, one: &mut Restoring<RecordsOf<C>>, what: &str) -> Duration {
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
    pub(super) fn ask_for_ends(
        &mut self,
        restoring: &mut Vec<Restoring<RecordsOf<C>>>,
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
            let outcome = match std::mem::replace(&mut one.phase, Phase::Opening) {
                Phase::Asking(backend) => self.decided(one, backend, &ends),
                Phase::Reading(reader) => one.read_again(reader, &ends),
                other => Ok(other),
            };
            match outcome {
                Ok(phase) => one.phase = phase,
                Err(error) => self.start_over(restoring, n, error)?,
            }
        }
        Ok(())
    }

    fn decided(
        &mut self,
        one: &mut Restoring<RecordsOf<C>>,
        backend: Box<dyn StoreBackend>,
        ends: &[LogEnds],
    ) -> Result<Phase<RecordsOf<C>>, WorkerError> {
        let bounds = PerFamily::from_fn(|family| {
            let (_, partition) = one.logs.get(family).as_ref()?;
            let found = ends.iter().find(|log| log.partition == *partition)?;
            let retention = self.spec.state.delete_retention.get(&partition.topic);
            Some(Bounds {
                topic: partition.topic.clone(),
                start: found.first,
                end: if failpoints::undefended(Defence::RestoreToEnd) {
                    found.stable
                } else {
                    found.end
                },
                delete_retention: retention.copied().unwrap_or(DELETE_RETENTION),
            })
        });
        let situation = Situation {
            group: self.spec.app.as_str(),
            identity: &one.identity,
            width: one.width,
            local: backend.position().map_or(Local::Nothing, Local::Position),
            windows_over: all_over(&*backend, &one.windows, one.stream_time),
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
            accepted: &self.spec.state.accepted_changelogs,
            now: self.env.wall_clock(),
        };
        let restart = match (situation.local, &one.committed) {
            (Local::Position(_), Committed::Named(_))
                if failpoints::undefended(Defence::RestartTable) =>
            {
                Restart::Exact
            }
            (local, _) => {
                let restart = decide(&situation);
                let restart = restart.map_err(|e| WorkerError::Restart(Box::new(e)))?;
                if is_believed(local, &restart) {
                    Restart::Exact
                } else {
                    restart
                }
            }
        };
        one.check_stores(situation.local, &*backend)?;
        one.kind = restart.kind();
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, task = %one.task,
            restart = restart.row(), local = told(situation.local),
            committed = match &one.committed {
                Committed::Named(name) => name.seq.0.to_string(),
                Committed::Unnamed { .. } => "no name".to_owned(),
                Committed::Missing(_) => "none".to_owned(),
            },
            "what the local state is worth"
        );
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
            .map_err(|source| store_failed(one.task, source))?
            .cached(&self.spec.state.cache);
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
        one: &Restoring<RecordsOf<C>>,
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
        let discarded = home.discard(&one.home);
        if !discarded.map_err(|source| no_home(one.task, source))? {
            // Whoever looks at left-over tasks has it locked. It is opened and judged once more, lest what
            // was to go be restored on top of.
            return Ok(None);
        }
        let opened = home.open(&one.home);
        opened.map_err(|source| no_home(one.task, source))
    }
}

impl<R> Restoring<R> {
    /// A changelog that was out of range: if it still has what is to be read, its reader is to be given
    /// it once more, for the client has stopped at it. (If that leads nowhere, the restore stands still.)
    fn read_again(
        &mut self,
        reader: Box<Reader<R>>,
        ends: &[LogEnds],
    ) -> Result<Phase<R>, WorkerError> {
        for (family, log) in self.logs.iter() {
            let Some((_, partition)) = log else { continue };
            let Some(found) = ends.iter().find(|log| log.partition == *partition) else {
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

/// Without a row of the restart table: whether a copy that is behind counts as exact.
fn is_believed(local: Local<'_>, restart: &Restart) -> bool {
    let (Local::Position(position), Restart::Replay(_)) = (local, restart) else {
        return false;
    };
    failpoints::undefended(match position.standing {
        Standing::At { .. } => Defence::Replay,
        Standing::Restoring { .. } => Defence::Interrupted,
    })
}

/// Where local state stands, for the log.
fn told(local: Local<'_>) -> String {
    match local {
        Local::Nothing => "none".to_owned(),
        Local::Unreadable(_) => "unreadable".to_owned(),
        Local::Position(position) => match &position.standing {
            Standing::At { seq, .. } => seq.0.to_string(),
            Standing::Restoring { .. } => "restoring".to_owned(),
        },
    }
}
