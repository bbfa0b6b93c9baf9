//! Read-only views of the rows of tables, for closures.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use eos_protocol::Timestamp;

use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::store::{Entries, KeyValueStore, KeyValueView, Stamped, WindowStore, WindowView};
use crate::store_handle::{StoreHandle, sealed};
use crate::tables::Table;
use crate::topology::Mistake;
use crate::windowed_table::WindowedTable;

/// A handle of a table's rows, for [`Ctx::store`] and [`Stream::with_store`](crate::Stream::with_store). Closures
/// capture the handle by `move`, and can only read the rows. Returned by [`Table::rows`] and [`WindowedTable::rows`].
///
/// `D` is the kind of the table's store: [`KeyValueStore`] or [`WindowStore`].
pub struct Rows<D> {
    app: u64,
    index: usize,
    store: PhantomData<fn() -> D>,
}

impl<D> Rows<D> {
    fn new(app: u64, index: usize) -> Self {
        Self {
            app,
            index,
            store: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, U: 'static> Table<K, V, U> {
    /// Returns a handle of the rows. Closures of a stream with [`with_store`](crate::Stream::with_store) can read the
    /// rows of all keys in their task. To read only the row of a record's own key, [`join`](crate::Stream::join) is
    /// shorter.
    ///
    /// A task has only the rows of its own partition. For a key of another partition, `get` returns `None`, as for a
    /// missing row. Read only keys that are in the partition of the record's key.
    ///
    /// A closure reads the updates of all earlier records of its task. It reads the update of its own record only if
    /// the table is declared before the closure's step. The topics of both streams need equal numbers of partitions.
    /// [`join`](crate::Stream::join) describes the order of records of several topics.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // Every hundredth click of a user.
    /// let clicks = app.source(&Topic::<String, String>::plain("clicks"));
    /// let counts = clicks.clone().group_by_key().count(&KeyValueStore::plain("counts")).rows();
    /// clicks
    ///     .with_store(&counts)
    ///     .process_values(move |ctx, click| {
    ///         let count = ctx.store(&counts).get(click.key)?.unwrap_or(0);
    ///         if count % 100 == 0 { ctx.forward(click.value)?; }
    ///         Ok(())
    ///     })
    ///     .to(&Topic::plain("every-hundredth"));
    /// ```
    ///
    /// # Exactly-once
    /// Reads and updates of rows are part of the transaction that commits the input's offset. If both streams come from one
    /// topic, a record that is processed again reads the same rows. With several topics, it may also read rows of older
    /// records that arrived in the meantime.
    #[must_use]
    pub fn rows(&self) -> Rows<KeyValueStore<K, V>> {
        let store = self.rows.store().unwrap_or_else(|| {
            self.stream.wrong(Mistake::NotStored { method: "rows" });
            usize::MAX
        });
        Rows::new(self.stream.app(), store)
    }
}

impl<K: 'static, A: 'static, U: 'static> WindowedTable<K, A, U> {
    /// Returns a handle of the results. Closures of a stream with [`with_store`](crate::Stream::with_store) can read
    /// the results of all keys in their task. For an open window, they read its current result. A window has no result
    /// once its retention is over. The default retention is size plus grace, so set
    /// [`retention`](crate::state::WindowStore::retention) to read closed windows.
    ///
    /// See [`Table::rows`] for keys of other partitions and for the order of records.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// // Payments of customers with more than a hundred log-ins in the same minute.
    /// let minutes = Tumbling::of(Duration::from_secs(60));
    /// let log_ins = app
    ///     .source(&Topic::<String, String>::plain("log-ins"))
    ///     .group_by_key()
    ///     .windowed_by(minutes)
    ///     .count(&WindowStore::plain("log-ins-per-minute"))
    ///     .rows();
    /// app.source(&Topic::<String, u64>::plain("payments"))
    ///     .with_store(&log_ins)
    ///     .process_values(move |ctx, payment| {
    ///         let minute = payment.timestamp.and_then(|time| minutes.window(time));
    ///         let Some(minute) = minute else { return Ok(()) };
    ///         let count = ctx.store(&log_ins).get(payment.key, minute.start)?;
    ///         if count > Some(100) { ctx.forward(payment.value)?; }
    ///         Ok(())
    ///     })
    ///     .to(&Topic::plain("suspicious-payments"));
    /// ```
    ///
    /// # Exactly-once
    /// See [`Table::rows`].
    #[must_use]
    pub fn rows(&self) -> Rows<WindowStore<K, A>> {
        let (stream, store) = self.parts();
        Rows::new(stream.app(), store)
    }
}

impl<K: 'static, V: 'static> StoreHandle for Rows<KeyValueStore<K, V>> {
    type View<'c> = RowsView<'c, K, V>;

