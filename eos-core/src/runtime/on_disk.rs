//! Databases of tasks in the slot's directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::{Family, Position, PositionError};
use eos_protocol::{AppId, TaskId};
use eos_state::directory::{DirectoryError, GlobalDirectory, Opened, Owner, TaskDirectory};
use eos_state::global::{GlobalBatch, GlobalEngine};
use eos_state::rocks::{GlobalRocks, RocksBackend, StateMemory};
use eos_state::{Around, Batch, InFlight, StoreBackend, StoreError};

use super::open_databases::OpenDatabases;
use crate::worker::{Home, HomeError, TaskHome};

/// The storage of this process's databases, which share one memory limit.
#[derive(Debug)]
pub(crate) struct OnDisk {
    slot: PathBuf,
    app: AppId,
    cluster: String,
    open: Arc<OpenDatabases>,
}

/// Returns the storage of a process's task databases. RocksDB keeps them below the directory `slot`, which belongs to
/// this process alone, with `memory` bytes for all databases together.
#[must_use]
pub fn on_disk(slot: PathBuf, app: AppId, cluster: &str, memory: usize) -> Arc<dyn Home> {
    Arc::new(OnDisk::new(slot, app, cluster.to_owned(), memory))
}

impl OnDisk {
    pub(crate) fn new(slot: PathBuf, app: AppId, cluster: String, memory: usize) -> Self {
        Self {
            slot,
            app,
            cluster,
            open: Arc::new(OpenDatabases::new(StateMemory::new(memory))),
        }
    }

    #[cfg(test)]
    pub(super) fn flushes_beyond(&self) -> usize {
        self.open.memory().flushes_beyond()
    }

