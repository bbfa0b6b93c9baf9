//! The due stores of a task, and the index over their items.
//!
//! Each item is a row with a moment. The index lists the items in the order of their [`Place`]s. It has the layers of a
//! store, but it is not in the changelog.
//!
//! **Lazy.** A later moment for a listed item leaves the index as it is. When the search reaches the entry, it lists the
//! item under the later moment. So an item that is put off a thousand times has one entry.
//!
//! **No entry without its item.** A write that moves or deletes an item deletes the item's old entry.

mod dated;
mod loaded;
mod next;
mod search;

use std::cell::{Cell, RefCell};

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Place, Round, Timestamp};

pub(super) use self::dated::Dated;
pub use self::dated::MomentOf;
use self::search::Search;
use super::TaskStore;
use crate::StoreError;
use crate::due::{self, INDEX_ID, MARK_KEY, Moments};
use crate::overlay::StoreKind;
use crate::range::Direction;

/// The number of loaded rows whose earlier versions are read at once.
const READ_AT_ONCE: usize = 256;

/// The shared state of the due stores.
#[derive(Debug, Default)]
pub(super) struct DueStores {
    /// The last handled place of each clock, after the first query.
    marks: RefCell<[Option<Option<Place>>; CLOCKS]>,
    /// The clocks of the stores.
    clocks: [bool; CLOCKS],
    /// A bound for each clock: no item is due before it.
    next: [Cell<Option<Timestamp>>; CLOCKS],
    /// The stores that are known to have a mark.
    marked: RefCell<Vec<StoreId>>,
    /// The number of items of each clock that were set since the last query.
    set: [Cell<u32>; CLOCKS],
    /// The search of each clock.
    searches: [RefCell<Search>; CLOCKS],
    /// Whether the index has lost the entries of handled rows since the last load.
    is_trimmed: bool,
    buffers: RefCell<Buffers>,
}

/// Memory for keys and rows.
#[derive(Debug, Default)]
struct Buffers {
    key: Vec<u8>,
    row: Vec<u8>,
    entry: Vec<u8>,
}

/// The next work of a clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextDue {
    /// No item is due.
    Nothing,
    /// An entry of the index was removed or moved, and the change is a write of the current record. Call `next_due`
    /// again.
    Moved,
    /// This item is due.
    Item(DueItem),
}

/// A due item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueItem {
    /// The clock of its store.
    pub clock: Clock,
    /// Its place in the index.
    pub place: Place,
    /// Its own moment, which is before the place's if the item was set into the past.
    pub due: Timestamp,
    /// Its value.
    pub value: Vec<u8>,
}

/// An item of a due store that a record or a due item has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetItem {
    /// Its store.
    pub store: StoreId,
    /// Its key.
    pub key: Vec<u8>,
    /// Its own moment.
    pub due: Timestamp,
}

/// The number of clocks.
const CLOCKS: usize = Clock::ALL.len();

const fn at(clock: Clock) -> usize {
    clock.number() as usize
}

impl TaskStore {
    /// Makes these stores due stores: each of their rows has a moment. Only the methods for due stores may read and
    /// write them.
    ///
    /// # Errors
    /// If a store is unknown.
    pub fn with_due(
        mut self,
        stores: impl IntoIterator<Item = (StoreId, Clock)>,
    ) -> Result<Self, StoreError> {
        for (store, clock) in stores {
            let slot = self.slot(store)?;
            self.slots[slot].clock = Some(clock);
            if self.due.is_none() {
                self.insert_reserved(0, INDEX_ID, StoreKind::Ordered);
                self.due = Some(DueStores::default());
            }
            if let Some(state) = &mut self.due {
                state.clocks[at(clock)] = true;
            }
        }
        Ok(self)
    }

    /// Reads an item of a due store. Returns its moment; `value` then holds its value, which is empty if the item is a row of
    /// another store.
    ///
    /// # Errors
    /// If the engine can't read, or the row is damaged.
    pub fn get_due(
        &self,
        store: StoreId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let (due, _) = self.due_store(store)?;
        if let Some(moment) = self.dated_moment(store, key, value)? {
            value.clear();
            return Ok(Some(moment));
        }
        let mut buffers = due.buffers.borrow_mut();
        due::row_key(&mut buffers.key, key);
        if !self.get(store, &buffers.key, value)? {
            return Ok(None);
        }
        let moments = self.moments(store, value)?;
        value.drain(..Moments::LEN);
        Ok(Some(moments.due))
    }

    /// Reads the moment that an item had before the current record. `None` if the record has written or deleted the item.
    ///
    /// # Errors
    /// As [`get_due`](Self::get_due).
    pub fn due_before_unit(
        &self,
        store: StoreId,
        key: &[u8],
    ) -> Result<Option<Timestamp>, StoreError> {
        let slot = self.slot(store)?;
        let mut full = Vec::new();
        due::row_key(&mut full, key);
        let scratch = self.scratch.borrow();
        let table = scratch.get(slot).filter(|table| !table.is_empty());
        if table.is_some_and(|table| table.number(self.hasher.hash(&full), &full).is_some()) {
            return Ok(None);
        }
        drop(scratch);
        self.get_due(store, key, &mut full)
    }

