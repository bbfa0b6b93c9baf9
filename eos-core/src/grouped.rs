//! What keeps something per key: groups, and the tables that come of them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::codec::{Codec, Encode};
use crate::error_policy::ErrorPolicy;
use crate::keys::{Colocated, Partitioned};
use crate::store::{KeyValueStore, Stamped};
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Aggregate, AggregateOrDelete, Kind, Node, PerCommit};

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// The records by their keys, to be counted, reduced or aggregated.
    ///
    /// Only where the records of a key are in one task: after [`key_by`](Self::key_by) there is
    /// [`repartition`](Self::repartition) first.
    pub fn group_by_key(self) -> Grouped<K, V>
    where
        P: Colocated,
    {
        Grouped::new(self.partitioned())
    }

    /// The records by a new key, made of the value: [`key_by`](Self::key_by), then
    /// [`repartition`](Self::repartition) through a topic of the app's own, then
    /// [`group_by_key`](Self::group_by_key).
    ///
    /// `topic` gives the new key's codecs and a name: the topic is called `<app>-<name>-repartition`.
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
    /// Each record counts once, even after a crash.
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

    /// As [`reduce`](Self::reduce), with results that may end: where `f` answers `None`, the key is
    /// deleted, its update is a tombstone, and the next value is a first one again.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // What is left of each product; what is sold out is forgotten.
    /// let bookings = Topic::<String, i64>::plain("bookings");
    /// app.source(&bookings)
    ///     .group_by_key()
    ///     .reduce_or_delete(&KeyValueStore::plain("stock"), |left, booked| {
    ///         Some(left + booked).filter(|left| *left > 0)
    ///     })
    ///     .to(&Topic::<String, Option<i64>>::plain("stock-updates"));
    /// ```
    ///
    /// A reducer of Kafka Streams that returns null does the same, its first value included: that is
    /// kept as it is, and `f` is not asked.
    pub fn reduce_or_delete(
        self,
        store: &KeyValueStore<K, V>,
        f: impl Fn(V, V) -> Option<V> + Send + Sync + 'static,
    ) -> Table<K, V, Option<V>> {
        let kind = Kind::ReduceOrDelete;
        self.kept_or_deleted(kind, store, move |_, value, result| match result {
            Some(result) => f(result, value),
            None => Some(value),
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

    /// As [`aggregate`](Self::aggregate), with results that may end: where `f` answers `None`, the key is
    /// deleted, its update is a tombstone, and `init` begins again with the next value.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // What is in each basket, until it is bought.
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
    /// The deletion of a key that is not there is an update, too. An aggregator of Kafka Streams that
    /// returns null does the same.
    pub fn aggregate_or_delete<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        f: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> Table<K, A, Option<A>> {
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
    ) -> Table<K, A, Option<A>> {
        let f = Arc::new(f);
        let store = self.stream.own_store(&store.stamped());
        let stream = self.stream.then(kind(store), move || {
            Box::new(AggregateOrDelete::<K, V, A, _>::new(store, Arc::clone(&f)))
        });
        Table::new(stream, store)
    }

    fn kept<A: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &KeyValueStore<K, A>,
        f: impl Fn(&K, V, Option<A>) -> A + Send + Sync + 'static,
    ) -> Table<K, A> {
        let f = Arc::new(f);
        let definition = store.stamped();
        let store = self.stream.own_store(&definition);
        let stream = self.stream.then(kind(store), move || {
            Box::new(Aggregate::<K, V, A, _>::new(store, Arc::clone(&f)))
        });
        Table::new(stream, store)
    }
}

impl<K, V> fmt::Debug for Grouped<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grouped").field(&self.stream).finish()
    }
}

/// The latest row of each key: a result of what is kept per key, or the last value of a topic
/// ([`App::table`](crate::App::table)).
///
/// Streams join with it ([`Stream::join`]), and its updates go on. Every one does so at once: a reader
/// sees each row in turn, of each key in order; with `emit_per_commit` only the last one of each transaction
/// does. A result has the highest time of the records behind it, a
/// row of a topic the time of its record.
///
/// `U` is what an update is: the new row, or `Option` of it where rows can be deleted. `None` is
/// Kafka's tombstone.
#[must_use = "a table is kept, but its updates go nowhere until a stream joins with it, or it ends in `to` \
              or `to_stream`"]
