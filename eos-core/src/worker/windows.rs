//! The windowed stores of a task.

mod closing;
mod rows;

use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::joins::OtherJoin;
use eos_protocol::state::{Family, StoreId};
use eos_protocol::windows::{AnyWindows, Cursor, Expiry, Hopping, OtherWindows, Terms, TermsError};
use eos_state::{Direction, DueItem, ExpiredRows, KeyRange, StoreBackend, StoreError, TaskStore};

use crate::rules;
use crate::store::{StoreSpec, TERMS, window_of, windows_between};

use closing::Closing;
pub(super) use rows::{RowStore, RowStores};

/// The id of no store.
const NO_STORE: StoreId = StoreId::from_be_bytes([0; 4]);

/// A windowed store of a stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windowed {
    id: StoreId,
    expiry: Expiry,
    /// The windows, if their results are emitted when they close.
    closing: Option<Hopping>,
}

impl Windowed {
    /// Returns the store's id and its expiry.
    pub(super) fn expiry(&self) -> (StoreId, Expiry) {
        (self.id, self.expiry)
    }

    /// Returns the windowed store, or `None` if the store has no windows.
    pub(super) fn of(store: &StoreSpec) -> Option<Self> {
        Some(Self {
            id: store.id,
            expiry: store.expiry?,
            closing: match store.windows {
                Some(AnyWindows::Fixed(windows)) if store.is_final => Some(windows),
                _ => None,
            },
        })
    }
}

/// The windowed stores of a task.
///
/// Each store has its [`Terms`] beside its windows, in the database and in the changelog. Every transaction that writes
/// to the changelog writes the terms, so a trim never removes the only copy. The first transaction on other terms also
/// writes them in any case, because the database then expires windows that were live for the program before.
#[derive(Debug, Default)]
pub(super) struct Windows {
    stores: Vec<(StoreId, Expiry)>,
    /// The stores whose results are emitted when their windows close.
    closings: Vec<Closing>,
    /// Whether the terms differ from the committed terms.
    changed: bool,
}

/// Returns whether every window in this database is over at this stream time, including the last one of each store. An
/// unreadable window counts as live, and so does a window with results that are still to be emitted.
pub(super) fn all_over(
    database: &dyn StoreBackend,
    stores: &[Windowed],
    stream_time: Option<Timestamp>,
) -> bool {
    stores.iter().all(|store| {
        let mut bytes = Vec::new();
        let terms = match database.get(store.id, TERMS, &mut bytes) {
            Ok(true) => Terms::decode(&bytes).ok(),
            _ => None,
        };
        let cursor = terms.as_ref().and_then(Terms::cursor);
        let cursor = cursor.filter(|_| store.closing.is_some());
        let last = database.scan(store.id, &KeyRange::all(), Direction::Reverse);
        let over = |key: &[u8]| {
            let emitted = |start| cursor.is_none_or(|cursor| cursor.includes(start, key_of(key)));
            window_of(key)
                .is_none_or(|start| store.expiry.is_expired(start, stream_time) && emitted(start))
        };
        last.is_ok_and(|last| last.entry().is_none_or(|(key, _)| over(key)))
    })
}

/// Returns the part of a row's key behind the start of the window.
fn key_of(row: &[u8]) -> &[u8] {
    row.get(8..).unwrap_or_default()
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
    /// The rows of another join.
    Join(OtherJoin),
    /// Final results follow updates, or the other way round.
    Results {
        was_final: bool,
    },
    Unreadable(TermsError),
    Failed(StoreError),
}

