//! A range of one store, as the record sees it.

use std::cell::OnceCell;
use std::cmp::Ordering;

use eos_protocol::state::StoreId;

use crate::StoreError;
use crate::cursor::{Cursor, KeyValue};
use crate::in_flight::InFlight;
use crate::overlay::{Entries, Table};
use crate::range::{Direction, KeyRange};

/// Reads a range in order, from four layers: the writes of the record, of the open transaction and of the
/// transaction in flight, and the data of the engine. Each layer hides the later ones. Created by
/// [`TaskStore::scan`](crate::TaskStore::scan).
///
/// It shows the range at the beginning of the scan, without later writes.
pub struct Scan<'a> {
    scratch: Written,
    overlay: Layer<'a>,
    in_flight: Option<Box<InFlightLayer<'a>>>,
    committed: Box<dyn Cursor + 'a>,
    direction: Direction,
    /// Whether each layer is at the last returned key, and has to advance.
    used: [bool; 4],
    poison: &'a OnceCell<StoreError>,
}

/// The scratch's part of the range: copied, because the record continues to write.
struct Written {
    table: Table,
    rest: std::vec::IntoIter<u32>,
    at: Option<u32>,
}

/// The overlay's part: borrowed, because it changes only between records.
struct Layer<'a> {
    table: &'a Table,
    rest: Entries<'a>,
    at: Option<u32>,
}

/// The part of the transaction in flight that is in the range.
struct InFlightLayer<'a> {
    layer: Layer<'a>,
    store: StoreId,
    of: &'a InFlight,
}

#[derive(Clone, Copy)]
enum Top {
    Scratch,
    Overlay,
    InFlight,
    Committed,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        scratch: &Table,
        (overlay, rest): (&'a Table, Entries<'a>),
        in_flight: Option<(&'a InFlight, usize)>,
        committed: Box<dyn Cursor + 'a>,
        (range, direction): (&KeyRange, Direction),
        poison: &'a OnceCell<StoreError>,
    ) -> Self {
        let in_flight = in_flight.and_then(|(of, store)| {
            let (store, table, rest) = of.scan(store, range, direction)?;
            let layer = Layer::new(table, rest);
            Some(Box::new(InFlightLayer { layer, store, of }))
        });
        Self {
            scratch: Written::copy(scratch, range, direction),
            overlay: Layer::new(overlay, rest),
            in_flight,
            committed,
            direction,
            used: [false; 4],
            poison,
        }
    }

    /// Returns the next entry, key and value; `None` at the end of the range.
    ///
    /// # Errors
    /// If the engine can't read it: the store is poisoned, and the scan ends.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it lends is valid until the next call only"
    )]
    pub fn next(&mut self) -> Result<Option<KeyValue<'_>>, StoreError> {
        let top = loop {
            if let Some(error) = self.poison.get() {
                return Err(error.clone());
            }
            if let Err(error) = self.go_on() {
                return Err(self.poison.get_or_init(|| error).clone());
            }
            match self.first() {
                None => return Ok(None),
                // This record or its transaction has deleted the key.
                Some((_, false)) => {}
                Some((top, true)) => break top,
            }
        };
        Ok(match top {
            Top::Scratch => self.scratch.entry(),
            Top::Overlay => self.overlay.entry(),
            Top::InFlight => self.in_flight.as_ref().and_then(|it| it.entry()),
            Top::Committed => self.committed.entry(),
        })
    }

    /// Moves every layer past the last returned key.
    fn go_on(&mut self) -> Result<(), StoreError> {
        let [scratch, overlay, in_flight, committed] = std::mem::take(&mut self.used);
        if scratch {
            self.scratch.at = self.scratch.rest.next();
        }
        if overlay {
            self.overlay.at = self.overlay.rest.next();
        }
        if let Some(in_flight) = self.in_flight.as_mut().filter(|_| in_flight) {
            in_flight.layer.at = in_flight.layer.rest.next();
        }
        if committed {
            self.committed.advance()?;
        }
        Ok(())
    }

    /// Returns the topmost layer at the first key, and whether it has a value.
    fn first(&mut self) -> Option<(Top, bool)> {
        let keys = [
            self.scratch.at.map(|n| self.scratch.table.key(n)),
            self.overlay.at.map(|n| self.overlay.table.key(n)),
            self.in_flight.as_ref().and_then(|it| it.key()),
            self.committed.entry().map(|(key, _)| key),
        ];
        let order = |a: &[u8], b: &[u8]| match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Reverse => b.cmp(a),
        };
        let first = keys.into_iter().flatten().min_by(|a, b| order(a, b))?;
        let used = keys.map(|key| key.is_some_and(|key| order(key, first) == Ordering::Equal));
        self.used = used;
        let is_gone = || {
            let in_flight = self.in_flight.as_ref();
            in_flight.is_some_and(|it| it.of.is_over(it.store, first))
        };
        Some(match used {
            [true, ..] => (Top::Scratch, self.scratch.entry().is_some()),
            [_, true, ..] => (Top::Overlay, self.overlay.entry().is_some()),
            [_, _, true, _] => {
                let entry = self.in_flight.as_ref().and_then(|it| it.entry());
                (Top::InFlight, entry.is_some() && !is_gone())
            }
            _ => (Top::Committed, !is_gone()),
        })
    }
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}

impl Written {
    fn copy(scratch: &Table, range: &KeyRange, direction: Direction) -> Self {
        let mut table = Table::new();
        let mut order = scratch.sorted(|key| range.contains(key));
        if direction == Direction::Reverse {
            order.reverse();
        }
        for number in order {
            table.write(
                scratch.hash(number),
                scratch.key(number),
                scratch.value(number),
            );
        }
        // The table is written in key order, so the numbers are in order.
        let mut rest = table.numbers().collect::<Vec<_>>().into_iter();
        let at = rest.next();
        Self { table, rest, at }
    }

    fn entry(&self) -> Option<KeyValue<'_>> {
        let at = self.at?;
        Some((self.table.key(at), self.table.value(at)?))
    }
}

impl<'a> Layer<'a> {
    fn new(table: &'a Table, mut rest: Entries<'a>) -> Self {
        let at = rest.next();
        Self { table, rest, at }
    }

    fn entry(&self) -> Option<KeyValue<'_>> {
        let at = self.at?;
        Some((self.table.key(at), self.table.value(at)?))
    }
}

impl InFlightLayer<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.layer.at.map(|n| self.layer.table.key(n))
    }

    fn entry(&self) -> Option<KeyValue<'_>> {
        self.layer.entry()
    }
}
