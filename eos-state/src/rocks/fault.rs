//! RocksDB's failures in our words.

use std::path::Path;

use rocksdb::ErrorKind;

use crate::{EngineFault, StoreError};

/// What a failure means, and what to do about it.
///
/// RocksDB's C interface hands out nothing but text; even the kind is read from it. So text decides
/// which advice is given, and nothing else: each of these poisons the store.
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
        // A file that the manifest names is gone.
        _ if missing => StoreError::Damaged { path, source },
        ErrorKind::Corruption => StoreError::Damaged { path, source },
        ErrorKind::IOError if locked => StoreError::InUse { path, source },
        ErrorKind::IOError => StoreError::Io { path, source },
        _ => StoreError::Engine { path, source },
    }
}
