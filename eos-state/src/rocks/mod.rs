//! The engine on disk: RocksDB, one database per task.
//!
//! Keys of plain stores are in the column family `default`, those of windowed stores in `windowed`. The family
//! `windowed` exists only if there is such a store. Each key begins with the store's id. Our own keys have
//! an id that no store has. The id `80000000` is in `windowed`, because it is that family's:
//!
//! | key | value |
//! |---|---|
//! | `00000000 "format"` | the version of this layout, 4 bytes |
//! | `00000000 "position"` | the position, in the batch that it belongs to |
//! | `80000000 "trim"` | a note: how far the windows of the changelog reach (`Trim::take_note`), with its own version |
//!
//! Every write goes through the log, and the log is never synced. A process that dies loses nothing. A power loss
//! returns to an earlier batch, with data and position together. (Without the log for bulk loads, followed by commits
//! with it, a crash left a position over no data: measured.) Many restored records become a table instead of a write
//! (see `bulk`).

mod applier;
mod bulk;
mod cursor;
mod fault;
mod flusher;
mod global;
mod memory;
mod snapshot;
mod write_filter;

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::{Family, Position, StoreId};
use rocksdb::{ColumnFamily, DB, ReadOptions, WriteBatch, WriteOptions};

pub use flusher::Flusher;
pub use global::GlobalRocks;
pub use memory::StateMemory;

use crate::backend::StoreBackend;
use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::in_flight::InFlight;
use crate::range::{Direction, KeyRange};
use crate::reader::StateReader;
use crate::{EngineFault, Load, StoreError};
use applier::{Appliers, Applying};
use bulk::Bulk;
use cursor::{RocksCursor, bounds};
use fault::fault;
use snapshot::Snapshots;
use write_filter::WriteFilter;

const PLAIN: &str = "default";
const WINDOWED: &str = "windowed";

/// The layout that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"\0\0\0\0format";
const POSITION_KEY: &[u8] = b"\0\0\0\0position";

/// One task's state in RocksDB.
pub struct RocksBackend {
    db: Arc<DB>,
    path: PathBuf,
    position: Option<Position>,
    poison: OnceCell<StoreError>,
    reads: ReadOptions,
    /// The searched key with its prefix, kept so that a read allocates nothing.
    key: RefCell<Vec<u8>>,
    appliers: Appliers,
    bulk: Bulk,
    /// The write in flight.
    applying: Option<Applying>,
    reader: StateReader,
}

impl RocksBackend {
    /// Opens the database in this directory, or creates one. `families` are those of the task's stores.
    ///
    /// # Errors
    /// If another owner has it open, it is damaged or of a newer format, or the disk refuses.
    pub fn open(
        path: &Path,
        families: &[Family],
        memory: &StateMemory,
    ) -> Result<Self, StoreError> {
        let at = |error| fault(path, error);
        let options = memory.options().map_err(at)?;
        let mut names = vec![PLAIN];
        let exists = exists(path)?;
        // RocksDB requires that every existing family is opened, needed or not.
        let wanted = families.contains(&Family::Windowed);
        if wanted || (exists && has_windowed(path).map_err(at)?) {
            names.push(WINDOWED);
        }
        let filter = WriteFilter::new(&memory.filters, memory.write_buffer(), names.len());
        let with_options = names.into_iter().map(|name| (name, options.clone()));
        let db = Arc::new(DB::open_cf_with_opts(&options, path, with_options).map_err(at)?);
        bulk::remove_unfinished(path)?;
        let reader = StateReader::new(Snapshots::new(&db, path));
        let mut backend = Self {
            bulk: Bulk {
                db: Arc::clone(&db),
                options: Arc::new(memory.tables_of_loads().map_err(at)?),
                least: Load::LEAST_TABLE,
                filter: Arc::new(filter),
            },
            db,
            path: path.to_owned(),
            position: None,
            poison: OnceCell::new(),
            reads: ReadOptions::default(),
            key: RefCell::default(),
            appliers: memory.appliers.clone(),
            applying: None,
            reader,
        };
        backend.read_layout()?;
        Ok(backend)
    }

