//! Views of stores of keys and values.

use eos_protocol::Timestamp;
use eos_state::KeyRange;

use super::access::{KeyValueAccess, Timed, ViewedStore, encode, sealed};
use super::error::ViewError;
use super::rows::ViewRows;
use super::view::{TaskView, View};
use crate::store::KeyValueStore;

impl<K: 'static, V: 'static> View<KeyValueStore<K, V>> {
    /// Returns the value of a key, from the task that processes the records with this key.
    ///
    /// The rows of operators are always in this task. Closures may use other keys, such as a field of the value. In
    /// that case, select the task with [`task_of`](Self::task_of).
    ///
    /// # Errors
    /// [`ViewError::Elsewhere`] if the key's task is in another process, [`ViewError::NoPlace`] if the key's partition
    /// is unknown. Otherwise as for [`task`](Self::task).
    pub fn get(&self, key: &K) -> Result<Option<V>, ViewError> {
        Ok(self.row(key)?.map(|(value, _)| value))
    }

    /// Returns the value of a key in the store of an operator, with its timestamp. The timestamp of a result is the
    /// highest one of its records. A row of a table's topic has the timestamp of its record. A store of closures has no
    /// timestamps.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_with_time(&self, key: &K) -> Result<Option<(V, Option<Timestamp>)>, ViewError> {
        self.row(key)
    }

    fn row(&self, key: &K) -> Result<Option<Timed<V>>, ViewError> {
        let codec = self.store.access.codec();
        let bytes = encode(codec, key, &self.store.name)?;
        self.task_at(codec, key, &bytes)?.row(&bytes)
    }
}

impl<K: 'static, V: 'static> TaskView<KeyValueStore<K, V>> {
    /// Returns the value of a key in this task.
    ///
    /// # Errors
    /// [`ViewError::Moved`] if the task has moved in the meantime.
    pub fn get(&self, key: &K) -> Result<Option<V>, ViewError> {
        Ok(self.get_with_time(key)?.map(|(value, _)| value))
    }

    /// Returns the value of a key in this task with its timestamp: see [`View::get_with_time`].
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_with_time(&self, key: &K) -> Result<Option<(V, Option<Timestamp>)>, ViewError> {
        let bytes = encode(self.store.access.codec(), key, &self.store.name)?;
        self.row(&bytes)
    }

    /// Returns all rows of this task, in the order of the keys' bytes.
    #[must_use]
    pub fn all(&self) -> ViewRows<KeyValueStore<K, V>, (K, V)> {
        self.rows(KeyRange::all())
    }
}

/// A store whose rows are keys and values.
impl<K: 'static, V: 'static, D> TaskView<D>
where
    D: ViewedStore + sealed::Kind<Access = KeyValueAccess<K, V>>,
{
    pub(super) fn row(&self, key: &[u8]) -> Result<Option<Timed<V>>, ViewError> {
        let access = &self.store.access;
        // The range of one key starts at the key of its row.
        let range = access.range(KeyRange::between(key..=key));
        let Some(row) = self.get_raw(range.from())? else {
            return Ok(None);
        };
        let Some((_, value)) = access.live(range.from(), &row, self.stream_time()) else {
            return Ok(None);
        };
        let value = access.decode_value(value);
        value.map(Some).map_err(|error| self.unreadable(error))
    }

    pub(super) fn rows(&self, keys: KeyRange) -> ViewRows<D, (K, V)> {
        let range = self.store.access.range(keys);
        ViewRows::new(self, range, |task, key, row| {
            let access = &task.store.access;
            let Some((key, value)) = access.live(key, row, task.stream_time()) else {
                return Ok(None);
            };
            let unreadable = |error| task.unreadable(error);
            let key = access.decode_key(key).map_err(unreadable)?;
            let (value, _) = access.decode_value(value).map_err(unreadable)?;
            Ok(Some((key, value)))
        })
    }
}