    /// Writes an item of a due store for the current record. `due` replaces the moment of an existing item. It is at
    /// most [`Place::LAST`].
    ///
    /// # Errors
    /// As [`put`](Self::put), and if the earlier row can't be read.
    pub fn put_due(
        &self,
        store: StoreId,
        key: &[u8],
        due: Timestamp,
        value: &[u8],
    ) -> Result<(), StoreError> {
        self.put_due_from(store, key, (due, due), value)
    }

    /// [`put_due`](Self::put_due) for the rest of a due item, such as the rest of background work.
    /// [`take_set`](Self::take_set) does not count this write, so that unfinished work takes no more turns than other work.
    ///
    /// # Errors
    /// As [`put_due`](Self::put_due).
    pub fn put_due_again(
        &self,
        store: StoreId,
        key: &[u8],
        due: Timestamp,
        value: &[u8],
    ) -> Result<(), StoreError> {
        self.put_due(store, key, due, value)?;
        let (state, clock) = self.due_store(store)?;
        let set = &state.set[at(clock)];
        set.set(set.get().saturating_sub(1));
        Ok(())
    }

    /// The same, for an item that may come no earlier than another moment. A unit that sets an item into the past passes
    /// its own time, so that the item sees no earlier time than the unit.
    ///
    /// # Errors
    /// As [`put_due`](Self::put_due).
    pub fn put_due_from(
        &self,
        store: StoreId,
        key: &[u8],
        (due, earliest): (Timestamp, Timestamp),
        value: &[u8],
    ) -> Result<(), StoreError> {
        let (state, clock) = self.due_store(store)?;
        let due = Round::of(due).moment();
        let earliest = due.max(Round::of(earliest).moment());
        let mark = self.mark(clock)?;
        let mut buffers = state.buffers.borrow_mut();
        let Buffers {
            key: full,
            row,
            entry,
        } = &mut *buffers;
        due::row_key(full, key);
        let before = self.listed(store, full, row)?;
        let listed = match before {
            // The search lists it again at its own moment.
            Some(listed) if due == earliest && listed <= Round::of(due) => listed,
            _ => {
                let mark = mark.as_ref();
                let mark = mark.filter(|_| self.defences.lists_behind_mark);
                Place::listed_at(earliest, store, key, mark)
            }
        };
        // The row first: if it is too large, the index must not change.
        Moments { due, listed }.encode(row, value);
        self.write(store, full, Some(row))?;
        let set = &state.set[at(clock)];
        set.set(set.get().saturating_add(1));
        self.note_clock(state, (store, clock), row)?;
        if before == Some(listed) {
            let next = &state.next[at(clock)];
            next.set(next.get().map(|bound| bound.min(due)));
            return Ok(());
        }
        let place = |round| Place {
            round,
            store,
            key: key.to_vec(),
        };
        if let Some(before) = before {
            self.unlist(clock, &place(before), entry);
        }
        self.list(clock, place(listed), entry);
        let next = &state.next[at(clock)];
        next.set(next.get().map(|bound| bound.min(due).min(listed.moment())));
        Ok(())
    }

    /// Writes the mark of a store that has none, so that the store has a clock.
    fn note_clock(
        &self,
        state: &DueStores,
        (store, clock): (StoreId, Clock),
        row: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if state.marked.borrow().contains(&store) {
            return Ok(());
        }
        if !self.get(store, MARK_KEY, row)? {
            self.write(store, MARK_KEY, Some(&due::encode_mark(clock, None)))?;
        }
        state.marked.borrow_mut().push(store);
        Ok(())
    }

    /// Deletes an item of a due store for the current record. Returns whether there was one.
    ///
    /// # Errors
    /// As [`put_due`](Self::put_due).
    pub fn delete_due(&self, store: StoreId, key: &[u8]) -> Result<bool, StoreError> {
        let (state, clock) = self.due_store(store)?;
        let mut buffers = state.buffers.borrow_mut();
        let Buffers {
            key: full,
            row,
            entry,
        } = &mut *buffers;
        due::row_key(full, key);
        let Some(listed) = self.listed(store, full, row)? else {
            return Ok(false);
        };
        self.write(store, full, None)?;
        let place = Place {
            round: listed,
            store,
            key: key.to_vec(),
        };
        self.unlist(clock, &place, entry);
        Ok(true)
    }

