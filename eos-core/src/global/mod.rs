//! Global tables, and joins with them.

mod reads;
mod row;
mod topic;

use std::sync::{Arc, Mutex, PoisonError};

use crate::app::App;
use crate::codec::{Codec, Decode};
use crate::error_policy::ErrorPolicy;
use crate::streams::Stream;
use crate::topic::Topic;
use crate::topology::{GlobalSpec, Graph, JoinGlobal, Kind};

pub(crate) use reads::GlobalReads;
pub use reads::GlobalTables;
pub(crate) use row::encode_row;
pub(crate) use topic::{CheckRows, Checked, GlobalTopic};

/// A complete copy of a compacted topic, with all partitions, in each process. Returned by [`App::global_table`].
///
/// Join a stream with the table by [`Stream::join_global`](crate::Stream::join_global) or
/// [`Stream::left_join_global`](crate::Stream::left_join_global). The join does not depend on the stream's keys and
/// partitions, because a closure returns the key of the row.
pub struct GlobalTable<K, V> {
    graph: Arc<Mutex<Graph>>,
    table: usize,
    topic: Arc<dyn GlobalTopic<K, V>>,
}

impl App {
    /// Reads all partitions of a topic into a table, of which each process has a complete copy. Examples are exchange
    /// rates and price lists.
    ///
    /// One thread per process reads committed records, without a consumer group, into a database in the state
    /// directory. Without the feature `rocksdb`, it reads them into memory, which must hold all rows. Before any task
    /// processes a record, the thread reads up to the end of the topic. Then it queries the end again, and reads the records
    /// that arrived meanwhile, at most nine times. After a restart, it continues at the position of the copy. A copy that is
    /// damaged, of another topic, or too old is discarded and read again.
    /// `name` is the name of the table's directory, and its name in messages and metrics.
    ///
    /// The last record to arrive wins, and a tombstone deletes the row, so values are `Option`s. If the topic is not
    /// compacted, its retention removes rows, which are missing when the copy is read again.
    ///
    /// The start fails if the topic does not exist, or if reading makes no progress for a minute. The app stops if the
    /// topic is deleted, created again or given more partitions. A record that can't be decoded stops the app, too: see
    /// [`GlobalTable::on_error`].
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let rates = app.global_table(&Topic::<String, Option<u64>>::plain("rates"), "rates");
    /// app.source(&Topic::<u64, String>::plain("orders"))
    ///     .join_global(&rates, |_id, currency| currency.clone(), |currency, rate| {
    ///         format!("{currency} at {rate}")
    ///     })
    ///     .to(&Topic::plain("priced-orders"));
    /// ```
    ///
    /// # Exactly-once
    /// Each record of the stream is processed exactly once, and its results count once. A record is joined with the
    /// newest row that its process knows. The table is not part of a transaction. A record that is processed again
    /// after a crash or an abort may therefore be joined with a *newer* row, and two processes may have different rows
    /// at the same moment. If a repetition must use the same row, use [`App::table`](crate::App::table) and
    /// [`Stream::join`](crate::Stream::join).
    pub fn global_table<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, Option<V>, KC, VC>,
        name: &str,
    ) -> GlobalTable<K, V>
    where
        K: 'static,
        V: 'static,
        KC: Codec<K>,
        VC: Decode<Option<V>>,
    {
        let rows = Arc::new(topic.clone());
        let (graph, table) = self.add_global(GlobalSpec::new(
            name,
            topic.name(),
            Arc::clone(&rows) as Arc<dyn CheckRows>,
        ));
        GlobalTable {
            graph,
            table,
            topic: rows,
        }
    }
}

