//! Tables from topics, and joins.

use std::sync::Arc;

use crate::app::App;
use crate::codec::Decode;
use crate::keys::Colocated;
use crate::store::KeyValueStore;
use crate::streams::Stream;
use crate::tables::Table;
use crate::topic::Topic;
use crate::topology::{Join, Keep, Kind, Readers};

impl App {
    /// Reads a topic as a table. A store holds the last value of each key. A tombstone deletes the row.
    ///
    /// The last record to arrive wins, regardless of timestamps, as in Kafka Streams (`KTableSource`, unversioned
    /// tables). Any topic of this kind may receive tombstones, so its values are `Option`s.
    ///
    /// A record fails if its value can't be decoded, or if its key is null and `K` is not an `Option`. See
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
    /// A row changes in the transaction that commits the offset of its record. After a crash, the table reflects
    /// exactly the committed records.
    pub fn table<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        store: &KeyValueStore<K, V::Row>,
    ) -> Table<K, V::Row>
    where
        K: 'static,
        V: Nullable,
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let source = self.source(topic);
        let store = source.own_store(&store.stamped());
        let readers = Readers::none();
        let read = readers.clone();
        // `V` is `Option<V::Row>`: the trait is sealed.
        let exits = source.then_table(Kind::Table(store), move || {
            Box::new(Keep::<K, V::Row>::new(store, read.exit()))
        });
        Table::in_store(exits, store, readers)
    }
}

/// The values of a table's topic. They are `Option`s, because a null deletes a row. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "a table's topic deletes rows by nulls, so its values are `Option<{Self}>`",
    label = "a `Topic<K, Option<{Self}>>` is needed here"
)]
pub trait Nullable: sealed::Sealed + 'static {
    /// The type of the rows' values.
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
    /// Joins each record with the table's row for its key. A record without a row is dropped and counts as processed;
    /// [`left_join`](Self::left_join) keeps it.
    ///
    /// The join uses the row at the time of processing. Later changes of the row do not change earlier results. The
    /// result has the timestamp and the headers of the record.
    ///
    /// The topics of both sides need equal numbers of partitions. One task reads the same partition of each topic, the
    /// older record first. If a topic has more records, the task waits for them, at most for `max.task.idle.ms`
    /// (KIP-695). A record therefore finds the rows of all older records.
    ///
    /// Of two records with the same timestamp, the one from the topic declared first is processed first. Declare a
    /// table before the streams that join with it, so that a row of the same millisecond counts. The consumer group
    /// subscribes to the topic declared first, so a different order in a later version is a new layout.
    ///
    /// If the closure can fail, join to a pair and call [`try_map`](Self::try_map).
    ///
    /// Requires the records of a key in one task. After [`key_by`](Self::key_by), call
    /// [`repartition`](Self::repartition) first. The repartition topic gets as many partitions as the
    /// table's topic.
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
    /// The read of a row is part of the transaction that commits the record's offset. A record that is processed again
    /// after a crash or an abort reads the same rows, and perhaps older rows that arrived in the meantime.
    pub fn join<T: 'static, U: 'static, R: 'static>(
        self,
        table: &Table<K, T, U>,
        f: impl Fn(V, T) -> R + Send + Sync + 'static,
    ) -> Stream<K, R, P>
    where
        P: Colocated,
    {
        let joined = move |value, row: Option<T>| row.map(|row| f(value, row));
        self.joined(Kind::Join, table, joined)
    }

    /// Like [`join`](Self::join), but keeps records without a row. `f` then receives `None`.
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
        self.joined(Kind::LeftJoin, table, joined)
    }

    fn joined<T: 'static, U: 'static, R: 'static>(
        self,
        kind: Kind,
        table: &Table<K, T, U>,
        f: impl Fn(V, Option<T>) -> Option<R> + Send + Sync + 'static,
    ) -> Stream<K, R, P> {
        let (rows, f) = (table.rows.clone(), Arc::new(f));
        self.meets(&table.stream, rows.reads(), kind.method());
        let reads = rows.reads().to_vec();
        self.then_reading(&reads, kind, move || {
            Box::new(Join::<K, V, T, R, _>::new(rows.clone(), Arc::clone(&f)))
        })
    }
}
