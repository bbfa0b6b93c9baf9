//! The copy of a global table: one writer, and readers that see one version for each record.
//!
//! The engine holds the newest rows only. [`GlobalRows`] keeps the rows that the last batches replaced, as long as a
//! reader needs them:
//!
//! ```text
//! version 7 ──(rows before batch 8)──► version 8 ──(rows before batch 9)──► version 9: the newest
//!     ▲ a snapshot                                                              ▲ the next snapshot
//! ```
//!
//! A snapshot reads the engine, and then looks for an earlier row on its way to the newest version. So readers take no
//! lock during a record, the writer never waits for a slow record, and both engines share this code.

mod memory;
mod version;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

pub use memory::GlobalMemory;

use crate::StoreError;
use version::Version;

/// The changes of one batch: the last value of each key, or `None` for a deleted one.
pub type GlobalBatch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The newest rows of a global table, in one engine, with their mark.
///
/// One thread writes, and any number of threads read meanwhile.
///
/// The suite `conformance::check_global` checks implementations.
///
/// # Errors
/// [`StoreError`] if the engine can't read or write.
pub trait GlobalEngine: Send + Sync + fmt::Debug {
    /// Reads one key. Returns true if it exists; `value` then holds its value.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Writes the batch and the mark, both or neither. A read meanwhile returns a row before or after the batch.
    ///
    /// Durable against a crash of the process once it returns. A power loss returns rows and mark to an earlier write.
    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError>;

    /// Returns the mark of the last write; `None` if there was none.
    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError>;
}

/// The writer of a global table's copy.
#[derive(Debug)]
pub struct GlobalWriter {
    shared: Arc<Shared>,
    /// Whether there may be readers.
    serves: bool,
}

impl GlobalWriter {
    /// Returns a writer to this engine. There are no readers before [`serve`](Self::serve).
    #[must_use]
    pub fn new(engine: Box<dyn GlobalEngine>) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine,
                newest: RwLock::default(),
                failed: OnceLock::new(),
            }),
            serves: false,
        }
    }

    /// Returns the mark of the last write.
    ///
    /// # Errors
    /// If the engine can't read it.
    pub fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.shared.engine.mark()
    }

    /// Writes a batch with its mark. Snapshots that exist already do not see it.
    ///
    /// # Errors
    /// If the engine can't write, or if a reader met an error of the engine before.
    pub fn write(&mut self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        if let Some(failed) = self.shared.failed.get() {
            return Err(failed.clone());
        }
        if !self.serves || batch.is_empty() {
            return self.shared.engine.write(batch, mark);
        }
        let before = self.shared.before(batch)?;
        // From here on, a snapshot of the old version finds these rows, whether the engine already has the batch or
        // not.
        let next = self.shared.newest().replaced(before);
        self.shared.engine.write(batch, mark)?;
        let mut newest = self.shared.newest.write();
        *newest.as_deref_mut().unwrap_or_else(|e| e.get_mut()) = next;
        Ok(())
    }

    /// Returns the handle of the readers.
    pub fn serve(&mut self) -> GlobalRows {
        self.serves = true;
        GlobalRows(Arc::clone(&self.shared))
    }
}

/// The readers' handle of a global table's copy. A clone is the same copy.
#[derive(Debug, Clone)]
pub struct GlobalRows(Arc<Shared>);

impl GlobalRows {
    /// Returns the newest version, which never changes. It keeps the rows that the writer replaces from now on in
    /// memory, so drop it after the record.
    #[must_use]
    pub fn snapshot(&self) -> GlobalSnapshot {
        GlobalSnapshot {
            version: self.0.newest(),
            shared: Arc::clone(&self.0),
        }
    }

    /// Returns the first error of the engine that a reader met.
    #[must_use]
    pub fn failed(&self) -> Option<&StoreError> {
        self.0.failed.get()
    }
}

/// One version of a global table.
#[derive(Debug)]
pub struct GlobalSnapshot {
    shared: Arc<Shared>,
    version: Arc<Version>,
}

impl GlobalSnapshot {
    /// Reads one key. Returns true if it exists; `value` then holds its value.
    ///
    /// # Errors
    /// If the engine can't read it. The writer then fails as well.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let read = self.shared.engine.get(key, value);
        let found = read.inspect_err(|error| {
            // The first error counts.
            let _ = self.shared.failed.set(error.clone());
        })?;
        // After the read: the writer adds a row's former value before it writes the row.
        let Some(before) = self.version.before(key) else {
            return Ok(found);
        };
        value.clear();
        value.extend_from_slice(before.unwrap_or_default());
        Ok(before.is_some())
    }
}

#[derive(Debug)]
struct Shared {
    engine: Box<dyn GlobalEngine>,
    newest: RwLock<Arc<Version>>,
    failed: OnceLock<StoreError>,
}

impl Shared {
    fn newest(&self) -> Arc<Version> {
        Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the rows that a batch replaces.
    fn before(&self, batch: &GlobalBatch) -> Result<GlobalBatch, StoreError> {
        let mut before = GlobalBatch::new();
        for key in batch.keys() {
            let mut value = Vec::new();
            let found = self.engine.get(key, &mut value)?;
            before.insert(key.clone(), found.then_some(value));
        }
        Ok(before)
    }
}

#[cfg(test)]
#[path = "global_test.rs"]
mod tests;
