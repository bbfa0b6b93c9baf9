//! Tables that are grouped by a new key.

use std::fmt;
use std::sync::Arc;

use super::Table;
use crate::change::Change;
use crate::codec::Codec;
use crate::store::KeyValueStore;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{AggregateChanges, Kind, NothingToSubtract, Readers, Regroup};

/// The suffix of repartition topics with changes. It differs from the suffix of topics with plain values. In a later
/// version of an app, one kind of topic may replace the other, and neither kind could distinguish the other's pending
/// records from its own.
const REPARTITION: &str = "changes-repartition";

impl<K: Clone + 'static, V: Clone + 'static, U: 'static> Table<K, V, U> {
    /// Groups the rows by a new key, to count, reduce or aggregate them. `f` returns the new key and value of a row.
    ///
    /// The result of a group follows its rows: if a row changes, its old value is subtracted and its new value added.
    /// If both values belong to the same group, this is one update of its result (KIP-904). If the row moves to another
    /// group, it is removed from the old group before it is added to the new one, in separate transactions. In between,
    /// it is in no group.
    ///
    /// `f` must return the same result for the same row. A row whose new key is null is in no group, as in Kafka
    /// Streams (`KTableRepartitionMap`). The rows pass through an internal topic, `<app>-<name>-changes-repartition`,
    /// with the codecs of `topic`.
    ///
    /// Add a grouping to a new app, or together with its table. Otherwise the existing rows of the table would be in no
    /// group, but their next updates would subtract them. Such an app does not start
    /// ([`RestartError::AddedLate`](crate::errors::RestartError::AddedLate)). The committed offsets record the topics
    /// of groupings, beside the names of stores. If all these names of a stage exceed 300 bytes, they are not recorded,
    /// and eos can't refuse such an app. A group that lacks rows is then wrong, or the record fails if the group has no
    /// result.
    ///
    /// A changed closure is a new grouping that eos can't detect. Change neither `f` nor the closures of the filters,
    /// maps and joins before it in a running app. Start the changed app under another name instead, so that it reads
    /// the table's topic from the beginning.
    ///
    /// If the error policy skips a record or writes it to a dead-letter topic, its group is wrong, too. A policy that
    /// retries or stops keeps the groups right.
    ///
    /// Groups of tables are refused under at-least-once, because a crash could keep the change of a row and lose the
    /// update of its group.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// // Regions by user; users by region.
    /// app.table(&Topic::<String, Option<String>>::plain("regions"), &KeyValueStore::plain("regions"))
    ///     .group_by(&Topic::<String, u64>::plain("users-by-region"), |_user, region| (region.clone(), 1))
    ///     .count(&KeyValueStore::plain("users"))
    ///     .to(&Topic::plain("users-by-region-counts"));
    /// ```
    ///
    /// # Exactly-once
    /// Each change of a row changes its groups once. The write to the internal topic and the update of the group are
    /// separate transactions.
    pub fn group_by<L, W, KC, VC>(
        self,
        topic: &Topic<L, W, KC, VC>,
        f: impl Fn(&K, &V) -> (L, W) + Send + Sync + 'static,
    ) -> GroupedTable<L, W>
    where
        L: 'static,
        W: 'static,
        KC: Codec<L>,
        VC: Codec<W>,
    {
        self.refuse_related_tables();
        let rows = self.rows.made_of_stores();
        if let Some(&store) = self.rows.reads().first() {
            self.stream
                .follow_by_group(topic.name(), rows.clone(), store);
        }
        let (topic, f) = (topic.changes(), Arc::new(f));
        let encoding = topic.clone();
        let regrouped: Stream<L, Change<W>> = self.changes().then(Kind::TableSelect, move || {
            Box::new(Regroup::<K, V, L, W, _>::new(
                encoding.clone(),
                Arc::clone(&f),
            ))
        });
        GroupedTable {
            changes: regrouped.repartition_as(&topic, REPARTITION),
        }
    }
}

/// A table grouped by a new key. Returned by [`Table::group_by`].
#[must_use = "groups do nothing until they are counted, reduced or aggregated"]
pub struct GroupedTable<K, V> {
    changes: Stream<K, Change<V>>,
}

impl<K: 'static, V: 'static> GroupedTable<K, V> {
    /// Counts the rows of each group. The count of an empty group is 0.
    ///
    /// # Exactly-once
    /// Each row counts once in its group, even after a crash.
    pub fn count(self, store: &KeyValueStore<K, u64>) -> Table<K, u64, u64> {
        self.kept(
            Kind::TableCount,
            store,
            |count| count,
            |_, change, count| {
                let mut count = count.unwrap_or(0);
                if change.old.is_some() {
                    count = count.checked_sub(1).ok_or(NothingToSubtract)?;
                }
                Ok(Some(count + u64::from(change.new.is_some())))
            },
        )
    }