    /// Reads a row of a due store that has no moment, and so is no item. Returns whether there is one.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn get_undated(
        &self,
        store: StoreId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let (state, _) = self.due_store(store)?;
        let mut buffers = state.buffers.borrow_mut();
        due::undated_key(&mut buffers.key, key);
        self.get(store, &buffers.key, value)
    }

    /// Writes a row of a due store that has no moment, for the current record.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_undated(&self, store: StoreId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let (state, _) = self.due_store(store)?;
        let mut buffers = state.buffers.borrow_mut();
        due::undated_key(&mut buffers.key, key);
        self.write(store, &buffers.key, Some(value))
    }

    /// Writes a row of a due store that has no moment, for the transaction, even if the current record fails.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_undated_beside(
        &mut self,
        store: StoreId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        self.due_store(store)?;
        let mut full = Vec::new();
        due::undated_key(&mut full, key);
        self.put_beside(store, &full, value)
    }

    /// Returns the items of a clock that the current record has set and listed. An item that was listed before and is only
    /// put off is not among them.
    ///
    /// # Errors
    /// If a row is damaged.
    pub fn set_items(&self, clock: Clock) -> Result<Vec<SetItem>, StoreError> {
        let mut places = Vec::new();
        if self.due.is_some()
            && let Some(index) = self.scratch.borrow().first()
        {
            for number in index.numbers() {
                let (entry, value) = (index.key(number), index.value(number));
                if value.is_some() && due::is_of(entry, clock) {
                    places.extend(due::place_of(entry));
                }
            }
        }
        let (mut set, mut row) = (Vec::with_capacity(places.len()), Vec::new());
        for Place { store, key, .. } in places {
            if let Some(due) = self.get_due(store, &key, &mut row)? {
                set.push(SetItem { store, key, due });
            }
        }
        Ok(set)
    }

    /// Returns the number of times that an item of a clock was set since the last call, for dropped records too.
    #[must_use]
    pub fn take_set(&self, clock: Clock) -> u32 {
        let state = self.due.as_ref();
        state.map_or(0, |state| state.set[at(clock)].take())
    }

    /// Returns all places that the index of a clock lists, in order, for tests.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn listed_places(&self, clock: Clock) -> Result<Vec<Place>, StoreError> {
        let mut places = Vec::new();
        if self.due.is_some() {
            let mut scan = self.scan_slot(0, &due::behind(clock, None), Direction::Forward)?;
            while let Some((entry, _)) = scan.next()? {
                places.extend(due::place_of(entry));
            }
        }
        Ok(places)
    }

    /// Drops the data that was read from changed layers.
    pub(super) fn forget_due(&mut self) {
        if let Some(state) = &mut self.due {
            state.searches = Default::default();
        }
        self.forget_marks();
    }

    /// Drops the data that was read from the writes of a dropped record. Only the entries that the record has deleted come
    /// back, so the searches continue there. From the front, they would scan the deleted entries of all handled items.
    pub(super) fn forget_due_of_record(&mut self) {
        let Some(state) = &mut self.due else {
            return;
        };
        for search in &mut state.searches {
            search.get_mut().forget_ahead();
        }
        if let Some(index) = self.scratch.get_mut().first() {
            for number in index.numbers().filter(|it| index.value(*it).is_none()) {
                let entry = index.key(number);
                let place = due::place_of(entry);
                let clock = Clock::ALL.iter().find(|clock| due::is_of(entry, **clock));
                if let (Some(place), Some(clock)) = (place, clock) {
                    state.searches[at(*clock)].get_mut().list(place);
                }
            }
        }
        self.forget_marks();
    }

    fn forget_marks(&mut self) {
        let forgets = self.defences.forgets_next_due;
        if let Some(state) = &mut self.due {
            state.marked.get_mut().clear();
            *state.marks.get_mut() = [const { None }; CLOCKS];
            if forgets {
                state.next = [const { Cell::new(None) }; CLOCKS];
            }
        }
    }

    fn due_store(&self, store: StoreId) -> Result<(&DueStores, Clock), StoreError> {
        let slot = self.slot(store)?;
        let unknown = StoreError::UnknownStore { store };
        match (&self.due, self.slots.get(slot).and_then(|slot| slot.clock)) {
            (Some(state), Some(clock)) => Ok((state, clock)),
            _ => Err(unknown),
        }
    }

    /// Returns the moment under which the index lists a row.
    fn listed(
        &self,
        store: StoreId,
        full: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Option<Round>, StoreError> {
        if !self.get(store, full, row)? {
            return Ok(None);
        }
        Ok(Some(self.moments(store, row)?.listed))
    }

    /// Adds an entry to the index.
    fn list(&self, clock: Clock, place: Place, entry: &mut Vec<u8>) {
        due::index_key(entry, clock, place.round, place.store, &place.key);
        self.write_index(entry, Some(&[]));
        if let Some(state) = &self.due {
            state.searches[at(clock)].borrow_mut().list(place);
        }
    }

    /// Deletes an entry of the index.
    fn unlist(&self, clock: Clock, place: &Place, entry: &mut Vec<u8>) {
        due::index_key(entry, clock, place.round, place.store, &place.key);
        self.write_index(entry, None);
        if let Some(state) = &self.due {
            state.searches[at(clock)].borrow_mut().unlist(place);
        }
    }

    fn moments(&self, store: StoreId, row: &[u8]) -> Result<Moments, StoreError> {
        self.poisoning(Moments::decode(row).ok_or(StoreError::DueRow {
            store,
            found: "the row is cut short",
        }))
    }

    fn write_index(&self, entry: &[u8], value: Option<&[u8]>) {
        let hash = self.hasher.hash(entry);
        if let Some(table) = self.scratch.borrow_mut().first_mut() {
            table.write(hash, entry, value);
        }
    }
}

#[cfg(test)]
#[path = "due_test.rs"]
mod tests;
