//! Tables and their operators.

mod foreign;
mod grouped;
mod joins;
mod steps;

use std::fmt;

use crate::change::Change;
use crate::codec::Encode;
use crate::error_policy::ErrorPolicy;
use crate::keys::Partitioned;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{Kind, Mistake, Node, PerCommit, Readers, RowsOf};

pub use foreign::ForeignJoin;
pub use grouped::GroupedTable;

/// The latest row of each key: an aggregated result, or the last value of a topic
/// ([`App::table`](crate::App::table)).
///
/// Streams join with a table ([`Stream::join`]). A table emits every update at once, in order per key. With
/// `emit_per_commit`, it emits only the last update of each key in a transaction. The timestamp of a result is the
/// highest one of its records. A row of a topic has the timestamp of its record.
///
/// A join reads the row of the record's own key. Closures read rows of all keys in their task with [`rows`](Table::rows).
///
/// `U` is the type of an update. By default, it is `Option<V>`, because rows can be deleted; `None` is a Kafka
/// tombstone. `U` is `V` for tables whose rows are never deleted: [`count`](crate::stream::Grouped::count) returns a
/// `Table<K, u64, u64>`.
#[must_use = "nothing uses a table until a stream joins with it or reads its `rows`, or it ends in `to`, `to_stream` or `ignore`"]
pub struct Table<K, V, U = Option<V>> {
    /// The updates.
    pub(crate) stream: Stream<K, U>,
    /// The updates with the previous rows, from the second exit of the same nodes. See [`changes`](Self::changes).
    changes: Stream<K, Change<V>>,
    readers: Readers<K, V>,
    pub(crate) rows: RowsOf<K, V>,
}

/// The two exits of a table's nodes.
pub(crate) type Exits<K, V, U> = (Stream<K, U>, Stream<K, Change<V>>);

impl<K: 'static, V: 'static, U: 'static> Table<K, V, U> {
    /// Creates a table whose rows are in a store.
    pub(crate) fn in_store(exits: Exits<K, V, U>, store: usize, readers: Readers<K, V>) -> Self {
        Self::new(exits, RowsOf::stored(store), readers)
    }

    fn new((stream, changes): Exits<K, V, U>, rows: RowsOf<K, V>, readers: Readers<K, V>) -> Self {
        // A table may be derived from the updates of another table.
        let rows = rows.made_of(stream.lineage());
        Self {
            stream,
            changes,
            readers,
            rows,
        }
    }

    /// Returns the updates with the previous rows.
    fn changes(&self) -> Stream<K, Change<V>>
    where
        K: Clone,
        V: Clone,
    {
        self.readers.add();
        self.changes.clone()
    }

    /// Returns the updates for a step that ignores the previous rows. The table does not read these rows for such a step.
    fn changes_without_old(&self) -> Stream<K, Change<V>>
    where
        K: Clone,
        V: Clone,
    {
        self.readers.add_without_old();
        self.changes.clone()
    }

    /// Refuses a step behind a join of related tables without a store, because only a store has the previous results. A step that
    /// ignores these results is refused, too.
    fn refuse_related_tables(&self) {
        if let Some(method) = self.rows.related_by() {
            self.stream.wrong(Mistake::RelatedTables { method });
        }
    }

    /// Writes each update to a topic.
    pub fn to<KC, VC>(self, topic: &Topic<K, U, KC, VC>)
    where
        KC: Encode<K>,
        VC: Encode<U>,
    {
        self.refuse_related_tables();
        self.stream.to(topic);
    }

    /// Returns the stream of updates.
    pub fn to_stream(self) -> Stream<K, U, Partitioned> {
        self.refuse_related_tables();
        self.stream.with_lineage(self.rows.lineage())
    }

    /// Ends the table. Use it for a table that only [`Handle::view`](crate::Handle::view) reads. Equivalent to
    /// `.to_stream().ignore()`.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let prices = KeyValueStore::<String, u64>::plain("prices");
    /// app.table(&Topic::<String, Option<u64>>::plain("prices"), &prices).ignore();
    /// // In a running app: `handle.view(&prices)?.get(&article)`.
    /// # app.describe()?;
    /// # Ok::<(), eos_core::Error>(())
    /// ```
    pub fn ignore(self) {
        self.to_stream().ignore();
    }

    /// Sets the error policy for the sources of the table, like [`Stream::on_error`]. A record fails if its value can't
    /// be decoded. If the policy skips the record, the row stays unchanged.
    pub fn on_error(self, policy: impl Into<ErrorPolicy>) -> Self {
        Self {
            stream: self.stream.on_error(policy),
            ..self
        }
    }
}

impl<K: 'static, V: 'static> Table<K, V, V> {
    /// Emits only the last row of each key in a transaction, at the commit. If keys are updated often, the app emits
    /// far fewer records and runs faster. Readers miss only intermediate results, which depend on the times of commits.
    /// Streams that join the table still read each new row at once.
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
    /// Kafka Streams does this for the keys in its cache (`statestore.cache.max.bytes`). Here it applies to all keys,
    /// regardless of memory.
    ///
    /// Call it last, before `to` or `to_stream`. It changes only the output of this table. Tables that are derived from
    /// it, such as a join of two tables, receive each update. A row that is created and deleted in one transaction
    /// emits a tombstone.
    ///
    /// A row is emitted in the transaction that changed it, with its timestamp and without headers. Within a task, the
    /// rows are in the order of the keys' bytes. In later closures, [`Ctx::offset`](crate::Ctx::offset) is the offset
    /// of the last record from the stage's first topic.
    ///
    /// # Errors
    /// A failure in a later step occurs at the commit and concerns many records, so no [`ErrorPolicy`] applies. The
    /// transaction is aborted, and the worker stops with
    /// [`WorkerError::Results`](crate::errors::WorkerError::Results).
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(|row| row)
    }
}

impl<K: 'static, V: 'static> Table<K, V> {
    /// Emits only the last row of each key in a transaction, or its deletion. See
    /// [`emit_per_commit`](Table::emit_per_commit) of tables without deletions. The timestamp of a tombstone is the
    /// task's stream time.
    ///
    /// # Errors
    /// See [`emit_per_commit`](Table::emit_per_commit) of tables without deletions.
    pub fn emit_per_commit(self) -> Self {
        self.per_commit(Some)
    }
}

impl<K: 'static, V: 'static, U: 'static> Table<K, V, U> {
    fn per_commit(self, result: fn(Option<V>) -> Option<U>) -> Self {
        let Some(store) = self.rows.store() else {
            self.stream.wrong(Mistake::NotStored {
                method: "emit_per_commit",
            });
            return self;
        };
        let make = move || -> Box<dyn Node> { Box::new(PerCommit::<K, V, U>::new(store, result)) };
        Self {
            stream: self.stream.then(Kind::PerCommit(store), make),
            ..self
        }
    }
}

/// A clone is the same table. Both emit its updates.
impl<K: Clone + 'static, V: Clone + 'static, U: Clone + 'static> Clone for Table<K, V, U> {
    fn clone(&self) -> Self {
        Self {
            stream: self.stream.clone(),
            changes: self.changes.clone(),
            readers: self.readers.clone(),
            rows: self.rows.clone(),
        }
    }
}

impl<K, V, U> fmt::Debug for Table<K, V, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.stream).finish()
    }
}
