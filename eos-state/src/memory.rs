//! The engine in memory, for tests and for short-lived state.

use std::collections::{BTreeMap, btree_map};

use eos_protocol::state::{Position, StoreId};

use crate::StoreError;
use crate::backend::{Cursor, KeyValue, StoreBackend};
use crate::batch::Batch;
use crate::range::{Direction, KeyRange};

type Entries = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// State that ends with its process: an ordered map per store. Every restart rebuilds it.
#[derive(Debug, Default, Clone)]
pub struct MemoryBackend {
    // A task has only a few stores: a linear search beats hashing.
    stores: Vec<(StoreId, Entries)>,
    position: Option<Position>,
}

impl MemoryBackend {
    /// An empty engine without a position.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            stores: Vec::new(),
            position: None,
        }
    }

    fn entries(&self, store: StoreId) -> Option<&Entries> {
        let found = self.stores.iter().find(|(id, _)| *id == store);
        found.map(|(_, entries)| entries)
    }

    fn entries_mut(&mut self, store: StoreId) -> &mut Entries {
        let found = self.stores.iter().position(|(id, _)| *id == store);
        let at = found.unwrap_or_else(|| {
            self.stores.push((store, Entries::new()));
            self.stores.len() - 1
        });
        &mut self.stores[at].1
    }
}

impl StoreBackend for MemoryBackend {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        let found = self.entries(store).and_then(|entries| entries.get(key));
        if let Some(found) = found {
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
        let entries = self.entries(store);
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
        // A `BTreeMap` panics on an inverted range.
        let entries = self.entries(store).filter(|_| !range.is_empty());
        let rest = entries.map(|entries| entries.range::<[u8], _>(range.bounds()));
        let mut cursor = MemoryCursor {
            rest: rest.unwrap_or_default(),
            direction,
            entry: None,
        };
        cursor.advance()?;
        Ok(Box::new(cursor))
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        let filled = self
            .stores
            .iter()
            .filter(|(id, entries)| !id.is_reserved() && !entries.is_empty());
        let mut stores: Vec<StoreId> = filled.map(|(id, _)| *id).collect();
        stores.sort_unstable();
        Ok(stores)
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
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
        for (store, range) in batch.forgotten() {
            let entries = self.entries_mut(*store);
            let gone = entries.range::<[u8], _>(range.bounds());
            let gone: Vec<Box<[u8]>> = gone.map(|(key, _)| key.clone()).collect();
            for key in gone {
                entries.remove(&key);
            }
        }
        self.position = Some(position.clone());
        Ok(())
    }

    fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }
}

struct MemoryCursor<'a> {
    rest: btree_map::Range<'a, Box<[u8]>, Box<[u8]>>,
    direction: Direction,
    entry: Option<KeyValue<'a>>,
}

impl Cursor for MemoryCursor<'_> {
    fn entry(&self) -> Option<KeyValue<'_>> {
        self.entry
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        let next = match self.direction {
            Direction::Forward => self.rest.next(),
            Direction::Reverse => self.rest.next_back(),
        };
        self.entry = next.map(|(key, value)| (&**key, &**value));
        Ok(())
    }
}
