//! Views of an app in one process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use eos_protocol::views::Whereabouts;
use eos_protocol::{Offset, Partition, Stage, TaskId};
use eos_state::{StateSnapshot, StoreError};

use super::access::ViewedStore;
use super::board::{Found, ViewBoard};
use super::error::ViewError;
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

    /// Returns the snapshot of a task. The first call takes it.
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

/// Converts a number to an offset. A negative number becomes offset 0.
pub(super) fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap_or(Offset::ZERO)
}