    /// Combines the values of a group's rows into one. The first value is the first result. `add` combines the result
    /// and a new value, and `subtract` removes an old value from the result.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let stock = app.table(&Topic::<String, Option<u64>>::plain("s"), &KeyValueStore::plain("s"));
    /// // Pieces by warehouse, of keys as "berlin/shoes".
    /// stock
    ///     .group_by(&Topic::<String, u64>::plain("stock-by-warehouse"), |place, pieces| {
    ///         (place.split('/').next().unwrap_or_default().to_owned(), *pieces)
    ///     })
    ///     .reduce(&KeyValueStore::plain("pieces"), |sum, new| sum + new, |sum, old| sum - old)
    ///     .to(&Topic::plain("pieces-by-warehouse"));
    /// ```
    ///
    /// # Errors
    /// A record fails if it subtracts a value from a group that has no result. Kafka Streams ignores such a value
    /// (`KTableReduce`).
    ///
    /// # Exactly-once
    /// Each change of a row is added or subtracted once.
    pub fn reduce(
        self,
        store: &KeyValueStore<K, V>,
        add: impl Fn(V, V) -> V + Send + Sync + 'static,
        subtract: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> Table<K, V, V> {
        self.kept(
            Kind::TableReduce,
            store,
            |result| result,
            move |_, change, mut result| {
                if let Some(old) = change.old {
                    result = Some(subtract(result.ok_or(NothingToSubtract)?, old));
                }
                Ok(match (result, change.new) {
                    (Some(result), Some(new)) => Some(add(result, new)),
                    (result, new) => result.or(new),
                })
            },
        )
    }

    /// Combines the values of a group's rows into a result of another type. `init` creates the result, `add` adds a
    /// value, and `subtract` removes a value.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// # let regions = app.table(&Topic::<String, Option<String>>::plain("r"), &KeyValueStore::plain("r"));
    /// // The users of each region, in order.
    /// let by_region = Topic::<String, String>::plain("users-by-region");
    /// regions
    ///     .group_by(&by_region, |user, region| (region.clone(), user.clone()))
    ///     .aggregate(
    ///         &KeyValueStore::<String, std::collections::BTreeSet<String>>::json("users"),
    ///         Default::default,
    ///         |_region, user, mut users| {
    ///             users.insert(user);
    ///             users
    ///         },
    ///         |_region, user, mut users| {
    ///             users.remove(&user);
    ///             users
    ///         },
    ///     )
    ///     .to(&Topic::json("users-of-regions"));
    /// ```
    ///
    /// # Errors
    /// A record fails if it subtracts a value from a group that has no result. Kafka Streams ignores such a value
    /// (`KTableAggregate`).
    ///
    /// # Exactly-once
    /// Each change of a row is added or subtracted once.
    pub fn aggregate<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
        subtract: impl Fn(&K, V, A) -> A + Send + Sync + 'static,
    ) -> Table<K, A, A> {
        self.kept(
            Kind::TableAggregate,
            store,
            |result| result,
            move |key, change, mut result| {
                if let Some(old) = change.old {
                    result = Some(subtract(key, old, result.ok_or(NothingToSubtract)?));
                }
                if let Some(new) = change.new {
                    result = Some(add(key, new, result.unwrap_or_else(&init)));
                }
                Ok(result)
            },
        )
    }

    /// Like [`aggregate`](Self::aggregate), but `add` and `subtract` may return `None` to delete the group. The update
    /// is then a tombstone, and the next row starts with `init` again.
    ///
    /// A Kafka Streams aggregator that returns null does the same.
    ///
    /// # Errors
    /// See [`aggregate`](Self::aggregate).
    ///
    /// # Exactly-once
    /// Each change of a row is added or subtracted once.
    pub fn aggregate_or_delete<A: 'static>(
        self,
        store: &KeyValueStore<K, A>,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
        subtract: impl Fn(&K, V, A) -> Option<A> + Send + Sync + 'static,
    ) -> Table<K, A> {
        self.kept(
            Kind::TableAggregate,
            store,
            Some,
            move |key, change, mut result| {
                if let Some(old) = change.old {
                    result = subtract(key, old, result.ok_or(NothingToSubtract)?);
                }
                if let Some(new) = change.new {
                    result = add(key, new, result.unwrap_or_else(&init));
                }
                Ok(result)
            },
        )
    }

    fn kept<A: 'static, U: 'static>(
        self,
        kind: fn(usize) -> Kind,
        store: &KeyValueStore<K, A>,
        update: fn(Option<A>) -> Option<U>,
        f: impl Fn(&K, Change<V>, Option<A>) -> Result<Option<A>, NothingToSubtract>
        + Send
        + Sync
        + 'static,
    ) -> Table<K, A, U> {
        let (f, readers) = (Arc::new(f), Readers::none());
        let store = self.changes.own_store(&store.stamped());
        let read = readers.clone();
        let exits = self.changes.then_table(kind(store), move || {
            let f = Arc::clone(&f);
            Box::new(AggregateChanges::<K, V, A, U, _>::new(
                store,
                f,
                update,
                read.exit(),
            ))
        });
        Table::in_store(exits, store, readers)
    }
}

impl<K, V> fmt::Debug for GroupedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupedTable").field(&self.changes).finish()
    }
}
