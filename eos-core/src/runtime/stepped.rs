//! An app whose workers the caller steps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eos_protocol::{AppId, InstanceId, Offset, TopicName, TopicPartition, WorkerId};
use eos_state::CacheMemory;

use super::books::books;
use super::globals::{self, GlobalReader};
use super::preflight::preflight;
use super::purging;
use super::run::{Shared, state_in, worker_spec};
use crate::boundary::Ledgered;
use crate::client::Client;
use crate::config::Settings;
use crate::error::Error;
use crate::metrics::{Meters, Metrics, WorkerMeter};
use crate::paused::{PauseId, Paused, Resume, ResumeError};
use crate::topology::Topology;
use crate::views::{StopsViews, View, ViewBoard, ViewError, Viewable, Viewer};
use crate::worker::{Env, Home, PauseBoard, PurgeQueue, Step, Worker};

/// The memory of the caches of a process, in bytes. It is so small that they evict values all the time.
const CACHE_BYTES: usize = 16 * 1024;

/// The value of `bootstrap.servers` in messages.
const BOOTSTRAP: &str = "in-process";

/// An app that a test starts any number of times: after a crash, or several times in parallel.
///
/// It starts no thread and never waits: the caller calls [`Worker::step`] and sets the time. The given [`Home`]
/// contains the state.
pub struct Stepped<C> {
    settings: Settings,
    topology: Arc<Topology>,
    client: Arc<C>,
    restore_batch: Option<usize>,
    /// The number of the next process, from 1. Each process has its own range of pause numbers.
    starts: AtomicU64,
}

impl<C: Client> Stepped<C> {
    pub(crate) fn new(settings: Settings, topology: Arc<Topology>, client: C) -> Self {
        Self {
            settings,
            topology,
            client: Arc::new(client),
            restore_batch: None,
            starts: AtomicU64::new(1),
        }
    }

    /// Sets the size of a restore's write batch in bytes. With a small size, even a small changelog takes several
    /// batches, with possible events in between.
    #[must_use]
    pub fn restore_batch(mut self, bytes: usize) -> Self {
        self.restore_batch = Some(bytes);
        self
    }

    /// Returns whether a stage closes windows while its inputs are idle.
    #[must_use]
    pub fn closes_when_idle(&self) -> bool {
        let mut stages = self.topology.stages().iter();
        stages.any(|stage| self.topology.idle_of(stage).is_some())
    }

    /// Returns the external input topics, which must exist before the start.
    #[must_use]
    pub fn inputs(&self) -> Vec<TopicName> {
        let stages = self.topology.stages().iter();
        let topics = stages.flat_map(|stage| stage.topics.iter().cloned());
        self.of_others(topics.chain(self.globals()))
    }

    /// Returns the external output topics, which must exist before the start.
    #[must_use]
    pub fn outputs(&self) -> Vec<TopicName> {
        self.of_others(self.topology.output_topics().into_iter())
    }

    /// Returns all input topics, including internal topics.
    #[must_use]
    pub fn reads(&self) -> Vec<TopicName> {
        let stages = self.topology.stages().iter();
        let mut topics: Vec<_> = stages
            .flat_map(|stage| stage.topics.iter().cloned())
            .collect();
        topics.sort();
        topics.dedup();
        topics
    }

    /// Returns the topics of the global tables.
    #[must_use]
    pub fn globals(&self) -> Vec<TopicName> {
        let globals = self.topology.globals().iter();
        let mut topics: Vec<_> = globals.map(|table| table.topic.clone()).collect();
        topics.sort();
        topics.dedup();
        topics
    }

    /// Returns the internal topics, which the app creates at its start: repartition topics and changelogs.
    #[must_use]
    pub fn own(&self) -> Vec<TopicName> {
        let names = self.topology.output_names();
        let internals = self.topology.internals().iter();
        let own = internals.filter_map(|it| names.get(it.output).cloned());
        own.collect()
    }

