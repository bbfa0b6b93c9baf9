//! The rules of a join: the effect of a record, and results without a partner.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::keys::{entry_key, head_key};
use super::row::{Entry, JoinRow, JoinRowError};
use super::spread::{SpreadEntry, Stored};
use super::{JoinTerms, Side};
use crate::ids::Timestamp;

/// A row that is longer than this is spread, in bytes.
const SPREAD_ABOVE: usize = 4096;
/// The number of records that the search for the next record alone reads at most. Then it continues at a later moment.
const LOOK_AHEAD: usize = 256;

/// Receives the key and the value of a row, and ends the scan with a break.
pub type EachRow<'e> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'e;

/// A record of a spread row, with the key of its own row.
type Spread = (Vec<u8>, SpreadEntry);

/// The rows of a join in a store.
pub trait JoinStorage {
    /// The error of the store.
    type Error;

    /// Reads a row. Returns whether there is one; `into` then holds it.
    ///
    /// # Errors
    /// If the store can't read.
    fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, Self::Error>;

    /// Writes the row of a single record.
    ///
    /// # Errors
    /// If the store can't write.
    fn put(&self, key: &[u8], row: &[u8]) -> Result<(), Self::Error>;

    /// Writes a row, which is visited at its [moment](JoinRow::moment), if it has one. `planned` is the moment of the previous row,
    /// if that visit has not begun.
    ///
    /// # Errors
    /// If the store can't write.
    fn put_dated(
        &self,
        key: &[u8],
        row: &[u8],
        planned: Option<Timestamp>,
    ) -> Result<(), Self::Error>;

    /// Returns whether the last visit that has begun is that of this row at this moment, or a later one. So a row
    /// without an item can't be visited at this moment again.
    ///
    /// # Errors
    /// If the store can't read.
    fn has_visited(&self, key: &[u8], moment: Timestamp) -> Result<bool, Self::Error>;

    /// Writes an item with the moment of a row.
    ///
    /// # Errors
    /// If the store can't write.
    fn put_item(&self, key: &[u8], moment: Timestamp) -> Result<(), Self::Error>;

    /// Deletes the item with the moment of a row. The item of the visit that runs may be deleted already.
    ///
    /// # Errors
    /// If the store can't write.
    fn delete_item(&self, key: &[u8]) -> Result<(), Self::Error>;

    /// Calls `each` with the rows from one key to another one, both included, in order, until it breaks.
    ///
    /// # Errors
    /// If the store can't read.
    fn scan(&self, from: &[u8], to: &[u8], each: &mut EachRow<'_>) -> Result<(), Self::Error>;
}

/// An error of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinError<E> {
    /// The store failed.
    Storage(E),
    /// A row can't be read.
    Row(JoinRowError),
}

impl<E> From<JoinRowError> for JoinError<E> {
    fn from(error: JoinRowError) -> Self {
        Self::Row(error)
    }
}

/// An arriving record.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Its side.
    pub side: Side,
    /// Its time, which is not negative.
    pub time: Timestamp,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The result of a record's arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// It was already closed. It is not stored.
    Late,
    /// It is stored.
    Taken {
        /// The open records of the other side that belong to it, in the order of time and arrival.
        partners: Vec<Stored>,
        /// The number of closed records of the other side that would belong to it. It has no pair with them.
        missed: u64,
    },
}

/// The rules of one join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joining {
    terms: JoinTerms,
    spread_above: usize,
    pairs_closed: bool,
    visits_once: bool,
    forgets_visits: bool,
}

/// The records of a spread row that a reader wants.
#[derive(Clone, Copy)]
enum Wanted<'w> {
    /// Those of times that are open. The others are counted.
    Open(&'w dyn Fn(Timestamp) -> bool),
    /// Those that have not met a partner.
    Unmet,
    /// The first one that has not met a partner, or the one at which the search ends for now.
    Next,
}

/// A row, and its change.
struct Head<'a> {
    start: Timestamp,
    key: &'a [u8],
    row: JoinRow<'a>,
    visit: Visit,
    is_changed: bool,
}

/// The visit of a row that an earlier record has planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    None,
    /// By the moment of the row.
    At(Timestamp),
    /// By an item with the key of the row.
    OfItem,
}

impl Joining {
    /// The rules of a join with these terms.
    #[must_use]
    pub fn new(terms: JoinTerms) -> Self {
        Self {
            terms,
            spread_above: SPREAD_ABOVE,
            pairs_closed: false,
            visits_once: false,
            forgets_visits: false,
        }
    }

