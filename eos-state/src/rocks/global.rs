//! The copy of a global table in RocksDB.
//!
//! | key | value |
//! |---|---|
//! | `00` | the mark, which has its own version, in the batch that it belongs to |
//! | `01`, the key of a row | the row |

use std::fmt;
use std::path::{Path, PathBuf};

use rocksdb::{DB, WriteBatch, WriteOptions};

use super::fault::fault;
use super::{StateMemory, exists};
use crate::StoreError;
use crate::global::{GlobalBatch, GlobalEngine};

const MARK: &[u8] = &[0];
const ROW: u8 = 1;

/// The copy of a global table on disk.
pub struct GlobalRocks {
    db: DB,
    path: PathBuf,
}

impl GlobalRocks {
    /// Opens the database in this directory, or creates one.
    ///
    /// # Errors
    /// If it is open elsewhere or damaged, or the disk refuses.
    pub fn open(path: &Path, memory: &StateMemory) -> Result<Self, StoreError> {
        let at = |error| fault(path, error);
        // Removes the files of an interrupted creation.
        exists(path)?;
        let options = memory.options().map_err(at)?;
        Ok(Self {
            db: DB::open(&options, path).map_err(at)?,
            path: path.to_owned(),
        })
    }

    fn checked<T>(&self, result: Result<T, rocksdb::Error>) -> Result<T, StoreError> {
        result.map_err(|error| fault(&self.path, error))
    }
}

fn row(key: &[u8]) -> Vec<u8> {
    [&[ROW], key].concat()
}

impl GlobalEngine for GlobalRocks {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let found = self.checked(self.db.get_pinned(row(key)))?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn write(&self, batch: &GlobalBatch, mark: &[u8]) -> Result<(), StoreError> {
        let mut out = WriteBatch::default();
        out.put(MARK, mark);
        for (key, value) in batch {
            match value {
                Some(value) => out.put(row(key), value),
                None => out.delete(row(key)),
            }
        }
        let mut options = WriteOptions::default();
        options.set_memtable_insert_hint_per_batch(true);
        self.checked(self.db.write_opt(out, &options))
    }

    fn mark(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.checked(self.db.get(MARK))
    }
}

impl fmt::Debug for GlobalRocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalRocks")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::tempdir;

    use super::*;
    use crate::conformance::{GlobalUnderTest, Lasts, check_global};
    use crate::rocks::conformance_test::MEMORY;

    struct Rocks;

    impl GlobalUnderTest for Rocks {
        fn open(&self, dir: &Path) -> Result<Box<dyn GlobalEngine>, StoreError> {
            Ok(Box::new(GlobalRocks::open(dir, &MEMORY)?))
        }

        fn lasts(&self) -> Lasts {
            Lasts::Disk
        }
    }

    #[test]
    fn it_conforms() {
        check_global(&Rocks, tempdir().unwrap().path(), 20).unwrap();
    }

    #[test]
    fn damage_is_found_at_the_opening_or_the_read() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("db");
        let engine = GlobalRocks::open(&path, &MEMORY).unwrap();
        let batch = [(vec![1], Some(vec![7; 1000]))].into();
        engine.write(&batch, b"mark").unwrap();
        engine.db.flush().unwrap();
        drop(engine);
        for file in fs::read_dir(&path).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|it| it == "sst") {
                let mut bytes = fs::read(&file).unwrap();
                bytes[20] ^= 1;
                fs::write(&file, bytes).unwrap();
            }
        }
        let read = GlobalRocks::open(&path, &MEMORY).and_then(|it| it.get(&[1], &mut Vec::new()));
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    }
}