impl Windows {
    /// Continues the contents of these stores after a restore, at this committed stream time. All items of the index of
    /// due rows up to `handled` are handled.
    pub(super) fn of(
        store: &TaskStore,
        stores: Vec<Windowed>,
        stream_time: Option<Timestamp>,
        handled: Option<Timestamp>,
    ) -> Result<Self, (StoreId, Refused)> {
        let mut windows = Self::default();
        let mut found = Vec::new();
        let mut bytes = Vec::new();
        for Windowed {
            id,
            expiry,
            closing,
        } in stores
        {
            let failed = |e| (id, Refused::Failed(e));
            let there = store.get(id, TERMS, &mut bytes).map_err(failed)?;
            // Without terms, the store is empty, or an earlier version of this library wrote it.
            let terms = there.then(|| Terms::decode(&bytes)).transpose();
            let terms = terms.map_err(|e| (id, Refused::Unreadable(e)))?;
            let cursor = terms.as_ref().and_then(Terms::cursor);
            windows.changed |= terms.is_some() && cursor.is_some() != closing.is_some();
            if let Some(closing) = closing {
                let is_new = match terms {
                    Some(_) => false,
                    None => is_empty(store, id).map_err(failed)?,
                };
                // A program before emitted updates of the windows that are closed by now.
                let first = match (is_new, stream_time) {
                    (false, Some(time)) => Cursor::before(closing.first_open(time)),
                    _ => Cursor::BEGIN,
                };
                windows.closings.push(Closing::new(id, closing, first));
            }
            found.push(terms);
            windows.stores.push((id, expiry));
        }
        let handled = handled
            .map(|time| windows.handled_to(store, time))
            .transpose();
        let first = windows.closings.first().map_or(NO_STORE, Closing::id);
        let failed = |e| (first, Refused::Failed(e));
        let handled = handled.map_err(failed)?;
        for ((id, expiry), found) in windows.stores.iter_mut().zip(&found) {
            if let Some(found) = found {
                let changed = expiry.take_over_join(found, handled);
                windows.changed |= changed.map_err(|e| (*id, Refused::Join(e)))?;
                let changed = expiry.take_over(found, handled);
                windows.changed |= changed.map_err(|e| (*id, Refused::Other(e)))?;
                // The database may have dropped windows that a longer grace opens.
                let over = expiry.expired_before(handled);
                let its = windows
                    .closings
                    .iter_mut()
                    .find(|closing| closing.id() == *id);
                if let Some(closing) = its.filter(|_| found.cursor().is_none()) {
                    closing.begin_behind(over);
                }
            }
        }
        for closing in &windows.closings {
            let cursor = closing.cursor(store);
            let cursor = cursor.map_err(|e| (closing.id(), Refused::Failed(e)))?;
            let stores = windows.stores.iter_mut();
            for (_, expiry) in stores.filter(|(id, _)| *id == closing.id()) {
                expiry.close_before(cursor.closed_before());
            }
        }
        Ok(windows)
    }

    /// Returns the expiry of each store.
    pub(super) fn stores(&self) -> &[(StoreId, Expiry)] {
        &self.stores
    }

    /// Returns whether results are emitted when windows close.
    pub(super) fn has_final_results(&self) -> bool {
        !self.closings.is_empty()
    }

    /// Returns a moment before which no result is final.
    pub(super) fn next(&self) -> Timestamp {
        let next = self.closings.iter().map(Closing::next);
        next.min().unwrap_or(Timestamp(i64::MAX))
    }

    /// Returns the first final result that is not emitted yet at this stream time. `taken` is the stream time of the
    /// records, which is behind it if the inputs are idle.
    pub(super) fn next_final(
        &mut self,
        store: &TaskStore,
        stream_time: Timestamp,
        taken: Option<Timestamp>,
    ) -> Result<Option<DueItem>, StoreError> {
        // Only the store that may be the first one is read, because results of one store may change another one.
        let mut dry = Vec::new();
        loop {
            let closings = self.closings.iter_mut();
            let closings = closings.filter(|it| !dry.contains(&it.id()));
            let first = closings.min_by_key(|it| (it.next(), it.id().to_be_bytes()));
            let Some(first) = first.filter(|first| first.next() <= stream_time) else {
                return Ok(None);
            };
            let bound = first.next();
            first.look(store, stream_time, taken)?;
            match first.item() {
                Some(item) if first.next() == bound => return Ok(Some(item)),
                // Another store may be the first one now.
                Some(_) => {}
                None => dry.push(first.id()),
            }
        }
    }

