//! The writes of one `apply`.

use eos_protocol::state::StoreId;

use crate::expired::ExpiredRows;

/// Writes to the stores of one task, by reference.
///
/// The writes are sorted by store and key, and each key occurs once.
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    writes: Vec<Write<'a>>,
    expired: Vec<&'a ExpiredRows>,
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
    /// Returns an empty batch.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            writes: Vec::new(),
            expired: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns a batch with room for this many writes.
    #[must_use]
    pub fn with_capacity(writes: usize) -> Self {
        Self {
            writes: Vec::with_capacity(writes),
            expired: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a write; `None` deletes the key.
    pub fn write(&mut self, store: StoreId, key: &'a [u8], value: Option<&'a [u8]>) {
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.writes.push(Write { store, key, value });
    }

    /// Deletes every key of a range, both earlier keys and those that this batch writes. A range is one entry in the
    /// log, regardless of its size. An empty range adds no entry.
    pub fn delete_expired(&mut self, expired: &'a ExpiredRows) {
        if !expired.range.is_empty() {
            self.expired.push(expired);
        }
    }

    /// Returns the expired rows, which the engine deletes after the writes.
    #[must_use]
    pub fn expired(&self) -> &[&'a ExpiredRows] {
        &self.expired
    }

    /// Returns the writes, in order.
    #[must_use]
    pub fn writes(&self) -> &[Write<'a>] {
        &self.writes
    }

    /// Returns the bytes of keys and values that were added.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the batch is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.expired.is_empty()
    }
}
