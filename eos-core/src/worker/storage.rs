//! Storage of the tasks' databases.

use std::fmt;

use eos_protocol::TaskId;
use eos_state::directory::DirectoryError;
use eos_state::global::{GlobalEngine, GlobalMemory};
use eos_state::{MemoryBackend, StoreBackend, StoreError};

/// The key of a task's database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskHome {
    /// The task.
    pub task: TaskId,
    /// Whether the task has windowed stores.
    pub windowed: bool,
}

/// The reason why a database can't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Another worker of this process keeps the database open.
    #[error(
        "its database is still open in another worker of this process after {waited_s} s. That \
         worker hangs; the log names it. Restart the process"
    )]
    InUse {
        /// The waiting time, in seconds.
        waited_s: u64,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the database's directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Opens databases.
pub trait Home: Send + Sync + fmt::Debug {
    /// Opens a task's database, or creates it. Returns `None` as long as another worker of this process has it open.
    ///
    /// # Errors
    /// If it can't be opened.
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError>;

    /// Deletes a database. Returns false if it still exists, because it is open elsewhere for a moment.
    ///
    /// # Errors
    /// If it can't be deleted.
    #[must_use = "a database that still exists was not deleted"]
    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError>;

    /// Opens the copy of a global table, or creates it. By default it is in memory, and ends with its process.
    ///
    /// # Errors
    /// If it can't be opened.
    fn open_global(&self, table: &str) -> Result<Box<dyn GlobalEngine>, HomeError> {
        let _ = table;
        Ok(Box::new(GlobalMemory::default()))
    }

    /// Deletes the copy of a global table, which must be closed.
    ///
    /// # Errors
    /// If it can't be deleted.
    fn discard_global(&self, table: &str) -> Result<(), HomeError> {
        let _ = table;
        Ok(())
    }

    /// Deletes the copies of global tables that the app no longer has. Returns their names.
    ///
    /// # Errors
    /// If one can't be deleted.
    fn discard_other_globals(&self, tables: &[&str]) -> Result<Vec<String>, HomeError> {
        let _ = tables;
        Ok(Vec::new())
    }
}

/// State in memory only: rebuilt from the changelog whenever a task starts.
#[derive(Debug, Default)]
pub struct InMemory;

impl Home for InMemory {
    fn open(&self, _: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        Ok(Some(Box::new(MemoryBackend::new())))
    }

    fn discard(&self, _: &TaskHome) -> Result<bool, HomeError> {
        Ok(true)
    }
}
