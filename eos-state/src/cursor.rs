//! Cursors over the rows of a store.

use crate::StoreError;

/// A key and its value.
pub type KeyValue<'a> = (&'a [u8], &'a [u8]);

/// A cursor in a range of one store.
pub trait Cursor {
    /// Returns the entry under the cursor; `None` once the range is exhausted.
    fn entry(&self) -> Option<KeyValue<'_>>;

    /// Moves to the next entry.
    ///
    /// # Errors
    /// If the engine can't read it.
    fn advance(&mut self) -> Result<(), StoreError>;
}
