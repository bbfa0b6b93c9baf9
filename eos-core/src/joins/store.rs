//! The definition of a join's store.

use std::fmt;
use std::sync::Arc;

use eos_protocol::joins::{JoinRow, JoinTerms, Side, SpreadEntry, key_of_head};
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::windows::Expiry;
use eos_protocol::{Clock, Timestamp};
use eos_state::{StoreBackend, StoreKind};

use crate::codec::{Codec, CodecError, Encoded, Field, Json, Part, Plain, PlainType};
use crate::sides::{Sided, Sides};
use crate::store::{KeyValueStore, RowsError, RowsOf, StateError, StoreRows, StoreSpec, live_rows};

/// A store of the records of a join of streams, for [`join_within`](crate::Stream::join_within),
/// [`left_join_within`](crate::Stream::left_join_within) and [`outer_join_within`](crate::Stream::outer_join_within).
///
/// It keeps the records of both sides until no partner can arrive in time. The name identifies the store. A later
/// version of the program may change the grace of the join. If it changes the method, `before` or `after`, it does not
/// start.
///
/// ```
/// # use eos_core::state::JoinStore;
/// let store = JoinStore::<String, String, u64>::plain("orders-shipments");
/// ```
pub struct JoinStore<K, V, W> {
    name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
    left: Arc<dyn Codec<V>>,
    right: Arc<dyn Codec<W>>,
}

/// A waiting record: its key and time, and the value of its side.
type Waiting<K, V, W> = ((K, Timestamp), Sides<V, W>);

impl<K, V, W> JoinStore<K, V, W> {
    /// Values are JSON; keys are plain (text, bytes, integers).
    pub fn json(name: &str) -> Self
    where
        K: PlainType,
        Json: Codec<V> + Codec<W>,
    {
        Self::with(name, Plain, Json, Json)
    }

    /// Keys and values are plain: text (UTF-8), bytes, integers.
    pub fn plain(name: &str) -> Self
    where
        K: PlainType,
        V: PlainType,
        W: PlainType,
    {
        Self::with(name, Plain, Plain, Plain)
    }

    /// Creates a store with codecs of your choice, for the key and the values of both sides. Equal keys must have equal
    /// bytes.
    pub fn with(name: &str, key: impl Codec<K>, left: impl Codec<V>, right: impl Codec<W>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            left: Arc::new(left),
            right: Arc::new(right),
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    fn field(&self, part: Part) -> Field<'_> {
        Field::bare(&self.name, part)
    }
}

impl<K: 'static, V: 'static, W: 'static> JoinStore<K, V, W> {
    /// The store of the records.
    pub(crate) fn rows_spec(&self, terms: JoinTerms) -> StoreSpec {
        let store = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(&self.name);
        StoreSpec {
            id: StoreId::own(&self.name, OwnRows::Joined),
            expiry: Some(Expiry::of_join(terms)),
            definition: Box::new(self.clone()),
            // The records of a spread row are read as a range.
            ..store.spec(StoreKind::Ordered)
        }
    }

    /// The store of the moments of unpaired results.
    pub(crate) fn alone_spec(&self) -> StoreSpec {
        let store = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(&self.name);
        StoreSpec {
            id: StoreId::own(&self.name, OwnRows::Alone),
            clock: Some(Clock::Stream),
            ..store.spec(StoreKind::Point)
        }
    }

    pub(crate) fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<(), StateError> {
        let encoded = self.key.encode(key, into, &self.field(Part::Key));
        let encoded = encoded.map_err(|source| StateError::Key {
            store: Arc::clone(&self.name),
            source,
        })?;
        match encoded {
            Encoded::Bytes => Ok(()),
            Encoded::Null => Err(StateError::NoJoinKey {
                store: Arc::clone(&self.name),
            }),
        }
    }

    pub(crate) fn encode_value(
        &self,
        value: &Sided<V, W>,
        into: &mut Vec<u8>,
    ) -> Result<(), StateError> {
        let field = self.field(Part::Value);
        let encoded = match value {
            Sided::Left(value) => self.left.encode(value, into, &field),
            Sided::Right(value) => self.right.encode(value, into, &field),
        };
        let encoded = encoded.map_err(|source| StateError::Value {
            store: Arc::clone(&self.name),
            source,
        })?;
        match encoded {
            Encoded::Bytes => Ok(()),
            Encoded::Null => Err(StateError::NoJoinValue {
                store: Arc::clone(&self.name),
            }),
        }
    }

    pub(crate) fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        self.key.decode(Some(bytes), &self.field(Part::Key))
    }

    pub(crate) fn decode_value(&self, side: Side, bytes: &[u8]) -> Result<Sided<V, W>, CodecError> {
        let field = self.field(Part::Value);
        Ok(match side {
            Side::Left => Sided::Left(self.left.decode(Some(bytes), &field)?),
            Side::Right => Sided::Right(self.right.decode(Some(bytes), &field)?),
        })
    }

    fn row(
        &self,
        key: &[u8],
        (side, time, value): (Side, Timestamp, &[u8]),
    ) -> Result<Waiting<K, V, W>, CodecError> {
        let value = match self.decode_value(side, value)? {
            Sided::Left(value) => Sides::Left(value),
            Sided::Right(value) => Sides::Right(value),
        };
        Ok(((self.decode_key(key)?, time), value))
    }

    fn rows_of(&self, key: &[u8], row: &[u8]) -> Result<RowsOf<Self>, CodecError> {
        let damaged = |e: String| CodecError::invalid("a row of a join", e);
        let found = key_of_head(key).ok_or_else(|| damaged("its key is cut short".to_owned()))?;
        match found {
            (key, []) => {
                let row = JoinRow::decode(row).map_err(|e| damaged(e.to_string()))?;
                row.records().map(|record| self.row(key, record)).collect()
            }
            (key, place) => {
                let entry = SpreadEntry::decode(place, row);
                let stored = entry.map_err(|e| damaged(e.to_string()))?.stored;
                let row = self.row(key, (stored.side, stored.time, &stored.value))?;
                Ok(vec![row])
            }
        }
    }
}

impl<K: 'static, V: 'static, W: 'static> StoreRows for JoinStore<K, V, W> {
    /// The key and the time of a record.
    type Key = (K, Timestamp);
    type Value = Sides<V, W>;

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::own(&self.name, OwnRows::Joined))?;
        let mut found = Vec::new();
        for (key, row) in rows {
            let rows = self.rows_of(&key, &row).map_err(|source| RowsError::Row {
                store: self.name.to_string(),
                source,
            })?;
            found.extend(rows);
        }
        Ok(found)
    }
}

impl<K, V, W> Clone for JoinStore<K, V, W> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            left: Arc::clone(&self.left),
            right: Arc::clone(&self.right),
        }
    }
}

impl<K, V, W> fmt::Debug for JoinStore<K, V, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
