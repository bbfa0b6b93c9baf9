//! Items that are rows of another store.
//!
//! The rows of a store may have their moments in themselves. The items of its due store are these rows, without rows of their
//! own: a write of the row sets the moment, and the visit of an item writes nothing. The row keeps its moment, and the mark
//! shows that the visit has begun.
//!
//! A restore lists the rows that it loads, including those whose visits have begun, because the mark may come last. No search
//! reads these entries, because all searches begin behind the mark. The next transaction deletes them as one range.

use std::sync::Arc;

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Place, Round, Timestamp};

use super::{Buffers, at};
use crate::StoreError;
use crate::due::{self, INDEX_ID};
use crate::expired::ExpiredRows;
use crate::task_store::TaskStore;

/// Returns the moment of a row from its key and its value, or a description of a row that can't be read.
pub type MomentOf = fn(&[u8], &[u8]) -> Result<Option<Timestamp>, String>;

/// A store with rows that have moments.
#[derive(Debug, Clone)]
pub(in crate::task_store) struct Dated {
    pub(super) rows: StoreId,
    name: Arc<str>,
    moment: MomentOf,
}

impl TaskStore {
    /// Makes the rows of a store with this name the items of a due store by stream time. The due store may also have items of its
    /// own.
    ///
    /// # Errors
    /// If a store is unknown, or `items` is not a due store by stream time.
    pub fn with_dated(
        mut self,
        items: StoreId,
        (rows, name): (StoreId, &Arc<str>),
        moment: MomentOf,
    ) -> Result<Self, StoreError> {
        self.slot(rows)?;
        let slot = self.slot(items)?;
        let is_by_stream_time = self.slots[slot].clock == Some(Clock::Stream);
        if !is_by_stream_time {
            return Err(StoreError::OtherClock { store: items });
        }
        let name = Arc::clone(name);
        self.slots[slot].dated = Some(Dated { rows, name, moment });
        Ok(self)
    }

    /// Writes a row for the current record. If the row has a moment, it is an item. `planned` is the moment of the previous row,
    /// if [`has_visited`](Self::has_visited) returns false for it. It must also return false for the new moment, because no
    /// search finds an item at or before the mark.
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the store has no such rows, or can't read this one.
    pub fn put_dated(
        &self,
        items: StoreId,
        key: &[u8],
        value: &[u8],
        planned: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let (state, clock) = self.due_store(items)?;
        let dated = self.dated(items)?;
        let due = self.moment_of(dated, key, value)?;
        self.write(dated.rows, key, Some(value))?;
        if due == planned {
            return Ok(());
        }
        let mut buffers = state.buffers.borrow_mut();
        let Buffers { row, entry, .. } = &mut *buffers;
        let place = |due| Place {
            round: Round::of(due),
            store: items,
            key: key.to_vec(),
        };
        if let Some(planned) = planned {
            self.unlist(clock, &place(planned), entry);
        }
        let Some(due) = due else {
            return Ok(());
        };
        self.note_clock(state, (items, clock), row)?;
        self.list(clock, place(due), entry);
        let set = &state.set[at(clock)];
        set.set(set.get().saturating_add(1));
        let next = &state.next[at(clock)];
        next.set(next.get().map(|bound| bound.min(due)));
        Ok(())
    }

    /// Returns whether the last handled item is that of this key at this moment, or a later one.
    ///
    /// # Errors
    /// If the mark can't be read.
    pub fn has_visited(
        &self,
        items: StoreId,
        key: &[u8],
        moment: Timestamp,
    ) -> Result<bool, StoreError> {
        let (state, clock) = self.due_store(items)?;
        let is_over = |mark: &Option<Place>| {
            let mark = mark.as_ref();
            mark.is_some_and(|mark| {
                (Round::of(moment), items, key) <= (mark.round, mark.store, mark.key.as_slice())
            })
        };
        if let Some(mark) = &state.marks.borrow()[at(clock)] {
            return Ok(is_over(mark));
        }
        Ok(is_over(&self.mark(clock)?))
    }

    fn dated(&self, items: StoreId) -> Result<&Dated, StoreError> {
        let slot = self.slot(items)?;
        let dated = self.slots.get(slot).and_then(|slot| slot.dated.as_ref());
        dated.ok_or(StoreError::UnknownStore { store: items })
    }

    /// Returns the moment of a row. Fails all further calls if the row can't be read: its visit would be missing.
    pub(super) fn moment_of(
        &self,
        dated: &Dated,
        key: &[u8],
        row: &[u8],
    ) -> Result<Option<Timestamp>, StoreError> {
        (dated.moment)(key, row).map_err(|found| self.unreadable(&dated.name, found))
    }

    /// Returns the moment of the row that is an item, if its visit has not begun. `row` then holds the row.
    pub(super) fn dated_moment(
        &self,
        items: StoreId,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let slot = self.slot(items)?;
        let Some(dated) = self.slots.get(slot).and_then(|slot| slot.dated.as_ref()) else {
            return Ok(None);
        };
        if !self.get(dated.rows, key, row)? {
            return Ok(None);
        }
        match self.moment_of(dated, key, row)? {
            Some(moment) if !self.has_visited(items, key, moment)? => Ok(Some(moment)),
            _ => Ok(None),
        }
    }

    /// Returns the mark up to which the index may have entries of handled rows.
    pub(super) fn passed(&self, clock: Clock) -> Result<Option<Place>, StoreError> {
        let has_dated = self.stores().iter().any(|slot| slot.dated.is_some());
        match has_dated && clock == Clock::Stream {
            true => self.kept_mark(clock),
            false => Ok(None),
        }
    }

    /// Returns the entries of the index whose items the transaction's last mark has passed, once after each load. Crashes may
    /// have left some in the database, so also once for each opened one.
    pub(in crate::task_store) fn passed_entries(
        &mut self,
    ) -> Result<Option<ExpiredRows>, StoreError> {
        let Some(state) = &mut self.due else {
            return Ok(None);
        };
        if std::mem::replace(&mut state.is_trimmed, true) {
            return Ok(None);
        }
        let mark = self.passed(Clock::Stream)?;
        let passed = mark.map(|mark| due::up_to(Clock::Stream, &mark));
        Ok(passed.map(|range| ExpiredRows::new(INDEX_ID, range)))
    }
}
