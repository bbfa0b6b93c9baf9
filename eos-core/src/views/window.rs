//! Views of stores with windows.

use std::ops::RangeBounds;

use eos_protocol::Timestamp;

use super::access::{Timed, WindowAccess, encode};
use super::error::ViewError;
use super::rows::ViewRows;
use super::view::{TaskView, View};
use crate::store::{WindowStore, start_bytes};

/// The task of a key, and the key's bytes.
type Found<K, V> = (TaskView<WindowStore<K, V>>, Vec<u8>);

impl<K: 'static, V: 'static> View<WindowStore<K, V>> {
    /// Returns the value of a key in the window that starts at `start`, from the task that processes the records with
    /// this key. An expired window has no value.
    ///
    /// # Errors
    /// [`ViewError::Elsewhere`] if the key's task is in another process, [`ViewError::NoPlace`] if the key's partition
    /// is unknown. Otherwise as for [`task`](Self::task).
    pub fn get(&self, key: &K, start: Timestamp) -> Result<Option<V>, ViewError> {
        let (task, bytes) = self.of(key)?;
        Ok(task.row(&bytes, start)?.map(|(value, _)| value))
    }

    /// Returns the result of an operator for a key and a window, with its timestamp. A store of closures has no
    /// timestamps.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_with_time(
        &self,
        key: &K,
        start: Timestamp,
    ) -> Result<Option<(V, Option<Timestamp>)>, ViewError> {
        let (task, bytes) = self.of(key)?;
        task.row(&bytes, start)
    }

    /// Returns the values of a key in the windows that start at these times. Missing windows are left out.
    /// [`Tumbling::starts`](crate::windows::Tumbling::starts) returns the starts in a range of time.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn fetch(
        &self,
        key: &K,
        starts: impl IntoIterator<Item = Timestamp>,
    ) -> Result<Vec<(Timestamp, V)>, ViewError> {
        let (task, bytes) = self.of(key)?;
        task.values(&bytes, starts)
    }

    /// Returns the task of a key, and the key's bytes.
    fn of(&self, key: &K) -> Result<Found<K, V>, ViewError> {
        let codec = self.store.access.codec();
        let bytes = encode(codec, key, &self.store.name)?;
        Ok((self.task_at(codec, key, &bytes)?, bytes))
    }
}

impl<K: 'static, V: 'static> TaskView<WindowStore<K, V>> {
    /// Returns the value of a key in the window that starts at `start`, in this task.
    ///
    /// # Errors
    /// [`ViewError::Moved`] if the task has moved in the meantime.
    pub fn get(&self, key: &K, start: Timestamp) -> Result<Option<V>, ViewError> {
        let bytes = encode(self.store.access.codec(), key, &self.store.name)?;
        Ok(self.row(&bytes, start)?.map(|(value, _)| value))
    }

    /// Returns the values of a key in the windows that start at these times, in this task.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn fetch(
        &self,
        key: &K,
        starts: impl IntoIterator<Item = Timestamp>,
    ) -> Result<Vec<(Timestamp, V)>, ViewError> {
        let bytes = encode(self.store.access.codec(), key, &self.store.name)?;
        self.values(&bytes, starts)
    }

    /// Returns all rows of this task in the windows that start in this range of time, sorted by start and then by the
    /// keys' bytes. Expired windows are left out.
    #[must_use]
    pub fn all(
        &self,
        starts: impl RangeBounds<Timestamp>,
    ) -> ViewRows<WindowStore<K, V>, (Timestamp, K, V)> {
        let range = WindowAccess::<K, V>::range(&starts, self.expired_before);
        ViewRows::new(self, range, |task, key, row| {
            if key == crate::store::TERMS {
                return Ok(None);
            }
            let access = &task.store.access;
            let unreadable = |error| task.unreadable(error);
            let (start, key) = access.decode_key(key).map_err(unreadable)?;
            let (value, _) = access.decode_value(row).map_err(unreadable)?;
            Ok(Some((start, key, value)))
        })
    }

    fn row(&self, key: &[u8], start: Timestamp) -> Result<Option<Timed<V>>, ViewError> {
        if start < self.expired_before {
            return Ok(None);
        }
        let row = [&start_bytes(start)[..], key].concat();
        let Some(row) = self.get_raw(&row)? else {
            return Ok(None);
        };
        let value = self.store.access.decode_value(&row);
        value.map(Some).map_err(|error| self.unreadable(error))
    }

    fn values(
        &self,
        key: &[u8],
        starts: impl IntoIterator<Item = Timestamp>,
    ) -> Result<Vec<(Timestamp, V)>, ViewError> {
        let mut values = Vec::new();
        for start in starts {
            if let Some((value, _)) = self.row(key, start)? {
                values.push((start, value));
            }
        }
        Ok(values)
    }
}
