//! An app whose workers the caller steps.

use std::fmt;
use std::sync::Arc;

use eos_protocol::{AppId, InstanceId, TopicName, WorkerId};
use eos_state::CacheMemory;

use super::preflight::preflight;
use super::purging;
use super::run::{state_in, worker_spec};
use crate::client::Client;
use crate::config::Settings;
use crate::error::Error;
use crate::metrics::{Metrics, WorkerMeter};
use crate::topology::Topology;
use crate::worker::{Env, Home, PurgeQueue, Worker};

/// What stands in messages for `bootstrap.servers`.
const BOOTSTRAP: &str = "in-process";

/// An app, ready to be started as often as a test wants: after a crash, or several times beside itself.
///
/// No thread is started and nothing waits: the caller calls [`Worker::step`] and sets the time. State is where the [`Home`] given says.
pub struct Stepped<C> {
    settings: Settings,
    topology: Arc<Topology>,
    client: Arc<C>,
    restore_batch: Option<usize>,
}

impl<C: Client> Stepped<C> {
    pub(crate) fn new(settings: Settings, topology: Arc<Topology>, client: C) -> Self {
        Self {
            settings,
            topology,
            client: Arc::new(client),
            restore_batch: None,
        }
    }

    /// How many bytes a restore gathers before it writes them; so few that even a small changelog takes
    /// several batches, between which something can happen.
    #[must_use]
    pub fn restore_batch(mut self, bytes: usize) -> Self {
        self.restore_batch = Some(bytes);
        self
    }

    /// The topics that it reads, of others: they have to be there before it starts.
    #[must_use]
    pub fn inputs(&self) -> Vec<TopicName> {
        let stages = self.topology.stages().iter();
        let topics = stages.flat_map(|stage| stage.topics.iter().cloned());
        self.of_others(topics)
    }

    /// The topics that it writes to, of others: they have to be there before it starts.
    #[must_use]
    pub fn outputs(&self) -> Vec<TopicName> {
        self.of_others(self.topology.output_names().into_iter())
    }

    /// The topics that it reads, those of its own included.
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

    /// The topics of its own, which it creates when it starts: those of repartitions and changelogs.
    #[must_use]
    pub fn own(&self) -> Vec<TopicName> {
        let names = self.topology.output_names();
        let internals = self.topology.internals().iter();
        let own = internals.filter_map(|it| names.get(it.output).cloned());
        own.collect()
    }

    /// How many workers a process has by its settings.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.settings.workers
    }

    /// The names of its stores.
    #[must_use]
    pub fn stores(&self) -> Vec<String> {
        let stores = self.topology.stores().iter();
        stores.map(|store| store.name.to_string()).collect()
    }

    /// The name of the app, which is its consumer group too.
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

    /// Starts a process of this app: checks the cluster and creates the app's own topics as every start does,
    /// and makes its workers.
    ///
    /// `instance` is what tells it from other processes, and the same after a crash: transactional ids and
    /// static members are named after it.
    ///
    /// # Errors
    /// [`Error::Preflight`] if the cluster is not fit for the app, [`Error::Worker`] if the client can't be
    /// made.
    pub fn start(
        &self,
        instance: &str,
        workers: u16,
        env: &Env,
        home: Arc<dyn Home>,
    ) -> Result<Process<C>, Error> {
        let instance = InstanceId::new(instance);
        let partitions = preflight(&*self.client, &self.topology, &self.settings, BOOTSTRAP)?;
        let purge_queue = Arc::new(PurgeQueue::default());
        let ids = (0..workers).map(WorkerId);
        let meters = ids.clone().map(|id| Arc::new(WorkerMeter::new(id)));
        let meters: Vec<_> = meters.collect();
        let mut state = state_in(
            home,
            CacheMemory::default(),
            &self.settings,
            &partitions,
            &self.topology,
        );
        if let Some(bytes) = self.restore_batch {
            state.restore_batch = bytes;
        }
        let made = ids.zip(&meters).map(|(id, meter)| {
            let spec = worker_spec(
                &self.settings,
                &instance,
                id,
                &partitions,
                self.topology.stages(),
                state.clone(),
                Arc::clone(&purge_queue),
            );
            let (topology, client) = (Arc::clone(&self.topology), Arc::clone(&self.client));
            Worker::new(spec, env.clone(), topology, client, Arc::clone(meter))
        });
        Ok(Process {
            workers: made.collect::<Result<_, _>>()?,
            client: Arc::clone(&self.client),
            app: self.settings.app.clone(),
            purge_queue,
            meters,
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

/// A process of an app: its workers, to be stepped. Dropping it is a crash.
#[derive(Debug)]
pub struct Process<C: Client> {
    /// The workers, by number.
    pub workers: Vec<Worker<C>>,
    client: Arc<C>,
    app: AppId,
    purge_queue: Arc<PurgeQueue>,
    meters: Vec<Arc<WorkerMeter>>,
    env: Env,
}

impl<C: Client> Process<C> {
    /// Deletes what its workers are done with: records of repartition topics, and what a windowed changelog
    /// does not need any more. A process does so every now and then.
    pub fn purge(&self) {
        purging::once(&self.app, &*self.client, &self.purge_queue);
    }

    /// What its workers did so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::gather(self.app.as_str(), self.env.now(), &self.meters)
    }
}
