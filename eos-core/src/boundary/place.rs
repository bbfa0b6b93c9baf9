//! Places for rows.

use crate::failure::Failure;

/// A place for rows in a [`Ledger`](super::Ledger), such as a table, with the encoding of its rows.
///
/// [`Stream::to_place`](crate::Stream::to_place) writes the records of a stream to a place.
pub trait Place<K, V>: Send + Sync + 'static {
    /// The name of the place in its ledger, which [`Plan::places`](super::Plan::places) lists. Two steps that write to
    /// one place have two names.
    fn name(&self) -> String;

    /// Encodes the row of a record.
    ///
    /// # Errors
    /// A record whose row cannot be encoded fails, and the error policy of its source applies.
    fn encode(&self, key: &K, value: &V, row: &mut Row) -> Result<(), Failure>;
}

/// An encoded row.
#[derive(Debug, Default)]
pub struct Row {
    /// The key. It is empty before the encoding.
    pub key: Vec<u8>,
    /// The row. It is empty before the encoding.
    pub row: Vec<u8>,
    /// Whether the row of the key is deleted.
    pub is_deleted: bool,
}

impl Row {
    pub(crate) fn clear(&mut self) {
        self.key.clear();
        self.row.clear();
        self.is_deleted = false;
    }
}
