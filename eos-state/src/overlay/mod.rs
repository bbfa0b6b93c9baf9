//! The open writes of a transaction to one store.

mod table;

use std::collections::{BTreeMap, btree_map};
use std::sync::OnceLock;

pub(crate) use table::{KeyHash, KeyHasher, Table, Written};

use crate::range::{Direction, KeyRange};

/// The access to a store, which decides how its open writes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// By key. A scan works, too, but sorts the transaction's writes to the range each time.
    Point,
    /// By key and by range. After the first scan, the transaction's writes are also kept in order.
    Ordered,
}

#[derive(Debug)]
pub(crate) struct Overlay {
    table: Table,
    kind: StoreKind,
    /// Entries in key order, for ordered stores from their first scan in a transaction. Most transactions scan nothing,
    /// and one sort at their end costs less than a sorted insertion for each key.
    order: OnceLock<BTreeMap<Box<[u8]>, u32>>,
    key_bytes: usize,
}

impl Overlay {
    pub(crate) fn new(kind: StoreKind) -> Self {
        Self {
            table: Table::new(),
            kind,
            order: OnceLock::new(),
            key_bytes: 0,
        }
    }

    /// Returns an empty overlay of the same kind.
    pub(crate) fn empty(&self) -> Self {
        Self::new(self.kind)
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn bytes(&self) -> usize {
        let order = self.order.get().map_or(0, |order| {
            // The key, its place in a node, and the average free space of a node.
            self.key_bytes + order.len() * 32
        });
        self.table.bytes() + order
    }

    pub(crate) fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        self.table.get(hash, key)
    }

    pub(crate) fn write(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) {
        let (number, new) = self.table.write(hash, key, value);
        if !new {
            return;
        }
        self.key_bytes += key.len();
        if let Some(order) = self.order.get_mut() {
            order.insert(key.into(), number);
        }
    }

    /// All entries, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        match self.order.get() {
            Some(order) => order.values().copied().collect(),
            None => self.table.sorted(|_| true),
        }
    }

    /// The entries of a range, in order.
    pub(crate) fn scan(&self, range: &KeyRange, direction: Direction) -> Entries<'_> {
        let from = match self.kind {
            _ if range.is_empty() => Source::Sorted(Vec::new().into_iter()),
            StoreKind::Ordered => Source::Ordered(self.order().range::<[u8], _>(range.bounds())),
            StoreKind::Point => {
                Source::Sorted(self.table.sorted(|key| range.contains(key)).into_iter())
            }
        };
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
        self.key_bytes = 0;
    }
}

/// Numbers of an overlay's entries, in the order of a scan.
pub(crate) struct Entries<'a> {
    from: Source<'a>,
    direction: Direction,
}

enum Source<'a> {
    Ordered(btree_map::Range<'a, Box<[u8]>, u32>),
    Sorted(std::vec::IntoIter<u32>),
}

impl Iterator for Entries<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match (&mut self.from, self.direction) {
            (Source::Ordered(rest), Direction::Forward) => rest.next().map(|(_, n)| *n),
            (Source::Ordered(rest), Direction::Reverse) => rest.next_back().map(|(_, n)| *n),
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
        for kind in [StoreKind::Point, StoreKind::Ordered] {
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
            let unordered = overlay.bytes();
            assert_eq!(keys(&overlay), [b"a", b"c"], "{kind:?}");
            let grows = overlay.bytes() > unordered;
            assert_eq!(grows, kind == StoreKind::Ordered, "the order is counted");
            for key in [b"b", b"a"] {
                write(&mut overlay, key);
            }
            assert_eq!(keys(&overlay), [b"a", b"b", b"c"], "{kind:?}");
            assert_eq!(overlay.sorted(), [1, 2, 0], "{kind:?}");
            overlay.clear();
            assert_eq!((overlay.bytes(), keys(&overlay).len()), (0, 0), "{kind:?}");
        }
    }
}