impl<K, V> GlobalTable<K, V> {
    /// Sets the policy for records that can't be decoded: [`ErrorPolicy::fail`], the default, or [`ErrorPolicy::skip`].
    /// A skipped record does not change the row of its key. The app counts it (`eos_global_skipped_total`) and logs it.
    /// [`App::on_error`](crate::App::on_error) does not apply to global tables.
    ///
    /// ```
    /// # use eos_core::{App, ErrorPolicy, Topic};
    /// # let mut app = App::new("a");
    /// let rates = app
    ///     .global_table(&Topic::<String, Option<u64>>::plain("rates"), "rates")
    ///     .on_error(ErrorPolicy::skip());
    /// # app.source(&Topic::<String, u64>::plain("in"))
    /// #     .join_global(&rates, |key, _| key.clone(), |one, other| one + other)
    /// #     .to(&Topic::plain("out"));
    /// # app.describe().unwrap();
    /// ```
    ///
    /// # Errors
    /// The start of the app fails with any other policy
    /// ([`Mistake::GlobalPolicy`](crate::errors::Mistake::GlobalPolicy)): a global table is not part of a transaction,
    /// so a dead letter could be written twice or never.
    #[must_use = "it returns the table"]
    pub fn on_error(self, policy: impl Into<ErrorPolicy>) -> Self {
        self.graph().global_policy(self.table, policy.into());
        self
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Clone for GlobalTable<K, V> {
    fn clone(&self) -> Self {
        Self {
            graph: Arc::clone(&self.graph),
            table: self.table,
            topic: Arc::clone(&self.topic),
        }
    }
}

impl<K, V> std::fmt::Debug for GlobalTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GlobalTable")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Joins each record with a row of a global table. `key` returns the key of the row from the record's key and value.
    /// A record without a row is dropped and counts as processed; [`left_join_global`](Self::left_join_global) keeps it.
    ///
    /// The topics may have different numbers of partitions, and the stream may be
    /// [`Scattered`](crate::stream::Scattered). The result has the record's key, timestamp and headers. Updates of the
    /// table emit no results. The two topics are not read in time order: a record is joined with the newest row that
    /// the process knows, as in Kafka Streams (`KStream#join(GlobalKTable)`).
    ///
    /// All joins of one record with one global table read the same version of the table. A step after `map_async` reads
    /// the version at the time of the call's result.
    ///
    /// A record fails if the codec of the table's topic can't encode the key of the row.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let names = app.global_table(&Topic::<u64, Option<String>>::plain("names"), "names");
    /// app.source(&Topic::<String, u64>::plain("logins"))
    ///     .join_global(&names, |_session, user| *user, |_user, name| name)
    ///     .to(&Topic::plain("names-of-logins"));
    /// ```
    ///
    /// # Exactly-once
    /// Each record is processed exactly once. It is joined with the newest known row, which may differ if the record is
    /// processed again: see [`App::global_table`](crate::App::global_table).
    pub fn join_global<L: 'static, W: 'static, R: 'static>(
        self,
        table: &GlobalTable<L, W>,
        key: impl Fn(&K, &V) -> L + Send + Sync + 'static,
        f: impl Fn(V, W) -> R + Send + Sync + 'static,
    ) -> Stream<K, R, P> {
        let joined = move |value, row: Option<W>| row.map(|row| f(value, row));
        self.joined_global(table, Kind::JoinGlobal(table.table), key, joined)
    }

    /// Like [`join_global`](Self::join_global), but keeps records without a row. `f` then receives `None`.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let names = app.global_table(&Topic::<u64, Option<String>>::plain("names"), "names");
    /// app.source(&Topic::<String, u64>::plain("logins"))
    ///     .left_join_global(&names, |_session, user| *user, |user, name| {
    ///         name.unwrap_or_else(|| format!("user {user}"))
    ///     })
    ///     .to(&Topic::plain("names-of-logins"));
    /// ```
    ///
    /// # Exactly-once
    /// As for [`join_global`](Self::join_global).
    pub fn left_join_global<L: 'static, W: 'static, R: 'static>(
        self,
        table: &GlobalTable<L, W>,
        key: impl Fn(&K, &V) -> L + Send + Sync + 'static,
        f: impl Fn(V, Option<W>) -> R + Send + Sync + 'static,
    ) -> Stream<K, R, P> {
        let joined = move |value, row| Some(f(value, row));
        self.joined_global(table, Kind::LeftJoinGlobal(table.table), key, joined)
    }

    fn joined_global<L: 'static, W: 'static, R: 'static>(
        self,
        table: &GlobalTable<L, W>,
        kind: Kind,
        key: impl Fn(&K, &V) -> L + Send + Sync + 'static,
        f: impl Fn(V, Option<W>) -> Option<R> + Send + Sync + 'static,
    ) -> Stream<K, R, P> {
        self.meets_global(&table.graph, table.table, kind.method());
        let (at, topic) = (table.table, Arc::clone(&table.topic));
        let (key, f) = (Arc::new(key), Arc::new(f));
        self.then(kind, move || {
            let (key, f) = (Arc::clone(&key), Arc::clone(&f));
            Box::new(JoinGlobal::<K, V, L, W, R, _, _>::new(
                at,
                Arc::clone(&topic),
                (key, f),
            ))
        })
    }
}
