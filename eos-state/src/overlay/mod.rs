//! The open writes of a transaction to one store.

mod table;

use std::collections::{BTreeMap, btree_map};

pub(crate) use table::{KeyHash, KeyHasher, Table, Written};

use crate::range::{Direction, KeyRange};

/// The access to a store, which decides how its open writes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// By key. A scan works, too, but sorts the transaction's writes to the range each time.
    Point,
    /// By key and by range. The transaction's writes are also kept in order.
    Ordered,
}

#[derive(Debug)]
pub(crate) struct Overlay {
    table: Table,
    /// Entries in key order, for stores with scans.
    order: Option<BTreeMap<Box<[u8]>, u32>>,
    order_bytes: usize,
}

impl Overlay {
    pub(crate) fn new(kind: StoreKind) -> Self {
        Self {
            table: Table::new(),
            order: (kind == StoreKind::Ordered).then(BTreeMap::new),
            order_bytes: 0,
        }
    }

    /// Returns an empty overlay of the same kind.
    pub(crate) fn empty(&self) -> Self {
        Self {
            table: Table::new(),
            order: self.order.is_some().then(BTreeMap::new),
            order_bytes: 0,
        }
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
        if let Some(order) = self.order.as_mut().filter(|_| new) {
            order.insert(key.into(), number);
            // The key, its place in a node, and the average free space of a node.
            self.order_bytes += key.len() + 32;
        }
    }

    /// All entries, in the order of their keys.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        match &self.order {
            Some(order) => order.values().copied().collect(),
            None => self.table.sorted(|_| true),
        }
    }

    /// The entries of a range, in order.
    pub(crate) fn scan(&self, range: &KeyRange, direction: Direction) -> Entries<'_> {
        let from = match &self.order {
            _ if range.is_empty() => Source::Sorted(Vec::new().into_iter()),
            Some(order) => Source::Ordered(order.range::<[u8], _>(range.bounds())),
            None => Source::Sorted(self.table.sorted(|key| range.contains(key)).into_iter()),
        };
        Entries { from, direction }
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
        if let Some(order) = &mut self.order {
            order.clear();
        }
        self.order_bytes = 0;
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
