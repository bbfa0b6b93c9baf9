//! Entries of a store, one after the other.

use std::fmt;

use eos_protocol::state::StoreId;
use eos_state::{Direction, KeyRange, Scan, TaskStore};

use super::view::StateError;
use crate::failure::Failure;

/// A stretch of a store, in the order of its keys.
///
/// The loop may write to the store and emit: what it shows is what was there when the first entry was
/// asked for. An item that is an error is the last one; hand it on with `?`.
#[must_use = "entries are read as they are asked for"]
pub struct Entries<'c, T> {
    at: At<'c>,
    direction: Direction,
    /// Reads a key and a value.
    decode: Decode<'c, T>,
}

pub(super) type Decode<'c, T> = Box<dyn Fn(&[u8], &[u8]) -> Result<T, StateError> + 'c>;

/// Makes an engine's failure one of this store's.
type Failed<'c> = Box<dyn Fn(eos_state::StoreError) -> StateError + 'c>;

enum At<'c> {
    Beginning {
        task: &'c TaskStore,
        id: StoreId,
        range: KeyRange,
        failed: Failed<'c>,
    },
    Open(Scan<'c>, Failed<'c>),
    /// It says so once.
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

    /// From the last one to the first. To be said before an entry is asked for; what was begun goes on
    /// as it is.
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
                At::Open(mut scan, failed) => {
                    let entry = match scan.next() {
                        Ok(Some((key, value))) => Some((self.decode)(key, value)?),
                        Ok(None) => None,
                        Err(error) => return Err(failed(error)),
                    };
                    if entry.is_some() {
                        self.at = At::Open(scan, failed);
                    }
                    return Ok(entry);
                }
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
