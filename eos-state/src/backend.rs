//! What the runtime asks of a storage engine.

use std::fmt;

use eos_protocol::state::{Position, StoreId};

use crate::StoreError;
use crate::batch::Batch;
use crate::range::{Direction, KeyRange};

/// One task's committed state, in one engine.
///
/// A backend only ever holds what committed transactions wrote: whatever is still open lives in the
/// [`TaskStore`](crate::TaskStore) above it. It serves all stores of the task, so that one
/// [`apply`](Self::apply) is atomic over everything the task owns.
///
/// The suite `conformance`, behind the feature of that name, checks implementations.
///
/// # Errors
/// After a failure that [poisons](StoreError::poisons), every call answers that same failure.
pub trait StoreBackend: Send + fmt::Debug {
    /// Reads one key. True if it is there; its value is then what `value` holds.
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Reads many keys of one store at once, and calls `found` once for each, with its index.
    ///
    /// The order of the calls is the engine's. Cheaper than as many [`get`](Self::get)s where
    /// the engine can look for them together.
    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError>;

    /// A cursor on the first key of the range, in the direction given.
    ///
    /// It shows the store as it is now.
    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError>;

    /// The stores that have a key here, in the order of their ids, whether or not the task has them: a
    /// program of before may have kept others. Cheap: keys are not read one by one.
    fn stores(&self) -> Result<Vec<StoreId>, StoreError>;

    /// Writes the batch and the position, both or neither.
    ///
    /// Durable against a crash of the process once it returns, not against a power loss: that
    /// returns to an earlier `apply`, and its position with it.
    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError>;

    /// What the last [`apply`](Self::apply) said; nothing if there was none.
    fn position(&self) -> Option<&Position>;

    /// Bytes that only the engine's memory and its log hold. They decide which database flushes.
    fn bytes_unflushed(&self) -> u64 {
        0
    }

    /// Moves those bytes to where they take no memory. May wait for the disk.
    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A key and its value.
pub type KeyValue<'a> = (&'a [u8], &'a [u8]);

/// A place in a range of one store.
pub trait Cursor {
    /// The entry under the cursor; nothing once the range is exhausted.
    fn entry(&self) -> Option<KeyValue<'_>>;

    /// Goes to the next entry.
    ///
    /// # Errors
    /// If the engine cannot read it.
    fn advance(&mut self) -> Result<(), StoreError>;
}
