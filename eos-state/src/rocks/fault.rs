//! The conversion of RocksDB's failures into store errors.

use std::path::Path;

use rocksdb::ErrorKind;

use crate::{EngineFault, StoreError};

/// Converts a failure.
///
/// RocksDB's C interface returns only text, so even the kind is derived from it. The text decides only which fix the
/// error names: each of these failures poisons the store.
pub(super) fn fault(path: &Path, error: rocksdb::Error) -> StoreError {
    let kind = error.kind();
    let words = error.into_string();
    let says = |part: &str| words.contains(part);
    let (full, missing) = (says("No space left"), says("No such file"));
    let locked = says("/LOCK: ");
    let source = EngineFault::new(words.as_str());
    let path = path.to_owned();
    match kind {
        _ if full => StoreError::DiskFull { path, source },
        // A file in the manifest is missing.
        _ if missing => StoreError::Damaged { path, source },
        ErrorKind::Corruption => StoreError::Damaged { path, source },
        ErrorKind::IOError if locked => StoreError::InUse { path, source },
        ErrorKind::IOError => StoreError::Io { path, source },
        _ => StoreError::Engine { path, source },
    }
}
