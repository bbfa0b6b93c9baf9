//! Stores of values by key and window.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::state::{Family, StoreId};
use eos_protocol::windows::Expiry;
use eos_state::{KeyRange, StoreKind};

use super::entries::Entries;
use super::ordered::slice;
use super::view::Found;
use super::{Definition, MostAhead, StateAccess, StateError, StoreSpec};
use crate::codec::{Codec, CodecError, Encoded, Field, Json, Part, Plain, PlainType};
use crate::failure::Failure;

/// A store with a value for each key and window.
///
/// Windows expire by *stream time*, never by the clock. Stream time is the highest timestamp of the task's records. A
/// window that starts at `s` exists as long as `s + retention > stream time`. Expired windows are neither read nor
/// written. The database deletes them a little later. The worker purges the front of the changelog topic once that part
/// holds only expired windows.
///
/// ```
/// # use eos_core::state::WindowStore;
/// # use std::time::Duration;
/// // For a windowed count: kept until the windows are closed.
/// let views = WindowStore::<String, u64>::plain("views");
/// // For a closure of your own, or to read windows that are closed: kept for a day.
/// let day = Duration::from_secs(24 * 3600);
/// let last_day = WindowStore::<String, u64>::plain("last-day").retention(day);
/// ```
pub struct WindowStore<K, V> {
    pub(crate) name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
    pub(crate) value: Arc<dyn Codec<V>>,
    pub(crate) retention: Option<Duration>,
    /// Whether each value is preceded by a timestamp.
    pub(crate) is_stamped: bool,
}

impl<K, V> WindowStore<K, V> {
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
            retention: None,
            is_stamped: false,
        }
    }

    /// Sets how long a window is kept after its start, in stream time. For a store of an operator the default and the
    /// minimum is the windows' size plus grace.
    ///
    /// The next version of the program may change the retention. A shorter retention applies at once, and a longer one
    /// to the windows that still exist.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The spec for windows of this size with this retention.
    pub(crate) fn spec(&self, expiry: Expiry) -> StoreSpec
    where
        K: 'static,
        V: 'static,
    {
        StoreSpec {
            name: Arc::clone(&self.name),
            id: match self.is_stamped {
                true => StoreId::stamped(Family::Windowed, &self.name),
                false => StoreId::windowed(&self.name),
            },
            kind: StoreKind::Ordered,
            expiry: Some(expiry),
            windows: None,
            is_final: false,
            closes_when_idle: false,
            clock: None,
            period: None,
            trusts_times: false,
            definition: Box::new(self.clone()),
        }
    }
}

impl<K: 'static, V: 'static> Definition for WindowStore<K, V> {
    type Value = V;

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn codec(&self) -> &dyn Codec<V> {
        &*self.value
    }
}

impl<K, V> Clone for WindowStore<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
            retention: self.retention,
            is_stamped: self.is_stamped,
        }
    }
}

impl<K, V> fmt::Debug for WindowStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowStore")
            .field("name", &self.name)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

/// A view of a window store for the current record. Returned by [`Ctx::store`](crate::Ctx::store).
///
/// Windows that have expired at the record's stream time are invisible, whether the database has deleted them or not.
/// Reads depend only on earlier records.
///
/// # Errors
/// See [`KeyValueView`](crate::state::KeyValueView).
pub struct WindowView<'c, K, V> {
    found: Result<Found<'c, WindowStore<K, V>>, StateError>,
    /// Windows that start before this time have expired.
    expired_before: Timestamp,
    expiry: Option<Expiry>,
    stream_time: Option<Timestamp>,
    most_ahead: Option<MostAhead<'c>>,
}

impl<'c, K: 'static, V: 'static> WindowView<'c, K, V> {
    pub(crate) fn failed(error: StateError) -> Self {
        Self {
            found: Err(error),
            expired_before: Timestamp(i64::MIN),
            expiry: None,
            stream_time: None,
            most_ahead: None,
        }
    }

    pub(crate) fn new(
        access: &StateAccess<'c>,
        index: usize,
        stream_time: Option<Timestamp>,
    ) -> Self {
        let spec = access.specs.get(index);
        let its = spec.and_then(|spec| access.windows.iter().find(|(id, _)| *id == spec.id));
        let declared = || spec.and_then(|spec| spec.expiry);
        let expiry = its.map(|(_, expiry)| *expiry).or_else(declared);
        let expired_before = expiry.map(|expiry| expiry.expired_before(stream_time));
        Self {
            found: Found::new(access, index),
            expired_before: expired_before.unwrap_or(Timestamp(i64::MIN)),
            expiry,
            stream_time,
            most_ahead: access.most_ahead,
        }
    }

