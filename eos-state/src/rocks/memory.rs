//! Memory shared by all databases of a process, and its settings.

use std::fmt;
use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options,
    WriteBufferManager,
};

use super::applier::Appliers;
use super::write_filter::FilterMemory;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The divisor for the part of the memory that unflushed writes may use.
const WRITES_SHARE: usize = 3;
/// The divisor for the part of that memory that filters of write buffers may use.
const FILTERS_SHARE: usize = 8;
/// A database flushes at this much unflushed data, regardless of the memory. A start has to read these bytes again from
/// the log, and each write has to find its place among them. At 16 MiB a write took twice as long as at 4
/// (docs/design/0024).
const WRITE_BUFFER: std::ops::RangeInclusive<usize> = MIB..=4 * MIB;
/// The number of write buffers that the first ordered level holds. Four are merged into it at a time, and a larger
/// level means more rewritten data for each.
const FIRST_LEVEL: u64 = 16;

/// The memory of all databases of a process, from one number.
///
/// Created once and passed to each [`RocksBackend::open`](super::RocksBackend::open). The value also has the threads
/// that write committed transactions. Blocks read from disk, with their indexes and filters, and unflushed writes share
/// the memory. An overlay (uncommitted data) is not part of it. RocksDB may exceed it briefly: a read never fails for
/// lack of cache.
#[derive(Clone)]
pub struct StateMemory {
    cache: Cache,
    writes: WriteBufferManager,
    pub(super) appliers: Appliers,
    pub(super) filters: Arc<FilterMemory>,
    bytes: usize,
    /// Whether all databases have filters from the beginning.
    #[cfg(test)]
    pub(super) has_early_filters: bool,
}

impl StateMemory {
    /// Memory of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        // The cache has no locks, and no estimate of the size of a block: it measures the size.
        let cache = Cache::new_hyper_clock_cache(bytes, 0);
        // Charged to the cache, so that one number bounds both. Stalling is off: it would stop every
        // task of the process for one database's flush.
        let writes = WriteBufferManager::new_write_buffer_manager_with_cache(
            bytes / WRITES_SHARE,
            false,
            cache.clone(),
        );
        Self {
            cache,
            writes,
            appliers: Appliers::start(),
            filters: Arc::new(FilterMemory::new(bytes / WRITES_SHARE / FILTERS_SHARE)),
            bytes,
            #[cfg(test)]
            has_early_filters: false,
        }
    }

    /// Returns the configured size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the used bytes.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.cache.get_usage()
    }

    /// Returns the bytes of unflushed writes, of all databases.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.writes.get_usage()
    }

    /// Returns the bytes of unflushed writes, of all databases, beyond which one should flush. At seven eighths of
    /// their share, RocksDB would itself flush the database of the next write (`WriteBufferManager::ShouldFlush`).
    #[must_use]
    pub const fn flushes_beyond(&self) -> usize {
        self.bytes / WRITES_SHARE / 4 * 3
    }

    /// Returns the settings of a task's database.
    pub(super) fn options(&self) -> Result<Options, rocksdb::Error> {
        // Two settings that the wrapper has no method for. No preallocation: with hundreds of
        // small databases it fills a disk with zeros. Logs name their predecessor: a lost tail of
        // the manifest would otherwise bring back an old version and replay the newest log over the gap.
        let mut options = Options::default()
            .get_options_from_string("allow_fallocate=false;track_and_verify_wals=true")?;
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        self.bound_memory(&mut options);
        keep_to_itself(&mut options);
        // Damage is an error. After a power loss the log ends at the last whole batch, and the position with it.
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        // All families of a task are flushed together, so none is ever ahead of another's log.
        options.set_atomic_flush(true);
        // Blocks in the top levels are rewritten soon, so their compression does not pay.
        let (plain, packed) = (DBCompressionType::None, DBCompressionType::Lz4);
        options.set_compression_per_level(&[plain, plain, packed, packed, packed, packed, packed]);
        options.set_block_based_table_factory(&self.tables());
        Ok(options)
    }

    /// Returns the settings of a table of restored records. Like a flushed table, it is rewritten soon.
    pub(super) fn tables_of_loads(&self) -> Result<Options, rocksdb::Error> {
        let mut options = self.options()?;
        options.set_compression_per_level(&[DBCompressionType::None]);
        Ok(options)
    }

    /// Returns the size of a write buffer.
    pub(super) fn write_buffer(&self) -> usize {
        let share = self.bytes / WRITES_SHARE / 2;
        share.clamp(*WRITE_BUFFER.start(), *WRITE_BUFFER.end())
    }

    fn bound_memory(&self, options: &mut Options) {
        let write_buffer = self.write_buffer();
        options.set_write_buffer_size(write_buffer);
        let first_level = FIRST_LEVEL * write_buffer as u64;
        options.set_max_bytes_for_level_base(first_level);
        options.set_target_file_size_base(first_level / 4);
        options.set_write_buffer_manager(&self.writes);
        // By default a block of the arena is 1 MiB and more: 200 nearly empty databases counted as 618 MB, measured.
        options.set_arena_block_size(64 * KIB);
        options.set_max_total_wal_size(2 * write_buffer as u64);
        // Has no effect until `write_filter` sets the size of the filters.
        options.set_memtable_whole_key_filtering(true);
        #[cfg(test)]
        if self.has_early_filters {
            options.set_memtable_prefix_bloom_ratio(super::write_filter::ratio());
        }
    }

    fn tables(&self) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&self.cache);
        tables.set_block_size(16 * KIB);
        tables.set_bloom_filter(10.0, false);
        tables.set_whole_key_filtering(true);
        // Otherwise these blocks are outside of the limit.
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        tables
    }
}

/// Switches off work that hundreds of databases can't afford.
fn keep_to_itself(options: &mut Options) {
    options.set_max_background_jobs(2);
    // By default RocksDB starts 16 threads for each database at opening.
    options.set_max_file_opening_threads(2);
    options.set_skip_stats_update_on_db_open(true);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(256 * KIB);
    options.set_max_manifest_file_size(4 * MIB);
}

impl fmt::Debug for StateMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMemory")
            .field("bytes", &self.bytes)
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}
