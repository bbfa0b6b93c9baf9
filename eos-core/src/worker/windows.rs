//! The windowed stores of a task.

use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::state::{Family, StoreId};
use eos_protocol::windows::{Expiry, OtherWindows, Terms, TermsError};
use eos_state::{Direction, KeyRange, StoreBackend, StoreError, TaskStore};

use crate::rules;
use crate::store::{TERMS, window_of, windows_between};

/// The windowed stores of a task.
///
/// Each store has its [`Terms`] beside its windows, in the database and in the changelog. Every transaction that writes
/// to the changelog writes the terms, so a trim never removes the only copy. The first transaction on other terms also
/// writes them in any case, because the database then expires windows that were live for the program before.
#[derive(Debug, Default)]
pub(super) struct Windows {
    stores: Vec<(StoreId, Expiry)>,
    /// Whether the terms differ from the committed terms.
    changed: bool,
}

/// Whether every window in this database is over at this stream time, including the last one of each store. An
/// unreadable window counts as live.
pub(super) fn all_over(
    database: &dyn StoreBackend,
    stores: &[(StoreId, Expiry)],
    stream_time: Option<Timestamp>,
) -> bool {
    stores.iter().all(|(id, expiry)| {
        let last = database.scan(*id, &KeyRange::all(), Direction::Reverse);
        let over =
            |key: &[u8]| window_of(key).is_none_or(|start| expiry.is_over(start, stream_time));
        last.is_ok_and(|last| last.entry().is_none_or(|(key, _)| over(key)))
    })
}

/// Returns a stream time that is ahead of the true one.
fn after(stream_time: Option<Timestamp>, by: Duration) -> Option<Timestamp> {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    stream_time.map(|time| Timestamp(time.0.saturating_add(by)))
}

/// The reason why a store's windows can't be continued.
#[derive(Debug)]
pub(super) enum Refused {
    Other(OtherWindows),
    Unreadable(TermsError),
    Failed(StoreError),
}

impl Windows {
    /// Continues the contents of these stores after a restore, at this committed stream time.
    pub(super) fn of(
        store: &TaskStore,
        stores: Vec<(StoreId, Expiry)>,
        stream_time: Option<Timestamp>,
    ) -> Result<Self, (StoreId, Refused)> {
        let mut windows = Self {
            stores,
            changed: false,
        };
        let mut bytes = Vec::new();
        for (id, expiry) in &mut windows.stores {
            let refused = |refused| (*id, refused);
            let found = store.get(*id, TERMS, &mut bytes);
            if !found.map_err(|e| refused(Refused::Failed(e)))? {
                // The store is empty, or an earlier version of this library wrote it.
                continue;
            }
            let found = Terms::decode(&bytes).map_err(|e| refused(Refused::Unreadable(e)))?;
            let changed = expiry.take_over(&found, stream_time);
            windows.changed |= changed.map_err(|e| refused(Refused::Other(e)))?;
        }
        Ok(windows)
    }

    /// Returns the expiry of each store.
    pub(super) fn stores(&self) -> &[(StoreId, Expiry)] {
        &self.stores
    }

    /// Adds the terms to the changes of the transaction at the end of intake, if necessary.
    pub(super) fn seal(&self, store: &mut TaskStore) -> Result<(), StoreError> {
        if self.changed || store.touched(Family::Windowed) {
            for (id, expiry) in &self.stores {
                store.put_beside(*id, TERMS, &expiry.terms().encode())?;
            }
        }
        Ok(())
    }

    /// Applies a committed transaction with this stream time, and its terms if it `wrote` to the changelog. Returns the
    /// windows that the database expires.
    pub(super) fn committed(
        &mut self,
        wrote: bool,
        stream_time: Option<Timestamp>,
    ) -> Vec<(StoreId, KeyRange)> {
        self.changed &= !wrote;
        let mut over = Vec::new();
        for (store, expiry) in &mut self.stores {
            let stream_time = match rules::forgets_closed_windows_only() {
                true => stream_time,
                false => after(stream_time, expiry.terms().size()),
            };
            if let Some((from, before)) = expiry.due(stream_time) {
                over.push((*store, windows_between(from, before)));
                expiry.forgot(before);
            }
        }
        over
    }
}
