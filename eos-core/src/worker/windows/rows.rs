//! The terms of stores with one row of windows per key.

use eos_protocol::Timestamp;
use eos_protocol::state::{Family, StoreId};
use eos_protocol::windows::{AnyWindows, OtherRows, RowTerms};
use eos_state::{StoreError, TaskStore};

use super::Refused;
use crate::store::StoreSpec;

/// The key of a store's terms, among its rows without a moment.
const TERMS: &[u8] = &[];

/// A store of sessions or sliding windows of a stage.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct RowStore {
    id: StoreId,
    windows: AnyWindows,
    terms: RowTerms,
}

impl RowStore {
    /// Returns the store, or `None` if it has no sessions and no sliding windows.
    pub(in crate::worker) fn of(store: &StoreSpec) -> Option<Self> {
        let windows = store.windows?;
        Some(Self {
            id: store.id,
            windows,
            terms: RowTerms::of(&windows, store.is_final)?,
        })
    }
}

/// The stores of sessions and sliding windows of a task.
///
/// Each store has its [`RowTerms`] beside its rows, in the database and in the changelog. The first transaction on other
/// terms writes them, even if it does not change the store. The next program reads from them which windows have closed.
#[derive(Debug, Default)]
pub(in crate::worker) struct RowStores {
    terms: Vec<(StoreId, RowTerms)>,
    /// The limits of [`RowTerms::closed_before`], by store.
    closed: Vec<(StoreId, Timestamp)>,
    /// Whether the terms are those of an earlier program.
    changed: bool,
    /// Whether a store has no terms yet.
    is_new: bool,
}

impl RowStores {
    /// Continues the contents of these stores after a restore, at this committed stream time. All final results up to
    /// `handled` are emitted.
    pub(in crate::worker) fn of(
        store: &TaskStore,
        stores: &[RowStore],
        stream_time: Option<Timestamp>,
        handled: Option<Timestamp>,
    ) -> Result<Self, (StoreId, Refused)> {
        let (mut all, mut bytes) = (Self::default(), Vec::new());
        for RowStore { id, windows, terms } in stores {
            let (id, mut terms) = (*id, *terms);
            let there = store.get_undated(id, TERMS, &mut bytes);
            if there.map_err(|e| (id, Refused::Failed(e)))? {
                let found = RowTerms::decode(&bytes);
                let found = found.map_err(|e| (id, Refused::Unreadable(e)))?;
                // Final results that are due, but not emitted, still take records.
                let now = if terms.is_final() {
                    handled
                } else {
                    stream_time
                };
                let changed = terms.take_over(&found, windows, now);
                all.changed |= changed.map_err(|other| match other {
                    OtherRows::Length(other) => (id, Refused::Other(other)),
                    OtherRows::Results { was_final } => (id, Refused::Results { was_final }),
                })?;
            } else {
                all.is_new = true;
            }
            all.terms.push((id, terms));
            all.closed.push((id, terms.closed_before()));
        }
        Ok(all)
    }

    /// Returns the limits of [`RowTerms::closed_before`], by store.
    pub(in crate::worker) fn closed(&self) -> &[(StoreId, Timestamp)] {
        &self.closed
    }

    /// Adds the terms to the changes of the transaction at the end of intake, if necessary.
    pub(in crate::worker) fn seal(&self, store: &mut TaskStore) -> Result<(), StoreError> {
        if self.changed || self.is_new && store.touched(Family::Plain) {
            for (id, terms) in &self.terms {
                store.put_undated_beside(*id, TERMS, &terms.encode())?;
            }
        }
        Ok(())
    }

    /// Applies a committed transaction, and its terms if it `wrote` to the changelog.
    pub(in crate::worker) fn committed(&mut self, wrote: bool) {
        self.changed &= !wrote;
        self.is_new &= !wrote;
    }
}
