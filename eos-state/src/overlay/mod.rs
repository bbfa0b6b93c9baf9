//! The open writes of a transaction to one store.

mod table;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::OnceLock;

pub(crate) use table::{KeyHash, KeyHasher, Table, Written};

use crate::range::{Direction, KeyRange};

/// The access to a store, which decides how its open writes are kept and whether the store has a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// By key. A scan works, too, but sorts the transaction's writes to the range each time.
    Point,
    /// By key and by range. The first scan of a transaction sorts its writes. Later writes are inserted in order.
    Ordered,
    /// By range, and rarely by key. Writes are kept as in an ordered store. The store has no
    /// [cache](crate::TaskStore::cached), because scans do not use it. Other stores use its part of the cache memory.
    Scanned,
}

#[derive(Debug)]
pub(crate) struct Overlay {
    table: Table,
    kind: StoreKind,
    /// Entries in key order, for ordered and scanned stores from their first scan in a transaction. Most transactions scan
    /// nothing, and one sort at their end costs less than a sorted insertion for each key.
    order: OnceLock<BTreeMap<Box<[u8]>, u32>>,
    /// The size of the order, also before the first scan: a scan has no other way to report its memory.
    order_bytes: usize,
}

impl Overlay {
    pub(crate) fn new(kind: StoreKind) -> Self {
        Self {
            table: Table::new(),
            kind,
            order: OnceLock::new(),
            order_bytes: 0,
        }
    }

    /// Returns an empty overlay of the same kind.
    pub(crate) fn empty(&self) -> Self {
        Self::new(self.kind)
    }

    pub(crate) fn kind(&self) -> StoreKind {
        self.kind
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.order_bytes
    }

    pub(crate) fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        self.table.get(hash, key)
    }

    pub(crate) fn write(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) {
        let (number, new) = self.table.write(hash, key, value);
        if !new {
            return;
        }
        if self.kind != StoreKind::Point {
            // The key, its place in a node, and the average free space of a node.
            self.order_bytes += key.len() + 32;
        }
        if let Some(order) = self.order.get_mut() {
            order.insert(key.into(), number);
        }
    }

    /// Returns all entries, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        match self.order.get() {
            Some(order) => order.values().copied().collect(),
            None => self.table.sorted(|_| true),
        }
    }

    /// Returns the entries of a range, in order.
    pub(crate) fn scan(&self, range: &KeyRange, direction: Direction) -> Entries<'_> {
        let from = match self.kind {
            _ if range.is_empty() => Source::Sorted(Vec::new().into_iter()),
            StoreKind::Ordered | StoreKind::Scanned => {
                Source::Ordered(self.order().range::<[u8], _>(range.bounds()))
            }
            StoreKind::Point => {
                Source::Sorted(self.table.sorted(|key| range.contains(key)).into_iter())
            }
        };
        Entries { from, direction }
    }

    /// The same, for an overlay with these sorted numbers. It builds no order.
    pub(crate) fn scan_sealed<'a>(
        &self,
        sorted: &'a [u32],
        range: &KeyRange,
        direction: Direction,
    ) -> Entries<'a> {
        let (start, end) = range.bounds();
        let key = |number: &u32| self.table.key(*number);
        let first = sorted.partition_point(|number| match start {
            Bound::Included(start) => key(number) < start,
            Bound::Excluded(start) => key(number) <= start,
            Bound::Unbounded => false,
        });
        let rest = sorted.get(first..).unwrap_or_default();
        let length = rest.partition_point(|number| match end {
            Bound::Included(end) => key(number) <= end,
            Bound::Excluded(end) => key(number) < end,
            Bound::Unbounded => true,
        });
        let from = Source::Sealed(rest.get(..length).unwrap_or_default().iter());
        Entries { from, direction }
    }

    fn order(&self) -> &BTreeMap<Box<[u8]>, u32> {
        self.order.get_or_init(|| {
            let numbers = self.table.numbers();
            let entries = numbers.map(|number| (self.table.key(number).into(), number));
            entries.collect()
        })
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.order.take();
        self.order_bytes = 0;
    }
}

/// Numbers of an overlay's entries, in the order of a scan.
pub(crate) struct Entries<'a> {
    from: Source<'a>,
    direction: Direction,
}

enum Source<'a> {
    Sealed(std::slice::Iter<'a, u32>),
    Ordered(btree_map::Range<'a, Box<[u8]>, u32>),
    Sorted(std::vec::IntoIter<u32>),
}

impl Iterator for Entries<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match (&mut self.from, self.direction) {
            (Source::Ordered(rest), Direction::Forward) => rest.next().map(|(_, n)| *n),
            (Source::Ordered(rest), Direction::Reverse) => rest.next_back().map(|(_, n)| *n),
            (Source::Sealed(rest), Direction::Forward) => rest.next().copied(),
            (Source::Sealed(rest), Direction::Reverse) => rest.next_back().copied(),
            (Source::Sorted(rest), Direction::Forward) => rest.next(),
            (Source::Sorted(rest), Direction::Reverse) => rest.next_back(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_before_and_after_the_first_scan_are_in_order() {
        let hasher = KeyHasher::random();
        for kind in [StoreKind::Point, StoreKind::Ordered, StoreKind::Scanned] {
            let mut overlay = Overlay::new(kind);
            let write = |overlay: &mut Overlay, key: &[u8]| {
                overlay.write(hasher.hash(key), key, Some(b"value"));
            };
            let keys = |overlay: &Overlay| -> Vec<Vec<u8>> {
                let numbers = overlay.scan(&KeyRange::all(), Direction::Forward);
                numbers.map(|n| overlay.table().key(n).to_vec()).collect()
            };
            for key in [b"c", b"a"] {
                write(&mut overlay, key);
            }
            assert_eq!(keys(&overlay), [b"a", b"c"], "{kind:?}");
            for key in [b"b", b"a"] {
                write(&mut overlay, key);
            }
            assert_eq!(keys(&overlay), [b"a", b"b", b"c"], "{kind:?}");
            assert_eq!(overlay.sorted(), [1, 2, 0], "{kind:?}");
            let counted = overlay.bytes() - overlay.table().bytes();
            assert_eq!(counted, if kind == StoreKind::Point { 0 } else { 99 });
            overlay.clear();
            assert_eq!((overlay.bytes(), keys(&overlay).len()), (0, 0), "{kind:?}");
        }
    }

    #[test]
    fn a_sealed_overlay_is_scanned_as_an_open_one() {
        let hasher = KeyHasher::random();
        let mut overlay = Overlay::new(StoreKind::Ordered);
        for key in [&b"b"[..], b"d", b"a", b"c", b"ca"] {
            overlay.write(hasher.hash(key), key, Some(b"value"));
        }
        let sorted = overlay.sorted();
        let bounds = [
            Bound::Unbounded,
            Bound::Included(&b"a"[..]),
            Bound::Excluded(b"b"),
            Bound::Included(b"c"),
            Bound::Excluded(b"ca"),
            Bound::Included(b"e"),
        ];
        for start in bounds {
            for end in bounds {
                let range = KeyRange::between((start, end));
                for direction in [Direction::Forward, Direction::Reverse] {
                    let open: Vec<u32> = overlay.scan(&range, direction).collect();
                    let sealed = overlay.scan_sealed(&sorted, &range, direction);
                    assert_eq!(sealed.collect::<Vec<u32>>(), open, "{range:?}");
                }
            }
        }
    }
}
