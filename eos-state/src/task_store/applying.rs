//! The way of a committed transaction, or of loaded records, into the backend.

use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::Position;

use super::TaskStore;
use crate::StoreError;
use crate::cache::CommittedCache;
use crate::expired::ExpiredRows;
use crate::in_flight::{InFlight, InFlightStore};
use crate::load::Load;
use crate::overlay::Overlay;

impl TaskStore {
    /// Applies the committed transaction: the backend takes its writes and the position, both or neither. The current
    /// record's writes stay in the scratch.
    ///
    /// # Errors
    /// If the engine can't write. The store is poisoned: the disk has this position or the previous one.
    pub fn apply(&mut self, position: &Position) -> Result<(), StoreError> {
        self.begin_apply(position.clone(), Vec::new())?;
        match self.end_apply(true) {
            Poll::Ready(applied) => applied,
            Poll::Pending => Ok(()),
        }
    }

    /// Starts to apply the committed transaction. In the same step, the backend deletes the rows in `over`, including those
    /// that the transaction wrote. Reads and writes can continue at once.
    ///
    /// Transactions are applied in order, so this call waits for the previous transaction.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn begin_apply(
        &mut self,
        position: Position,
        mut over: Vec<ExpiredRows>,
    ) -> Result<(), StoreError> {
        self.healthy()?;
        self.end_previous()?;
        over.extend(self.passed_entries()?);
        let mut spare = std::mem::take(&mut self.spare).into_iter();
        let stores = self.slots.iter_mut().map(|slot| {
            let order = slot.sorted();
            let empty = spare.next().unwrap_or_else(|| slot.overlay.empty());
            slot.sorted = None;
            InFlightStore {
                id: slot.id,
                overlay: std::mem::replace(&mut slot.overlay, empty),
                order,
            }
        });
        let in_flight = InFlight::new(stores.collect(), over, position);
        self.begin_write(in_flight)
    }

    /// Waits for the previous write.
    fn end_previous(&mut self) -> Result<(), StoreError> {
        if self.defences.applies_in_order
            && let Poll::Ready(applied) = self.end_apply(true)
        {
            applied?;
        }
        Ok(())
    }

    fn begin_write(&mut self, in_flight: InFlight) -> Result<(), StoreError> {
        let in_flight = Arc::new(in_flight);
        let begun = self.backend.begin_apply(&in_flight);
        self.poisoning(begun)?;
        self.in_flight = Some(in_flight);
        Ok(())
    }

    /// Returns whether a transaction is being applied, or records of a changelog are being written.
    /// [`end_apply`](Self::end_apply) updates this.
    #[must_use]
    pub fn is_applying(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Completes [`begin_apply`](Self::begin_apply) or [`begin_load`](Self::begin_load). Returns `Pending` while the
    /// backend writes. With `wait`, blocks until the backend has finished.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn end_apply(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        if self.in_flight.is_none() {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = self.healthy() {
            self.in_flight = None;
            return Poll::Ready(Err(error));
        }
        let applied = std::task::ready!(self.backend.end_apply(wait));
        // After a failure, the store is poisoned, and the error is returned once.
        let in_flight = self.in_flight.take();
        if let Err(error) = self.poisoning(applied) {
            return Poll::Ready(Err(error));
        }
        let Some(in_flight) = in_flight else {
            return Poll::Ready(Ok(()));
        };
        if in_flight.load().is_some() {
            // The load replaces the state, so cached values are outdated.
            (self.caches.get_mut().iter_mut()).for_each(CommittedCache::clear);
            self.forget_due();
        }
        for (store, cache) in in_flight.stores().iter().zip(self.caches.get_mut()) {
            cache.put_all(store.overlay.table());
            // A deleted range includes keys that its own transaction wrote.
            for range in in_flight.deleted_ranges(store.id) {
                cache.delete(range);
            }
        }
        if let Some(in_flight) = Arc::into_inner(in_flight) {
            let overlays = in_flight
                .into_stores()
                .into_iter()
                .map(|store| store.overlay);
            self.spare = overlays.collect();
            self.spare.iter_mut().for_each(Overlay::clear);
        }
        Poll::Ready(Ok(()))
    }

    /// Starts to write records read from a changelog, with the position of the reader. [`end_apply`](Self::end_apply)
    /// completes it. Reads are complete only after that.
    ///
    /// This call waits for the previous write.
    ///
    /// # Errors
    /// If a transaction has open writes, or the engine can't write.
    pub fn begin_load(&mut self, mut load: Load, position: Position) -> Result<(), StoreError> {
        self.healthy()?;
        let scratch = self.scratch.get_mut().iter();
        let open = scratch.chain(self.slots.iter().map(|slot| slot.overlay.table()));
        if open.into_iter().any(|table| !table.is_empty()) {
            return Err(StoreError::OpenTransaction);
        }
        self.end_previous()?;
        (self.caches.get_mut().iter_mut()).for_each(CommittedCache::clear);
        self.list_loaded(&mut load)?;
        self.forget_due();
        self.begin_write(InFlight::of_load(load, position))
    }
}