    /// Forgets the rows that a due item of this store may change. The item sees this stream time.
    pub(super) fn forget_read_ahead(&mut self, id: StoreId, stream_time: Timestamp) {
        for closing in self.closings.iter_mut().filter(|it| it.id() != id) {
            closing.may_change(stream_time);
        }
    }

    /// Marks a final result as emitted, for the current record.
    pub(super) fn emitted(
        &mut self,
        store: &TaskStore,
        id: StoreId,
        row: &[u8],
    ) -> Result<(), StoreError> {
        let Some(start) = window_of(row) else {
            return Ok(());
        };
        let cursor = Cursor::at(start, key_of(row));
        if !rules::commits_cursor_with_results() {
            let mut closings = self.closings.iter_mut();
            if let Some(closing) = closings.find(|closing| closing.id() == id) {
                closing.move_to(cursor);
            }
            return Ok(());
        }
        let Some((_, expiry)) = self.stores.iter().find(|(store, _)| *store == id) else {
            return Ok(());
        };
        let terms = expiry.terms().with_cursor(Some(cursor));
        store.put(id, TERMS, &terms.encode())
    }

    /// Returns the last moment of stream time up to which all final results are emitted, at most this one. The writes of
    /// the current record do not count.
    pub(super) fn handled_to(
        &self,
        store: &TaskStore,
        stream_time: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        let mut handled = stream_time;
        if rules::keeps_windows_behind_cursor() {
            for closing in &self.closings {
                handled = handled.min(closing.handled_to(store, stream_time)?);
            }
        }
        Ok(handled)
    }

    /// Forgets the rows that were read in a discarded transaction.
    pub(super) fn discarded(&mut self) {
        for closing in &mut self.closings {
            closing.discarded();
        }
    }

    /// Adds the terms to the changes of the transaction at the end of intake, if necessary.
    pub(super) fn seal(&self, store: &mut TaskStore) -> Result<(), StoreError> {
        if self.changed || store.touched(Family::Windowed) {
            for (id, expiry) in &self.stores {
                let closing = self.closings.iter().find(|closing| closing.id() == *id);
                let cursor = closing.map(|closing| closing.cursor(store)).transpose()?;
                let terms = expiry.terms().with_cursor(cursor);
                store.put_beside(*id, TERMS, &terms.encode())?;
            }
        }
        Ok(())
    }

    /// Applies a committed transaction with this stream time, and its terms if it `wrote` to the changelog. Returns the
    /// rows that the database deletes.
    pub(super) fn committed(
        &mut self,
        wrote: bool,
        stream_time: Option<Timestamp>,
    ) -> Vec<ExpiredRows> {
        self.changed &= !wrote;
        let mut over = Vec::new();
        for (store, expiry) in &mut self.stores {
            let stream_time = match rules::forgets_closed_windows_only() {
                true => stream_time,
                false => after(stream_time, expiry.terms().size()),
            };
            if let Some((from, before)) = expiry.due(stream_time) {
                over.push(ExpiredRows {
                    store: *store,
                    range: windows_between(from, before),
                    // A table may have rows of several buckets, so the range begins at the first one. Only stores of ids have
                    // buckets, and no view reads them.
                    removable: (expiry.has_buckets()).then(|| windows_between(None, before)),
                });
                expiry.forgot(before);
            }
        }
        over
    }
}

/// Returns whether a store has no row.
fn is_empty(store: &TaskStore, id: StoreId) -> Result<bool, StoreError> {
    let mut rows = store.scan(id, &KeyRange::all(), Direction::Forward)?;
    Ok(rows.next()?.is_none())
}
