//! Stores in key order.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use eos_state::KeyRange;

use super::entries::Entries;
use super::{Definition, KeyValueStore, KeyValueView, StateError};
use crate::codec::{Codec, Json, OrderedCodec, OrderedKey, Plain, PlainType, PrefixOf};
use crate::failure::Failure;

/// A store of keys and values in key order, with reads of ranges and prefixes.
///
/// ```
/// # use eos_core::state::OrderedStore;
/// # use eos_core::App;
/// # let mut app = App::new("a");
/// // By customer, then by time.
/// let visits = app.store(&OrderedStore::<(String, i64), String>::plain("visits"));
/// ```
///
/// Compared to a [`KeyValueStore`], it also keeps the changes of the open transaction in order.
pub struct OrderedStore<K, V> {
    pub(crate) inner: KeyValueStore<K, V>,
}

impl<K, V> OrderedStore<K, V> {
    /// Values are JSON. Keys are encoded by [`OrderedKey`].
    pub fn json(name: &str) -> Self
    where
        K: OrderedKey,
        Json: Codec<V>,
    {
        Self::with(name, Json)
    }

    /// Values are plain: text (UTF-8), bytes, integers. Keys are encoded by [`OrderedKey`].
    pub fn plain(name: &str) -> Self
    where
        K: OrderedKey,
        V: PlainType,
    {
        Self::with(name, Plain)
    }

    /// Creates a store with a value codec of your choice.
    pub fn with(name: &str, value: impl Codec<V>) -> Self
    where
        K: OrderedKey,
    {
        Self {
            inner: KeyValueStore {
                name: name.into(),
                key: Arc::new(OrderedCodec),
                value: Arc::new(value),
                is_stamped: false,
                expire_after: None,
            },
        }
    }

    /// Lets a row expire this long after its last write, in stream time. See [`KeyValueStore::expire_after`].
    #[must_use]
    pub fn expire_after(self, after: Duration) -> Self {
        Self {
            inner: self.inner.expire_after(after),
        }
    }

    /// The name of the store.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }
}

impl<K, V> Clone for OrderedStore<K, V> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K, V> fmt::Debug for OrderedStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedStore")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}

/// A view of an ordered store for the current record. Returned by [`Ctx::store`](crate::Ctx::store).
///
/// Like [`KeyValueView`], with reads of ranges and prefixes.
pub struct OrderedView<'c, K, V> {
    view: KeyValueView<'c, K, V>,
}

impl<'c, K: OrderedKey, V: 'static> OrderedView<'c, K, V> {
    pub(crate) fn new(view: KeyValueView<'c, K, V>) -> Self {
        Self { view }
    }

    /// See [`KeyValueView::get`].
    #[must_use = "return the failure with `?`"]
    pub fn get(&self, key: &K) -> Result<Option<V>, Failure> {
        self.view.get(key)
    }

    /// See [`KeyValueView::put`].
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn put(&self, key: &K, value: &V) -> Result<(), Failure> {
        self.view.put(key, value)
    }

    /// See [`KeyValueView::delete`].
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn delete(&self, key: &K) -> Result<(), Failure> {
        self.view.delete(key)
    }

    /// See [`KeyValueView::update`].
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn update(&self, key: &K, f: impl FnOnce(Option<V>) -> V) -> Result<V, Failure> {
        self.view.update(key, f)
    }

    /// Returns the entries between two keys, in key order. An inverted range is empty.
    ///
    /// ```
    /// # use eos_core::state::OrderedStore;
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let waiting = app.store(&OrderedStore::<i64, String>::plain("waiting"));
    /// let due = app.output(&Topic::<(), String>::plain("due"));
    /// app.source(&Topic::<(), i64>::plain("ticks"))
    ///     .with_store(&waiting)
    ///     .for_each(move |ctx, tick| {
    ///         let store = ctx.store(&waiting);
    ///         for entry in store.range(..=tick.value) {
    ///             let (at, what) = entry?;
    ///             ctx.emit(&due, (), what)?;
    ///             store.delete(&at)?;
    ///         }
    ///         Ok(())
    ///     });
    /// ```
    pub fn range(&self, range: impl RangeBounds<K>) -> Entries<'c, (K, V)> {
        self.entries(ordered_range(&range))
    }

    /// Returns the entries whose keys begin with a text, with bytes, or with the first part of a pair.
    ///
    /// ```
    /// # use eos_core::state::OrderedStore;
    /// # use eos_core::{App, Failure, Topic};
    /// # let mut app = App::new("a");
    /// let visits = app.store(&OrderedStore::<(String, i64), String>::plain("visits"));
    /// let last = app.output(&Topic::<String, String>::plain("last-pages"));
    /// app.source(&Topic::<String, ()>::plain("leaving"))
    ///     .with_store(&visits)
    ///     .for_each(move |ctx, user| {
    ///         let store = ctx.store(&visits);
    ///         // From the latest on.
    ///         for entry in store.prefix(&user.key).reverse().take(3) {
    ///             let ((_user, _time), page) = entry?;
    ///             ctx.emit(&last, user.key.clone(), page)?;
    ///         }
    ///         Ok::<_, Failure>(())
    ///     });
    /// ```
    pub fn prefix<P: PrefixOf<K> + ?Sized>(&self, prefix: &P) -> Entries<'c, (K, V)> {
        let mut bytes = Vec::new();
        prefix.write_prefix(&mut bytes);
        self.entries(KeyRange::prefix(&bytes))
    }

    fn entries(&self, range: KeyRange) -> Entries<'c, (K, V)> {
        let found = match self.view.found() {
            Ok(found) => found,
            Err(error) => return Entries::error(error),
        };
        let decode = move |key: &[u8], value: &[u8]| -> Result<Option<(K, V)>, StateError> {
            let unreadable = |source| found.unreadable(source);
            let Some((key, value)) = found.live(key, value) else {
                return Ok(None);
            };
            let key = K::read_last(key).map_err(unreadable)?;
            let value = found.definition.decode_value(value);
            Ok(Some((key, value.map_err(unreadable)?)))
        };
        let range = found.range(range);
        let failed = move |error| found.failed(error);
        Entries::new(found.task, found.id, range, failed, Box::new(decode))
    }
}

/// Returns the bytes of a range of keys.
pub(crate) fn ordered_range<K: OrderedKey>(range: &impl RangeBounds<K>) -> KeyRange {
    let bytes = |key: &K| {
        let mut bytes = Vec::new();
        key.write_last(&mut bytes);
        bytes
    };
    let (from, to) = (range.start_bound().map(bytes), range.end_bound().map(bytes));
    KeyRange::between((slice(&from), slice(&to)))
}

pub(super) fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl<K, V> fmt::Debug for OrderedView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderedView")
    }
}
