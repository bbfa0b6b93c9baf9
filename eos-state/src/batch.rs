//! The writes of one `apply`.

use eos_protocol::state::StoreId;

use crate::range::KeyRange;

/// Writes to the stores of one task, by reference.
///
/// Of several writes to one key, the last counts. Engines are fastest with sorted batches, and a
/// [`TaskStore`](crate::TaskStore) creates only these. A restore from a changelog calls [`sort`](Self::sort).
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    writes: Vec<Write<'a>>,
    forgotten: Vec<(StoreId, &'a KeyRange)>,
    bytes: usize,
}

/// One write: a value, or `None` for a deleted key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The store.
    pub store: StoreId,
    /// The key within the store.
    pub key: &'a [u8],
    /// Its new value; `None` deletes the key.
    pub value: Option<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            writes: Vec::new(),
            forgotten: Vec::new(),
            bytes: 0,
        }
    }

    /// A batch with room for this many writes.
    #[must_use]
    pub fn with_capacity(writes: usize) -> Self {
        Self {
            writes: Vec::with_capacity(writes),
            forgotten: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a write; `None` deletes the key.
    pub fn write(&mut self, store: StoreId, key: &'a [u8], value: Option<&'a [u8]>) {
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.writes.push(Write { store, key, value });
    }

    /// Deletes every key of a range, both earlier keys and those that this batch writes: expired windows. A range is
    /// one entry in the log, whatever its size. An empty range adds no entry.
    pub fn forget(&mut self, store: StoreId, range: &'a KeyRange) {
        if !range.is_empty() {
            self.forgotten.push((store, range));
        }
    }

    /// The ranges to delete, after the writes.
    #[must_use]
    pub fn forgotten(&self) -> &[(StoreId, &'a KeyRange)] {
        &self.forgotten
    }

    /// Sorts by store and key, and keeps only the last write to each key.
    pub fn sort(&mut self) {
        // A stable sort keeps the last of equal keys last.
        self.writes.sort_by(|a, b| place(a).cmp(&place(b)));
        let mut kept = 0;
        for i in 0..self.writes.len() {
            let overtaken =
                (self.writes.get(i + 1)).is_some_and(|next| place(next) == place(&self.writes[i]));
            if !overtaken {
                self.writes[kept] = self.writes[i];
                kept += 1;
            }
        }
        self.writes.truncate(kept);
    }

    /// The writes, in order.
    #[must_use]
    pub fn writes(&self) -> &[Write<'a>] {
        &self.writes
    }

    /// Bytes of keys and values that were added.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the batch is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.forgotten.is_empty()
    }
}

fn place<'a>(write: &Write<'a>) -> ([u8; 4], &'a [u8]) {
    (write.store.to_be_bytes(), write.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_keeps_the_last_write_of_each_key() {
        let (a, b) = (StoreId::plain("a"), StoreId::windowed("b"));
        let mut batch = Batch::new();
        batch.write(b, b"k", Some(b"1"));
        batch.write(a, b"z", Some(b"2"));
        batch.write(a, b"k", Some(b"3"));
        batch.write(a, b"z", None);
        batch.write(a, b"k", Some(b"4"));
        batch.sort();
        let write = |store, key: &'static [u8], value| Write { store, key, value };
        assert_eq!(
            batch.writes(),
            [
                write(a, b"k", Some(&b"4"[..])),
                write(a, b"z", None),
                write(b, b"k", Some(&b"1"[..])),
            ]
        );
    }
}
