//! Databases with a crash point at each write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_core::spi::stepped::{Home, HomeError, TaskHome};
use eos_protocol::state::Position;
use eos_state::{Around, Batch, StoreBackend, StoreError};

use crate::client::Edge;

/// Called before and after each write, with the number of writes since its database was opened, this write included.
/// It throws if the process dies there.
type AtWrite = dyn Fn(Edge, u64) + Send + Sync;

/// For each database that was ever opened, the number of workers that have it open.
type Opened = Arc<Mutex<BTreeMap<TaskHome, u32>>>;

/// A home of databases with crash points. A copy is the same home.
#[derive(Clone)]
pub struct CrashHome {
    home: Arc<dyn Home>,
    at_write: Arc<AtWrite>,
    opened: Opened,
}

impl fmt::Debug for CrashHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrashHome").field(&self.home).finish()
    }
}

impl CrashHome {
    pub fn new(
        home: Arc<dyn Home>,
        at_write: impl Fn(Edge, u64) + Send + Sync + 'static,
    ) -> CrashHome {
        CrashHome {
            home,
            at_write: Arc::new(at_write),
            opened: Opened::default(),
        }
    }

    /// Every database that was ever opened, and the number of workers that have it open.
    pub fn known(&self) -> Vec<(TaskHome, u32)> {
        let opened = lock(&self.opened);
        opened
            .iter()
            .map(|(home, by)| (home.clone(), *by))
            .collect()
    }

    /// Opens a database without crash points.
    pub fn look(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        self.home.open(task)
    }
}

fn lock(opened: &Opened) -> MutexGuard<'_, BTreeMap<TaskHome, u32>> {
    opened.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Home for CrashHome {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let Some(database) = self.home.open(task)? else {
            return Ok(None);
        };
        *lock(&self.opened).entry(task.clone()).or_default() += 1;
        Ok(Some(Box::new(CrashBackend {
            database,
            task: task.clone(),
            at_write: Arc::clone(&self.at_write),
            opened: Arc::clone(&self.opened),
            writes: 0,
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        self.home.discard(task)
    }
}

struct CrashBackend {
    database: Box<dyn StoreBackend>,
    task: TaskHome,
    at_write: Arc<AtWrite>,
    opened: Opened,
    /// The number of writes since the database was opened.
    writes: u64,
}

impl fmt::Debug for CrashBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CrashBackend").field(&self.database).finish()
    }
}

impl Drop for CrashBackend {
    fn drop(&mut self) {
        if let Some(by) = lock(&self.opened).get_mut(&self.task) {
            *by -= 1;
        }
    }
}

impl Around for CrashBackend {
    type Inner = dyn StoreBackend;

    fn inner(&self) -> &Self::Inner {
        self.database.as_ref()
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        self.database.as_mut()
    }

    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.writes += 1;
        (self.at_write)(Edge::Before, self.writes);
        self.database.apply(batch, position)?;
        (self.at_write)(Edge::After, self.writes);
        Ok(())
    }
}
