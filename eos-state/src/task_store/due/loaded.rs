//! The index entries of loaded items.
//!
//! An item and the row with its key may have the same place at different times. Their changelogs differ, so a restore may load
//! them in any order. A load deletes an entry only if neither of them has its place afterwards.

use eos_protocol::Round;
use eos_protocol::state::StoreId;

use super::dated::Dated;
use super::{READ_AT_ONCE, TaskStore};
use crate::StoreError;
use crate::due::{self, INDEX_ID};
use crate::load::Load;

/// The records of a load, in the order of their keys: the store's id and the key, and the value if there is one.
type Sorted<'l> = [(&'l [u8], Option<&'l [u8]>)];

/// The kind of an indexed item.
#[derive(Debug, Clone, Copy)]
enum ItemKind<'s> {
    /// An item of this due store.
    Item(StoreId),
    /// A row with a moment.
    Row(&'s Dated),
}

impl ItemKind<'_> {
    fn store(self) -> StoreId {
        match self {
            Self::Item(store) => store,
            Self::Row(dated) => dated.rows,
        }
    }

    /// Converts a key of the store to the key of an item. `None` if the row is no item.
    fn item_key(self, full: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Item(_) => due::key_of_row(full),
            Self::Row(_) => Some(full),
        }
    }

    /// Converts the key of an item to the key of its store.
    fn store_key(self, key: &[u8]) -> Vec<u8> {
        let mut full = Vec::with_capacity(1 + key.len());
        match self {
            Self::Item(_) => due::row_key(&mut full, key),
            Self::Row(_) => full.extend_from_slice(key),
        }
        full
    }
}

/// A loaded item, with the round of its entry before and after the load.
struct LoadedItem<'l> {
    key: &'l [u8],
    before: Option<Round>,
    after: Option<Round>,
}

impl TaskStore {
    /// Adds the index entries of the items in a load, and deletes those of their earlier versions.
    pub(in crate::task_store) fn list_loaded(&mut self, load: &mut Load) -> Result<(), StoreError> {
        match &mut self.due {
            Some(state) if self.defences.lists_loaded => state.is_trimmed = false,
            _ => return Ok(()),
        }
        let mut entries = Vec::new();
        let sorted: Vec<_> = load.sorted().collect();
        for slot in self.stores() {
            let Some(clock) = slot.clock else {
                continue;
            };
            let mut entry = |round, key: &[u8], is_listed: bool| {
                let mut entry = Vec::with_capacity(14 + key.len());
                due::index_key(&mut entry, clock, round, slot.id, key);
                entries.push((entry, is_listed));
            };
            let item = ItemKind::Item(slot.id);
            let items = self.loaded(&sorted, item)?;
            let row = slot.dated.as_ref().map(ItemKind::Row);
            let rows = row.map(|row| self.loaded(&sorted, row)).transpose()?;
            let rows = rows.unwrap_or_default();
            for (own, others, other) in [(&items, &rows, row), (&rows, &items, Some(item))] {
                let gone = own
                    .iter()
                    .filter(|it| it.before.is_some() && it.before != it.after);
                let gone: Vec<_> = gone.collect();
                let kept = match other {
                    Some(other) => self.rounds_after(&gone, others, other)?,
                    None => vec![None; gone.len()],
                };
                for (one, kept) in gone.iter().zip(kept) {
                    if let Some(before) = one.before.filter(|before| Some(*before) != kept) {
                        entry(before, one.key, false);
                    }
                }
            }
            for one in items.iter().filter(|it| it.before != it.after).chain(&rows) {
                // An unchanged row may have been visited, and the load may set the mark before it.
                if let Some(after) = one.after {
                    entry(after, one.key, true);
                }
            }
        }
        for (entry, is_listed) in entries {
            load.write(INDEX_ID, &entry, is_listed.then_some(&[]));
        }
        Ok(())
    }

    /// Returns the items of this kind in a load, in the order of their keys.
    fn loaded<'l>(
        &self,
        sorted: &Sorted<'l>,
        kind: ItemKind<'_>,
    ) -> Result<Vec<LoadedItem<'l>>, StoreError> {
        let id = kind.store().to_be_bytes();
        let mut loaded = Vec::new();
        for (full, row) in sorted {
            let Some(key) = full.strip_prefix(&id).and_then(|full| kind.item_key(full)) else {
                continue;
            };
            let after = match row {
                Some(row) => self.round_of(kind, key, row)?,
                None => None,
            };
            loaded.push(LoadedItem {
                key,
                before: None,
                after,
            });
        }
        let keys: Vec<_> = loaded.iter().map(|one| one.key).collect();
        let before = self.rounds_in_backend(&keys, kind)?;
        for (one, before) in loaded.iter_mut().zip(before) {
            one.before = before;
        }
        Ok(loaded)
    }

    /// Returns the rounds that the items of the other kind have after the load, for the keys of `of`.
    fn rounds_after(
        &self,
        of: &[&LoadedItem<'_>],
        others: &[LoadedItem<'_>],
        other: ItemKind<'_>,
    ) -> Result<Vec<Option<Round>>, StoreError> {
        let find = |key: &[u8]| {
            let found = others.binary_search_by(|one| one.key.cmp(key));
            found.ok().and_then(|at| others.get(at))
        };
        let found = of.iter().map(|one| find(one.key).map(|other| other.after));
        let mut rounds: Vec<Option<Option<Round>>> = found.collect();
        let missing = of.iter().zip(&rounds).filter(|(_, round)| round.is_none());
        let missing: Vec<_> = missing.map(|(one, _)| one.key).collect();
        let mut read = self.rounds_in_backend(&missing, other)?.into_iter();
        for round in rounds.iter_mut().filter(|round| round.is_none()) {
            *round = read.next();
        }
        Ok(rounds.into_iter().map(Option::flatten).collect())
    }

    /// Returns the rounds of items in the backend.
    fn rounds_in_backend(
        &self,
        keys: &[&[u8]],
        kind: ItemKind<'_>,
    ) -> Result<Vec<Option<Round>>, StoreError> {
        let mut rounds = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE) {
            let full: Vec<_> = keys.iter().map(|key| kind.store_key(key)).collect();
            let full: Vec<&[u8]> = full.iter().map(Vec::as_slice).collect();
            let mut found: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
            let mut each = |n: usize, row: Option<&[u8]>| {
                if let (Some(found), Some(row), Some(key)) = (found.get_mut(n), row, keys.get(n)) {
                    *found = self.round_of(kind, key, row);
                }
            };
            self.poisoning(self.backend.multi_get(kind.store(), &full, &mut each))?;
            for round in found {
                rounds.push(round?);
            }
        }
        Ok(rounds)
    }

    /// Returns the round of the entry of an item.
    fn round_of(
        &self,
        kind: ItemKind<'_>,
        key: &[u8],
        row: &[u8],
    ) -> Result<Option<Round>, StoreError> {
        match kind {
            ItemKind::Item(store) => Ok(Some(self.moments(store, row)?.listed)),
            ItemKind::Row(dated) => Ok(self.moment_of(dated, key, row)?.map(Round::of)),
        }
    }
}
