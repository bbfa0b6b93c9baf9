//! Joins of two tables.

use std::sync::Arc;

use eos_protocol::joins::{JoinKind, Side};

use super::Table;
use crate::sides::Sides;
use crate::topology::{Kind, Readers, RowsOf, TableJoin};

impl<K: Clone + 'static, V: Clone + 'static, U: 'static> Table<K, V, U> {
    /// Joins two tables by their keys. The result has a row for each key that both tables have.
    ///
    /// Each update of either table updates the result, with the later timestamp of the two rows. If one of the rows is
    /// deleted, the result is deleted, too. An update is emitted only if a result existed before or exists now. Kafka
    /// Streams also emits tombstones for results that never existed.
    ///
    /// `f` must return the same result for the same rows: see [`filter`](Table::filter). If a
    /// [`group_by`](Table::group_by) follows, it subtracts the result of `f` for the previous rows. A changed closure
    /// therefore needs a new app name.
    ///
    /// The result needs no store: see [`stored`](Table::stored). The topics of both tables need equal numbers of
    /// partitions. One task reads both topics, the older record first: see [`Stream::join`](crate::Stream::join).
    ///
    /// If two tables are derived from the same table, their join needs [`stored`](Table::stored) on its result. Each
    /// update of the common table then emits the result once for each side.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let prices = app.table(
    ///     &Topic::<String, Option<u64>>::plain("prices"),
    ///     &KeyValueStore::plain("prices"),
    /// );
    /// app.table(&Topic::<String, Option<u64>>::plain("stock"), &KeyValueStore::plain("stock"))
    ///     .join(&prices, |pieces, price| pieces * price)
    ///     .to(&Topic::plain("values-of-stock"));
    /// ```
    ///
    /// # Exactly-once
    /// The reads of both rows and the update are part of the transaction that commits the record's offset. A record
    /// that is processed again after a crash reads the same rows, and perhaps older rows of the other topic that
    /// arrived in the meantime. The final result is the same.
    pub fn join<W, X, R>(
        self,
        other: &Table<K, W, X>,
        f: impl Fn(&V, &W) -> R + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        self.joined(JoinKind::Inner, other, move |left, right| {
            Some(f(left?, right?))
        })
    }

    /// Like [`join`](Self::join), with a row for each key of this table. `f` receives `None` if the other table has no
    /// row.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let prices = app.table(&Topic::<String, Option<u64>>::plain("p"), &KeyValueStore::plain("p"));
    /// # let stock = app.table(&Topic::<String, Option<u64>>::plain("s"), &KeyValueStore::plain("s"));
    /// stock
    ///     .left_join(&prices, |pieces, price| match price {
    ///         Some(price) => format!("{pieces} at {price}"),
    ///         None => format!("{pieces} without a price"),
    ///     })
    ///     .to(&Topic::plain("stock-with-prices"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`join`](Self::join).
    pub fn left_join<W, X, R>(
        self,
        other: &Table<K, W, X>,
        f: impl Fn(&V, Option<&W>) -> R + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        self.joined(JoinKind::Left, other, move |left, right| {
            Some(f(left?, right))
        })
    }

    /// Like [`join`](Self::join), with a row for each key that at least one of the tables has.
    ///
    /// ```
    /// # use eos_core::windows::Sides;
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let web = app.table(&Topic::<String, Option<u64>>::plain("w"), &KeyValueStore::plain("w"));
    /// # let shop = app.table(&Topic::<String, Option<u64>>::plain("s"), &KeyValueStore::plain("s"));
    /// web.outer_join(&shop, |sides| match sides {
    ///     Sides::Left(web) => *web,
    ///     Sides::Right(shop) => *shop,
    ///     Sides::Both(web, shop) => web + shop,
    /// })
    /// .to(&Topic::plain("sales"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`join`](Self::join).
    pub fn outer_join<W, X, R>(
        self,
        other: &Table<K, W, X>,
        f: impl Fn(Sides<&V, &W>) -> R + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        self.joined(JoinKind::Outer, other, move |left, right| {
            Sides::of(left, right).map(&f)
        })
    }

    fn joined<W, X, R>(
        self,
        kind: JoinKind,
        other: &Table<K, W, X>,
        f: impl Fn(Option<&V>, Option<&W>) -> Option<R> + Send + Sync + 'static,
    ) -> Table<K, R>
    where
        W: Clone + 'static,
        X: 'static,
        R: 'static,
    {
        self.refuse_related_tables();
        other.refuse_related_tables();
        let [left, right] = [Side::Left, Side::Right].map(|side| Kind::TableJoin(kind, side));
        let method = left.method();
        let (f, readers) = (Arc::new(f), Readers::none());
        let get = Arc::clone(&f);
        let rows = RowsOf::joined(
            (method, kind),
            &self.rows,
            &other.rows,
            move |left, right| get(left, right),
        );
        let is_related = rows.related_by().is_some();
        self.stream.meets(&other.stream, other.rows.reads(), method);
        other.stream.meets(&self.stream, self.rows.reads(), method);

        let (rows_there, g, read) = (other.rows.clone(), Arc::clone(&f), readers.clone());
        let here = self.changes().then_table(left, move || {
            let (rows, f) = (rows_there.clone(), Arc::clone(&g));
            Box::new(TableJoin::<K, V, W, R, _>::new(
                rows,
                f,
                is_related,
                read.exit(),
            ))
        });
        here.0.reads(other.rows.reads());

        let (rows_here, read) = (self.rows.clone(), readers.clone());
        let there = other.changes().then_table(right, move || {
            let (rows, f) = (rows_here.clone(), Arc::clone(&f));
            let f = Arc::new(move |right: Option<&W>, left: Option<&V>| f(left, right));
            Box::new(TableJoin::<K, W, V, R, _>::new(
                rows,
                f,
                is_related,
                read.exit(),
            ))
        });
        there.0.reads(self.rows.reads());

        let exits = (here.0.merge(there.0), here.1.merge(there.1));
        Table::new(exits, rows, readers)
    }
}