    /// The same, with rows that are spread above another length, in bytes.
    #[must_use]
    pub fn spreading_above(self, bytes: usize) -> Self {
        Self {
            spread_above: bytes,
            ..self
        }
    }

    /// The same without a rule: closed records find partners as long as they are stored. The simulation must detect the
    /// violation.
    #[doc(hidden)]
    #[must_use]
    pub fn pairing_closed(self, pairs_closed: bool) -> Self {
        Self {
            pairs_closed,
            ..self
        }
    }

    /// The same without a rule: a visit of a row does not schedule the next one. The simulation must detect the violation.
    #[doc(hidden)]
    #[must_use]
    pub fn visiting_once(self, visits_once: bool) -> Self {
        Self {
            visits_once,
            ..self
        }
    }

    /// The same without a rule: a row does not note that its last visit has decided its records. The simulation must detect the
    /// violation.
    #[doc(hidden)]
    #[must_use]
    pub fn forgetting_visits(self, forgets_visits: bool) -> Self {
        Self {
            forgets_visits,
            ..self
        }
    }

    /// The terms of the join.
    #[must_use]
    pub fn terms(&self) -> &JoinTerms {
        &self.terms
    }

    /// Stores a record, and finds its partners. `stream_time` includes the record. No record arrives after this one at an
    /// earlier stream time than `handled_to`, if that is known.
    ///
    /// # Errors
    /// [`JoinError`] if the store fails, or a row can't be read.
    pub fn arrive<S: JoinStorage>(
        &self,
        store: &S,
        record: Arrival<'_>,
        stream_time: Timestamp,
        handled_to: Option<Timestamp>,
    ) -> Result<Arrived, JoinError<S::Error>> {
        let Arrival { side, time, .. } = record;
        if self.terms.is_closed(side, time, stream_time) {
            return Ok(Arrived::Late);
        }
        let within = self.terms.within();
        let range = within.range(side, time);
        let mut rows = Vec::with_capacity(2);
        for start in within.rows(range) {
            let (key, mut bytes) = (head_key(start, record.key), Vec::new());
            let there = store.get(&key, &mut bytes).map_err(JoinError::Storage)?;
            rows.push((start, key, there.then_some(bytes)));
        }
        let mut heads = Vec::with_capacity(2);
        for (start, key, bytes) in &rows {
            let mut row = match bytes {
                Some(bytes) => JoinRow::decode(bytes)?,
                None => JoinRow::default(),
            };
            let visit = Self::planned(store, key, &row)?;
            if visit == Visit::None && row.due.take().is_some() && !self.forgets_visits {
                row.decide_all(self.terms.kind());
            }
            heads.push(Head {
                start: *start,
                key,
                row,
                visit,
                is_changed: false,
            });
        }
        let (mut partners, mut missed) = (Vec::new(), 0);
        for head in &mut heads {
            missed += self.meet(
                store,
                head,
                (side.other(), range),
                stream_time,
                &mut partners,
            )?;
        }
        let own = within.row_of(time);
        if let Some(head) = heads.iter_mut().find(|head| head.start == own) {
            let handled_to = handled_to.map(|handled_to| handled_to.min(stream_time));
            self.keep(store, head, record, (!partners.is_empty(), handled_to))?;
        }
        for head in heads.iter_mut().filter(|head| head.is_changed) {
            Self::write(store, head.key, &mut head.row, head.visit)?;
        }
        Ok(Arrived::Taken { partners, missed })
    }

    /// Returns the planned visit of a row.
    fn planned<S: JoinStorage>(
        store: &S,
        key: &[u8],
        row: &JoinRow<'_>,
    ) -> Result<Visit, JoinError<S::Error>> {
        let Some(due) = row.due else {
            return Ok(Visit::None);
        };
        if row.has_item {
            return Ok(Visit::OfItem);
        }
        let is_over = store.has_visited(key, due);
        Ok(match is_over.map_err(JoinError::Storage)? {
            true => Visit::None,
            false => Visit::At(due),
        })
    }

