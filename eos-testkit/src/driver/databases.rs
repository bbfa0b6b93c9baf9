//! The databases of a process: in memory, but they outlive it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_core::stepped::{Home, HomeError, TaskHome};
use eos_protocol::state::{Position, StoreId};
use eos_state::{Batch, Cursor, Direction, KeyRange, MemoryBackend, StoreBackend, StoreError};

use super::faults::{CrashPoint, Died, Faults};
use crate::client::Edge;

#[derive(Debug, Default)]
struct Database {
    now: MemoryBackend,
    open: bool,
}

/// The databases of a process. A copy is the same.
#[derive(Debug, Clone)]
pub(super) struct Databases {
    all: Arc<Mutex<BTreeMap<TaskHome, Database>>>,
    faults: Faults,
}

impl Databases {
    pub(super) fn new(faults: &Faults) -> Databases {
        Databases {
            all: Arc::default(),
            faults: faults.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskHome, Database>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Their process is dead.
    pub(super) fn released(&self) {
        for database in self.lock().values_mut() {
            database.open = false;
        }
    }

    /// They are gone.
    pub(super) fn lose(&self) {
        self.lock().clear();
    }

    /// Each one, and whether it is open: a task has moved away from one that is not.
    pub(super) fn each(&self, mut look: impl FnMut(&TaskHome, &MemoryBackend, bool)) {
        for (home, database) in &*self.lock() {
            look(home, &database.now, database.open);
        }
    }
}

impl Home for Databases {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let mut all = self.lock();
        let database = all.entry(task.clone()).or_default();
        if database.open {
            return Ok(None);
        }
        database.open = true;
        Ok(Some(Box::new(Opened {
            home: self.clone(),
            task: task.clone(),
            now: database.now.clone(),
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        let mut all = self.lock();
        if all.get(task).is_some_and(|it| it.open) {
            return Ok(false);
        }
        all.remove(task);
        Ok(true)
    }
}

/// An open database: reads are of a copy, writes go to both.
#[derive(Debug)]
struct Opened {
    home: Databases,
    task: TaskHome,
    now: MemoryBackend,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(database) = self.home.lock().get_mut(&self.task) {
            database.open = false;
        }
    }
}

impl Opened {
    fn dies_at(&self, edge: Edge) {
        if self.home.faults.dies(CrashPoint::StoreWrite, edge) {
            std::panic::resume_unwind(Box::new(Died));
        }
    }
}

impl StoreBackend for Opened {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.now.get(store, key, value)
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        self.now.multi_get(store, keys, found)
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        self.now.scan(store, range, direction)
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        self.now.stores()
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.dies_at(Edge::Before);
        self.now.apply(batch, position)?;
        if let Some(database) = self.home.lock().get_mut(&self.task) {
            database.now.apply(batch, position)?;
        }
        self.dies_at(Edge::After);
        Ok(())
    }

    fn position(&self) -> Option<&Position> {
        self.now.position()
    }
}
