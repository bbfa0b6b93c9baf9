//! Disks in memory, whose databases outlive their processes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eos_core::spi::stepped::{Home, HomeError, TaskHome};
use eos_protocol::state::Position;
use eos_state::global::{GlobalBatch, GlobalEngine, GlobalMemory};
use eos_state::{Around, Batch, MemoryBackend, StoreBackend, StoreError};

#[derive(Debug, Default)]
struct Database {
    now: MemoryBackend,
    earlier: VecDeque<MemoryBackend>,
    open: bool,
}

/// The copy of a global table.
#[derive(Debug, Default)]
struct GlobalCopy {
    now: GlobalMemory,
    /// The writes since the copy was created, each with its mark.
    writes: Vec<(GlobalBatch, Vec<u8>)>,
}

/// A copy of a database.
#[derive(Debug)]
pub struct Copied {
    pub home: TaskHome,
    pub database: MemoryBackend,
    /// Whether a worker has the database open.
    pub open: bool,
}

/// A process's disk, in memory. A clone is the same disk.
#[derive(Clone, Default)]
pub struct Disk {
    databases: Arc<Mutex<BTreeMap<TaskHome, Database>>>,
    /// The copies of global tables.
    globals: Arc<Mutex<BTreeMap<String, GlobalCopy>>>,
    /// Whether several workers can open the same database.
    unlocked: bool,
    /// The number of earlier states of each database that a power loss can restore.
    earlier: usize,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    /// Keeps this number of earlier states of each database, and all states of the copies of global tables.
    pub fn keeping(self, earlier: usize) -> Disk {
        Disk { earlier, ..self }
    }

    /// Without the lock that a database has on a real disk: a planted bug.
    pub fn unlocked(self) -> Disk {
        Disk {
            unlocked: true,
            ..self
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TaskHome, Database>> {
        self.databases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn globals(&self) -> MutexGuard<'_, BTreeMap<String, GlobalCopy>> {
        self.globals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all databases, as after the end of the process.
    pub fn released(&self) {
        for database in self.lock().values_mut() {
            database.open = false;
        }
    }

    /// Removes all databases.
    pub fn lose(&self) {
        self.lock().clear();
        self.globals().clear();
    }

    /// Reverts each database and each copy of a global table by this number of batches.
    pub fn go_back(&self, batches: usize) {
        for database in self.lock().values_mut() {
            for _ in 0..batches {
                if let Some(earlier) = database.earlier.pop_back() {
                    database.now = earlier;
                }
            }
        }
        // Without earlier states, the writes are not known.
        if self.earlier > 0 {
            for copy in self.globals().values_mut() {
                copy.go_back(batches);
            }
        }
    }

    /// Copies all databases, including the closed ones.
    pub fn copies(&self) -> Vec<Copied> {
        let databases = self.lock();
        let copies = databases.iter().map(|(home, database)| Copied {
            home: home.clone(),
            database: database.now.clone(),
            open: database.open,
        });
        copies.collect()
    }
}

impl Home for Disk {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let mut databases = self.lock();
        let database = databases.entry(task.clone()).or_default();
        if database.open && !self.unlocked {
            return Ok(None);
        }
        database.open = true;
        Ok(Some(Box::new(OnDisk {
            disk: self.clone(),
            home: task.clone(),
            now: database.now.clone(),
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        let mut databases = self.lock();
        if databases.get(task).is_some_and(|it| it.open) {
            return Ok(false);
        }
        databases.remove(task);
        Ok(true)
    }

    fn open_global(&self, table: &str) -> Result<Box<dyn GlobalEngine>, HomeError> {
        let mut globals = self.globals();
        let copy = globals.entry(table.to_owned()).or_default();
        Ok(Box::new(GlobalOnDisk {
            disk: self.clone(),
            table: table.to_owned(),
            now: copy.now.clone(),
        }))
    }

    fn discard_global(&self, table: &str) -> Result<(), HomeError> {
        self.globals().remove(table);
        Ok(())
    }

    fn discard_other_globals(&self, tables: &[&str]) -> Result<Vec<String>, HomeError> {
        let mut globals = self.globals();
        let others = globals.keys().filter(|it| !tables.contains(&&***it));
        let others: Vec<_> = others.cloned().collect();
        globals.retain(|table, _| tables.contains(&&**table));
        Ok(others)
    }
}

impl GlobalCopy {
    /// Reverts the copy by this number of writes.
    fn go_back(&mut self, writes: usize) {
        let left = self.writes.len().saturating_sub(writes);
        self.writes.truncate(left);
        self.now = GlobalMemory::default();
        for (batch, mark) in &self.writes {
            // Memory accepts each write.
            let _ = self.now.write(batch, mark);
        }
    }
}

/// The open copy of a global table.
#[derive(Debug)]
struct GlobalOnDisk {
    disk: Disk,
    table: String,
    now: GlobalMemory,
}

impl GlobalEngine for GlobalOnDisk {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.now.get(key, value)
    }

    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        self.now.write(batch, mark)?;
        let mut globals = self.disk.globals();
        if self.disk.earlier > 0
            && let Some(copy) = globals.get_mut(&self.table)
        {
            copy.writes.push((batch.clone(), mark.to_vec()));
        }
        Ok(())
    }

    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.now.mark()
    }
}

/// An open database: reads use a copy, writes go to both.
#[derive(Debug)]
struct OnDisk {
    disk: Disk,
    home: TaskHome,
    now: MemoryBackend,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        if let Some(database) = self.disk.lock().get_mut(&self.home) {
            database.open = false;
        }
    }
}

impl Around for OnDisk {
    type Inner = MemoryBackend;

    fn inner(&self) -> &Self::Inner {
        &self.now
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.now
    }

    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.now.apply(batch, position)?;
        let mut databases = self.disk.lock();
        let Some(database) = databases.get_mut(&self.home) else {
            return Ok(());
        };
        if self.disk.earlier > 0 {
            database.earlier.push_back(database.now.clone());
            if database.earlier.len() > self.disk.earlier {
                database.earlier.pop_front();
            }
        }
        database.now.apply(batch, position)
    }
}
