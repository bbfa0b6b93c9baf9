//! The next due item, and how far the items are handled.

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Place, Round, Timestamp};

use super::search::From;
use super::{Buffers, DueItem, DueStores, NextDue, at};
use crate::StoreError;
use crate::due::{self, MARK_KEY, Moments};
use crate::overlay::Table;
use crate::range::Direction;
use crate::task_store::TaskStore;

/// The most items that a search for an item of one store visits.
const MOST_VISITED: u32 = 1_000;

impl TaskStore {
    /// Returns whether the task has due stores.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.due.is_some()
    }

    /// Returns whether the task has due stores of this clock.
    #[must_use]
    pub fn has_due_of(&self, clock: Clock) -> bool {
        self.due
            .as_ref()
            .is_some_and(|state| state.clocks[at(clock)])
    }

    /// Returns whether an item of this clock may be due at this moment. It compares two numbers in most cases.
    #[must_use]
    pub fn may_be_due(&self, clock: Clock, now: Timestamp) -> bool {
        let bound = self.due.as_ref().map(|state| state.next[at(clock)].get());
        bound.is_some_and(|bound| bound.is_none_or(|bound| bound <= now))
    }

    /// Returns a moment before which no item of this clock is due. `None` if it is unknown.
    #[must_use]
    pub fn next_due_at(&self, clock: Clock) -> Option<Timestamp> {
        self.due.as_ref()?.next[at(clock)].get()
    }

    /// Returns the last moment up to which all items of this clock are handled, at most `now`. The writes of the current
    /// record do not count: it may still be dropped.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn handled_to(&self, clock: Clock, now: Timestamp) -> Result<Timestamp, StoreError> {
        let mut first = None;
        self.visit_places(clock, now, |place| {
            first = Some(place.moment());
            false
        })?;
        let before = |moment: Timestamp| Timestamp(moment.0.saturating_sub(1));
        Ok(first.map_or(now, before).min(now))
    }

    /// Returns whether a store has an unhandled item of this clock up to `now`. The writes of the current record do not
    /// count. It also returns true if more than 1,000 items of other stores come first.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn has_due_item(
        &self,
        store: StoreId,
        clock: Clock,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (mut found, mut visited) = (false, 0);
        self.visit_places(clock, now, |place| {
            visited += 1;
            let is_over = place.moment() > now;
            found = !is_over && (place.store == store || visited > MOST_VISITED);
            !is_over && !found
        })?;
        Ok(found)
    }

    /// Visits the listed places of a clock in order, while `visit` returns true. Visits no place if no item is due at
    /// `now`.
    fn visit_places(
        &self,
        clock: Clock,
        now: Timestamp,
        mut visit: impl FnMut(Place) -> bool,
    ) -> Result<(), StoreError> {
        let Some(state) = (self.due.as_ref()).filter(|_| self.may_be_due(clock, now)) else {
            return Ok(());
        };
        self.healthy()?;
        let range = match state.searches[at(clock)].borrow().from() {
            From::At(place) => due::from(clock, place),
            From::Mark => due::behind(clock, self.passed(clock)?.as_ref()),
            From::End => return Ok(()),
        };
        let mut scan = self.scan_below(0, &Table::new(), &range, Direction::Forward)?;
        while let Some((entry, _)) = scan.next()? {
            if due::place_of(entry).is_some_and(|place| !visit(place)) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first place that the index lists. The next search begins there.
    fn first_place(&self, clock: Clock, state: &DueStores) -> Result<Option<Place>, StoreError> {
        self.healthy()?;
        let mut search = state.searches[at(clock)].borrow_mut();
        if search.needs_scan() {
            let range = match search.from() {
                From::At(place) => due::from(clock, place),
                From::Mark => due::behind(clock, self.mark(clock)?.as_ref()),
                From::End => return Ok(None),
            };
            let mut scan = self.scan_slot(0, &range, Direction::Forward)?;
            search.read(|| -> Result<_, StoreError> {
                let next = scan.next()?;
                Ok(next.and_then(|(entry, _)| due::place_of(entry)))
            })?;
        }
        let first = search.first();
        let moment = first.as_ref().map_or(Timestamp(i64::MAX), Place::moment);
        state.next[at(clock)].set(Some(moment));
        Ok(first)
    }

    /// Returns the first item of a clock that is due at this moment. It changes no item.
    ///
    /// # Errors
    /// If the engine can't read, or a row is damaged.
    pub fn next_due(&self, clock: Clock, now: Timestamp) -> Result<NextDue, StoreError> {
        let Some(state) = self.due.as_ref().filter(|_| self.may_be_due(clock, now)) else {
            return Ok(NextDue::Nothing);
        };
        let Some(place) = self.first_place(clock, state)? else {
            return Ok(NextDue::Nothing);
        };
        let mut buffers = state.buffers.borrow_mut();
        let Buffers {
            key: full,
            row,
            entry,
        } = &mut *buffers;
        if let Some(moment) = self.dated_moment(place.store, &place.key, row)?
            && Round::of(moment) == place.round
        {
            state.next[at(clock)].set(Some(moment));
            return Ok(match moment > now {
                true => NextDue::Nothing,
                false => NextDue::Item(DueItem {
                    clock,
                    place,
                    due: moment,
                    value: Vec::new(),
                }),
            });
        }
        due::row_key(full, &place.key);
        let found = match self.get(place.store, full, row)? {
            true => Some(self.moments(place.store, row)?),
            false => None,
        };
        let Some(found) = found.filter(|found| found.listed == place.round) else {
            self.unlist(clock, &place, entry);
            return Ok(NextDue::Moved);
        };
        // An item that was set into the past is due by its own moment, and its place may be in a later millisecond.
        let moment = found.due.min(place.moment());
        state.next[at(clock)].set(Some(moment));
        if moment > now {
            return Ok(NextDue::Nothing);
        }
        let value = row.get(Moments::LEN..).unwrap_or_default().to_vec();
        if found.due > place.moment() {
            let (due, listed) = (found.due, Round::of(found.due));
            Moments { due, listed }.encode(row, &value);
            self.write(place.store, full, Some(row))?;
            self.unlist(clock, &place, entry);
            let round = listed;
            self.list(clock, Place { round, ..place }, entry);
            return Ok(NextDue::Moved);
        }
        Ok(NextDue::Item(DueItem {
            clock,
            place,
            due: found.due,
            value,
        }))
    }

    /// Marks the place of a due item as handled, for the current record. Deletes the item, or only its entry of the index if the
    /// item is a row of another store.
    ///
    /// # Errors
    /// As [`put_due`](Self::put_due).
    pub fn handle_due(&self, item: &DueItem) -> Result<(), StoreError> {
        let Place { round, store, key } = &item.place;
        let Some(state) = &self.due else {
            return Ok(());
        };
        if !self.defences.removes_handled {
            // In memory only.
            state.searches[at(item.clock)]
                .borrow_mut()
                .skip(&item.place);
            return Ok(());
        }
        let mut buffers = state.buffers.borrow_mut();
        let is_row = self.dated_moment(*store, key, &mut buffers.row)? == Some(item.due);
        match is_row {
            true => self.unlist(item.clock, &item.place, &mut buffers.entry),
            false => {
                drop(buffers);
                self.delete_due(*store, key)?;
            }
        }
        if item.clock == Clock::Stream {
            let mark = due::encode_mark(item.clock, Some((*round, key)));
            self.write(*store, MARK_KEY, Some(&mark))?;
            state.marks.borrow_mut()[at(item.clock)] = Some(Some(item.place.clone()));
        }
        Ok(())
    }

    /// Returns the last handled place of a clock: the last one of all marks. The machine's clock has none, because it
    /// may be set back.
    ///
    /// # Errors
    /// If a mark can't be read, or belongs to another clock.
    pub fn mark(&self, clock: Clock) -> Result<Option<Place>, StoreError> {
        let Some(state) = &self.due else {
            return Ok(None);
        };
        if let Some(mark) = &state.marks.borrow()[at(clock)] {
            return Ok(mark.clone());
        }
        let last = self.read_mark(clock, |store, mark| self.get(store, MARK_KEY, mark))?;
        state.marks.borrow_mut()[at(clock)] = Some(last.clone());
        Ok(last)
    }

    /// The same, without the writes of the current record.
    pub(super) fn kept_mark(&self, clock: Clock) -> Result<Option<Place>, StoreError> {
        self.read_mark(clock, |store, mark| self.get_kept(store, MARK_KEY, mark))
    }

    /// Returns the last one of all marks of a clock.
    fn read_mark(
        &self,
        clock: Clock,
        get: impl Fn(StoreId, &mut Vec<u8>) -> Result<bool, StoreError>,
    ) -> Result<Option<Place>, StoreError> {
        let (mut last, mut bytes) = (None, Vec::new());
        for slot in self
            .stores()
            .iter()
            .filter(|slot| slot.clock == Some(clock))
        {
            if !get(slot.id, &mut bytes)? {
                continue;
            }
            let unreadable = |found| StoreError::DueRow {
                store: slot.id,
                found,
            };
            let mark = due::decode_mark(slot.id, &bytes).map_err(unreadable);
            let (of, place) = self.poisoning(mark)?;
            if of != clock {
                return Err(StoreError::OtherClock { store: slot.id });
            }
            last = last.max(place);
        }
        Ok(last)
    }
}
