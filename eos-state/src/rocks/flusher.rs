//! The memory use of a database, and its flushes.

use std::path::PathBuf;
use std::sync::Arc;

use rocksdb::{DB, FlushOptions, properties};

use super::{PLAIN, RocksBackend, WINDOWED, WriteFilter, fault};
use crate::StoreError;
use crate::pressure::Unflushed;

/// A handle to flush a database from a thread other than its owner's. The database stays open for the lifetime of
/// this value.
#[derive(Clone)]
pub struct Flusher {
    db: Arc<DB>,
    filter: Arc<WriteFilter>,
    path: PathBuf,
}

impl RocksBackend {
    /// Returns a handle of this database.
    #[must_use]
    pub fn flusher(&self) -> Flusher {
        Flusher {
            db: Arc::clone(&self.db),
            filter: Arc::clone(&self.bulk.filter),
            path: self.path.clone(),
        }
    }
}

impl Flusher {
    /// Returns the memory use of the database.
    #[must_use]
    pub fn unflushed(&self) -> Unflushed {
        // A flush does not free the filters: the next write buffers have new ones.
        let filters = self.filter.bytes() as u64;
        let all = sum_of(&self.db, properties::CUR_SIZE_ALL_MEM_TABLES);
        Unflushed {
            bytes: all.saturating_sub(filters),
            flushing: sum_of(&self.db, properties::NUM_IMMUTABLE_MEM_TABLE) > 0,
        }
    }

    /// Starts a flush to disk, and does not wait for its end.
    ///
    /// # Errors
    /// If the database can no longer be written. Its owner gets the error at its next write.
    pub fn begin(&self) -> Result<(), StoreError> {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        let names = [PLAIN, WINDOWED].into_iter();
        let families: Vec<_> = names.filter_map(|name| self.db.cf_handle(name)).collect();
        let begun = self.db.flush_cfs_opt(&families, &options);
        begun.map_err(|error| fault(&self.path, error))
    }
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Returns a property summed over all families of a database. An unreadable value counts as zero.
pub(super) fn sum_of(db: &DB, property: &properties::PropName) -> u64 {
    let names = [PLAIN, WINDOWED].into_iter();
    let numbers = names.filter_map(|name| {
        let family = db.cf_handle(name)?;
        db.property_int_value_cf(family, property).ok().flatten()
    });
    numbers.sum()
}
