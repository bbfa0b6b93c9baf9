//! Iterators over stores.

use std::fmt;

use eos_protocol::state::StoreId;
use eos_state::{Direction, KeyRange, Scan, TaskStore};

use super::state_error::StateError;
use crate::failure::Failure;

/// An iterator over a range of a store, in key order.
///
/// The loop may write to the store and emit records. The iterator returns the entries that existed at the first call of
/// `next`. An error is always the last item; return it with `?`.
#[must_use = "iterators are lazy: entries are read by `next`"]
pub struct Entries<'c, T> {
    at: At<'c>,
    direction: Direction,
    /// Decodes a key and a value. `None` for an expired row.
    decode: Decode<'c, T>,
}

pub(super) type Decode<'c, T> = Box<dyn Fn(&[u8], &[u8]) -> Result<Option<T>, StateError> + 'c>;

/// Converts an engine's error into an error of this store.
type Failed<'c> = Box<dyn Fn(eos_state::StoreError) -> StateError + 'c>;

enum At<'c> {
    Beginning {
        task: &'c TaskStore,
        id: StoreId,
        range: KeyRange,
        failed: Failed<'c>,
    },
    Open(Scan<'c>, Failed<'c>),
    /// An error to return once.
    Error(StateError),
    End,
}

impl<'c, T> Entries<'c, T> {
    pub(super) fn new(
        task: &'c TaskStore,
        id: StoreId,
        range: KeyRange,
        failed: impl Fn(eos_state::StoreError) -> StateError + 'c,
        decode: Decode<'c, T>,
    ) -> Self {
        Self {
            at: At::Beginning {
                task,
                id,
                range,
                failed: Box::new(failed),
            },
            direction: Direction::Forward,
            decode,
        }
    }

    pub(super) fn error(error: StateError) -> Self {
        Self {
            at: At::Error(error),
            direction: Direction::Forward,
            decode: Box::new(|_, _| Err(StateError::OtherApp)),
        }
    }

    /// Reverses the order. Call `reverse` before the first call of `next`; it has no effect on a started iterator.
    pub fn reverse(mut self) -> Self {
        self.direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        self
    }

    fn read(&mut self) -> Result<Option<T>, StateError> {
        loop {
            match std::mem::replace(&mut self.at, At::End) {
                At::End => return Ok(None),
                At::Error(error) => return Err(error),
                At::Beginning {
                    task,
                    id,
                    range,
                    failed,
                } => match task.scan(id, &range, self.direction) {
                    Ok(scan) => self.at = At::Open(scan, failed),
                    Err(error) => return Err(failed(error)),
                },
                At::Open(mut scan, failed) => loop {
                    match scan.next() {
                        Ok(Some((key, value))) => {
                            if let Some(entry) = (self.decode)(key, value)? {
                                self.at = At::Open(scan, failed);
                                return Ok(Some(entry));
                            }
                        }
                        Ok(None) => return Ok(None),
                        Err(error) => return Err(failed(error)),
                    }
                },
            }
        }
    }
}

impl<T> Iterator for Entries<'_, T> {
    type Item = Result<T, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().map_err(Failure::from).transpose()
    }
}

impl<T> fmt::Debug for Entries<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries")
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}