    /// Reads the format of the layout, and the position. Writes the format into a new database.
    fn read_layout(&mut self) -> Result<(), StoreError> {
        let format = self.checked(self.db.get(FORMAT_KEY))?;
        let position = self.checked(self.db.get(POSITION_KEY))?;
        match (format.as_deref().map(<[u8; 4]>::try_from), &position) {
            (Some(Ok(bytes)), _) => self.check_format(u32::from_be_bytes(bytes))?,
            // The database is new, or its very first batch was lost in a power loss.
            (None, None) => {
                self.checked(self.db.put(FORMAT_KEY, FORMAT.to_be_bytes()))?;
            }
            _ => return Err(self.damaged("it has no readable format")),
        }
        if let Some(bytes) = position {
            self.position = Some(decode_position(&bytes, &self.path)?);
        }
        Ok(())
    }

    fn check_format(&self, found: u32) -> Result<(), StoreError> {
        match found {
            FORMAT => Ok(()),
            0 => Err(self.damaged("it has format 0")),
            _ => Err(StoreError::Newer {
                path: self.path.clone(),
                found,
                known: FORMAT,
            }),
        }
    }

    fn damaged(&self, words: &str) -> StoreError {
        StoreError::Damaged {
            path: self.path.clone(),
            source: EngineFault::new(words),
        }
    }

    fn healthy(&self) -> Result<(), StoreError> {
        match self.poison.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Converts a result of RocksDB. Its first failure poisons the store.
    fn checked<T>(&self, result: Result<T, rocksdb::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            (self.poison)
                .get_or_init(|| fault(&self.path, error))
                .clone()
        })
    }

    fn poisoning<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.map_err(|error| self.poison.get_or_init(|| error).clone())
    }

    fn family(&self, store: StoreId) -> Result<&ColumnFamily, StoreError> {
        family(&self.db, store)
    }
}

fn decode_position(bytes: &[u8], path: &Path) -> Result<Position, StoreError> {
    Position::decode(bytes).map_err(|source| StoreError::Position {
        path: path.to_owned(),
        source,
    })
}

fn family(db: &DB, store: StoreId) -> Result<&ColumnFamily, StoreError> {
    let name = match store.family() {
        Family::Plain => PLAIN,
        Family::Windowed => WINDOWED,
    };
    (db.cf_handle(name)).ok_or(StoreError::UnknownStore { store })
}

/// Writes a batch and its position atomically.
fn write_batch(
    db: &DB,
    path: &Path,
    batch: &Batch<'_>,
    position: &Position,
) -> Result<(), StoreError> {
    let mut encoded = Vec::new();
    position.encode(&mut encoded);
    // A put takes a few bytes more than its key and value.
    let bytes = batch.bytes() + batch.writes().len() * 12 + encoded.len() + 64;
    let mut out = WriteBatch::with_capacity_bytes(bytes);
    out.put(POSITION_KEY, &encoded);
    let mut full = Vec::new();
    let mut last: Option<(StoreId, &ColumnFamily)> = None;
    for write in batch.writes() {
        let family = match last {
            Some((store, family)) if store == write.store => family,
            _ => family(db, write.store)?,
        };
        last = Some((write.store, family));
        prefixed(&mut full, write.store, write.key);
        match write.value {
            Some(value) => out.put_cf(family, &full[..], value),
            None => out.delete_cf(family, &full[..]),
        }
    }
    for expired in batch.expired() {
        let (from, to) = bounds(expired.store, &expired.range);
        let family = family(db, expired.store)?;
        match to {
            Some(to) => out.delete_range_cf(family, from, to),
            // No key is above the last id, so there is no end of the range.
            None => delete_up(db, &mut out, family, from, batch).map_err(|e| fault(path, e))?,
        }
    }
    let mut options = WriteOptions::default();
    // Batches are sorted: each key's place is near that of the previous one.
    options.set_memtable_insert_hint_per_batch(true);
    db.write_opt(out, &options)
        .map_err(|error| fault(path, error))?;
    remove_tables(db, path, batch)
}