    /// Returns the value of a key in the window that starts at `start`.
    #[must_use = "return the failure with `?`"]
    pub fn get(&self, key: &K, start: Timestamp) -> Result<Option<V>, Failure> {
        Ok(self.read(key, start)?)
    }

    /// Sets the value of a key in the window that starts at `start`. Returns false, and stores nothing, if that window
    /// has expired.
    ///
    /// A window that starts more than an hour ahead of the machine's clock (`max.timestamp.ahead.ms`) is an error, because
    /// the changelog is kept until stream time is one retention after the start of the window.
    /// [`Stream::trust_times`](crate::Stream::trust_times) accepts it.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn put(&self, key: &K, start: Timestamp, value: &V) -> Result<bool, Failure> {
        self.check_start(start)?;
        Ok(self.write(key, start, value)?)
    }

    /// Checks that a window is not far ahead of the machine's clock.
    pub(crate) fn check_start(&self, start: Timestamp) -> Result<(), StateError> {
        let most_ahead = self.most_ahead;
        match most_ahead.and_then(|limit| limit.exceeded(start, self.stream_time)) {
            None => Ok(()),
            Some((ahead, limit)) => Err(StateError::FutureWindow {
                store: Arc::clone(&self.found()?.definition.name),
                start,
                ahead,
                limit,
            }),
        }
    }

    /// Deletes a key in the window that starts at `start`. A missing key is no error.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn delete(&self, key: &K, start: Timestamp) -> Result<(), Failure> {
        Ok(self.forget(key, start)?)
    }

    /// Returns the values of a key in the windows that start at these times. Missing windows are left out.
    /// [`Tumbling::starts`](crate::windows::Tumbling::starts) returns the starts in a range of time.
    #[must_use = "return the failure with `?`"]
    pub fn fetch(
        &self,
        key: &K,
        starts: impl IntoIterator<Item = Timestamp>,
    ) -> Result<Vec<(Timestamp, V)>, Failure> {
        let mut values = Vec::new();
        for start in starts {
            if let Some(value) = self.read(key, start)? {
                values.push((start, value));
            }
        }
        Ok(values)
    }

    /// Returns all entries of the windows that start in this range of time, in order of start, then of the keys' bytes.
    pub fn all(&self, starts: impl RangeBounds<Timestamp>) -> Entries<'c, (Timestamp, K, V)> {
        self.entries(&starts, |entry| entry)
    }

    /// Like [`all`](Self::all), and converts each entry.
    pub(crate) fn entries<T: 'c>(
        &self,
        starts: &impl RangeBounds<Timestamp>,
        convert: fn((Timestamp, K, V)) -> T,
    ) -> Entries<'c, T> {
        let found = match self.found() {
            Ok(found) => found,
            Err(error) => return Entries::error(error),
        };
        let decode = move |key: &[u8], value: &[u8]| {
            let (start, key) = read_key(&found, key)?;
            let value = found.definition.decode_value(value);
            let value = value.map_err(|e| found.unreadable(e))?;
            Ok(Some(convert((start, key, value))))
        };
        let failed = move |error| found.failed(error);
        let range = range(starts, self.expired_before);
        Entries::new(found.task, found.id, range, failed, Box::new(decode))
    }

    pub(crate) fn read(&self, key: &K, start: Timestamp) -> Result<Option<V>, StateError> {
        let found = self.found()?;
        if self.is_expired(start) {
            return Ok(None);
        }
        found.read(|into| encode(found.definition, key, start, into))
    }

    /// Whether no window from this one on has the key, if that is known without reads.
    pub(crate) fn lacks_since(&self, key: &K, start: Timestamp) -> Result<bool, StateError> {
        let found = self.found()?;
        found.lacks_since(|into| encode(found.definition, key, start, into))
    }

    pub(crate) fn write(&self, key: &K, start: Timestamp, value: &V) -> Result<bool, StateError> {
        let found = self.found()?;
        if self.is_expired(start) {
            return Ok(false);
        }
        found.write(|into| encode(found.definition, key, start, into), value)?;
        Ok(true)
    }

    pub(crate) fn forget(&self, key: &K, start: Timestamp) -> Result<(), StateError> {
        let found = self.found()?;
        if !self.is_expired(start) {
            found.forget(|into| encode(found.definition, key, start, into))?;
        }
        Ok(())
    }

    pub(crate) fn definition(&self) -> Result<&'c WindowStore<K, V>, StateError> {
        Ok(self.found()?.definition)
    }

    /// Decodes the start and the key from a database key.
    pub(crate) fn decode(&self, key: &[u8]) -> Result<(Timestamp, K), StateError> {
        read_key(&self.found()?, key)
    }

    /// Decodes a value from the database.
    pub(crate) fn decode_value(&self, value: &[u8]) -> Result<V, StateError> {
        let found = self.found()?;
        let value = found.definition.decode_value(value);
        value.map_err(|source| found.unreadable(source))
    }

    /// Whether the window that starts here is over.
    pub(crate) fn is_expired(&self, start: Timestamp) -> bool {
        start < self.expired_before
    }

    /// Whether the window that starts here takes no record, because its final results are or may be emitted.
    pub(crate) fn is_closed(&self, start: Timestamp) -> bool {
        self.is_expired(start) || self.expiry.is_some_and(|expiry| expiry.is_closed(start))
    }

    fn found(&self) -> Result<Found<'c, WindowStore<K, V>>, StateError> {
        self.found.as_ref().copied().map_err(StateError::again)
    }
}

