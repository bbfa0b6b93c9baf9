//! The memory that all databases of a process share, and the settings that keep them inside it.

use std::fmt;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, LogLevel, Options,
    WriteBufferManager,
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// How much of the memory may be writes that are not flushed yet.
const WRITES_SHARE: usize = 3;
/// A database flushes once it has this much unflushed, however much memory there is: it is what a
/// start has to read again from the log, and what each write has to find its place in. At 16 MiB a write
/// took twice as long as at 4 (docs/design/0024).
const WRITE_BUFFER: std::ops::RangeInclusive<usize> = MIB..=4 * MIB;
/// The first level that is kept in order holds so many write buffers: four of them are merged into it at a
/// time, and the more it holds, the more is written again for each.
const FIRST_LEVEL: u64 = 16;

/// The memory of all databases of a process, from one number.
///
/// Made once and handed to each [`RocksBackend::open`](super::RocksBackend::open). Blocks read from
/// disk, with their indexes and filters, and unflushed writes share it; an overlay (what is not
/// committed yet) is not part of it. RocksDB may go over it for moments: a read never fails for want of cache.
#[derive(Clone)]
pub struct StateMemory {
    cache: Cache,
    writes: WriteBufferManager,
    bytes: usize,
}

impl StateMemory {
    /// Memory of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        // Without locks, and without an estimate of what a block takes: it finds out.
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
            bytes,
        }
    }

    /// The number it was made from.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes in use now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.cache.get_usage()
    }

    /// Bytes of it that are unflushed writes, of all databases.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.writes.get_usage()
    }

    /// Beyond so many bytes of unflushed writes, of all databases, one should flush: before RocksDB
    /// takes whichever is written to, which it does at seven eighths of their share
    /// (`WriteBufferManager::ShouldFlush`).
    #[must_use]
    pub const fn flushes_beyond(&self) -> usize {
        self.bytes / WRITES_SHARE / 4 * 3
    }

    /// The settings of a task's database.
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
        // Damage is an error, not something to work around. After a power loss the log ends at the
        // last batch that is whole, and the position with it.
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        // All families of a task are flushed together: none is ever ahead of the log of another.
        options.set_atomic_flush(true);
        // Blocks near the top are rewritten soon: compressing them is not worth it.
        let (plain, packed) = (DBCompressionType::None, DBCompressionType::Lz4);
        options.set_compression_per_level(&[plain, plain, packed, packed, packed, packed, packed]);
        options.set_block_based_table_factory(&self.tables());
        Ok(options)
    }

    fn bound_memory(&self, options: &mut Options) {
        let share = self.bytes / WRITES_SHARE / 2;
        let write_buffer = share.clamp(*WRITE_BUFFER.start(), *WRITE_BUFFER.end());
        options.set_write_buffer_size(write_buffer);
        let first_level = FIRST_LEVEL * write_buffer as u64;
        options.set_max_bytes_for_level_base(first_level);
        options.set_target_file_size_base(first_level / 4);
        options.set_write_buffer_manager(&self.writes);
        // By default a block of the arena is 1 MiB and more: 200 databases with next to nothing in
        // them counted as 618 MB, measured.
        options.set_arena_block_size(64 * KIB);
        options.set_max_total_wal_size(2 * write_buffer as u64);
    }

    fn tables(&self) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&self.cache);
        tables.set_block_size(16 * KIB);
        tables.set_bloom_filter(10.0, false);
        tables.set_whole_key_filtering(true);
        // Otherwise they are outside of what the number bounds.
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        tables
    }
}

/// What a database that is one of hundreds does not do.
fn keep_to_itself(options: &mut Options) {
    options.set_max_background_jobs(2);
    // By default 16 threads for each database that is opened.
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