pub struct Table<K, V, U = V> {
    pub(crate) stream: Stream<K, U>,
    /// Where its rows are kept.
    pub(crate) store: usize,
    types: PhantomData<fn() -> V>,
}

impl<K: 'static, V: 'static, U: 'static> Table<K, V, U> {
    pub(crate) fn new(stream: Stream<K, U>, store: usize) -> Self {
        Self {
            stream,
            store,
            types: PhantomData,
        }
    }

    /// Writes each update to a topic.
    pub fn to<KC, VC>(self, topic: &Topic<K, U, KC, VC>)
    where
        KC: Encode<K>,
        VC: Encode<U>,
    {
        self.stream.to(topic);
    }

    /// The updates, as a stream.
    pub fn to_stream(self) -> Stream<K, U, Partitioned> {
        self.stream
    }

    /// What becomes of records that can't be processed: [`Stream::on_error`], for the sources that the
    /// rows come from. A value that a table's topic holds and that can't be decoded is such a record:
    /// skipped, it leaves the row as it was.
    pub fn on_error(self, policy: impl Into<ErrorPolicy>) -> Self {
        Self {
            stream: self.stream.on_error(policy),
            ..self
        }
    }
}

impl<K: 'static, V: 'static> Table<K, V> {
    /// Hands on only the last row of each key in a transaction, when that is committed, instead of every
    /// update: where a key is updated often, far fewer records leave, and the app works faster. Readers lose
    /// nothing but intermediate results, which depend on when commits happen. Streams that join with the
    /// table see each row at once all the same.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let clicks = Topic::<String, String>::plain("clicks");
    /// let counts = KeyValueStore::<String, u64>::plain("counts");
    /// app.source(&clicks)
    ///     .group_by_key()
    ///     .count(&counts)
    ///     .emit_per_commit()
    ///     .to(&Topic::plain("clicks-by-user"));
    /// ```
    ///
    /// Kafka Streams does it too, for as many keys as its cache holds (`statestore.cache.max.bytes`);
    /// here it is for all, whatever memory there is.
    ///
    /// A row goes on in the very transaction that made it, with its time and without headers, in the order
    /// of the keys' bytes within a task. To closures behind it [`Ctx::offset`](crate::Ctx::offset) is that
    /// of the last record taken from the stage's first topic.
    ///
    /// # Errors
    /// What fails behind it fails at the commit, for the rows of many records: none of them is to
    /// blame, so no [`ErrorPolicy`] is asked. The transaction is aborted, and the worker stops with
    /// [`WorkerError::Results`](crate::errors::WorkerError::Results).
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(|row| row)
    }
}

impl<K: 'static, V: 'static> Table<K, V, Option<V>> {
    /// Hands on only the last row of each key in a transaction, or its deletion: see
    /// [`emit_per_commit`](Table::emit_per_commit) of tables without deletions. A tombstone has the task's
    /// stream time.
    ///
    /// # Errors
    /// As there.
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(Some)
    }
}

impl<K: 'static, V: 'static, U: 'static> Table<K, V, U> {
    fn per_commit(self, result: fn(Option<V>) -> Option<U>) -> Self {
        let store = self.store;
        let make = move || -> Box<dyn Node> { Box::new(PerCommit::<K, V, U>::new(store, result)) };
        Table::new(self.stream.then(Kind::PerCommit(store), make), store)
    }
}

impl<K, V, U> fmt::Debug for Table<K, V, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.stream).finish()
    }
}

impl<K: 'static, V: 'static> KeyValueStore<K, V> {
    /// The same store, of values with their times.
    pub(crate) fn stamped(&self) -> KeyValueStore<K, Stamped<V>> {
        KeyValueStore {
            name: Arc::clone(&self.name),
            key: Arc::clone(&self.key),
            value: Arc::new(crate::store::StampedCodec(Arc::clone(&self.value))),
            is_stamped: true,
        }
    }
}
