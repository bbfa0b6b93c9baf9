//! Tables of topics, and the streams that join with tables.

use std::sync::Arc;

use crate::app::App;
use crate::codec::Decode;
use crate::grouped::Table;
use crate::keys::Colocated;
use crate::store::KeyValueStore;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Join, Keep, Kind, Node};

impl App {
    /// Reads a topic as a table: the last value of each key, kept in a store. A tombstone deletes its row.
    ///
    /// The last record to arrive wins, whatever its time says, as in Kafka Streams (`KTableSource`,
    /// tables that are not versioned). There is one shape: any topic that is kept by its keys may be
    /// given tombstones one day, so its values are `Option`s.
    ///
    /// Bytes that are no value, and a null key where `K` has no room for one, are records that fail:
    /// [`Table::on_error`].
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let customers = app.table(
    ///     &Topic::<String, Option<String>>::plain("customers"),
    ///     &KeyValueStore::plain("customers"),
    /// );
    /// app.source(&Topic::<String, String>::plain("orders"))
    ///     .join(&customers, |order, customer| format!("{order} for {customer}"))
    ///     .to(&Topic::plain("orders-with-customers"));
    /// ```
    ///
    /// # Exactly-once
    /// A row changes in the transaction that commits its record's offset: after any crash the table is what
    /// the records up to there made of it.
    pub fn table<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        store: &KeyValueStore<K, V::Row>,
    ) -> Table<K, V::Row, Option<V::Row>>
    where
        K: 'static,
        V: Nullable,
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let source = self.source(topic);
        let store = source.own_store(&store.stamped());
        // `V` is `Option<V::Row>`: the trait is sealed.
        let make = move || -> Box<dyn Node> { Box::new(Keep::<K, V::Row>::new(store)) };
        Table::new(source.then(Kind::Table(store), make), store)
    }
}

/// The values of a table's topic: `Option`s, since a null deletes a row. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "a table's topic deletes rows by nulls, so its values are `Option<{Self}>`",
    label = "a `Topic<K, Option<{Self}>>` is needed here"
)]
pub trait Nullable: sealed::Sealed + 'static {
    /// The values of the rows.
    type Row: 'static;
}

impl<V: 'static> Nullable for Option<V> {
    type Row = V;
}

mod sealed {
    pub trait Sealed {}
    impl<V> Sealed for Option<V> {}
}

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Puts each record together with the row that a table has for its key. A record without a row is
    /// dropped, and counts as processed; [`left_join`](Self::left_join) keeps it.
    ///
    /// The row is the one that the table has when the record comes; rows that change later change nothing
    /// that was joined. What comes out has the time and the headers of the record.
    ///
    /// The topics behind both become siblings: they need equally many partitions, and one task reads the
    /// same partition of each, the older record first (KIP-695: it waits for a topic that has more, at most
    /// `max.task.idle.ms`). So a row is there for whatever is younger. Of two records of the same time,
    /// that of the topic declared first comes first: declare a table before the streams that join with it,
    /// and a row of the same millisecond counts. The topic declared first is also the one that the group
    /// subscribes to, so another order later is a new layout.
    ///
    /// A closure that may fail comes behind it: join to a pair, then
    /// [`try_map`](Self::try_map).
    ///
    /// Only where the records of a key are in one task: after [`key_by`](Self::key_by) there is
    /// [`repartition`](Self::repartition) first. Its topic gets as many partitions as the table's.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let views = Topic::<String, String>::plain("views");
    /// let visits = app
    ///     .source(&views)
    ///     .group_by_key()
    ///     .count(&KeyValueStore::<String, u64>::plain("visits"));
    /// // Results can be joined as well.
    /// app.source(&Topic::<String, String>::plain("purchases"))
    ///     .join(&visits, |purchase, visits| format!("{purchase} after {visits} visits"))
    ///     .to(&Topic::plain("purchases-after-visits"));
    /// ```
    ///
    /// # Exactly-once
    /// A repeated record, after a crash or an abort, finds the rows that it found before.
    pub fn join<T: 'static, U: 'static, R: 'static>(
        self,
        table: &Table<K, T, U>,
        f: impl Fn(V, T) -> R + Send + Sync + 'static,
    ) -> Stream<K, R, P>
    where
        P: Colocated,
    {
        let joined = move |value, row: Option<T>| row.map(|row| f(value, row));
        self.joined("join", Kind::Join(table.store), table, joined)
    }

    /// As [`join`](Self::join), and a record without a row goes on as well: with `None`.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let names = app.table(
    ///     &Topic::<u64, Option<String>>::plain("names"),
    ///     &KeyValueStore::plain("names"),
    /// );
    /// app.source(&Topic::<u64, String>::plain("visits"))
    ///     .left_join(&names, |page, name| match name {
    ///         Some(name) => format!("{name} on {page}"),
    ///         None => format!("unknown visitor on {page}"),
    ///     })
    ///     .to(&Topic::plain("visits-with-names"));
    /// ```
    pub fn left_join<T: 'static, U: 'static, R: 'static>(
        self,
        table: &Table<K, T, U>,
        f: impl Fn(V, Option<T>) -> R + Send + Sync + 'static,
    ) -> Stream<K, R, P>
    where
        P: Colocated,
    {
        let joined = move |value, row| Some(f(value, row));
        self.joined("left_join", Kind::LeftJoin(table.store), table, joined)
    }

    fn joined<T: 'static, U: 'static, R: 'static>(
        self,
        method: &'static str,
        kind: Kind,
        table: &Table<K, T, U>,
        f: impl Fn(V, Option<T>) -> Option<R> + Send + Sync + 'static,
    ) -> Stream<K, R, P> {
        let (store, f) = (table.store, Arc::new(f));
        self.meets(&table.stream, store, method);
        self.then(kind, move || {
            Box::new(Join::<K, V, T, R, _>::new(store, Arc::clone(&f)))
        })
    }
}
