//! Tables that are derived from one table or stream.

use std::sync::Arc;

use super::Table;
use crate::keys::Colocated;
use crate::store::KeyValueStore;
use crate::streams::Stream;
use crate::topology::{Keep, KeepChanges, Kind, Readers, RowsOf, TableStep};

impl<K: 'static, V: 'static, P> Stream<K, Option<V>, P> {
    /// Converts the stream into a table. A store holds the last value of each key. `None` deletes the row.
    ///
    /// The last record to arrive wins, regardless of timestamps, as in [`App::table`](crate::App::table) and in Kafka
    /// Streams (`KStream#toTable`). For a stream that never deletes, call `.map(Some)` first.
    ///
    /// Requires the records of a key in one task. After [`key_by`](Self::key_by), call
    /// [`repartition`](Self::repartition) first.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // The state of each device after its last event.
    /// let states = app
    ///     .source(&Topic::<String, String>::plain("events"))
    ///     .map(|event| (event != "removed").then_some(event))
    ///     .to_table(&KeyValueStore::plain("states"));
    /// app.source(&Topic::<String, String>::plain("alarms"))
    ///     .join(&states, |alarm, state| format!("{alarm} while {state}"))
    ///     .to(&Topic::plain("alarms-with-states"));
    /// ```
    ///
    /// # Exactly-once
    /// A row changes in the transaction that commits the offset of its record.
    pub fn to_table(self, store: &KeyValueStore<K, V>) -> Table<K, V>
    where
        P: Colocated,
    {
        let stream = self.partitioned();
        let store = stream.own_store(&store.stamped());
        let readers = Readers::none();
        let read = readers.clone();
        let exits = stream.then_table(Kind::ToTable(store), move || {
            Box::new(Keep::<K, V>::new(store, read.exit()))
        });
        Table::in_store(exits, store, readers)
    }
}

impl<K: Clone + 'static, V: Clone + 'static, U: 'static> Table<K, V, U> {
    /// Keeps the rows for which `f` returns true. A row that no longer passes is deleted. `f` must return the same
    /// result for the same row, because it runs at each update, for the old and the new value, and at each read. If a
    /// [`group_by`](Table::group_by) follows, this also applies to later versions of the program, because `group_by`
    /// subtracts the old rows that pass the current `f`.
    ///
    /// The new table needs no store: a join reads the row of this table and applies `f` again. An update is emitted
    /// only if the row passed before or passes now. Kafka Streams does the same after a table with a store. After other
    /// tables, it also emits tombstones of rows that never passed (KAFKA-10077).
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// app.table(&Topic::<String, Option<u64>>::plain("stock"), &KeyValueStore::plain("stock"))
    ///     .filter(|pieces| *pieces < 10)
    ///     .to(&Topic::plain("low-stock"));
    /// ```
    ///
    /// # Exactly-once
    /// The read of the old row and the update are part of the transaction that commits the record's offset. This step
    /// is refused under at-least-once, because a crash could keep the new row and lose the tombstone.
    pub fn filter(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> Table<K, V> {
        self.step(Kind::TableFilter, move |_, value| {
            Some(value).filter(|value| f(value))
        })
    }

    /// Like [`filter`](Self::filter), with the row's key.
    pub fn filter_row(self, f: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> Table<K, V> {
        self.step(Kind::TableFilter, move |key, value| {
            Some(value).filter(|value| f(key, value))
        })
    }

    /// Changes the value of each row. `f` must return the same result for the same value, because it runs at each
    /// update, for the old and the new value, and at each read.
    ///
    /// The new table needs no store: see [`filter`](Self::filter). If `f` is expensive, add [`stored`](Table::stored).
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// app.table(&Topic::<String, Option<String>>::plain("names"), &KeyValueStore::plain("names"))
    ///     .map(|name| name.to_uppercase())
    ///     .to(&Topic::plain("names-in-capitals"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`filter`](Self::filter).
    pub fn map<W: 'static>(self, f: impl Fn(V) -> W + Send + Sync + 'static) -> Table<K, W> {
        self.step(Kind::TableMap, move |_, value| Some(f(value)))
    }

    /// Like [`map`](Self::map), with the row's key.
    pub fn map_row<W: 'static>(
        self,
        f: impl Fn(&K, V) -> W + Send + Sync + 'static,
    ) -> Table<K, W> {
        self.step(Kind::TableMap, move |key, value| Some(f(key, value)))
    }

    fn step<W: 'static>(
        self,
        kind: Kind,
        f: impl Fn(&K, V) -> Option<W> + Send + Sync + 'static,
    ) -> Table<K, W> {
        let (f, readers) = (Arc::new(f), Readers::none());
        let (get, read) = (Arc::clone(&f), readers.clone());
        let rows = RowsOf::mapped(&self.rows, move |key, value| get(key, value));
        self.refuse_related_tables();
        let exits = self.changes().then_table(kind, move || {
            let f = Arc::clone(&f);
            Box::new(TableStep::<K, V, W, _>::new(f, read.exit()))
        });
        Table::new(exits, rows, readers)
    }
}

impl<K: Clone + 'static, V: Clone + 'static> Table<K, V> {
    /// Keeps the rows in a store of their own. Without this store, each read of a row uses the tables from which this
    /// table is derived.
    ///
    /// [`emit_per_commit`](Table::emit_per_commit) and [`rows`](Table::rows) need a stored table. So does the join of
    /// two tables that are derived from the same table. `stored` corresponds to `Materialized` in Kafka Streams.
    ///
    /// Add `stored` to a new app, or together with its table. A new store is empty, so it would lack the rows that the
    /// table already has. Such an app does not start
    /// ([`RestartError::AddedLate`](crate::errors::RestartError::AddedLate)). See [`group_by`](Table::group_by).
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let low = app
    ///     .table(&Topic::<String, Option<u64>>::plain("stock"), &KeyValueStore::plain("stock"))
    ///     .filter(|pieces| *pieces < 10)
    ///     .stored(&KeyValueStore::plain("low-stock"))
    ///     .emit_per_commit();
    /// low.to(&Topic::plain("low-stock"));
    /// ```
    ///
    /// # Exactly-once
    /// A row changes in the transaction that commits the offset of the record that caused the update. This
    /// step is refused under at-least-once, because a crash could delete the row and lose the tombstone.
    pub fn stored(self, store: &KeyValueStore<K, V>) -> Table<K, V> {
        let changes = self.changes();
        let store = changes.own_store(&store.stamped());
        changes.follow_in_store(store, self.rows.made_of_stores().clone());
        let rows = RowsOf::stored_from(store, &self.rows);
        let (readers, reads_old) = (Readers::none(), self.rows.related_by().is_some());
        let read = readers.clone();
        let exits = changes.then_table(Kind::Stored(store), move || {
            Box::new(KeepChanges::<K, V>::new(store, reads_old, read.exit()))
        });
        Table::new(exits, rows, readers)
    }
}