impl<K, V> fmt::Debug for WindowView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowView")
    }
}

/// The key of a store's terms. The keys of windows are longer and sort after it.
pub(crate) const TERMS: &[u8] = &[];

/// The start comes first, so the expired windows are one range of keys.
fn encode<K: 'static, V>(
    store: &WindowStore<K, V>,
    key: &K,
    start: Timestamp,
    into: &mut Vec<u8>,
) -> Result<Encoded, CodecError> {
    into.extend_from_slice(&start_bytes(start));
    store
        .key
        .encode(key, into, &Field::bare(&store.name, Part::Key))
}

fn read_key<K: 'static, V: 'static>(
    found: &Found<'_, WindowStore<K, V>>,
    key: &[u8],
) -> Result<(Timestamp, K), StateError> {
    decode_key(found.definition, key).map_err(|source| found.unreadable(source))
}

/// Decodes the start and the key of a database key.
pub(crate) fn decode_key<K: 'static, V>(
    store: &WindowStore<K, V>,
    key: &[u8],
) -> Result<(Timestamp, K), CodecError> {
    let (start, key) = split(key)
        .ok_or_else(|| CodecError::invalid("a window and a key", "it has fewer than 8 bytes"))?;
    Ok((
        start,
        store
            .key
            .decode(Some(key), &Field::bare(&store.name, Part::Key))?,
    ))
}

/// Returns the start as big-endian bytes with the sign bit flipped, so that the bytes sort like the times.
pub(crate) fn start_bytes(start: Timestamp) -> [u8; 8] {
    (start.0 ^ i64::MIN).to_be_bytes()
}

fn split(key: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (start, key) = key.split_first_chunk()?;
    Some((Timestamp(i64::from_be_bytes(*start) ^ i64::MIN), key))
}

/// The start of the window that a key in the database belongs to.
pub(crate) fn window_of(key: &[u8]) -> Option<Timestamp> {
    Some(split(key)?.0)
}

/// Returns the keys of the windows that start in this range, without expired windows. An excluded start excludes all
/// keys of its window.
pub(crate) fn range(starts: &impl RangeBounds<Timestamp>, expired_before: Timestamp) -> KeyRange {
    let first = match starts.start_bound() {
        Bound::Unbounded => expired_before,
        Bound::Included(start) => expired_before.max(*start),
        Bound::Excluded(start) => match start.0.checked_add(1) {
            Some(after) => expired_before.max(Timestamp(after)),
            None => return KeyRange::between(&[0_u8; 0][..]..&[]),
        },
    };
    let end = match starts.end_bound() {
        Bound::Unbounded => None,
        Bound::Excluded(end) => Some(*end),
        Bound::Included(end) => end.0.checked_add(1).map(Timestamp),
    };
    let from = Bound::Included(start_bytes(first).to_vec());
    let to = end.map_or(Bound::Unbounded, |end| {
        Bound::Excluded(start_bytes(end).to_vec())
    });
    KeyRange::between((slice(&from), slice(&to)))
}

/// Returns the keys of the windows that start in the half-open interval from `from` to `to`. Without `from`, it begins
/// at the first window.
pub(crate) fn windows_between(from: Option<Timestamp>, to: Timestamp) -> KeyRange {
    let from = from.unwrap_or(Timestamp(i64::MIN));
    KeyRange::between(&start_bytes(from)[..]..&start_bytes(to))
}
