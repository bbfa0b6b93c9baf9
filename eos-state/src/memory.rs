//! The engine in memory, for tests and for short-lived state.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use eos_protocol::state::{Position, StoreId};

use crate::StoreError;
use crate::backend::StoreBackend;
use crate::batch::Batch;
use crate::cursor::{Cursor, KeyValue};
use crate::range::{Direction, KeyRange};
use crate::reader::{Page, SnapshotOf, StateReader, TakeSnapshot};

type Entries = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// State that ends with its process: an ordered map per store. Every restart rebuilds it.
///
/// Snapshots share the maps. While a snapshot exists, the first write of a commit to a store copies its whole map, on the
/// thread of the task: a store with a million rows takes about half a second. Use RocksDB for large stores that are viewed
/// often. A clone is a separate engine.
#[derive(Default)]
pub struct MemoryBackend {
    data: Data,
    /// Present once there is a reader.
    published: OnceLock<(Published, StateReader)>,
}

#[derive(Debug, Default, Clone)]
struct Data {
    // A task has only a few stores: a linear search beats hashing.
    stores: Vec<(StoreId, Arc<Entries>)>,
    position: Option<Arc<Position>>,
}

/// The data after the last apply, for readers. The owner reads its own copy without the lock.
#[derive(Clone)]
struct Published(Arc<Mutex<Data>>);

impl Published {
    fn lock(&self) -> MutexGuard<'_, Data> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryBackend {
    /// Returns an empty engine without a position.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            data: Data {
                stores: Vec::new(),
                position: None,
            },
            published: OnceLock::new(),
        }
    }
}

impl Data {
    fn entries(&self, store: StoreId) -> Option<&Entries> {
        let found = self.stores.iter().find(|(id, _)| *id == store);
        found.map(|(_, entries)| &**entries)
    }

    fn entries_mut(&mut self, store: StoreId) -> &mut Entries {
        let found = self.stores.iter().position(|(id, _)| *id == store);
        let at = found.unwrap_or_else(|| {
            self.stores.push((store, Arc::default()));
            self.stores.len() - 1
        });
        Arc::make_mut(&mut self.stores[at].1)
    }

    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> bool {
        value.clear();
        let found = self.entries(store).and_then(|entries| entries.get(key));
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        found.is_some()
    }

    fn scan(&self, store: StoreId, range: &KeyRange, direction: Direction) -> MemoryCursor<'_> {
        // A `BTreeMap` panics on an inverted range.
        let entries = self.entries(store).filter(|_| !range.is_empty());
        let rest = entries.map(|entries| entries.range::<[u8], _>(range.bounds()));
        let mut cursor = MemoryCursor {
            rest: rest.unwrap_or_default(),
            direction,
            entry: None,
        };
        cursor.step();
        cursor
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) {
        for write in batch.writes() {
            let entries = self.entries_mut(write.store);
            match write.value {
                Some(value) => {
                    entries.insert(write.key.into(), value.into());
                }
                None => {
                    entries.remove(write.key);
                }
            }
        }
        for expired in batch.expired() {
            let entries = self.entries_mut(expired.store);
            let gone = entries.range::<[u8], _>(expired.range.bounds());
            let gone: Vec<Box<[u8]>> = gone.map(|(key, _)| key.clone()).collect();
            for key in gone {
                entries.remove(&key);
            }
        }
        self.position = Some(Arc::new(position.clone()));
    }
}

impl Clone for MemoryBackend {
    fn clone(&self) -> Self {
        Self {
            data: self.data.clone(),
            published: OnceLock::new(),
        }
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        if let Some((_, reader)) = self.published.get() {
            reader.close();
        }
    }
}

impl StoreBackend for MemoryBackend {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        Ok(self.data.get(store, key, value))
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let entries = self.data.entries(store);
        for (i, key) in keys.iter().enumerate() {
            found(i, entries.and_then(|e| e.get(*key)).map(|v| &**v));
        }
        Ok(())
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        Ok(Box::new(self.data.scan(store, range, direction)))
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        let stores = self.data.stores.iter();
        let filled = stores.filter(|(id, entries)| !id.is_reserved() && !entries.is_empty());
        let mut stores: Vec<StoreId> = filled.map(|(id, _)| *id).collect();
        stores.sort_unstable();
        Ok(stores)
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        let Some((published, _)) = self.published.get() else {
            self.data.apply(batch, position);
            return Ok(());
        };
        let mut published = published.lock();
        // Without this copy, the maps are written in place, unless a snapshot shares them.
        *published = Data::default();
        self.data.apply(batch, position);
        published.clone_from(&self.data);
        Ok(())
    }

    fn position(&self) -> Option<&Position> {
        self.data.position.as_deref()
    }

    fn reader(&self) -> Option<StateReader> {
        let (_, reader) = self.published.get_or_init(|| {
            let published = Published(Arc::new(Mutex::new(self.data.clone())));
            (published.clone(), StateReader::new(published))
        });
        Some(reader.clone())
    }
}

impl TakeSnapshot for Published {
    fn take(&self) -> Result<Box<dyn SnapshotOf>, StoreError> {
        Ok(Box::new(self.lock().clone()))
    }
}

impl SnapshotOf for Data {
    fn position(&self) -> Option<&Position> {
        self.position.as_deref()
    }

    fn get(&mut self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        Ok(Data::get(self, store, key, value))
    }

    fn page(
        &mut self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Page, StoreError> {
        let mut cursor = self.scan(store, range, direction);
        Page::read(&mut cursor, range, direction)
    }
}

struct MemoryCursor<'a> {
    rest: btree_map::Range<'a, Box<[u8]>, Box<[u8]>>,
    direction: Direction,
    entry: Option<KeyValue<'a>>,
}

impl MemoryCursor<'_> {
    fn step(&mut self) {
        let next = match self.direction {
            Direction::Forward => self.rest.next(),
            Direction::Reverse => self.rest.next_back(),
        };
        self.entry = next.map(|(key, value)| (&**key, &**value));
    }
}

impl Cursor for MemoryCursor<'_> {
    fn entry(&self) -> Option<KeyValue<'_>> {
        self.entry
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        self.step();
        Ok(())
    }
}
