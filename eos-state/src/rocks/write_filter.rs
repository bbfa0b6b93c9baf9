//! Filters of write buffers.
//!
//! A read searches the write buffers first, and a search takes microseconds even if the key is absent. With a Bloom filter
//! (Bloom 1970), RocksDB searches only for keys that may be present. It allocates the whole filter with each new write buffer,
//! also for a database that never fills it. So a database has filters only after it has filled a write buffer, and only if
//! the filters of all databases fit into their part of the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rocksdb::DB;

use super::{PLAIN, WINDOWED};

/// The divisor for the part of a write buffer that its filter uses: 24 bits for a row of 150 bytes.
const PART: usize = 50;
/// The same as a setting of RocksDB.
const RATIO: (&str, &str) = ("memtable_prefix_bloom_size_ratio", "0.02");
/// The write buffers of a family: one is filled, and one is flushed.
const BUFFERS: usize = 2;

/// The remaining memory for filters, of all databases of a process.
#[derive(Debug)]
pub(super) struct FilterMemory {
    left: AtomicUsize,
}

impl FilterMemory {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            left: AtomicUsize::new(bytes),
        }
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The filters of one database's write buffers.
#[derive(Debug)]
pub(super) struct WriteFilter {
    memory: Arc<FilterMemory>,
    /// The size of a write buffer.
    write_buffer: usize,
    /// The bytes of all filters of the database.
    size: usize,
    /// The bytes that were written since the last attempt to get filters.
    written: AtomicUsize,
    is_on: AtomicBool,
}

impl WriteFilter {
    /// A database with this many families, without filters yet.
    pub(super) fn new(memory: &Arc<FilterMemory>, write_buffer: usize, families: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            write_buffer,
            size: families * BUFFERS * (write_buffer / PART),
            written: AtomicUsize::new(0),
            is_on: AtomicBool::new(false),
        }
    }

    /// Notes written bytes. After a write buffer of them, the next write buffers have filters.
    pub(super) fn note(&self, db: &DB, bytes: usize) {
        if self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) < self.write_buffer {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        if self.memory.take(self.size) {
            self.is_on.store(true, Ordering::Relaxed);
            turn_on(db);
        }
    }
}

impl Drop for WriteFilter {
    fn drop(&mut self) {
        if *self.is_on.get_mut() {
            self.memory.give_back(self.size);
        }
    }
}

/// Gives filters to all later write buffers.
pub(super) fn turn_on(db: &DB) {
    for name in [PLAIN, WINDOWED] {
        if let Some(family) = db.cf_handle(name) {
            // Without filters, reads are slower and have the same results. A full disk refuses the file with the settings, and
            // the next write reports it.
            let _ = db.set_options_cf(family, &[RATIO]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::path::Path;

    use eos_protocol::state::{Family, StoreId};
    use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
    use tempfile::tempdir;

    use super::super::{RocksBackend, StateMemory};
    use super::*;
    use crate::batch::Batch;
    use crate::conformance::{Engine, Lasts, check, check_due, position};
    use crate::{StoreBackend, StoreError};

    const STORE: StoreId = StoreId::plain("rows");
    const ROW: [u8; 1_000] = [7; 1_000];

    /// The engine on disk with filters from the beginning.
    struct Filtered;

    impl Engine for Filtered {
        fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
            let memory = StateMemory::new(16 << 20);
            let mut backend = RocksBackend::open(dir, &Family::ALL, &memory)?;
            turn_on(&backend.db);
            backend.flush()?;
            Ok(Box::new(backend))
        }

        fn lasts(&self) -> Lasts {
            Lasts::Disk
        }
    }

    #[test]
    fn stores_with_filters_conform() {
        check(&Filtered, tempdir().unwrap().path(), 15).unwrap();
        check_due(&Filtered, tempdir().unwrap().path(), 15).unwrap();
    }

    /// Writes rows with even numbers in a range.
    fn write(backend: &mut RocksBackend, numbers: Range<u64>) {
        for number in numbers {
            let (mut batch, key) = (Batch::new(), (2 * number).to_be_bytes());
            batch.write(STORE, &key, Some(&ROW));
            backend.apply(&batch, &position(number + 1)).unwrap();
        }
    }

    /// Reads these keys. Returns the number of rows, and of keys that a filter says are absent.
    fn read(backend: &RocksBackend, keys: impl Iterator<Item = u64>) -> (usize, u64) {
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut context = PerfContext::default();
        context.reset();
        let mut value = Vec::new();
        let found = keys.filter(|key| backend.get(STORE, &key.to_be_bytes(), &mut value).unwrap());
        let found = found.count();
        let absent = context.metric(PerfMetric::BloomMemtableMissCount);
        set_perf_stats(PerfStatsLevel::Disable);
        (found, absent)
    }

    fn open(dir: &Path, memory: &StateMemory) -> RocksBackend {
        RocksBackend::open(dir, &[Family::Plain], memory).unwrap()
    }

    #[test]
    fn a_database_has_filters_after_it_has_filled_a_write_buffer() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let mut backend = open(dir.path(), &memory);
        let rows = u64::try_from(memory.write_buffer() / ROW.len()).unwrap();
        let odd = || (0..rows).map(|number| 2 * number + 1);
        write(&mut backend, 0..rows / 2);
        assert_eq!(read(&backend, odd()), (0, 0));
        write(&mut backend, rows / 2..3 * rows);
        // A few keys are in the part of the filter that has the bits of others.
        let (found, absent) = read(&backend, odd());
        assert!(found == 0 && absent > rows * 9 / 10, "{found} {absent}");
        let even = (0..3 * rows).map(|number| 2 * number);
        assert_eq!(read(&backend, even).0 as u64, 3 * rows);
    }

    #[test]
    fn the_filters_of_all_databases_keep_to_their_memory() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let rows = 3 * u64::try_from(memory.write_buffer() / ROW.len()).unwrap();
        let filled = |name: &str| {
            let mut backend = open(&dir.path().join(name), &memory);
            write(&mut backend, 0..rows);
            let (_, absent) = read(&backend, (0..rows).map(|number| 2 * number + 1));
            (backend, absent > 0)
        };
        let backends: Vec<_> = (0..10).map(|number| filled(&number.to_string())).collect();
        let with_filters = backends.iter().take_while(|(_, has)| *has).count();
        let (one, buffer) = (
            memory.write_buffer() / PART * BUFFERS,
            memory.write_buffer(),
        );
        assert_eq!(with_filters, (8 << 20) / 3 / 8 / one, "{buffer}");
        assert!(backends.iter().skip(with_filters).all(|(_, has)| !has));
        // A closed database gives its memory back.
        drop(backends);
        assert!(filled("another").1);
    }
}
