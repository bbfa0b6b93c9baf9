//! Store definitions and views.

mod entries;
mod ordered;
mod rows;
mod session;
mod sliding;
mod stamped;
mod state_error;
mod view;
mod window;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::Clock;
use eos_protocol::state::{Family, OwnRows, StoreId};
use eos_state::StoreKind;

use crate::codec::{Codec, CodecError, Encoded, Field, Json, Part, Plain, PlainType};

pub use entries::Entries;
pub(crate) use ordered::ordered_range;
pub use ordered::{OrderedStore, OrderedView};
pub(crate) use rows::windows_over_before;
pub use rows::{RawRows, RowsError, RowsOf, StoreRows, live_rows};
pub use session::SessionStore;
pub(crate) use session::window_of as session_window;
pub use sliding::SlidingStore;
pub(crate) use stamped::{Stamped, StampedCodec, unstamped};
pub(crate) use state_error::StateError;
pub use view::KeyValueView;
pub(crate) use view::{Buffers, MostAhead, StateAccess, StoreSpec};
pub(crate) use window::{
    TERMS, decode_key as window_row_key, range as window_range, start_bytes, window_of,
    windows_between,
};
pub use window::{WindowStore, WindowView};

/// The definition of a store.
pub(crate) trait Definition: Any + Send + Sync {
    type Value;

    fn name(&self) -> &Arc<str>;

    /// The codec of the values.
    fn codec(&self) -> &dyn Codec<Self::Value>;

    /// How long a row lives after its last write.
    fn expire_after(&self) -> Option<Duration> {
        None
    }

    /// The place of its keys or values, for their codecs.
    fn field(&self, part: Part) -> Field<'_> {
        Field::bare(self.name(), part)
    }

    fn decode_value(&self, bytes: &[u8]) -> Result<Self::Value, CodecError> {
        self.codec().decode(Some(bytes), &self.field(Part::Value))
    }
}

/// A store of keys and values: its name, types and codecs.
///
/// The name identifies the store: changelog records carry it, so an app finds its stores after other changes. A store
/// with a new name is a new, empty store.
///
/// Stores of operators (`count`, `reduce`, `aggregate`, a table) and stores of closures have different value formats.
/// An app that turns one kind into the other does not start; the error names the fix.
///
/// ```
/// # use eos_core::KeyValueStore;
/// let counts = KeyValueStore::<String, u64>::plain("counts");
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Basket { items: Vec<String> }
/// let baskets = KeyValueStore::<String, Basket>::json("baskets");
/// ```
pub struct KeyValueStore<K, V> {
    pub(crate) name: Arc<str>,
    pub(crate) key: Arc<dyn Codec<K>>,
    pub(crate) value: Arc<dyn Codec<V>>,
    /// Whether each value is preceded by a timestamp.
    pub(crate) is_stamped: bool,
    /// How long a row lives after its last write.
    pub(crate) expire_after: Option<Duration>,
}

impl<K, V> KeyValueStore<K, V> {
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

    /// Creates a store with codecs of your choice: [`Json`], [`Plain`] or your own.
    ///
    /// Equal keys must have equal bytes. Otherwise a lookup misses existing keys.
    pub fn with(name: &str, key: impl Codec<K>, value: impl Codec<V>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            value: Arc::new(value),
            is_stamped: false,
            expire_after: None,
        }
    }

    /// Lets a row expire this long after its last write, in stream time.
    ///
    /// A row that was written at stream time `t` is gone once stream time reaches `t + after`, exactly: neither reads nor
    /// scans return it. The database and the changelog delete it a little later, between records. A write renews the row. In
    /// a task without stream time, a write fails.
    ///
    /// Only stores of closures expire rows, not those of operators. The next program may change the duration: it applies to
    /// rows that are written from then on. To add or remove `expire_after` on an existing
    /// store, start under another app name.
    ///
    /// ```
    /// # use eos_core::KeyValueStore;
    /// # use std::time::Duration;
    /// let codes = KeyValueStore::<String, u64>::plain("codes").expire_after(Duration::from_secs(300));
    /// ```
    #[must_use]
    pub fn expire_after(mut self, after: Duration) -> Self {
        self.expire_after = Some(after);
        self
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K, V> Clone for KeyValueStore<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
            is_stamped: self.is_stamped,
            expire_after: self.expire_after,
        }
    }
}

impl<K, V> fmt::Debug for KeyValueStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static> Definition for KeyValueStore<K, V> {
    type Value = V;

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn codec(&self) -> &dyn Codec<V> {
        &*self.value
    }

    fn expire_after(&self) -> Option<Duration> {
        self.expire_after
    }
}

impl<K: 'static, V: 'static> KeyValueStore<K, V> {
    fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<Encoded, CodecError> {
        self.key.encode(key, into, &self.field(Part::Key))
    }

    pub(crate) fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        self.key.decode(Some(bytes), &self.field(Part::Key))
    }

    pub(crate) fn spec(&self, kind: StoreKind) -> StoreSpec {
        StoreSpec {
            name: Arc::clone(&self.name),
            id: match (self.is_stamped, self.expire_after) {
                (_, Some(_)) => StoreId::own(&self.name, OwnRows::Expiring),
                (true, None) => StoreId::stamped(Family::Plain, &self.name),
                (false, None) => StoreId::plain(&self.name),
            },
            kind,
            expiry: None,
            windows: None,
            is_final: false,
            closes_when_idle: false,
            clock: self.expire_after.map(|_| Clock::Background),
            period: None,
            trusts_times: false,
            definition: Box::new(self.clone()),
        }
    }
}
