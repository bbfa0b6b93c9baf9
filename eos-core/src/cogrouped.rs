//! Several grouped streams that aggregate into one table.

use std::fmt;
use std::sync::Arc;

use crate::grouped::Grouped;
use crate::rules;
use crate::store::KeyValueStore;
use crate::tables::{Exits, Table};
use crate::topology::{Aggregate, AggregateOrDelete, Kind, Pass, Readers};

/// Creates the first result of a key.
type Init<A> = Arc<dyn Fn() -> A + Send + Sync>;

impl<K: 'static, V: 'static> Grouped<K, V> {
    /// Combines several streams with values of different types into one result per key. `init` creates the result, and
    /// `add` adds a value of this stream. [`and`](Cogrouped::and) adds further streams, each with its own function.
    /// [`into_table`](Cogrouped::into_table) ends the declaration.
    ///
    /// One task reads all streams in time order, as with [`merge`](crate::Stream::merge). Their topics need equal
    /// numbers of partitions and the same partitioner.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let clicks = app.source(&Topic::<String, String>::plain("clicks")).group_by_key();
    /// let orders = app.source(&Topic::<String, u64>::plain("orders")).group_by_key();
    /// clicks
    ///     .cogroup(
    ///         &KeyValueStore::<String, (u64, u64)>::json("customers"),
    ///         || (0, 0),
    ///         |_customer, _page, (clicks, cents)| (clicks + 1, cents),
    ///     )
    ///     .and(orders, |_customer, order, (clicks, cents)| (clicks, cents + order))
    ///     .into_table()
    ///     .to(&Topic::json("clicks-and-turnover"));
    /// ```
    ///
    /// In Kafka Streams, `cogroup` declares only the first aggregator. The initializer and the store come last, with
    /// `CogroupedKStream::aggregate`.
    ///
    /// # Exactly-once
    /// Each record of each stream counts once, even after a crash.
    pub fn cogroup<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> Cogrouped<K, A, A> {
        let store = self.stream.own_store(&store.stamped());
        let result = Results::new(store, init);
        Cogrouped {
            exits: added(self, &result, add),
            result,
        }
    }

    /// Like [`cogroup`](Self::cogroup), but each `add` may return `None` to delete the key. The update is then a
    /// tombstone, and the next value of any stream starts with `init` again.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // The items in each basket, until the customer has paid.
    /// let items = app.source(&Topic::<String, String>::plain("items")).group_by_key();
    /// let payments = app.source(&Topic::<String, u64>::plain("payments")).group_by_key();
    /// items
    ///     .cogroup_or_delete(
    ///         &KeyValueStore::<String, Vec<String>>::json("baskets"),
    ///         Vec::new,
    ///         |_customer, item, mut basket| {
    ///             basket.push(item);
    ///             Some(basket)
    ///         },
    ///     )
    ///     .and(payments, |_customer, _cents, _basket| None)
    ///     .into_table()
    ///     .to(&Topic::json("open-baskets"));
    /// ```
    ///
    /// The deletion of a missing key is an update, too. A Kafka Streams aggregator that returns null does the same.
    ///
    /// # Exactly-once
    /// Each record of each stream counts once, even after a crash.
    pub fn cogroup_or_delete<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> Cogrouped<K, A> {
        let store = self.stream.own_store(&store.stamped());
        let result = Results::new(store, init);
        Cogrouped {
            exits: added_or_deleted(self, &result, add),
            result,
        }
    }
}

fn added<K: 'static, V: 'static, A: 'static>(
    group: Grouped<K, V>,
    result: &Results<K, A>,
    add: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
) -> Exits<K, A, A> {
    let init = Arc::clone(&result.init);
    let f = Arc::new(move |key: &K, value, result: Option<A>| {
        add(key, value, result_or(result, &init))
    });
    let (store, read) = (result.store, result.readers.clone());
    group.stream.then_table(Kind::Cogroup(store), move || {
        let f = Arc::clone(&f);
        Box::new(Aggregate::<K, V, A, _>::new(store, f, read.exit()))
    })
}

