//! Restored records as tables that bypass the write buffer.
//!
//! A write buffer sorts each key into a tree, and the log has a copy. A table is written once, in order, and RocksDB
//! adds it to the database in one step.
//!
//! **One step.** The table contains the position, so data and position appear together. A step adds tables to one
//! family only, so records of windowed stores go through the write buffer.
//!
//! **Order.** The added table is on the disk at once, but earlier writes may be in the log only, which is never synced.
//! After a power loss, the position would be ahead of them. So the write buffers are flushed first. (RocksDB itself
//! flushes a buffer with a key between those of the table, such as the position, but not one with the format alone.)

use std::path::Path;
use std::sync::Arc;

use eos_protocol::state::Position;
use rocksdb::{ColumnFamily, DB, FlushOptions, IngestExternalFileOptions, Options, SstFileWriter};

use super::{PLAIN, POSITION_KEY, WINDOWED, WriteFilter, fault, write_batch};
use crate::batch::Batch;
use crate::in_flight::InFlight;
use crate::load::Load;
use crate::{EngineFault, StoreError};

/// The number of unordered tables from which on records go through the write buffer again. At 20 unordered tables,
/// RocksDB delays writes until it has merged some, but it does not delay the addition of a table.
const TABLES: u64 = 16;
/// The name of an unfinished table.
const UNFINISHED: &str = "loading";

/// Writes restored records and a transaction's changes.
#[derive(Clone)]
pub(super) struct Bulk {
    pub(super) db: Arc<DB>,
    /// The settings of tables.
    pub(super) options: Arc<Options>,
    /// See [`Load::LEAST_TABLE`].
    pub(super) least: usize,
    pub(super) filter: Arc<WriteFilter>,
}

impl Bulk {
    /// Writes a transaction or restored records.
    pub(super) fn write(&self, path: &Path, in_flight: &InFlight) -> Result<(), StoreError> {
        let position = in_flight.position();
        match in_flight.load() {
            Some(load) if self.is_worth_a_table(load) => self.add_table(path, load, position),
            _ => self.write_batch(path, &in_flight.batch(), position),
        }
    }

    /// Writes a transaction or restored records through the write buffer.
    pub(super) fn write_batch(
        &self,
        path: &Path,
        batch: &Batch<'_>,
        position: &Position,
    ) -> Result<(), StoreError> {
        write_batch(&self.db, path, batch, position)?;
        self.filter.count(&self.db, batch.bytes());
        Ok(())
    }

    pub(super) fn is_worth_a_table(&self, load: &Load) -> bool {
        let unordered = || {
            let name = rocksdb::properties::num_files_at_level(0);
            let number = self.db.property_value(&name).ok().flatten();
            number.and_then(|number| number.parse::<u64>().ok())
        };
        load.memory() >= self.least
            && !load.has_windowed()
            && unordered().is_some_and(|tables| tables < TABLES)
    }

    fn add_table(&self, path: &Path, load: &Load, position: &Position) -> Result<(), StoreError> {
        let at = |error| fault(path, error);
        flush(&self.db).map_err(at)?;
        let file = path.join(UNFINISHED);
        remove_unfinished(path)?;
        let mut encoded = Vec::new();
        position.encode(&mut encoded);
        let mut table = SstFileWriter::create(&self.options);
        table.open(&file).map_err(at)?;
        let mut position = Some(encoded);
        for (key, value) in load.sorted() {
            // A table is in order. The index of due stores comes before the position.
            if key > POSITION_KEY
                && let Some(position) = position.take()
            {
                table.put(POSITION_KEY, position).map_err(at)?;
            }
            match value {
                Some(value) => table.put(key, value),
                None => table.delete(key),
            }
            .map_err(at)?;
        }
        if let Some(position) = position {
            table.put(POSITION_KEY, position).map_err(at)?;
        }
        table.finish().map_err(at)?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let add = |options: &_| (self.db).ingest_external_file_opts(options, vec![&file]);
        // A file system may have no hard links: then RocksDB copies the table.
        add(&options)
            .or_else(|_| {
                options.set_move_files(false);
                add(&options)
            })
            .map_err(at)
    }
}

/// Removes the table that an interrupted restore left. It may be a second name of a table of the database, so it must
/// not be overwritten.
pub(super) fn remove_unfinished(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path.join(UNFINISHED)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(StoreError::Io {
            path: path.to_owned(),
            source: EngineFault::new(error.to_string()),
        }),
        _ => Ok(()),
    }
}

/// Moves all writes from the write buffers into tables.
pub(super) fn flush(db: &DB) -> Result<(), rocksdb::Error> {
    let names = [PLAIN, WINDOWED].into_iter();
    let families: Vec<&ColumnFamily> = names.filter_map(|name| db.cf_handle(name)).collect();
    db.flush_cfs_opt(&families, &FlushOptions::default())
}