    /// Finds the open records of a row that belong to the arriving one, and marks them. Returns the number of closed ones.
    fn meet<S: JoinStorage>(
        &self,
        store: &S,
        head: &mut Head<'_>,
        (side, (from, to)): (Side, (Timestamp, Timestamp)),
        stream_time: Timestamp,
        partners: &mut Vec<Stored>,
    ) -> Result<u64, JoinError<S::Error>> {
        let marks = self.terms.kind().emits_alone(side);
        let is_open = |time| self.pairs_closed || !self.terms.is_closed(side, time, stream_time);
        let mut missed = 0;
        if head.row.is_spread {
            let range = (
                entry_key(head.key, side, from, 0),
                entry_key(head.key, side, to, u64::MAX),
            );
            let (open, closed) =
                self.spread(store, head.key.len(), &range, Wanted::Open(&is_open))?;
            for (key, entry) in open {
                if marks && !entry.met {
                    let row = SpreadEntry::encode(true, &entry.stored.value);
                    store.put(&key, &row).map_err(JoinError::Storage)?;
                }
                partners.push(entry.stored);
            }
            return Ok(closed);
        }
        let its =
            |entry: &&mut Entry<'_>| entry.side == side && from <= entry.time && entry.time <= to;
        for entry in head.row.entries.iter_mut().filter(its) {
            if !is_open(entry.time) {
                missed += 1;
                continue;
            }
            if marks && !entry.met {
                entry.met = true;
                head.is_changed = true;
            }
            partners.push(Stored {
                side,
                time: entry.time,
                value: entry.value.to_vec(),
            });
        }
        Ok(missed)
    }

