//! What keeps something per key: groups, and the tables that come of them.

use std::fmt;
use std::sync::Arc;

use crate::keys::Partitioned;
use crate::store::{KeyValueStore, Stamped};
use crate::stream::Stream;
use crate::topic::Topic;
use crate::topology::{Aggregate, Kind};

/// The records of a stream by their keys. Made by [`Stream::group_by_key`].
#[must_use = "groups do nothing until they are counted, reduced or aggregated"]
pub struct Grouped<K, V> {
    pub(crate) stream: Stream<K, V>,
}

impl<K: 'static, V: 'static> Grouped<K, V> {
    pub(crate) fn new(stream: Stream<K, V>) -> Self {
        Self { stream }
    }

    /// Counts the records of each key.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let clicks = Topic::<String, String>::plain("clicks");
    /// let counts = KeyValueStore::<String, u64>::plain("counts");
    /// app.source(&clicks).group_by_key().count(&counts).to(&Topic::plain("clicks-by-user"));
    /// ```
    ///
    /// # Exactly-once
    /// Each record counts once, whatever dies.
    pub fn count(self, store: &KeyValueStore<K, u64>) -> Table<K, u64> {
        self.kept(Kind::Count, store, |_, _, count| count.unwrap_or(0) + 1)
    }

    /// Makes one value of all values of a key: the first one, then what `f` makes of the result so far
    /// and the next value.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let amounts = Topic::<String, u64>::plain("amounts");
    /// let largest = KeyValueStore::<String, u64>::plain("largest");
    /// app.source(&amounts).group_by_key().reduce(&largest, u64::max).to(&Topic::plain("records"));
    /// ```
    pub fn reduce(
        self,
        store: &KeyValueStore<K, V>,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> Table<K, V> {
        self.kept(Kind::Reduce, store, move |_, value, result| match result {
            Some(result) => f(result, value),
            None => value,
        })
    }

    /// Makes a result of another type of all values of a key: `init` begins it, `f` adds a value.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let pages = Topic::<String, String>::plain("pages");
    /// let visited = KeyValueStore::<String, Vec<String>>::json("visited");
    /// app.source(&pages)
    ///     .group_by_key()
    ///     .aggregate(&visited, Vec::new, |_user, page, mut pages| {
    ///         pages.push(page);
    ///         pages
    ///     })
    ///     .to(&Topic::json("paths"));
    /// ```
    pub fn aggregate<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> Table<K, A> {
        self.kept(Kind::Aggregate, store, move |key, value, result| {
            f(key, value, result.unwrap_or_else(&init))
        })
    }

    fn kept<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &KeyValueStore<K, A>,
        f: impl Fn(&K, V, Option<A>) -> A + Send + Sync + 'static,
    ) -> Table<K, A> {
        let f = Arc::new(f);
        let store = self.stream.own_store(&store.stamped());
        let stream = self.stream.then(kind(store), move || {
            Box::new(Aggregate::<K, V, A, _>::new(store, Arc::clone(&f)))
        });
        Table { stream }
    }
}

impl<K, V> fmt::Debug for Grouped<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grouped").field(&self.stream).finish()
    }
}

/// The latest result of each key.
///
/// Every update goes on at once, with the highest time of the records behind it: a reader sees each
/// result in turn, of each key in order.
#[must_use = "a table is kept, but nobody hears of it until it ends in `to` or `to_stream`"]
pub struct Table<K, V> {
    stream: Stream<K, V>,
}

impl<K: 'static, V: 'static> Table<K, V> {
    /// Writes each update to a topic.
    pub fn to(self, topic: &Topic<K, V>) {
        self.stream.to(topic);
    }

    /// The updates, as a stream.
    pub fn to_stream(self) -> Stream<K, V, Partitioned> {
        self.stream
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.stream).finish()
    }
}

impl<K: 'static, V: 'static> KeyValueStore<K, V> {
    /// The same store, of values with their times.
    fn stamped(&self) -> KeyValueStore<K, Stamped<V>> {
        KeyValueStore {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::new(crate::store::StampedCodec(Arc::clone(&self.value))),
        }
    }
}