/// Removes the tables that contain only expired rows. Without this, RocksDB keeps these tables until a compaction rewrites
/// them.
///
/// RocksDB syncs the removal, and eos does not sync the log. After a power loss, the database may be at an earlier position
/// without these tables. The missing rows are expired at the end of the changelog, and a task reads its stores only after it
/// has restored up to that end. This requires that the brokers keep committed transactions.
///
/// A removed table may contain deletions of rows in other tables. These rows reappear until RocksDB removes their table. They
/// are expired, so no task reads them.
fn remove_tables(db: &DB, path: &Path, batch: &Batch<'_>) -> Result<(), StoreError> {
    for expired in batch.expired() {
        if let Some(range) = &expired.removable
            && let (from, Some(to)) = bounds(expired.store, range)
        {
            db.delete_file_in_range_cf(family(db, expired.store)?, from, just_below(to))
                .map_err(|error| fault(path, error))?;
        }
    }
    Ok(())
}

/// Returns a lower key. Only keys that end in 32 bytes `ff` and more may lie between. RocksDB includes the end of a range of
/// tables.
fn just_below(mut key: Vec<u8>) -> Vec<u8> {
    match key.pop() {
        None | Some(0) => {}
        Some(last) => {
            key.push(last - 1);
            key.extend_from_slice(&[u8::MAX; 32]);
        }
    }
    key
}

/// Deletes every key from `from` on, one by one, including those that the batch writes.
fn delete_up(
    db: &DB,
    out: &mut WriteBatch,
    family: &ColumnFamily,
    from: Vec<u8>,
    batch: &Batch<'_>,
) -> Result<(), rocksdb::Error> {
    let mut full = Vec::new();
    for write in batch.writes() {
        prefixed(&mut full, write.store, write.key);
        if full >= from && write.store.family() == Family::Windowed {
            out.delete_cf(family, &full);
        }
    }
    let mut reads = ReadOptions::default();
    reads.set_iterate_lower_bound(from);
    let mut rows = db.raw_iterator_cf_opt(family, reads);
    rows.seek_to_first();
    while let Some(key) = rows.key() {
        out.delete_cf(family, key);
        rows.next();
    }
    rows.status()
}

