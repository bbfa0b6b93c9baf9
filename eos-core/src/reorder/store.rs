//! The definition of a store of waiting records.

use std::fmt;
use std::sync::Arc;

use eos_protocol::reorder::Held;
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::{Clock, Offset, Timestamp, TopicName};
use eos_state::{StoreBackend, StoreKind, due_row};

use crate::client::Headers;
use crate::codec::{Codec, CodecError, Encoded, Field, Json, Part, Plain, PlainType};
use crate::ctx::Ctx;
use crate::record::Record;
use crate::store::{KeyValueStore, RowsError, RowsOf, StateError, StoreRows, StoreSpec, live_rows};
use crate::topology::Fault;

/// The definition of a store of records that wait for their turn, for
/// [`reorder_by_time`](crate::Stream::reorder_by_time) and [`reorder_by`](crate::Stream::reorder_by).
///
/// It keeps the key, value, timestamp and headers of each waiting record. The name identifies the store. If another
/// operator has used the name, the app does not start: `reorder_by_time` and `reorder_by` can't read the records of
/// each other.
///
/// ```
/// # use eos_core::state::ReorderStore;
/// let waiting = ReorderStore::<String, u64>::plain("waiting");
/// ```
pub struct ReorderStore<K, V> {
    name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
    value: Arc<dyn Codec<V>>,
}

impl<K, V> ReorderStore<K, V> {
    /// Values are JSON; keys are plain (text, bytes, integers).
    pub fn json(name: &str) -> Self
    where
        K: PlainType,
        Json: Codec<V>,
    {
        Self::with(name, Plain, Json)
    }

    /// Keys and values are plain: text (UTF-8), bytes, integers.
    pub fn plain(name: &str) -> Self
    where
        K: PlainType,
        V: PlainType,
    {
        Self::with(name, Plain, Plain)
    }

    /// Creates a store with codecs of your choice. Equal keys must have equal bytes.
    pub fn with(name: &str, key: impl Codec<K>, value: impl Codec<V>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            value: Arc::new(value),
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

    pub(crate) fn spec(&self, rows: OwnRows, clock: Clock) -> StoreSpec {
        let store = KeyValueStore::<Vec<u8>, Vec<u8>>::plain(&self.name);
        let kind = match rows {
            // A gap that is given up ends the wait of all lower numbers.
            OwnRows::WaitingByNumber => StoreKind::Ordered,
            _ => StoreKind::Point,
        };
        StoreSpec {
            id: StoreId::own(&self.name, rows),
            clock: Some(clock),
            ..store.spec(kind)
        }
    }
}

impl<K: 'static, V: 'static> ReorderStore<K, V> {
    /// Returns a record as a row.
    pub(crate) fn row(&self, ctx: &Ctx<'_>, record: &Record<K, V>) -> Result<Vec<u8>, Fault> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let store = || Arc::clone(&self.name);
        let encoded = self
            .key
            .encode(&record.key, &mut key, &self.field(Part::Key));
        let has_key = encoded.map_err(|source| {
            let store = store();
            Fault::State(StateError::Key { store, source })
        })?;
        let encoded = self
            .value
            .encode(&record.value, &mut value, &self.field(Part::Value));
        let has_value = encoded.map_err(|source| {
            let store = store();
            Fault::State(StateError::Value { store, source })
        })?;
        let headers = record.headers.iter();
        let held = Held {
            time: record.timestamp,
            topic: ctx.topic().as_bytes(),
            offset: ctx.offset().get(),
            key: (has_key == Encoded::Bytes).then_some(&key[..]),
            value: (has_value == Encoded::Bytes).then_some(&value[..]),
            headers: headers
                .map(|it| (it.name().as_bytes(), it.value()))
                .collect(),
        };
        let mut row = Vec::new();
        held.encode(&mut row);
        Ok(row)
    }

    /// Reads the record of a row, its topic and its offset.
    pub(crate) fn record(
        &self,
        held: Held<'_>,
    ) -> Result<(Record<K, V>, TopicName, Offset), CodecError> {
        let mut headers = Headers::new();
        for (name, value) in held.headers {
            headers.push(&*String::from_utf8_lossy(name), value);
        }
        let record = Record {
            key: self.key.decode(held.key, &self.field(Part::Key))?,
            value: self.value.decode(held.value, &self.field(Part::Value))?,
            timestamp: held.time,
            headers,
        };
        let topic = TopicName::new(String::from_utf8_lossy(held.topic));
        let offset = Offset::new(held.offset).unwrap_or(Offset::ZERO);
        Ok((record, topic, offset))
    }

    pub(crate) fn unreadable(&self, source: CodecError) -> Fault {
        Fault::State(StateError::Unreadable {
            store: Arc::clone(&self.name),
            source,
        })
    }
}

impl<K: 'static, V: 'static> StoreRows for ReorderStore<K, V> {
    /// The moment until which the record waits.
    type Key = Timestamp;
    type Value = (K, V);

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let mut found = Vec::new();
        for of in [OwnRows::WaitingByTime, OwnRows::WaitingByNumber] {
            let rows = live_rows(database, StoreId::own(&self.name, of))?;
            for (_, due, row) in rows.iter().filter_map(|(key, row)| due_row(key, row)) {
                let held =
                    Held::decode(row).map_err(|e| CodecError::invalid("a waiting record", e));
                let record = held.and_then(|held| self.record(held));
                let (record, ..) = record.map_err(|source| RowsError::Row {
                    store: self.name.to_string(),
                    source,
                })?;
                found.push((due, (record.key, record.value)));
            }
        }
        Ok(found)
    }
}

impl<K, V> Clone for ReorderStore<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
        }
    }
}

impl<K, V> fmt::Debug for ReorderStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReorderStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
