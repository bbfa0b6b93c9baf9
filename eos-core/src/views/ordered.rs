//! Views of stores in key order.

use std::ops::RangeBounds;

use eos_state::KeyRange;

use super::access::encode;
use super::error::ViewError;
use super::rows::ViewRows;
use super::view::{TaskView, View};
use crate::codec::{OrderedKey, PrefixOf};
use crate::store::{OrderedStore, ordered_range};

impl<K: OrderedKey, V: 'static> View<OrderedStore<K, V>> {
    /// Returns the value of a key, if the records of its task have the same keys. Otherwise use
    /// [`task_of`](Self::task_of).
    ///
    /// # Errors
    /// As for [`View::<KeyValueStore<K, V>>::get`](View::get).
    pub fn get(&self, key: &K) -> Result<Option<V>, ViewError> {
        let codec = self.store.access.codec();
        let bytes = encode(codec, key, &self.store.name)?;
        let row = self.task_at(codec, key, &bytes)?.row(&bytes)?;
        Ok(row.map(|(value, _)| value))
    }
}

impl<K: OrderedKey, V: 'static> TaskView<OrderedStore<K, V>> {
    /// Returns the value of a key in this task.
    ///
    /// # Errors
    /// [`ViewError::Moved`] if the task has moved in the meantime.
    pub fn get(&self, key: &K) -> Result<Option<V>, ViewError> {
        let bytes = encode(self.store.access.codec(), key, &self.store.name)?;
        Ok(self.row(&bytes)?.map(|(value, _)| value))
    }

    /// Returns the rows of this task between two keys, in key order. An inverted range is empty.
    #[must_use]
    pub fn range(&self, range: impl RangeBounds<K>) -> ViewRows<OrderedStore<K, V>, (K, V)> {
        self.rows(ordered_range(&range))
    }

    /// Returns the rows of this task whose keys begin with a text, with bytes, or with the first part of a pair.
    #[must_use]
    pub fn prefix<P: PrefixOf<K> + ?Sized>(
        &self,
        prefix: &P,
    ) -> ViewRows<OrderedStore<K, V>, (K, V)> {
        let mut bytes = Vec::new();
        prefix.write_prefix(&mut bytes);
        self.rows(KeyRange::prefix(&bytes))
    }

    /// Returns all rows of this task, in key order.
    #[must_use]
    pub fn all(&self) -> ViewRows<OrderedStore<K, V>, (K, V)> {
        self.rows(KeyRange::all())
    }
}
