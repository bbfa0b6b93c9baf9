//! The views of an app in one process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use eos_protocol::views::Whereabouts;
use eos_protocol::{Offset, Partition, Stage, TaskId};
use eos_state::{StateSnapshot, StoreError, StoreKind};

use super::access::sealed::Kind;
use super::access::{Viewable, ViewedStore};
use super::board::{Found, ViewBoard};
use super::error::ViewError;
use super::view::View;
use crate::topology::Topology;
use crate::worker::Env;

/// Creates views of the app's stores. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Viewer {
    pub(super) topology: Arc<Topology>,
    pub(super) board: Arc<ViewBoard>,
    pub(super) env: Env,
}

impl Viewer {
    pub(crate) fn new(topology: Arc<Topology>, board: Arc<ViewBoard>, env: Env) -> Self {
        Self {
            topology,
            board,
            env,
        }
    }

    pub(crate) fn board(&self) -> &Arc<ViewBoard> {
        &self.board
    }

    /// Returns a view of a store with new snapshots.
    pub(crate) fn view<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        Snapshots::new(self.clone()).view(store)
    }
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Viewer")
            .field("board", &self.board)
            .finish_non_exhaustive()
    }
}

/// A store of the app, with the access to its rows.
pub(super) struct ViewStore<D: ViewedStore> {
    pub(super) name: Arc<str>,
    pub(super) id: eos_protocol::state::StoreId,
    pub(super) stage: Stage,
    pub(super) access: D::Access,
}

/// One snapshot for each task that was read.
pub(super) struct Snapshots {
    pub(super) viewer: Viewer,
    taken: Mutex<BTreeMap<TaskId, Arc<StateSnapshot>>>,
}

impl Snapshots {
    pub(super) fn new(viewer: Viewer) -> Arc<Self> {
        Arc::new(Self {
            viewer,
            taken: Mutex::default(),
        })
    }

    pub(super) fn view<H: Viewable>(
        self: Arc<Self>,
        store: &H,
    ) -> Result<View<H::Store>, ViewError> {
        let topology = &self.viewer.topology;
        let index = store.wanted().index_in(topology)?;
        let spec = topology.stores().get(index).ok_or(ViewError::OtherApp)?;
        let store = Arc::clone(&spec.name);
        let is_ordered = spec.kind == StoreKind::Ordered;
        let access = H::Store::access(&*spec.definition, is_ordered);
        let access = access.ok_or_else(|| ViewError::OtherTypes {
            store: Arc::clone(&store),
        })?;
        let mut stages = topology.stages().iter();
        let stage = stages.find(|it| topology.stores_of(it).any(|its| its.id == spec.id));
        // A store that no stream uses has no rows and no task.
        let stage = stage.ok_or_else(|| ViewError::UnknownStore {
            store: store.to_string(),
            stores: names(topology),
        })?;
        let found = ViewStore {
            name: store,
            id: spec.id,
            stage: stage.clone(),
            access,
        };
        Ok(View::new(self, Arc::new(found)))
    }

    /// Returns the snapshot of a task, and takes it before the first use.
    pub(super) fn of(
        &self,
        store: &Arc<str>,
        stage: &Stage,
        partition: Partition,
    ) -> Result<Arc<StateSnapshot>, ViewError> {
        let task = TaskId {
            stage: stage.id,
            partition,
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = taken.get(&task) {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = Arc::new(self.viewer.snapshot(store, stage, task)?);
        taken.insert(task, Arc::clone(&snapshot));
        Ok(snapshot)
    }
}

impl Viewer {
    /// Takes a snapshot of a task.
    pub(super) fn snapshot(
        &self,
        store: &Arc<str>,
        stage: &Stage,
        task: TaskId,
    ) -> Result<StateSnapshot, ViewError> {
        let store = || Arc::clone(store);
        let partition = task.partition.get();
        let partitions = self.board.width(stage.driving_topic());
        match self.board.find(task, partitions) {
            Found::Ready(Some(reader)) => reader
                .snapshot()
                .map_err(|error| self.failed(&store(), partition, error)),
            Found::Ready(None) => Err(ViewError::NoSnapshots { store: store() }),
            Found::Stopped => Err(ViewError::Stopped { store: store() }),
            Found::Not(Whereabouts::Elsewhere { here }) => Err(ViewError::Elsewhere {
                store: store(),
                partition,
                here: here.iter().map(|partition| partition.get()).collect(),
            }),
            Found::Not(Whereabouts::Restoring) => Err(ViewError::Restoring {
                store: store(),
                partition,
            }),
            Found::Not(Whereabouts::Missing) => Err(ViewError::NoSuchPartition {
                store: store(),
                partition,
                partitions,
            }),
            Found::Not(Whereabouts::Starting | Whereabouts::Here) => Err(ViewError::Starting {
                store: store(),
                partition,
            }),
        }
    }

    /// Converts an error of a snapshot.
    pub(super) fn failed(&self, store: &Arc<str>, partition: i32, error: StoreError) -> ViewError {
        let store = Arc::clone(store);
        match error {
            StoreError::Closed if self.board.is_stopping() => ViewError::Stopped { store },
            StoreError::Closed => ViewError::Moved { store, partition },
            source => ViewError::Store { store, source },
        }
    }
}

/// Returns the names of the app's stores.
pub(super) fn names(topology: &Topology) -> Vec<String> {
    let stores = topology.stores().iter();
    stores.map(|store| store.name.to_string()).collect()
}

/// Returns an offset from its number. A negative number is before every offset.
pub(super) fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap_or(Offset::ZERO)
}