    /// Returns the configured number of workers of a process.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.settings.workers
    }

    /// Returns the names of the stores.
    #[must_use]
    pub fn stores(&self) -> Vec<String> {
        self.topology.store_names()
    }

    /// Returns the name of the app, which is also its consumer group.
    #[must_use]
    pub fn app(&self) -> &str {
        self.settings.app.as_str()
    }

    fn of_others(&self, topics: impl Iterator<Item = TopicName>) -> Vec<TopicName> {
        let own = self.own();
        let mut others: Vec<_> = topics.filter(|topic| !own.contains(topic)).collect();
        others.sort();
        others.dedup();
        others
    }

    /// Starts a process of this app: checks the cluster, creates the internal topics like any start, and creates the
    /// workers.
    ///
    /// `instance` distinguishes the process from others, and stays the same after a crash. Transactional ids and static
    /// members are named after it.
    ///
    /// # Errors
    /// [`Error::Preflight`] if the cluster does not fit the app, [`Error::Worker`] if the client can't be created.
    pub fn start(
        &self,
        instance: &str,
        workers: u16,
        env: &Env,
        home: Arc<dyn Home>,
    ) -> Result<Process<C>, Error> {
        let instance = InstanceId::new(instance);
        let since = Instant::now();
        let partitions = preflight(&*self.client, &self.topology, &self.settings, BOOTSTRAP)?;
        let owner = env.entropy();
        let books = books(&self.topology, &self.settings, &partitions, owner, since)?;
        let client = Arc::new(Ledgered::new(Arc::clone(&self.client), books));
        let purge_queue = Arc::new(PurgeQueue::default());
        let pauses = Arc::new(PauseBoard::new(
            self.starts.fetch_add(1, Ordering::Relaxed) << 32,
        ));
        let views = Arc::new(ViewBoard::new(workers, partitions.inputs.clone()));
        let ids = (0..workers).map(WorkerId);
        let meters = ids.clone().map(|id| Arc::new(WorkerMeter::new(id)));
        let meters: Vec<_> = meters.collect();
        let mut state = state_in(
            home,
            CacheMemory::new(CACHE_BYTES),
            &self.settings,
            &partitions,
            &self.topology,
        );
        if let Some(bytes) = self.restore_batch {
            state.restore_batch = bytes;
        }
        let (tables, global_meters) = (
            globals::tables_of(&self.topology),
            globals::meters_of(&self.topology),
        );
        let made = ids.zip(&meters).map(|(id, meter)| {
            let spec = worker_spec(
                &self.settings,
                &instance,
                id,
                &partitions,
                self.topology.stages(),
                state.clone(),
                Shared {
                    purge_queue: Arc::clone(&purge_queue),
                    pauses: Arc::clone(&pauses),
                    globals: Arc::clone(&tables),
                    views: Arc::clone(&views),
                },
            );
            let (topology, client) = (Arc::clone(&self.topology), Arc::new(client.of_worker()));
            Worker::new(spec, env.clone(), topology, client, Arc::clone(meter))
        });
        let workers = made.collect::<Result<_, _>>()?;
        let reader = globals::Beginning {
            settings: &self.settings,
            instance: &instance,
            state: &state,
            env,
            topology: &self.topology,
            shared: tables,
            meters: global_meters.clone(),
        };
        Ok(Process {
            workers,
            globals: reader.stepped(&partitions, &*client)?,
            client,
            app: self.settings.app.clone(),
            purge_queue,
            pauses,
            viewer: Viewer::new(Arc::clone(&self.topology), Arc::clone(&views), env.clone()),
            _stops: StopsViews(views),
            meters: Meters {
                workers: meters,
                globals: global_meters,
                ledger: self.topology.ledger().cloned(),
            },
            env: env.clone(),
        })
    }
}

impl<C> fmt::Debug for Stepped<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A process of an app, with workers to step. Dropping it is a crash.
#[derive(Debug)]
pub struct Process<C: Client> {
    /// The workers, by number.
    pub workers: Vec<Worker<Ledgered<C>>>,
    globals: Option<GlobalReader<Ledgered<C>>>,
    client: Arc<Ledgered<C>>,
    app: AppId,
    purge_queue: Arc<PurgeQueue>,
    pauses: Arc<PauseBoard>,
    viewer: Viewer,
    _stops: StopsViews,
    meters: Meters,
    env: Env,
}

impl<C: Client> Process<C> {
    /// Deletes the records that the workers no longer need: in repartition topics and in windowed changelogs. A real
    /// process deletes them periodically.
    pub fn purge(&self) {
        purging::once(&self.app, &*self.client, &self.purge_queue);
    }

    /// Steps the reader of the global tables once.
    ///
    /// # Errors
    /// [`Error::Global`] if the app has to stop.
    pub fn step_globals(&mut self) -> Result<Step, Error> {
        match &mut self.globals {
            Some(reader) => Ok(reader.step()?),
            None => Ok(Step::Idle(Duration::MAX)),
        }
    }

    /// Whether the global tables have been read up to their ends, and the tasks read them.
    #[must_use]
    pub fn globals_are_open(&self) -> bool {
        self.globals.as_ref().is_none_or(GlobalReader::is_open)
    }

    /// Returns the next offset of each partition that the global tables read.
    #[must_use]
    pub fn global_offsets(&self) -> Vec<(TopicPartition, Offset)> {
        let readers = self.globals.iter().flat_map(GlobalReader::next);
        readers
            .map(|(partition, next)| (partition.clone(), next))
            .collect()
    }

    /// Returns the paused tasks.
    #[must_use]
    pub fn paused(&self) -> Vec<Paused> {
        self.pauses.paused()
    }

    /// Decides about a paused task.
    ///
    /// # Errors
    /// [`ResumeError`] if the task is not paused any more, or if there is no dead-letter topic.
    pub fn resume(&self, id: PauseId, how: Resume) -> Result<(), ResumeError> {
        self.pauses.resume(id, how)
    }

    /// Returns a view of the committed rows of a store in this process.
    ///
    /// # Errors
    /// [`ViewError`] if the app has no such store.
    pub fn view<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        self.viewer.view(store)
    }

    /// Returns the metrics of the workers.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.meters.read(self.app.as_str(), self.env.now())
    }
}
