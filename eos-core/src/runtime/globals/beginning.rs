//! The start and the end of the reader.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{AppId, InstanceId, WorkerId};

use super::thread::GlobalThread;
use super::{GlobalError, GlobalReader};
use crate::client::{Client, GroupProtocol};
use crate::config::Settings;
use crate::error::Error;
use crate::global::GlobalTables;
use crate::metrics::GlobalMeter;
use crate::runtime::handle::Handle;
use crate::runtime::membership::protocol;
use crate::runtime::preflight::Partitions;
use crate::topology::{GlobalSpec, Topology};
use crate::worker::{Env, Home, StateSpec};

/// The settings of a reader.
pub(super) struct ReaderSpec {
    pub(super) app: AppId,
    pub(super) client_id: String,
    pub(super) protocol: GroupProtocol,
    pub(super) home: Arc<dyn Home>,
    pub(super) cluster: String,
    pub(super) patience: Duration,
    pub(super) shared: Arc<GlobalTables>,
    /// The meters, by table.
    pub(super) meters: Vec<Arc<GlobalMeter>>,
}

/// Returns the global tables of a process, which are not open yet.
pub(in crate::runtime) fn tables_of(topology: &Topology) -> Arc<GlobalTables> {
    let names = topology.globals().iter();
    Arc::new(GlobalTables::of(names.map(|it| Arc::clone(&it.name))))
}

/// Returns the meters of an app's global tables.
pub(in crate::runtime) fn meters_of(topology: &Topology) -> Vec<Arc<GlobalMeter>> {
    let meter = |it: &GlobalSpec| Arc::new(GlobalMeter::new(&it.name, it.topic.as_str()));
    topology.globals().iter().map(meter).collect()
}

/// The parts of a process that its reader uses.
pub(in crate::runtime) struct Beginning<'a> {
    pub(in crate::runtime) settings: &'a Settings,
    pub(in crate::runtime) instance: &'a InstanceId,
    pub(in crate::runtime) state: &'a StateSpec,
    pub(in crate::runtime) env: &'a Env,
    pub(in crate::runtime) topology: &'a Arc<Topology>,
    pub(in crate::runtime) shared: Arc<GlobalTables>,
    pub(in crate::runtime) meters: Vec<Arc<GlobalMeter>>,
}

impl Beginning<'_> {
    /// Returns a reader for the caller to step, if there are global tables.
    pub(in crate::runtime) fn stepped<C: Client>(
        self,
        partitions: &Partitions,
        client: &C,
    ) -> Result<Option<GlobalReader<C>>, GlobalError> {
        self.discard_others();
        if self.topology.globals().is_empty() {
            return Ok(None);
        }
        let (env, topology) = (self.env.clone(), Arc::clone(self.topology));
        GlobalReader::new(self.spec(), env, &topology, partitions, client).map(Some)
    }

    /// Starts a reader on a thread of its own, if there are global tables.
    pub(in crate::runtime) fn start<C>(
        self,
        partitions: Partitions,
        client: &Arc<C>,
        handle: &Handle,
    ) -> Result<Option<GlobalThread>, Error>
    where
        C: Client + Send + Sync + 'static,
    {
        self.discard_others();
        if self.topology.globals().is_empty() {
            return Ok(None);
        }
        let (env, topology) = (self.env.clone(), Arc::clone(self.topology));
        let (client, spec) = (Arc::clone(client), self.spec());
        let make = move || GlobalReader::new(spec, env, &topology, &partitions, &*client);
        let started = GlobalThread::start(make, handle.clone());
        started.map(Some).map_err(Error::Thread)
    }

    /// Deletes the copies of tables that an earlier version of the app had. A start does not fail because of them.
    fn discard_others(&self) {
        let tables = self.topology.globals().iter();
        let tables: Vec<&str> = tables.map(|it| &*it.name).collect();
        let app = &self.settings.app;
        match self.state.home.discard_other_globals(&tables) {
            Ok(removed) => {
                for table in removed {
                    tracing::info!(%app, table, "removed the copy of a global table that the app no longer has");
                }
            }
            Err(error) => tracing::warn!(
                %app, %error,
                "removing the copies of former global tables failed; trying again at the next start"
            ),
        }
    }

    fn spec(self) -> ReaderSpec {
        // The reader is in no group: as a static member it would fence a worker.
        let protocol = match protocol(self.settings, self.instance, WorkerId(0), &[]) {
            GroupProtocol::Classic {
                session_timeout,
                heartbeat_interval,
                ..
            } => GroupProtocol::Classic {
                instance_id: None,
                session_timeout,
                heartbeat_interval,
            },
            GroupProtocol::Consumer => GroupProtocol::Consumer,
        };
        ReaderSpec {
            client_id: format!("{}-{}-global", self.settings.app, self.instance),
            app: self.settings.app.clone(),
            protocol,
            home: Arc::clone(&self.state.home),
            cluster: self.state.cluster.clone(),
            patience: self.state.patience,
            shared: self.shared,
            meters: self.meters,
        }
    }
}

/// Stops the reader, if there is one, and returns its error. The workers have ended.
pub(in crate::runtime) fn end(
    reader: Option<GlobalThread>,
    patience: Duration,
) -> Result<(), Error> {
    let Some(reader) = reader else {
        return Ok(());
    };
    reader.stop(patience).unwrap_or_else(|| {
        tracing::warn!(
            waited_s = patience.as_secs(),
            "the reader of the global tables did not end in time; abandoning it"
        );
        Ok(())
    })
}