    /// Adds the arriving record to its row.
    fn keep<'a, S: JoinStorage>(
        &self,
        store: &S,
        head: &mut Head<'a>,
        record: Arrival<'a>,
        (met, handled_to): (bool, Option<Timestamp>),
    ) -> Result<(), JoinError<S::Error>> {
        let Arrival { side, time, .. } = record;
        let row = &mut head.row;
        head.is_changed = true;
        if !met && self.terms.kind().emits_alone(side) {
            let due = self.terms.within().closes_at(side, time);
            if let (None, Some(handled_to)) = (row.due, handled_to) {
                // No record waits, so the closed ones have met their partners, and no other one arrives open at these
                // times. The visit does not read them again.
                row.handle_to(side, self.terms.within().last_closed(side, handled_to));
            }
            row.due = Some(row.due.map_or(due, |before| before.min(due)));
        }
        row.insert(Entry {
            side,
            time,
            met,
            value: Cow::Borrowed(record.value),
        });
        if row.is_spread || row.encoded_len() > self.spread_above {
            row.is_spread = true;
            for entry in std::mem::take(&mut row.entries) {
                let key = entry_key(head.key, entry.side, entry.time, row.arrivals);
                row.arrivals = row.arrivals.saturating_add(1);
                let value = SpreadEntry::encode(entry.met, &entry.value);
                store.put(&key, &value).map_err(JoinError::Storage)?;
            }
        }
        Ok(())
    }

    /// Takes the records of a row that go out alone at this moment, in the order of their times. Sets the next moment at
    /// which the row is visited. If there is none, the row stays as it is unless it is spread:
    /// [`has_visited`](JoinStorage::has_visited) shows that its moment is over.
    ///
    /// # Errors
    /// [`JoinError`] if the store fails, or a row can't be read.
    pub fn take_alone<S: JoinStorage>(
        &self,
        store: &S,
        key: &[u8],
        moment: Timestamp,
    ) -> Result<Vec<Stored>, JoinError<S::Error>> {
        let mut bytes = Vec::new();
        if !store.get(key, &mut bytes).map_err(JoinError::Storage)? {
            return Ok(Vec::new());
        }
        let mut row = JoinRow::decode(&bytes)?;
        let visit = Self::planned(store, key, &row)?;
        let mut alone = Vec::new();
        let kind = self.terms.kind();
        for side in Side::ALL.into_iter().filter(|side| kind.emits_alone(*side)) {
            let to = self.terms.within().last_closed(side, moment);
            let from = Timestamp(row.handled(side).0.saturating_add(1));
            if from <= to {
                self.unmet(store, (key, &row), (side, from, to), &mut alone)?;
            }
            row.handle_to(side, to);
        }
        alone.sort_by_key(|stored| (stored.time, stored.side));
        let next = match row.is_spread {
            true => self.next_spread(store, key, &row)?,
            false => row.next_alone(self.terms()),
        };
        row.due = next.filter(|_| !self.visits_once);
        if row.due.is_some() || row.is_spread || visit != Visit::None {
            Self::write(store, key, &mut row, visit)?;
        }
        Ok(alone)
    }

    /// Adds the records of a stretch of a row without a pair.
    fn unmet<S: JoinStorage>(
        &self,
        store: &S,
        (key, row): (&[u8], &JoinRow<'_>),
        (side, from, to): (Side, Timestamp, Timestamp),
        alone: &mut Vec<Stored>,
    ) -> Result<(), JoinError<S::Error>> {
        if row.is_spread {
            let range = (
                entry_key(key, side, from, 0),
                entry_key(key, side, to, u64::MAX),
            );
            let (entries, _) = self.spread(store, key.len(), &range, Wanted::Unmet)?;
            alone.extend(entries.into_iter().map(|(_, entry)| entry.stored));
            return Ok(());
        }
        let its = |entry: &&Entry<'_>| {
            entry.side == side && !entry.met && from <= entry.time && entry.time <= to
        };
        let unmet = row.entries.iter().filter(its);
        alone.extend(unmet.map(|entry| Stored {
            side,
            time: entry.time,
            value: entry.value.to_vec(),
        }));
        Ok(())
    }

    /// The moment at which a record of a spread row may go out alone. A search over many records that have met their
    /// partners continues at the moment of the last one.
    fn next_spread<S: JoinStorage>(
        &self,
        store: &S,
        key: &[u8],
        row: &JoinRow<'_>,
    ) -> Result<Option<Timestamp>, JoinError<S::Error>> {
        let mut next: Option<Timestamp> = None;
        let kind = self.terms.kind();
        for side in Side::ALL.into_iter().filter(|side| kind.emits_alone(*side)) {
            let from = Timestamp(row.handled(side).0.saturating_add(1));
            let range = (
                entry_key(key, side, from, 0),
                entry_key(key, side, Timestamp(i64::MAX), u64::MAX),
            );
            let (entries, _) = self.spread(store, key.len(), &range, Wanted::Next)?;
            if let Some((_, last)) = entries.last() {
                let due = self.terms.within().closes_at(side, last.stored.time);
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        Ok(next)
    }

    /// Reads records of a spread row, with their keys. Decodes and copies only those that are wanted. Returns the number of
    /// closed ones, too.
    fn spread<S: JoinStorage>(
        &self,
        store: &S,
        head: usize,
        (from, to): &(Vec<u8>, Vec<u8>),
        wanted: Wanted<'_>,
    ) -> Result<(Vec<Spread>, u64), JoinError<S::Error>> {
        let (mut found, mut count): (Vec<Spread>, usize) = (Vec::new(), 0);
        let (mut failed, mut closed) = (None, 0);
        let read = store.scan(from, to, &mut |key, row| {
            count += 1;
            let place = key.get(head..).unwrap_or_default();
            let skips = match wanted {
                Wanted::Open(is_open) => {
                    let is_closed = SpreadEntry::time_of(place).is_some_and(|time| !is_open(time));
                    closed += u64::from(is_closed);
                    is_closed
                }
                Wanted::Unmet => SpreadEntry::has_met(row),
                Wanted::Next => SpreadEntry::has_met(row) && count != LOOK_AHEAD,
            };
            if skips {
                return ControlFlow::Continue(());
            }
            match SpreadEntry::decode(place, row) {
                Ok(entry) => found.push((key.to_vec(), entry)),
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            match wanted {
                Wanted::Next => ControlFlow::Break(()),
                Wanted::Open(_) | Wanted::Unmet => ControlFlow::Continue(()),
            }
        });
        read.map_err(JoinError::Storage)?;
        match failed {
            None => Ok((found, closed)),
            Some(error) => Err(JoinError::Row(error)),
        }
    }

    /// Writes a row whose planned visit was `before`, and plans its visit. A moment that the last visit has passed gets an item.
    fn write<S: JoinStorage>(
        store: &S,
        key: &[u8],
        row: &mut JoinRow<'_>,
        before: Visit,
    ) -> Result<(), JoinError<S::Error>> {
        row.has_item = match row.due {
            Some(due) => store.has_visited(key, due).map_err(JoinError::Storage)?,
            None => false,
        };
        let mut bytes = Vec::with_capacity(row.encoded_len());
        row.encode(&mut bytes);
        let planned = match before {
            Visit::At(due) => Some(due),
            Visit::None | Visit::OfItem => None,
        };
        // The item goes first: it may have the place in the index that the row gets.
        if before == Visit::OfItem && !row.has_item {
            store.delete_item(key).map_err(JoinError::Storage)?;
        }
        let put = store.put_dated(key, &bytes, planned);
        put.map_err(JoinError::Storage)?;
        let item = match row.due.filter(|_| row.has_item) {
            Some(due) => store.put_item(key, due),
            None => Ok(()),
        };
        item.map_err(JoinError::Storage)
    }
}
