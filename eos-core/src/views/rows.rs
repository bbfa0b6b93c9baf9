//! The rows of a range.

use std::fmt;
use std::vec;

use eos_state::{Direction, KeyRange};

use super::access::ViewedStore;
use super::error::ViewError;
use super::view::TaskView;

/// Decodes a row. `None` skips it.
type Decode<D, T> = fn(&TaskView<D>, &[u8], &[u8]) -> Result<Option<T>, ViewError>;

/// Rows in the order of their keys' bytes. The iterator reads the database page by page, and ends after an error.
///
/// The rows are those of the view's snapshot. Transactions that commit in the meantime have no effect.
pub struct ViewRows<D: ViewedStore, T> {
    task: TaskView<D>,
    direction: Direction,
    decode: Decode<D, T>,
    page: vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    rest: Option<KeyRange>,
}

impl<D: ViewedStore, T> ViewRows<D, T> {
    pub(super) fn new(task: &TaskView<D>, range: KeyRange, decode: Decode<D, T>) -> Self {
        Self {
            task: task.clone(),
            direction: Direction::Forward,
            decode,
            page: Vec::new().into_iter(),
            rest: Some(range),
        }
    }

    /// Reverses the order. Call `reverse` before the first call of `next`.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        self.direction = match self.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        self
    }

    fn read(&mut self) -> Result<Option<T>, ViewError> {
        loop {
            for (key, row) in self.page.by_ref() {
                if let Some(row) = (self.decode)(&self.task, &key, &row)? {
                    return Ok(Some(row));
                }
            }
            let Some(range) = self.rest.take() else {
                return Ok(None);
            };
            let (task, id) = (&self.task, self.task.store.id);
            let page = task.snapshot.page(id, &range, self.direction);
            let page = page.map_err(|error| task.failed(error))?;
            (self.page, self.rest) = (page.rows.into_iter(), page.rest);
        }
    }
}

impl<D: ViewedStore, T> Iterator for ViewRows<D, T> {
    type Item = Result<T, ViewError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read();
        if next.is_err() {
            self.page = Vec::new().into_iter();
            self.rest = None;
        }
        next.transpose()
    }
}

impl<D: ViewedStore, T> fmt::Debug for ViewRows<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ViewRows").field(&self.task).finish()
    }
}
