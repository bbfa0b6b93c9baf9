//! Grouped streams.

use std::fmt;
use std::sync::Arc;

use crate::codec::Codec;
use crate::keys::Colocated;
use crate::store::{KeyValueStore, Stamped};
use crate::streams::Stream;
use crate::tables::Table;
use crate::topic::Topic;
use crate::topology::{Aggregate, AggregateOrDelete, Kind, Readers};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Groups the records by key, to count, reduce or aggregate them.
    ///
    /// Requires the records of a key in one task. After [`key_by`](Self::key_by), call
    /// [`repartition`](Self::repartition) first.
    ///
    /// Each record needs a key. With a key of type `Option`, a record with a null key fails, and the error policy
    /// applies. To drop such records, call [`filter_map_record`](Self::filter_map_record) before `repartition`.
    pub fn group_by_key(self) -> Grouped<K, V>
    where
        P: Colocated,
    {
        Grouped::new(self.partitioned())
    }

    /// Groups the records by a new key, which `f` returns for a value. Short for [`key_by`](Self::key_by),
    /// [`repartition`](Self::repartition) and [`group_by_key`](Self::group_by_key).
    ///
    /// `topic` sets the codecs and a part of the topic's name. The full name is `<app>-<name>-repartition`.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let orders = Topic::<String, String>::plain("orders");
    /// app.source(&orders)
    ///     .group_by(|product| product.clone(), &Topic::plain("orders-by-product"))
    ///     .count(&KeyValueStore::<String, u64>::plain("ordered"))
    ///     .to(&Topic::plain("most-ordered"));
    /// ```
    pub fn group_by<L, KC, VC>(
        self,
        f: impl Fn(&V) -> L + Send + Sync + 'static,
        topic: &Topic<L, V, KC, VC>,
    ) -> Grouped<L, V>
    where
        L: 'static,
        KC: Codec<L>,
        VC: Codec<V>,
    {
        self.key_by(f).repartition(topic).group_by_key()
    }
}

/// A stream grouped by key. Returned by [`Stream::group_by_key`].
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
    /// Each record counts once, even after a crash.
    pub fn count(self, store: &KeyValueStore<K, u64>) -> Table<K, u64, u64> {
        self.kept(Kind::Count, store, |_, _, count| count.unwrap_or(0) + 1)
    }

    /// Combines all values of a key into one. The first value is the first result. `f` combines the result and each
    /// further value.
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
    ) -> Table<K, V, V> {
        self.kept(Kind::Reduce, store, move |_, value, result| match result {
            Some(result) => f(result, value),
            None => value,
        })
    }

    /// Like [`reduce`](Self::reduce), but `f` may return `None` to delete the key. The update is then a tombstone, and
    /// the next value starts a new result.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // The stock of each product. A product that is sold out has no row.
    /// let bookings = Topic::<String, i64>::plain("bookings");
    /// app.source(&bookings)
    ///     .group_by_key()
    ///     .reduce_or_delete(&KeyValueStore::plain("stock"), |left, booked| {
    ///         Some(left + booked).filter(|left| *left > 0)
    ///     })
    ///     .to(&Topic::<String, Option<i64>>::plain("stock-updates"));
    /// ```
    ///
    /// A Kafka Streams reducer that returns null does the same. In both, the first value is stored without a call of
    /// `f`.
    pub fn reduce_or_delete(
        self,
        store: &KeyValueStore<K, V>,
        f: impl Fn(V, V) -> Option<V> + Send + Sync + 'static,
    ) -> Table<K, V> {
        let kind = Kind::ReduceOrDelete;
        self.kept_or_deleted(kind, store, move |_, value, result| match result {
            Some(result) => f(result, value),
            None => Some(value),
        })
    }

    /// Combines all values of a key into a result of another type. `init` creates the result, and `f` adds a value.
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
    ) -> Table<K, A, A> {
        self.kept(Kind::Aggregate, store, move |key, value, result| {
            f(key, value, result.unwrap_or_else(&init))
        })
    }

    /// Like [`aggregate`](Self::aggregate), but `f` may return `None` to delete the key. The update is then a
    /// tombstone, and the next value starts with `init` again.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // The items of each basket, until the checkout.
    /// let events = Topic::<String, String>::plain("basket-events");
    /// app.source(&events)
    ///     .group_by_key()
    ///     .aggregate_or_delete(
    ///         &KeyValueStore::<String, Vec<String>>::json("baskets"),
    ///         Vec::new,
    ///         |_customer, item, mut basket| {
    ///             if item == "checkout" {
    ///                 return None;
    ///             }
    ///             basket.push(item);
    ///             Some(basket)
    ///         },
    ///     )
    ///     .to(&Topic::json("open-baskets"));
    /// ```
    ///
    /// The deletion of a missing key is an update, too. A Kafka Streams aggregator that returns null does the same.
    pub fn aggregate_or_delete<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> Table<K, A> {
        let kind = Kind::AggregateOrDelete;
        self.kept_or_deleted(kind, store, move |key, value, result| {
            f(key, value, result.unwrap_or_else(&init))
        })
    }

    fn kept_or_deleted<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &KeyValueStore<K, A>,
        f: impl Fn(&K, V, Option<A>) -> Option<A> + Send + Sync + 'static,
    ) -> Table<K, A> {
        let (f, readers) = (Arc::new(f), Readers::none());
        let store = self.stream.own_store(&store.stamped());
        let read = readers.clone();
        let exits = self.stream.then_table(kind(store), move || {
            let f = Arc::clone(&f);
            Box::new(AggregateOrDelete::<K, V, A, _>::new(store, f, read.exit()))
        });
        Table::in_store(exits, store, readers)
    }

    fn kept<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &KeyValueStore<K, A>,
        f: impl Fn(&K, V, Option<A>) -> A + Send + Sync + 'static,
    ) -> Table<K, A, A> {
        let (f, readers) = (Arc::new(f), Readers::none());
        let store = self.stream.own_store(&store.stamped());
        let read = readers.clone();
        let exits = self.stream.then_table(kind(store), move || {
            let f = Arc::clone(&f);
            Box::new(Aggregate::<K, V, A, _>::new(store, f, read.exit()))
        });
        Table::in_store(exits, store, readers)
    }
}

impl<K, V> fmt::Debug for Grouped<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grouped").field(&self.stream).finish()
    }
}

impl<K: 'static, V: 'static> KeyValueStore<K, V> {
    /// Returns the same store, with a timestamp for each value.
    pub(crate) fn stamped(&self) -> KeyValueStore<K, Stamped<V>> {
        KeyValueStore {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::new(crate::store::StampedCodec(Arc::clone(&self.value))),
            is_stamped: true,
            expire_after: self.expire_after,
        }
    }
}
