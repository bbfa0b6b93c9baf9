//! The workers' reads of global tables.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use eos_state::StoreError;
use eos_state::global::{GlobalRows, GlobalSnapshot};

use super::topic::GlobalTopic;
use crate::codec::Encoded;
use crate::store::StateError;

/// The global tables of a process: one reader fills them, and all workers read them.
#[derive(Debug, Default)]
pub struct GlobalTables {
    tables: Vec<Table>,
    ready: AtomicBool,
}

#[derive(Debug)]
struct Table {
    name: Arc<str>,
    rows: OnceLock<GlobalRows>,
}

impl GlobalTables {
    pub(crate) fn of(names: impl Iterator<Item = Arc<str>>) -> Self {
        let tables = names.map(|name| Table {
            name,
            rows: OnceLock::new(),
        });
        Self {
            tables: tables.collect(),
            ready: AtomicBool::new(false),
        }
    }

    /// Whether the reader has reached the ends of the topics. Before that, no task processes a record.
    pub(crate) fn is_ready(&self) -> bool {
        self.tables.is_empty() || self.ready.load(Ordering::Acquire)
    }

    /// Opens the tables for the workers.
    pub(crate) fn open(&self, rows: impl Iterator<Item = GlobalRows>) {
        for (table, rows) in self.tables.iter().zip(rows) {
            // The process has only one reader.
            let _ = table.rows.set(rows);
        }
        self.ready.store(true, Ordering::Release);
    }

    /// Returns the first table whose copy can't be read any more, with the cause.
    pub(crate) fn failed(&self) -> Option<(&Arc<str>, &StoreError)> {
        let mut failed = self
            .tables
            .iter()
            .filter_map(|table| Some((&table.name, table.rows.get()?.failed()?)));
        failed.next()
    }
}

/// A worker's reads of the global tables. All reads of a record see one version of each table.
#[derive(Debug, Default)]
pub(crate) struct GlobalReads {
    tables: Arc<GlobalTables>,
    /// The versions that the current record reads. The index is that of the table.
    open: Vec<Option<GlobalSnapshot>>,
    /// The buffers of the key and the row.
    key: Vec<u8>,
    row: Vec<u8>,
}

impl GlobalReads {
    pub(crate) fn new(tables: Arc<GlobalTables>) -> Self {
        Self {
            tables,
            ..Self::default()
        }
    }

    /// Ends the reads of a record. The next one sees the newest versions.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.open.clear();
    }

    /// Returns the table whose copy can't be read any more, if there is one. Its error is not caused by the current
    /// record.
    #[inline]
    pub(crate) fn failed(&self) -> Option<(&Arc<str>, &StoreError)> {
        match self.tables.tables.is_empty() {
            true => None,
            false => self.tables.failed(),
        }
    }

    /// Returns the row of a key.
    pub(crate) fn row<K, V>(
        &mut self,
        table: usize,
        topic: &dyn GlobalTopic<K, V>,
        key: &K,
    ) -> Result<Option<V>, StateError> {
        let Some(found) = self.tables.tables.get(table) else {
            return Err(StateError::OtherApp);
        };
        let name = || Arc::clone(&found.name);
        self.key.clear();
        let encoded = topic.encode_key(key, &mut self.key);
        let encoded = encoded.map_err(|source| StateError::Key {
            store: name(),
            source,
        })?;
        if encoded == Encoded::Null {
            return Ok(None);
        }
        if self.open.len() <= table {
            self.open.resize_with(table + 1, || None);
        }
        // The tables are open, because no record is processed earlier.
        let (Some(place), Some(rows)) = (self.open.get_mut(table), found.rows.get()) else {
            return Ok(None);
        };
        let snapshot = place.get_or_insert_with(|| rows.snapshot());
        let there = snapshot.get(&self.key, &mut self.row);
        let there = there.map_err(|source| StateError::Store {
            store: name(),
            source,
        })?;
        if !there {
            return Ok(None);
        }
        topic
            .decode_row(&self.row)
            .map_err(|source| StateError::GlobalRow {
                table: name(),
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use eos_state::global::{GlobalBatch, GlobalMemory, GlobalWriter};

    use super::*;
    use crate::client::Headers;
    use crate::global::encode_row;
    use crate::topic::Topic;

    fn batch(key: &str, value: Option<&str>) -> GlobalBatch {
        let row = value.map(|value| encode_row(value.as_bytes(), &Headers::new()));
        [(key.into(), row)].into()
    }

    /// On another thread, the reader continues between two reads of a record.
    #[test]
    fn two_reads_of_one_record_agree_and_the_next_record_sees_the_newest_row() {
        let topic = Topic::<String, Option<String>>::plain("rates");
        let tables = Arc::new(GlobalTables::of(["rates".into()].into_iter()));
        assert!(!tables.is_ready());
        let mut writer = GlobalWriter::new(Box::new(GlobalMemory::default()));
        writer.write(&batch("usd", Some("5")), b"").unwrap();
        tables.open([writer.serve()].into_iter());
        assert!(tables.is_ready());
        let mut reads = GlobalReads::new(tables);
        let row =
            |reads: &mut GlobalReads, key: &str| reads.row(0, &topic, &key.to_owned()).unwrap();
        assert_eq!(row(&mut reads, "usd"), Some("5".to_owned()));
        writer.write(&batch("usd", Some("6")), b"").unwrap();
        writer.write(&batch("eur", Some("7")), b"").unwrap();
        assert_eq!(
            (row(&mut reads, "usd"), row(&mut reads, "eur")),
            (Some("5".to_owned()), None)
        );
        reads.end();
        let newest = (Some("6".to_owned()), Some("7".to_owned()));
        assert_eq!((row(&mut reads, "usd"), row(&mut reads, "eur")), newest);
    }
}
