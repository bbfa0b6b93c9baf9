//! A store of sliding windows.

use std::fmt;

use eos_protocol::Timestamp;
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::windows::SlidingRow;
use eos_state::{StoreBackend, due_row};

use super::SessionStore;
use super::rows::{RowsError, RowsOf, StoreRows, live_rows};
use crate::codec::{Codec, CodecError, Json, PlainType};

/// A store of the sliding windows of each key, for
/// [`windowed_by(Sliding::of(..))`](crate::stream::Grouped::windowed_by).
///
/// It has one row per key with all windows of the key. A record needs a window until stream time is twice the length
/// plus the grace after its start. The next record of the key that is not late removes older windows. Without such a
/// record, a window leaves the store after twice this time. With final results, no window leaves before its result is
/// emitted.
///
/// ```
/// # use eos_core::state::SlidingStore;
/// let attempts = SlidingStore::<String, u64>::plain("attempts");
/// ```
pub struct SlidingStore<K, A> {
    pub(crate) inner: SessionStore<K, A>,
}

impl<K, A> SlidingStore<K, A> {
    /// Results are JSON; keys are plain (text, bytes, integers).
    pub fn json(name: &str) -> Self
    where
        K: PlainType,
        Json: Codec<A>,
    {
        Self {
            inner: SessionStore::json(name),
        }
    }

    /// Keys and results are plain: text (UTF-8), bytes, integers.
    pub fn plain(name: &str) -> Self
    where
        K: PlainType,
        A: PlainType,
    {
        Self {
            inner: SessionStore::plain(name),
        }
    }

    /// Creates a store with codecs of your choice. Equal keys must have equal bytes.
    pub fn with(name: &str, key: impl Codec<K>, result: impl Codec<A>) -> Self {
        Self {
            inner: SessionStore::with(name, key, result),
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }
}

impl<K: 'static, A: 'static> StoreRows for SlidingStore<K, A> {
    /// The key, and the start of the window.
    type Key = (K, Timestamp);
    type Value = A;

    fn store_name(&self) -> &str {
        self.name()
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::own(self.name(), OwnRows::Sliding))?;
        let unreadable = |source| RowsError::Row {
            store: self.name().to_owned(),
            source,
        };
        let mut found = Vec::new();
        for (key, _, row) in rows.iter().filter_map(|(key, row)| due_row(key, row)) {
            let row = SlidingRow::decode(row)
                .map_err(|e| unreadable(CodecError::invalid("windows of a key", e)))?;
            for window in row.between(Timestamp(i64::MIN), Timestamp(i64::MAX)) {
                let key = self.inner.decode_key(key).map_err(unreadable)?;
                let result = self.inner.decode_result(&window.result);
                found.push(((key, window.first), result.map_err(unreadable)?));
            }
        }
        Ok(found)
    }
}

impl<K, A> Clone for SlidingStore<K, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K, A> fmt::Debug for SlidingStore<K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlidingStore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