    fn view<'c>(&self, ctx: &'c Ctx<'_>) -> RowsView<'c, K, V> {
        RowsView {
            rows: match ctx.usable(self.app, self.index) {
                Ok(index) => ctx.store_at(index),
                Err(error) => KeyValueView::failed(error),
            },
        }
    }
}

impl<K: 'static, V: 'static> StoreHandle for Rows<WindowStore<K, V>> {
    type View<'c> = WindowRowsView<'c, K, V>;

    fn view<'c>(&self, ctx: &'c Ctx<'_>) -> WindowRowsView<'c, K, V> {
        WindowRowsView {
            rows: match ctx.usable(self.app, self.index) {
                Ok(index) => ctx.windows_at(index),
                Err(error) => WindowView::failed(error),
            },
        }
    }
}

impl<D> sealed::Handle for Rows<D> {
    fn app(&self) -> u64 {
        self.app
    }

    fn index(&self) -> usize {
        self.index
    }
}

/// A read-only view of a table's rows for the current record. Returned by [`Ctx::store`].
///
/// # Errors
/// See [`KeyValueView`](crate::state::KeyValueView).
pub struct RowsView<'c, K, V> {
    rows: KeyValueView<'c, K, Stamped<V>>,
}

impl<K: 'static, V: 'static> RowsView<'_, K, V> {
    /// Returns the row of a key.
    #[must_use = "return the failure with `?`"]
    pub fn get(&self, key: &K) -> Result<Option<V>, Failure> {
        Ok(self.rows.read(key)?.map(|row| row.value))
    }

    /// Returns the row of a key and its timestamp. An aggregated row has the highest timestamp of its records. A row of a
    /// topic has the timestamp of its last record.
    #[must_use = "return the failure with `?`"]
    pub fn get_with_time(&self, key: &K) -> Result<Option<(V, Option<Timestamp>)>, Failure> {
        let row = self.rows.read(key)?;
        Ok(row.map(|row| (row.value, row.timestamp)))
    }
}

/// A read-only view of a windowed table's results for the current record. Returned by [`Ctx::store`].
///
/// # Errors
/// See [`KeyValueView`](crate::state::KeyValueView).
pub struct WindowRowsView<'c, K, V> {
    rows: WindowView<'c, K, Stamped<V>>,
}

impl<'c, K: 'static, V: 'static> WindowRowsView<'c, K, V> {
    /// Returns the result of a key in the window that starts at `start`.
    #[must_use = "return the failure with `?`"]
    pub fn get(&self, key: &K, start: Timestamp) -> Result<Option<V>, Failure> {
        Ok(self.rows.read(key, start)?.map(|row| row.value))
    }

    /// Returns the results of a key in the windows that start at these times. Missing windows are left out.
    #[must_use = "return the failure with `?`"]
    pub fn fetch(
        &self,
        key: &K,
        starts: impl IntoIterator<Item = Timestamp>,
    ) -> Result<Vec<(Timestamp, V)>, Failure> {
        let found = self.rows.fetch(key, starts)?.into_iter();
        Ok(found.map(|(start, row)| (start, row.value)).collect())
    }

    /// Returns all results of the windows that start in this range of time, sorted by start and then by the keys'
    /// bytes.
    pub fn all(&self, starts: impl RangeBounds<Timestamp>) -> Entries<'c, (Timestamp, K, V)> {
        let value = |(start, key, row): (_, _, Stamped<V>)| (start, key, row.value);
        self.rows.entries(&starts, value)
    }
}

impl<D> Clone for Rows<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Rows<D> {}

impl<D> fmt::Debug for Rows<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rows").field(&self.index).finish()
    }
}

impl<K, V> fmt::Debug for RowsView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowsView")
    }
}

impl<K, V> fmt::Debug for WindowRowsView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowRowsView")
    }
}
