//! Rows of a store's database, for test kits.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::state::{Family, OwnRows, Standing, StoreId};
use eos_protocol::windows::{Expiry, Terms};
use eos_state::{Direction, KeyRange, StoreBackend, StoreError, due_row};

use super::window::{TERMS, decode_key, window_of};
use super::{Definition, KeyValueStore, OrderedStore, StampedCodec, WindowStore};
use crate::codec::{Codec, CodecError, Decode, Field, OrderedKey, Part};

/// A store whose committed rows can be read from the database of a task.
///
/// Works for stores of closures and of operators.
pub trait StoreRows {
    /// The key of a row. For windows: the start and the key.
    type Key;
    /// The value of a row.
    type Value;

    /// The store's name.
    fn store_name(&self) -> &str;

    /// Returns the rows in the order of their keys' bytes, without expired windows.
    ///
    /// # Errors
    /// [`RowsError`] if the database or one of its rows can't be read.
    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError>;
}

/// Keys and values as bytes.
pub type RawRows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of a store.
pub type RowsOf<S> = Vec<(<S as StoreRows>::Key, <S as StoreRows>::Value)>;

/// An error while the rows of a store are read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A row can't be decoded with these types.
    #[error(
        "the store {store} holds a row of other types: {source}. Read the store with the app's own definition of \
         it"
    )]
    Row {
        /// The store's name.
        store: String,
        /// The cause.
        source: CodecError,
    },
}

/// Both ids that a store of this name may have, and whether its values have a time in front of them.
fn ids(family: Family, name: &str) -> [(StoreId, bool); 2] {
    let plain = match family {
        Family::Plain => StoreId::plain(name),
        Family::Windowed => StoreId::windowed(name),
    };
    [(plain, false), (StoreId::stamped(family, name), true)]
}

/// The rows of both, decoded.
fn read<R>(
    database: &dyn StoreBackend,
    (family, name): (Family, &str),
    decode: impl Fn(bool, &[u8], &[u8]) -> Result<R, CodecError>,
) -> Result<Vec<R>, RowsError> {
    let mut rows = Vec::new();
    for (id, stamped) in ids(family, name) {
        for (key, value) in live_rows(database, id)? {
            let row = decode(stamped, &key, &value).map_err(|source| RowsError::Row {
                store: name.to_owned(),
                source,
            })?;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns the rows of a store as bytes, in key order. Expired windows are left out, whether the database has deleted
/// them or not.
///
/// # Errors
/// If the database can't be read.
pub fn live_rows(database: &dyn StoreBackend, store: StoreId) -> Result<RawRows, StoreError> {
    let expired_before = expired_before(database, store)?;
    let is_live = |key: &[u8]| match store.is_windowed() {
        true => window_of(key).is_some_and(|start| start >= expired_before),
        false => true,
    };
    let mut rows = Vec::new();
    let mut cursor = database.scan(store, &KeyRange::all(), Direction::Forward)?;
    while let Some((key, value)) = cursor.entry() {
        if is_live(key) {
            rows.push((key.to_vec(), value.to_vec()));
        }
        cursor.advance()?;
    }
    Ok(rows)
}

fn value<V: 'static>(
    codec: &Arc<dyn Codec<V>>,
    field: &Field<'_>,
    stamped: bool,
    bytes: &[u8],
) -> Result<V, CodecError> {
    if stamped {
        let stamped = StampedCodec(Arc::clone(codec)).decode(Some(bytes), field)?;
        Ok(stamped.value)
    } else {
        codec.decode(Some(bytes), field)
    }
}

impl<K: 'static, V: 'static> StoreRows for KeyValueStore<K, V> {
    type Key = K;
    type Value = V;

    fn store_name(&self) -> &str {
        self.name()
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        if self.expire_after.is_some() {
            return self.unexpired(database);
        }
        let store = (Family::Plain, self.name());
        read(database, store, |stamped, key, bytes| {
            let key = self.decode_key(key)?;
            Ok((
                key,
                value(&self.value, &self.field(Part::Value), stamped, bytes)?,
            ))
        })
    }
}

impl<K: 'static, V: 'static> KeyValueStore<K, V> {
    /// Returns the rows that are not expired at the committed stream time.
    fn unexpired(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let now = stream_time(database);
        let rows = live_rows(database, StoreId::own(self.name(), OwnRows::Expiring))?;
        let rows = rows.iter().filter_map(|(key, row)| due_row(key, row));
        let live = rows.filter(|(_, due, _)| now.is_none_or(|now| *due > now));
        let decoded = live.map(|(key, _, bytes)| {
            let value = self
                .decode_key(key)
                .and_then(|key| Ok((key, self.decode_value(bytes)?)));
            value.map_err(|source| RowsError::Row {
                store: self.name().to_owned(),
                source,
            })
        });
        decoded.collect()
    }
}

impl<K: OrderedKey, V: 'static> StoreRows for OrderedStore<K, V> {
    type Key = K;
    type Value = V;

    fn store_name(&self) -> &str {
        self.name()
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        self.inner.rows(database)
    }
}

impl<K: 'static, V: 'static> StoreRows for WindowStore<K, V> {
    type Key = (Timestamp, K);
    type Value = V;

    fn store_name(&self) -> &str {
        self.name()
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let store = (Family::Windowed, self.name());
        read(database, store, |stamped, key, bytes| {
            let key = decode_key(self, key)?;
            Ok((
                key,
                value(&self.value, &self.field(Part::Value), stamped, bytes)?,
            ))
        })
    }
}

/// Returns the committed stream time of a database.
fn stream_time(database: &dyn StoreBackend) -> Option<Timestamp> {
    match database.position().map(|position| &position.standing) {
        Some(Standing::At { stream_time, .. }) => *stream_time,
        _ => None,
    }
}

/// Windows that start before this are over, by the terms that are written beside them.
fn expired_before(database: &dyn StoreBackend, store: StoreId) -> Result<Timestamp, StoreError> {
    let mut bytes = Vec::new();
    let there = store.is_windowed() && database.get(store, TERMS, &mut bytes)?;
    let terms = there.then_some(&bytes[..]);
    Ok(windows_over_before(terms, stream_time(database)))
}

/// Windows that start before this are over at a stream time, by these terms of the store.
pub(crate) fn windows_over_before(
    terms: Option<&[u8]>,
    stream_time: Option<Timestamp>,
) -> Timestamp {
    const NEVER: Timestamp = Timestamp(i64::MIN);
    // A task refuses terms that it can't read before its first record.
    let Some(terms) = terms.and_then(|bytes| Terms::decode(bytes).ok()) else {
        return NEVER;
    };
    let mut expiry = Expiry::new(Duration::MAX, terms.size()).every(terms.advance());
    let taken = expiry.take_over(&terms, stream_time);
    taken.map_or(NEVER, |_| expiry.expired_before(stream_time))
}