    /// Returns `None` as long as another worker has the directory open.
    fn directory(&self, task: &TaskHome) -> Result<Option<TaskDirectory>, DirectoryError> {
        let owner = Owner {
            app: self.app.clone(),
            cluster: self.cluster.clone(),
            task: task.task,
        };
        match TaskDirectory::open(&self.slot, &owner) {
            Ok(Opened::Own(directory)) => Ok(Some(directory)),
            Ok(Opened::Foreign(foreign)) => {
                tracing::warn!(
                    app = %self.app, task = %task.task, path = %foreign.path().display(),
                    why = %foreign.why, "deleting state that does not belong to this task"
                );
                foreign.clear().map(Some)
            }
            // The slot belongs to this process: another worker has the directory, and releases it soon.
            Err(DirectoryError::Locked { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Home for OnDisk {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let Some(mut directory) = self.directory(task)? else {
            return Ok(None);
        };
        let families: &[Family] = if task.windowed {
            &Family::ALL
        } else {
            &[Family::Plain]
        };
        let open = |directory: &TaskDirectory| {
            RocksBackend::open(&directory.engine(), families, self.open.memory())
        };
        let backend = match open(&directory) {
            // The changelog has all the state, so a copy with changed bytes is no reason to stop.
            Err(
                error @ (StoreError::Damaged { .. }
                | StoreError::Position {
                    source: PositionError::Damaged { .. },
                    ..
                }),
            ) => {
                tracing::warn!(
                    app = %self.app, task = %task.task, %error,
                    "removing the damaged database; rebuilding it from the changelog"
                );
                directory.clear()?;
                open(&directory)?
            }
            opened => opened?,
        };
        self.open.opened(task.task, backend.flusher());
        Ok(Some(Box::new(Housed {
            task: task.task,
            open: Arc::clone(&self.open),
            backend,
            _directory: directory,
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        let Some(mut directory) = self.directory(task)? else {
            return Ok(false);
        };
        directory.clear()?;
        Ok(true)
    }

    fn open_global(&self, table: &str) -> Result<Box<dyn GlobalEngine>, HomeError> {
        let directory = GlobalDirectory::open(&self.slot, table)?;
        let open = || GlobalRocks::open(&directory.engine(), self.open.memory());
        let engine = match open() {
            Err(error @ (StoreError::Damaged { .. } | StoreError::Engine { .. })) => {
                tracing::warn!(
                    app = %self.app, table, %error,
                    "removing the damaged copy of a global table; reading its topic again"
                );
                directory.clear()?;
                open()?
            }
            opened => opened?,
        };
        Ok(Box::new(HousedGlobal { engine, directory }))
    }

    fn discard_global(&self, table: &str) -> Result<(), HomeError> {
        GlobalDirectory::open(&self.slot, table)?.clear()?;
        Ok(())
    }

    fn discard_other_globals(&self, tables: &[&str]) -> Result<Vec<String>, HomeError> {
        Ok(GlobalDirectory::remove_others(&self.slot, tables)?)
    }
}

/// The copy of a global table with its directory.
#[derive(Debug)]
struct HousedGlobal {
    engine: GlobalRocks,
    directory: GlobalDirectory,
}

impl HousedGlobal {
    /// Lets the next start throw the copy away if it is damaged. Otherwise every start would meet the same damage again.
    fn checked<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged { .. }) = &result
            && let Err(error) = self.directory.condemn()
        {
            tracing::error!(%error, "the damaged copy of a global table can't be marked; delete its directory");
        }
        result
    }
}

impl GlobalEngine for HousedGlobal {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.checked(self.engine.get(key, value))
    }

    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        self.checked(self.engine.write(batch, mark))
    }

    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.checked(self.engine.mark())
    }
}

/// A database with its directory, which is locked as long as the database is open.
#[derive(Debug)]
struct Housed {
    task: TaskId,
    open: Arc<OpenDatabases>,
    backend: RocksBackend,
    _directory: TaskDirectory,
}

impl Drop for Housed {
    fn drop(&mut self) {
        self.open.closing(self.task);
    }
}

impl Around for Housed {
    type Inner = RocksBackend;

    fn inner(&self) -> &Self::Inner {
        &self.backend
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.backend
    }

    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.backend.apply(batch, position)?;
        self.open.written();
        Ok(())
    }

    fn begin_around(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.backend.begin_apply(in_flight)?;
        self.open.written();
        Ok(())
    }

    fn end_around(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        let ended = self.backend.end_apply(wait);
        if ended.is_ready() {
            self.open.written();
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use eos_state::EngineFault;

    use super::*;

    fn home(slot: &tempfile::TempDir) -> OnDisk {
        OnDisk::new(slot.path().to_owned(), "a".into(), "c".to_owned(), 16 << 20)
    }

    /// Returns a slot with a copy that has one row.
    fn filled() -> tempfile::TempDir {
        let slot = tempfile::tempdir().unwrap();
        let engine = home(&slot).open_global("rates").unwrap();
        let batch = [(b"usd".to_vec(), Some(b"5".to_vec()))].into();
        engine.write(&batch, b"mark").unwrap();
        slot
    }

    fn mark(slot: &tempfile::TempDir) -> Option<Vec<u8>> {
        home(slot).open_global("rates").unwrap().mark().unwrap()
    }

    #[test]
    fn the_copy_of_a_global_table_outlives_its_process() {
        let slot = filled();
        assert_eq!(mark(&slot), Some(b"mark".to_vec()));
        home(&slot).discard_global("rates").unwrap();
        assert_eq!(mark(&slot), None);
    }

    /// Kafka Streams fails at every start until a person deletes the directory (KAFKA-21034).
    #[test]
    fn a_copy_that_is_damaged_at_its_opening_is_thrown_away() {
        let slot = filled();
        fs::remove_file(slot.path().join("globals/rates/db/CURRENT")).unwrap();
        assert_eq!(mark(&slot), None);
    }

    #[test]
    fn a_copy_that_is_damaged_at_a_read_is_thrown_away_by_the_next_start() {
        let slot = filled();
        let housed = HousedGlobal {
            engine: GlobalRocks::open(&slot.path().join("other"), home(&slot).open.memory())
                .unwrap(),
            directory: GlobalDirectory::open(slot.path(), "rates").unwrap(),
        };
        let damaged = Err(StoreError::Damaged {
            path: slot.path().to_owned(),
            source: EngineFault::new("checksum mismatch"),
        });
        housed.checked::<()>(damaged).unwrap_err();
        assert_eq!(mark(&slot), None);
    }
}
