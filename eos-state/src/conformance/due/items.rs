//! The model of due items.
//!
//! It computes the effective moment of each item: its own moment, or the earliest one that its unit allows. If that is
//! in the past, it is the first place behind the mark. The model sorts the items by this moment, and has no index.

use std::collections::BTreeMap;

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Place, Round, Timestamp};

use crate::conformance::operation::Key;

/// The due stores, and the clock of each.
pub(super) const STORES: [(StoreId, Clock); 5] = [
    (StoreId::from_be_bytes([0, 0, 0, 1]), Clock::Stream),
    (StoreId::from_be_bytes([0, 0, 0, 2]), Clock::Wall),
    (
        StoreId::from_be_bytes([0x7f, 0xff, 0xff, 0xff]),
        Clock::Stream,
    ),
    (StoreId::from_be_bytes([0, 0, 0, 4]), Clock::Background),
    (DATED, Clock::Stream),
];
/// A due store that has the rows of another store as items, too.
pub(super) const DATED: StoreId = StoreId::from_be_bytes([0, 0, 0, 5]);
/// The store of these rows: a moment, and a value.
pub(super) const ROWS: StoreId = StoreId::from_be_bytes([0, 0, 0, 6]);
/// The first byte of the keys of these rows. No other key begins with it.
pub(super) const ROW: u8 = 7;

pub(super) type Rows = BTreeMap<(StoreId, Key), Vec<u8>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) due: Timestamp,
    /// The point at which the item is handled.
    pub(super) effective: Round,
    pub(super) value: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Items {
    pub(super) items: BTreeMap<(StoreId, Key), Item>,
    /// The rows that may have a moment. Those with one are items until they are handled.
    pub(super) dated: BTreeMap<Key, Vec<u8>>,
    pub(super) undated: Rows,
    pub(super) marks: [Option<Place>; 3],
    /// The time that each clock has reached: that of the units which set items into their past.
    pub(super) reached: [Option<Timestamp>; 3],
}

impl Items {
    pub(super) fn mark(&self, clock: Clock) -> Option<&Place> {
        self.marks[clock.number() as usize].as_ref()
    }

    pub(super) fn put(
        &mut self,
        (store, clock): (StoreId, Clock),
        key: &Key,
        (due, earliest): (Timestamp, Timestamp),
        value: &[u8],
    ) {
        if earliest > due {
            let reached = &mut self.reached[clock.number() as usize];
            *reached = (*reached).max(Some(earliest));
        }
        let effective = Place::listed_at(earliest, store, key, self.mark(clock));
        let item = Item {
            due,
            effective,
            value: value.to_vec(),
        };
        self.items.insert((store, key.clone()), item);
    }

    /// Writes a row. With a moment, the row is an item. It has a separate item instead if the mark has passed the moment or
    /// `has_item` is true. Returns the row, and the moment of the row before if it is an item and not handled.
    pub(super) fn put_dated(
        &mut self,
        key: &Key,
        due: Option<Timestamp>,
        has_item: bool,
    ) -> (Vec<u8>, Option<Timestamp>) {
        let own = due.filter(|due| !has_item && !self.is_passed(key, *due));
        let row = own.map_or(Vec::new(), |due| due.0.to_be_bytes().to_vec());
        let before = self.dated.insert(key.clone(), row.clone());
        let before = before.and_then(|row| moment(key, &row));
        let item = self.items.remove(&(DATED, key.clone()));
        if let Some(due) = due {
            self.put((DATED, Clock::Stream), key, (due, due), &[]);
        }
        (row, before.filter(|_| item.is_some()))
    }

    /// Returns whether the last handled item is this row at this moment, or comes after it.
    pub(super) fn is_passed(&self, key: &Key, due: Timestamp) -> bool {
        let place = Place {
            round: Round::of(due),
            store: DATED,
            key: key.clone(),
        };
        self.mark(Clock::Stream).is_some_and(|mark| place <= *mark)
    }

    /// Returns the first item of a clock.
    pub(super) fn first(&self, clock: Clock) -> Option<(Place, &Item)> {
        let of_clock = self
            .items
            .iter()
            .filter(|((store, _), _)| clock_of(*store) == Some(clock));
        let places = of_clock.map(|((store, key), item)| {
            let place = Place {
                round: item.effective,
                store: *store,
                key: key.clone(),
            };
            (place, item)
        });
        places.min_by(|(a, _), (b, _)| a.cmp(b))
    }
}

pub(super) fn clock_of(store: StoreId) -> Option<Clock> {
    STORES
        .iter()
        .find(|(id, _)| *id == store)
        .map(|(_, clock)| *clock)
}

/// Reads the moment of a row.
pub(super) fn moment(_: &[u8], row: &[u8]) -> Option<Timestamp> {
    let moment = i64::from_be_bytes(*row.first_chunk()?);
    Some(Timestamp(moment))
}
