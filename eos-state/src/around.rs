//! Store engines around other engines.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use eos_protocol::state::{Position, StoreId};

use crate::backend::StoreBackend;
use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::error::StoreError;
use crate::in_flight::InFlight;
use crate::range::{Direction, KeyRange};
use crate::reader::StateReader;

/// A [`StoreBackend`] that wraps another one and adds its own work to each write.
pub trait Around: Send + fmt::Debug {
    /// The wrapped engine.
    type Inner: StoreBackend + ?Sized;

    /// Returns the wrapped engine. All calls except writes go to it.
    fn inner(&self) -> &Self::Inner;

    /// Returns the wrapped engine for changes.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// Implements [`StoreBackend::apply`]: writes the batch and does the additional work.
    ///
    /// # Errors
    /// As [`StoreBackend::apply`].
    fn apply_around(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError>;

    /// Implements [`StoreBackend::begin_apply`]. The default writes at once, like
    /// [`apply_around`](Self::apply_around).
    ///
    /// # Errors
    /// As [`StoreBackend::apply`].
    fn begin_around(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.apply_around(&in_flight.batch(), in_flight.position())
    }

    /// Implements [`StoreBackend::end_apply`].
    fn end_around(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        self.inner_mut().end_apply(wait)
    }
}

impl<B: Around> StoreBackend for B {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.inner().get(store, key, value)
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        self.inner().multi_get(store, keys, found)
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        self.inner().scan(store, range, direction)
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        self.inner().stores()
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        self.apply_around(batch, position)
    }

    fn begin_apply(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        self.begin_around(in_flight)
    }

    fn end_apply(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        self.end_around(wait)
    }

    fn position(&self) -> Option<&Position> {
        self.inner().position()
    }

    fn reader(&self) -> Option<StateReader> {
        self.inner().reader()
    }

    fn bytes_unflushed(&self) -> u64 {
        self.inner().bytes_unflushed()
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.inner_mut().flush()
    }
}
