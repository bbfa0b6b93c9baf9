//! The interface of a storage engine.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::{Position, StoreId};

use crate::StoreError;
use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::in_flight::InFlight;
use crate::range::{Direction, KeyRange};
use crate::reader::StateReader;

/// One task's committed state, in one engine.
///
/// A backend holds only the writes of committed transactions. Open writes live in the [`TaskStore`](crate::TaskStore)
/// above it. It serves all stores of the task, so one [`apply`](Self::apply) is atomic over the whole state of the
/// task.
///
/// The suite `conformance`, behind the feature of that name, checks implementations.
///
/// # Errors
/// After a failure that [poisons](StoreError::poisons), every call returns that same failure.
pub trait StoreBackend: Send + fmt::Debug {
    /// Reads one key. Returns true if it exists; `value` then holds its value.
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError>;

    /// Reads many keys of one store at once, and calls `found` once for each, with its index.
    ///
    /// The engine chooses the order of the calls. Cheaper than as many [`get`](Self::get)s where the engine can look
    /// up several keys together.
    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError>;

    /// Returns a cursor on the first key of the range, in the direction given.
    ///
    /// It shows the current content of the store.
    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError>;

    /// Returns the stores that have a key here, in the order of their ids, even if the task does not have them: an
    /// earlier program may have kept others. Reserved ids are left out. Cheap: keys are not read one by one.
    fn stores(&self) -> Result<Vec<StoreId>, StoreError>;

    /// Writes the batch and the position, both or neither.
    ///
    /// Durable against a crash of the process once it returns, but not against a power loss. A power loss returns the
    /// data and the position to an earlier `apply`.
    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError>;

    /// Starts to write a committed transaction, or records of a changelog. The engine may write on another thread, and
    /// serves reads meanwhile. A read of a key or range that the transaction wrote may return the state before or after
    /// the write.
    ///
    /// Before any other write, the owner calls [`end_apply`](Self::end_apply) until it returns `Ready`. The drop of the
    /// engine waits for the write. The default writes at once.
    fn begin_apply(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.apply(&in_flight.batch(), in_flight.position())
    }

    /// Returns the result of the last [`begin_apply`](Self::begin_apply). With `wait`, blocks until the write has
    /// finished.
    fn end_apply(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        let _ = wait;
        Poll::Ready(Ok(()))
    }

    /// Returns the position of the last [`apply`](Self::apply); `None` if there was none.
    fn position(&self) -> Option<&Position>;

    /// Returns the reader of this database, for other threads. `None`, the default, if the engine has no snapshots.
    ///
    /// The engine calls [`StateReader::close`] in its drop, after its last write and before it releases its files.
    fn reader(&self) -> Option<StateReader> {
        None
    }

    /// Returns the bytes in the engine's memory and its log only. They decide which database flushes.
    fn bytes_unflushed(&self) -> u64 {
        0
    }

    /// Moves those bytes out of memory. May wait for the disk.
    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}