impl StoreBackend for RocksBackend {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.healthy()?;
        let family = self.family(store)?;
        let mut full = self.key.borrow_mut();
        prefixed(&mut full, store, key);
        let found = self.checked(self.db.get_pinned_cf_opt(family, &full[..], &self.reads))?;
        value.clear();
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        self.healthy()?;
        let family = self.family(store)?;
        let prefix = store.to_be_bytes();
        let len = keys.iter().map(|key| prefix.len() + key.len()).sum();
        let mut bytes = Vec::with_capacity(len);
        for key in keys {
            bytes.extend_from_slice(&prefix);
            bytes.extend_from_slice(key);
        }
        let mut rest = &bytes[..];
        let full = keys.iter().map(|key| {
            let (full, after) = rest.split_at(prefix.len() + key.len());
            rest = after;
            full
        });
        let values = (self.db).batched_multi_get_cf_opt(family, full, false, &self.reads);
        for (place, value) in values.into_iter().enumerate() {
            found(place, self.checked(value)?.as_deref());
        }
        Ok(())
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        self.healthy()?;
        let family = self.family(store)?;
        let rows = |reads| self.db.raw_iterator_cf_opt(family, reads);
        let check = Box::new(|result| self.checked(result));
        let cursor = RocksCursor::seek(rows, check, store, range, direction);
        Ok(Box::new(cursor?))
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        self.healthy()?;
        let mut stores = Vec::new();
        for family in [PLAIN, WINDOWED] {
            let Some(family) = self.db.cf_handle(family) else {
                continue;
            };
            let mut rows = (self.db).raw_iterator_cf_opt(family, ReadOptions::default());
            rows.seek_to_first();
            while let Some((id, _)) = rows.key().and_then(<[u8]>::split_first_chunk) {
                let store = StoreId::from_be_bytes(*id);
                if !store.is_reserved() {
                    stores.push(store);
                }
                match KeyRange::prefix(&store.to_be_bytes()).to() {
                    Some(next) => rows.seek(next),
                    None => break,
                }
            }
            self.checked(rows.status())?;
        }
        Ok(stores)
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.healthy()?;
        let written = self.bulk.write_batch(&self.path, batch, position);
        self.poisoning(written)?;
        self.position = Some(position.clone());
        Ok(())
    }

    fn begin_apply(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.healthy()?;
        self.applying = self.appliers.begin(&self.bulk, &self.path, in_flight);
        match &self.applying {
            Some(_) => Ok(()),
            None => self.apply(&in_flight.batch(), in_flight.position()),
        }
    }

    fn end_apply(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        let Some(applying) = &self.applying else {
            return Poll::Ready(Ok(()));
        };
        let written = std::task::ready!(applying.end(&self.path, wait));
        let position = self.applying.take().map(|applying| applying.position);
        Poll::Ready(self.poisoning(written).map(|()| self.position = position))
    }

    fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    fn reader(&self) -> Option<StateReader> {
        Some(self.reader.clone())
    }

    fn bytes_unflushed(&self) -> u64 {
        flusher::sum_of(&self.db, rocksdb::properties::CUR_SIZE_ALL_MEM_TABLES)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.healthy()?;
        self.checked(bulk::flush(&self.db))
    }
}

/// Waits for the write in flight and ends all snapshots, so that the next owner can open the database.
impl Drop for RocksBackend {
    fn drop(&mut self) {
        let _ = self.end_apply(true);
        self.reader.close();
    }
}

impl fmt::Debug for RocksBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksBackend")
            .field("path", &self.path)
            .field("position", &self.position)
            .field("poison", &self.poison.get())
            .finish_non_exhaustive()
    }
}

fn prefixed(full: &mut Vec<u8>, store: StoreId, key: &[u8]) {
    full.clear();
    full.extend_from_slice(&store.to_be_bytes());
    full.extend_from_slice(key);
}

/// Returns whether there is a database.
///
/// Two incomplete databases differ from it. With tables but without its `CURRENT`, RocksDB would open it as an empty
/// one and delete its content: that is damage. With neither tables nor a log it is empty: its creation was
/// interrupted, and starts again.
fn exists(path: &Path) -> Result<bool, StoreError> {
    let io = |error: std::io::Error| StoreError::Io {
        path: path.to_owned(),
        source: EngineFault::new(error.to_string()),
    };
    let files = match path.read_dir() {
        Ok(files) => files,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io(error)),
    };
    let (mut current, mut data) = (false, false);
    for file in files {
        let name = PathBuf::from(file.map_err(io)?.file_name());
        current |= name == Path::new("CURRENT");
        data |= (name.extension()).is_some_and(|kind| kind == "sst" || kind == "log");
    }
    match (current, data) {
        (true, true) => Ok(true),
        (false, false) => Ok(false),
        (true, false) => {
            let options = rocksdb::Options::default();
            DB::destroy(&options, path).map_err(|error| fault(path, error))?;
            Ok(false)
        }
        (false, true) => Err(StoreError::Damaged {
            path: path.to_owned(),
            source: EngineFault::new("there are data, but the file CURRENT is missing"),
        }),
    }
}

fn has_windowed(path: &Path) -> Result<bool, rocksdb::Error> {
    let names = DB::list_cf(&rocksdb::Options::default(), path)?;
    Ok(names.iter().any(|name| name == WINDOWED))
}

#[cfg(test)]
mod bulk_test;
#[cfg(test)]
mod conformance_test;
#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod expired_test;
#[cfg(test)]
mod seen_ids_lookup_test;
#[cfg(test)]
mod seen_ids_test;