fn added_or_deleted<K: 'static, V: 'static, A: 'static>(
    group: Grouped<K, V>,
    result: &Results<K, A>,
    add: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
) -> Exits<K, A, Option<A>> {
    let init = Arc::clone(&result.init);
    let f = Arc::new(move |key: &K, value, result: Option<A>| {
        add(key, value, result_or(result, &init))
    });
    let (store, read) = (result.store, result.readers.clone());
    group
        .stream
        .then_table(Kind::CogroupOrDelete(store), move || {
            let f = Arc::clone(&f);
            Box::new(AggregateOrDelete::<K, V, A, _>::new(store, f, read.exit()))
        })
}

/// Returns the stored result, or the first one of a key.
fn result_or<A>(stored: Option<A>, init: &Init<A>) -> A {
    let stored = stored.filter(|_| rules::adds_to_stored_results());
    stored.unwrap_or_else(|| init())
}

/// Several grouped streams with one result per key. Returned by [`Grouped::cogroup`].
///
/// `U` is the type of an update, as in [`Table`].
#[must_use = "the results go nowhere until `into_table`"]
pub struct Cogrouped<K, A, U = Option<A>> {
    exits: Exits<K, A, U>,
    result: Results<K, A>,
}

/// The results of several streams.
struct Results<K, A> {
    /// The index of their store.
    store: usize,
    init: Init<A>,
    readers: Readers<K, A>,
}

impl<K, A> Results<K, A> {
    fn new(store: usize, init: impl Fn() -> A + Send + Sync + 'static) -> Self {
        Self {
            store,
            init: Arc::new(init),
            readers: Readers::none(),
        }
    }
}

impl<K: 'static, A: 'static> Cogrouped<K, A, A> {
    /// Adds a stream. `add` adds a value of this stream to the result.
    ///
    /// If a stream is added twice, for example as a clone, each record is added twice. Kafka Streams silently replaces
    /// the first aggregator of the same `KGroupedStream`.
    ///
    /// # Errors
    /// The start of the app fails if the streams belong to different apps, or if their topics have different partitioners
    /// or numbers of partitions.
    pub fn and<V: 'static>(
        self,
        group: Grouped<K, V>,
        add: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> Self {
        self.with(group, |group, result| added(group, result, add))
    }
}

impl<K: 'static, A: 'static> Cogrouped<K, A> {
    /// Adds a stream. `add` adds a value of this stream to the result, or returns `None` to delete the result. See
    /// [`and`](Cogrouped::and) of results that are never deleted.
    ///
    /// # Errors
    /// See [`and`](Cogrouped::and) of results that are never deleted.
    pub fn and<V: 'static>(
        self,
        group: Grouped<K, V>,
        add: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        self.with(group, |group, result| added_or_deleted(group, result, add))
    }
}

impl<K: 'static, A: 'static, U: 'static> Cogrouped<K, A, U> {
    /// Returns the table of the results. It emits the updates of all streams.
    pub fn into_table(self) -> Table<K, A, U> {
        let Results { store, readers, .. } = self.result;
        let (updates, changes) = self.exits;
        let updates = updates.then(Kind::CogroupMerge(store), || Box::new(Pass));
        Table::in_store((updates, changes), store, readers)
    }

    fn with<V: 'static>(
        self,
        group: Grouped<K, V>,
        add: impl FnOnce(Grouped<K, V>, &Results<K, A>) -> Exits<K, A, U>,
    ) -> Self {
        let named = ("and", "stream");
        let (updates, changes) = self.exits;
        if !group.stream.shares(&updates, &[self.result.store], named) {
            group.stream.ignore();
            return Self {
                exits: (updates, changes),
                ..self
            };
        }
        let added = add(group, &self.result);
        let changes = match rules::joins_changes_of_all_streams() {
            true => changes.merge(added.1),
            false => changes,
        };
        Self {
            exits: (updates.merge(added.0), changes),
            ..self
        }
    }
}

impl<K, A, U> fmt::Debug for Cogrouped<K, A, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cogrouped").field(&self.exits.0).finish()
    }
}
