//! A cursor over a range of one store in RocksDB.

use eos_protocol::state::StoreId;
use rocksdb::{DBRawIterator, ReadOptions};

use super::prefixed;
use crate::StoreError;
use crate::cursor::{Cursor, KeyValue};
use crate::range::{Direction, KeyRange};

/// The length of the store id at the beginning of every key.
const PREFIX: usize = 4;

pub(super) struct RocksCursor<'a> {
    rows: DBRawIterator<'a>,
    direction: Direction,
    check: Check<'a>,
}

/// Converts a result of RocksDB.
pub(super) type Check<'a> = Box<dyn Fn(Result<(), rocksdb::Error>) -> Result<(), StoreError> + 'a>;

impl<'a> RocksCursor<'a> {
    /// `rows` creates an iterator of the store's family.
    pub(super) fn seek(
        rows: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
        check: Check<'a>,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Self, StoreError> {
        let mut reads = ReadOptions::default();
        let (from, to) = bounds(store, range);
        if let Some(to) = to {
            reads.set_iterate_upper_bound(to);
        }
        reads.set_iterate_lower_bound(from);
        let mut rows = rows(reads);
        match direction {
            Direction::Forward => rows.seek_to_first(),
            Direction::Reverse => rows.seek_to_last(),
        }
        let cursor = Self {
            rows,
            direction,
            check,
        };
        cursor.checked()?;
        Ok(cursor)
    }

    /// Returns an error for an unreadable block. Without this check it looks like the end of the range.
    fn checked(&self) -> Result<(), StoreError> {
        if self.rows.valid() {
            return Ok(());
        }
        (self.check)(self.rows.status())
    }
}

impl Cursor for RocksCursor<'_> {
    fn entry(&self) -> Option<KeyValue<'_>> {
        let (key, value) = self.rows.item()?;
        Some((key.get(PREFIX..)?, value))
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        if !self.rows.valid() {
            return self.checked();
        }
        match self.direction {
            Direction::Forward => self.rows.next(),
            Direction::Reverse => self.rows.prev(),
        }
        self.checked()
    }
}

/// Returns the range with the store's prefix: from (included) to (excluded). Only the last possible id has no upper
/// end.
pub(super) fn bounds(store: StoreId, range: &KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut from = Vec::new();
    prefixed(&mut from, store, range.from());
    let to = match range.to() {
        Some(end) => {
            let mut to = Vec::new();
            prefixed(&mut to, store, end);
            // An inverted range is empty, which RocksDB does not guarantee.
            Some(to.max(from.clone()))
        }
        None => KeyRange::prefix(&store.to_be_bytes())
            .to()
            .map(<[u8]>::to_vec),
    };
    (from, to)
}
