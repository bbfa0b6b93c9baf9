//! Where the databases of tasks are.

use std::fmt;

use eos_protocol::TaskId;
use eos_state::directory::DirectoryError;
use eos_state::{MemoryBackend, StoreBackend, StoreError};

/// What a task's database is found by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskHome {
    /// The task.
    pub task: TaskId,
    /// Whether it has windowed stores.
    pub windowed: bool,
}

/// Why a database can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Another worker of this process does not let go of it.
    #[error(
        "its database is still open in another worker of this process after {waited_s} s: one that \
         hangs, see the log. End the process and start it again"
    )]
    InUse {
        /// How long it was waited for, in seconds.
        waited_s: u64,
    },
    /// The database itself.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Opens databases.
pub trait Home: Send + Sync + fmt::Debug {
    /// Opens a task's database; a new one if there is none. `None` as long as another worker of this
    /// process has not let go of it.
    ///
    /// # Errors
    /// If it can't be opened.
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError>;

    /// Deletes a database. False if it is there still, because somebody has it open for a moment.
    ///
    /// # Errors
    /// If it can't be deleted.
    #[must_use = "a database that is there still is the one that was to go"]
    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError>;
}

/// State in memory only: made anew from the changelog whenever a task comes.
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
