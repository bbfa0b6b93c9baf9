//! Where the databases of tasks are.

use std::fmt;

use eos_protocol::{Partition, TopicName};
use eos_state::{MemoryBackend, StoreBackend, StoreError};

/// What a task's database is found by. The number of its stage may be another one in the next version
/// of an app; the topic that drives it never is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskHome {
    /// The topic that drives its stage.
    pub topic: TopicName,
    /// Its partition.
    pub partition: Partition,
    /// Whether it has windowed stores.
    pub windowed: bool,
}

/// Opens databases.
pub trait Home: Send + Sync + fmt::Debug {
    /// Opens a task's database; a new one if there is none. `None` as long as another worker of this
    /// process has not let go of it.
    ///
    /// # Errors
    /// If it can't be opened.
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, StoreError>;

    /// Deletes a database that nobody has open.
    ///
    /// # Errors
    /// If it can't be deleted.
    fn discard(&self, task: &TaskHome) -> Result<(), StoreError>;
}

/// State in memory only: made anew from the changelog whenever a task comes.
#[derive(Debug, Default)]
pub struct InMemory;

impl Home for InMemory {
    fn open(&self, _: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, StoreError> {
        Ok(Some(Box::new(MemoryBackend::new())))
    }

    fn discard(&self, _: &TaskHome) -> Result<(), StoreError> {
        Ok(())
    }
}
