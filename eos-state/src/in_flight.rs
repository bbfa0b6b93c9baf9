//! Committed writes that the engine has not applied yet.

use std::sync::Arc;

use eos_protocol::state::{Position, StoreId};

use crate::batch::Batch;
use crate::expired::ExpiredRows;
use crate::load::Load;
use crate::overlay::{Entries, KeyHash, Overlay, Table, Written};
use crate::range::{Direction, KeyRange};

/// The writes of a committed transaction or of a restore to all stores of a task, and the position after them.
///
/// The engine may apply the writes on another thread. Until then, the task reads those of a transaction from this
/// value. No task reads during a restore.
#[derive(Debug)]
pub struct InFlight {
    writes: Writes,
    position: Position,
}

#[derive(Debug)]
enum Writes {
    Transaction {
        /// One for each store of the task, in the order of the task's stores.
        stores: Vec<InFlightStore>,
        over: Vec<ExpiredRows>,
    },
    Load(Load),
}

/// The writes to one store.
#[derive(Debug)]
pub(crate) struct InFlightStore {
    pub(crate) id: StoreId,
    pub(crate) overlay: Overlay,
    /// The numbers of the entries, in the order of their keys.
    pub(crate) order: Arc<Vec<u32>>,
}

impl InFlight {
    pub(crate) fn new(
        stores: Vec<InFlightStore>,
        over: Vec<ExpiredRows>,
        position: Position,
    ) -> Self {
        let writes = Writes::Transaction { stores, over };
        Self { writes, position }
    }

    pub(crate) fn of_load(load: Load, position: Position) -> Self {
        let writes = Writes::Load(load);
        Self { writes, position }
    }

    /// Returns the writes of a restore, or `None` for a transaction.
    #[must_use]
    pub fn load(&self) -> Option<&Load> {
        match &self.writes {
            Writes::Load(load) => Some(load),
            Writes::Transaction { .. } => None,
        }
    }

    /// Returns the stores of a transaction.
    pub(crate) fn stores(&self) -> &[InFlightStore] {
        match &self.writes {
            Writes::Transaction { stores, .. } => stores,
            Writes::Load(_) => &[],
        }
    }

    pub(crate) fn into_stores(self) -> Vec<InFlightStore> {
        match self.writes {
            Writes::Transaction { stores, .. } => stores,
            Writes::Load(_) => Vec::new(),
        }
    }

    fn over(&self) -> &[ExpiredRows] {
        match &self.writes {
            Writes::Transaction { over, .. } => over,
            Writes::Load(_) => &[],
        }
    }

    /// Returns the position after the writes.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Returns the sorted writes, and the ranges to delete.
    #[must_use]
    pub fn batch(&self) -> Batch<'_> {
        if let Some(load) = self.load() {
            return load.batch();
        }
        let writes = self.stores().iter().map(|store| store.order.len());
        let mut batch = Batch::with_capacity(writes.sum());
        for store in self.stores() {
            let table = store.overlay.table();
            for &number in &*store.order {
                batch.write(store.id, table.key(number), table.value(number));
            }
        }
        for expired in self.over() {
            batch.delete_expired(expired);
        }
        batch
    }

    /// Returns the last write to a key. `Some(None)` is a deletion, of the key or of a range that contains it.
    pub(crate) fn get(&self, store: usize, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        let store = self.stores().get(store)?;
        if self.is_over(store.id, key) {
            return Some(None);
        }
        store.overlay.get(hash, key)
    }

    /// Returns whether the transaction deleted a range that contains this key.
    pub(crate) fn is_over(&self, store: StoreId, key: &[u8]) -> bool {
        let mut over = self.over().iter();
        over.any(|over| over.store == store && over.range.contains(key))
    }

    /// Returns the writes to a range of one store.
    pub(crate) fn scan(
        &self,
        store: usize,
        range: &KeyRange,
        direction: Direction,
    ) -> Option<(StoreId, &Table, Entries<'_>)> {
        let store = self.stores().get(store)?;
        let entries = store.overlay.scan_sealed(&store.order, range, direction);
        Some((store.id, store.overlay.table(), entries))
    }

    /// Returns the ranges of this store that the transaction deleted.
    pub(crate) fn deleted_ranges(&self, store: StoreId) -> impl Iterator<Item = &KeyRange> {
        let over = self.over().iter().filter(move |over| over.store == store);
        over.map(|over| &over.range)
    }
}
