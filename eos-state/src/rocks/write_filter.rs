//! Filters of write buffers.
//!
//! A read searches the write buffers first, and a search takes microseconds even if the key is absent. With a Bloom filter
//! (Bloom 1970), RocksDB searches only for keys that may be present. It allocates the whole filter with each new write buffer,
//! even for a database that never fills it. So a database has filters only after it has filled a write buffer, and only if
//! the filters of all databases fit into their part of the memory. A database keeps its filters until it is closed, so the
//! first ones to fill a write buffer have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rocksdb::{DB, properties};

use super::{PLAIN, WINDOWED};

/// The divisor for the part of a write buffer that its filter uses: 24 bits for a row of 150 bytes.
const PART: usize = 50;
/// The filters of a family: of the buffer that accepts writes, and of those that RocksDB flushes. It stops writes at two
/// full buffers (`max_write_buffer_number`).
const BUFFERS: usize = 3;

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

    fn release(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The filters of one database's write buffers.
#[derive(Debug)]
pub(super) struct WriteFilter {
    memory: Arc<FilterMemory>,
    /// The size of a write buffer.
    write_buffer: usize,
    families: usize,
    /// The bytes that were written since the last look at the write buffers.
    written: AtomicUsize,
    is_on: AtomicBool,
}

impl WriteFilter {
    /// Creates the state of a database with this many column families. Its filters are off.
    pub(super) fn new(memory: &Arc<FilterMemory>, write_buffer: usize, families: usize) -> Self {
        Self {
            memory: Arc::clone(memory),
            write_buffer,
            families,
            written: AtomicUsize::new(0),
            is_on: AtomicBool::new(false),
        }
    }

    /// Returns the bytes of the filters of the buffers that accept writes.
    pub(super) fn bytes(&self) -> usize {
        match self.is_on.load(Ordering::Relaxed) {
            true => self.families * (self.write_buffer / PART),
            false => 0,
        }
    }

    /// Returns the maximum size of all filters of the database, in bytes.
    fn size(&self) -> usize {
        self.families * BUFFERS * (self.write_buffer / PART)
    }

    /// Counts written bytes. Once a write buffer is nearly full, turns on filters for later ones if the memory for filters
    /// suffices. Buffers that are flushed earlier need no filter, because their searches are short.
    pub(super) fn count(&self, db: &DB, bytes: usize) {
        if self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) < self.write_buffer / 8 {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        if has_nearly_full_buffer(db, self.write_buffer) && self.memory.take(self.size()) {
            self.is_on.store(true, Ordering::Relaxed);
            turn_on(db);
        }
    }
}

impl Drop for WriteFilter {
    fn drop(&mut self) {
        if *self.is_on.get_mut() {
            self.memory.release(self.size());
        }
    }
}

fn has_nearly_full_buffer(db: &DB, write_buffer: usize) -> bool {
    let size = |name| {
        let family = db.cf_handle(name)?;
        let size = db.property_int_value_cf(family, properties::CUR_SIZE_ACTIVE_MEM_TABLE);
        size.ok().flatten()
    };
    let full = write_buffer as u64 / 4 * 3;
    [PLAIN, WINDOWED]
        .into_iter()
        .filter_map(size)
        .any(|size| size >= full)
}

/// Returns the part of a write buffer that its filter uses, as the setting of RocksDB.
pub(super) fn ratio() -> f64 {
    1.0 / PART as f64
}

/// Turns on filters for all later write buffers.
fn turn_on(db: &DB) {
    let ratio = ratio().to_string();
    for name in [PLAIN, WINDOWED] {
        if let Some(family) = db.cf_handle(name) {
            // RocksDB applies the setting, and then writes it to a file that eos does not read. An error concerns this file.
            let _ = db.set_options_cf(family, &[("memtable_prefix_bloom_size_ratio", &ratio)]);
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
    use crate::expired::ExpiredRows;
    use crate::{KeyRange, StoreBackend, StoreError};

    const STORE: StoreId = StoreId::plain("rows");
    const ROW: [u8; 1_000] = [7; 1_000];

    /// The engine on disk with filters from the beginning.
    struct Filtered;

    impl Engine for Filtered {
        fn open(&self, dir: &Path) -> Result<Box<dyn StoreBackend>, StoreError> {
            let mut memory = StateMemory::new(16 << 20);
            memory.has_early_filters = true;
            Ok(Box::new(RocksBackend::open(dir, &Family::ALL, &memory)?))
        }

        fn lasts(&self) -> Lasts {
            Lasts::Disk
        }
    }

    #[test]
    fn stores_with_filters_conform() {
        let ((), absent) = excluded(|| {
            check(&Filtered, tempdir().unwrap().path(), 20).unwrap();
            check_due(&Filtered, tempdir().unwrap().path(), 20).unwrap();
        });
        assert!(absent > 1_000, "{absent}");
    }

    /// Counts the keys that filters exclude in reads of this thread.
    fn excluded<T>(reads: impl FnOnce() -> T) -> (T, u64) {
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut context = PerfContext::default();
        context.reset();
        let read = reads();
        let absent = context.metric(PerfMetric::BloomMemtableMissCount);
        set_perf_stats(PerfStatsLevel::Disable);
        (read, absent)
    }

    /// A filter excludes a key that has a row in a table, and the range that deletes it is in the write buffer.
    #[test]
    fn a_deleted_range_hides_rows_behind_a_filter() {
        const WINDOWS: StoreId = StoreId::windowed("windows");
        let (dir, mut memory) = (tempdir().unwrap(), StateMemory::new(16 << 20));
        memory.has_early_filters = true;
        let mut backend = RocksBackend::open(dir.path(), &Family::ALL, &memory).unwrap();
        let (keys, mut batch) = (b"abcdef".map(|key| [key]), Batch::new());
        for key in &keys {
            batch.write(WINDOWS, key, Some(&ROW));
        }
        backend.apply(&batch, &position(1)).unwrap();
        backend.flush().unwrap();
        let (mut batch, range) = (Batch::new(), KeyRange::between(&b"a"[..]..&b"d"[..]));
        let expired = ExpiredRows::new(WINDOWS, range);
        batch.write(WINDOWS, b"z", Some(&ROW));
        batch.delete_expired(&expired);
        backend.apply(&batch, &position(2)).unwrap();
        let mut value = Vec::new();
        let (found, absent) =
            excluded(|| keys.map(|key| backend.get(WINDOWS, &key, &mut value).unwrap()));
        assert_eq!(found, [false, false, false, true, true, true]);
        assert!(absent > 0);
    }

    /// Writes a row for each number of a range. Its key is twice the number.
    fn write(backend: &mut RocksBackend, numbers: Range<u64>) {
        let keys: Vec<_> = numbers.map(|number| (2 * number).to_be_bytes()).collect();
        for keys in keys.chunks(20) {
            let mut batch = Batch::new();
            for key in keys {
                batch.write(STORE, key, Some(&ROW));
            }
            backend.apply(&batch, &position(1)).unwrap();
        }
    }

    /// Reads these keys. Returns the number of found rows, and of keys that the filters exclude.
    fn read(backend: &RocksBackend, keys: impl Iterator<Item = u64>) -> (usize, u64) {
        let mut value = Vec::new();
        let mut is_there = |key: &u64| backend.get(STORE, &key.to_be_bytes(), &mut value).unwrap();
        excluded(|| keys.filter(|key| is_there(key)).count())
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
        // The filters have false positives for a few keys.
        let (found, absent) = read(&backend, odd());
        assert!(found == 0 && absent > rows * 9 / 10, "{found} {absent}");
        // A filter has the size that the limit counts, and a flush does not free it.
        backend.flush().unwrap();
        write(&mut backend, 0..1);
        let (all, filter) = (
            backend.bytes_unflushed(),
            backend.bulk.filter.bytes() as u64,
        );
        assert!((filter..filter + 16_384).contains(&all), "{filter} {all}");
        assert_eq!(backend.flusher().unflushed().bytes, all - filter);
        let even = (0..3 * rows).map(|number| 2 * number);
        assert_eq!(read(&backend, even).0 as u64, 3 * rows);
    }

    #[test]
    fn a_database_that_is_flushed_early_has_no_filters() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let mut backend = open(dir.path(), &memory);
        let rows = u64::try_from(memory.write_buffer() / ROW.len()).unwrap() / 2;
        for _ in 0..8 {
            write(&mut backend, 0..rows);
            backend.flush().unwrap();
        }
        write(&mut backend, 0..rows);
        assert_eq!(
            read(&backend, (0..rows).map(|number| 2 * number + 1)),
            (0, 0)
        );
    }

    #[test]
    fn the_filters_of_all_databases_stay_within_their_memory() {
        let (dir, memory) = (tempdir().unwrap(), StateMemory::new(8 << 20));
        let rows = 3 * u64::try_from(memory.write_buffer() / ROW.len()).unwrap();
        let filled = |name: &str| {
            let mut backend = open(&dir.path().join(name), &memory);
            write(&mut backend, 0..rows);
            // Otherwise RocksDB flushes the next databases before they fill a write buffer.
            backend.flush().unwrap();
            write(&mut backend, 0..1);
            let (_, absent) = read(&backend, (0..rows).map(|number| 2 * number + 1));
            (backend, absent > 0)
        };
        let backends: Vec<_> = (0..10).map(|number| filled(&number.to_string())).collect();
        let with_filters = backends.iter().take_while(|(_, has)| *has).count();
        let one = memory.write_buffer() / PART * BUFFERS;
        assert_eq!(with_filters, (8 << 20) / 3 / 8 / one);
        assert!(with_filters > 1);
        assert!(backends.iter().skip(with_filters).all(|(_, has)| !has));
        // A closed database releases its memory for filters.
        drop(backends);
        assert!(filled("another").1);
    }
}
