//! Streams and their operators.

mod calls;
mod foreign;
mod process;
mod stateless;
pub(crate) mod timed;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_state::StoreKind;

use crate::boundary::{Place, Row};
use crate::change::Change;
use crate::codec::{Codec, Encode};
use crate::error_policy::ErrorPolicy;
use crate::keys::{Colocated, Partitioned, Scattered};
use crate::record::Record;
use crate::store::{KeyValueStore, StoreSpec};
use crate::timer::{Clock, tick_spec};
use crate::topic::Topic;
use crate::topology::{Exit, Graph, Ignore, Kind, MadeOf, Mistake, Node, Route, Write, WritePlace};

/// A stream of records in an app.
///
/// Closures are `Fn`. After an aborted transaction, a closure processes the same records again, but changes of captured
/// state are not undone. Keep state in a [`Processor`](crate::Processor) or in a store.
///
/// `P` states where the records of one key are: [`Partitioned`] or [`Scattered`].
///
/// A clone of the stream receives every record, too. The clones run in the order in which their next steps are
/// declared. Each record is cloned, so call `.map(Arc::new)` first for large values. A clone without a next step costs
/// nothing.
///
/// ```
/// # use eos_core::{App, Topic};
/// # let mut app = App::new("a");
/// let orders = app.source(&Topic::<String, u64>::plain("orders"));
/// orders.clone().filter(|amount| *amount > 1000).to(&Topic::plain("large-orders"));
/// orders.to(&Topic::plain("all-orders"));
/// ```
#[must_use = "a stream does nothing until it ends in `to`, `route`, `for_each` or `ignore`"]
pub struct Stream<K, V, P = Partitioned> {
    graph: Arc<Mutex<Graph>>,
    /// The parents of the next node; several after a merge.
    parents: Vec<Exit>,
    /// The sources that its records come from.
    sources: Vec<usize>,
    /// The stores that the next steps may use.
    stores: Vec<usize>,
    /// The timers whose moments the next step handles.
    timers: Vec<usize>,
    /// The stores of the tables whose updates these are.
    lineage: Vec<usize>,
    types: Types<K, V, P>,
}

/// Ends the stream of late records of windows.
pub(crate) type EndLate<K, V> = Box<dyn FnOnce(Stream<K, V>) + Send + Sync>;

/// Types that are named but not held.
type Types<K, V, P> = PhantomData<(fn(K, V), P)>;

impl<K: 'static, V: 'static> Stream<K, V> {
    pub(crate) fn new(graph: Arc<Mutex<Graph>>, source: usize) -> Self {
        Self {
            graph,
            parents: vec![Exit::Source(source)],
            sources: vec![source],
            stores: Vec::new(),
            timers: Vec::new(),
            lineage: Vec::new(),
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static> Stream<K, V> {
    /// A store that only the next node uses.
    pub(crate) fn own_store<L: 'static, W: 'static>(&self, store: &KeyValueStore<L, W>) -> usize {
        if store.expire_after.is_some() {
            self.wrong(Mistake::ExpiringOperator {
                store: store.name().to_owned(),
            });
        }
        self.own(store.spec(StoreKind::Point))
    }

    /// The token of the app.
    pub(crate) fn app(&self) -> u64 {
        self.graph().token()
    }

    /// A store of any kind that only the next node uses.
    pub(crate) fn own(&self, store: StoreSpec) -> usize {
        let mut graph = self.graph();
        let at = graph.keep(store);
        graph.use_store(at, &self.sources);
        at
    }

    /// The name of the app.
    pub(crate) fn app_name(&self) -> String {
        self.graph().app_name().to_owned()
    }

    /// Records that a grouping has to see each row of the table with these updates.
    pub(crate) fn follow_by_group(&self, topic: &str, rows: MadeOf, store: usize) {
        self.graph().follow_by_group(topic, rows, store);
    }

    /// Records that a store has to see each row of the table with these changes.
    pub(crate) fn follow_in_store(&self, store: usize, rows: MadeOf) {
        self.graph().follow_in_store(store, rows);
    }

    /// Emits the results of a windowed store when its windows close.
    pub(crate) fn emit_when_closed(&self, store: usize) {
        self.graph().emit_on_close(store);
    }

    /// Records a mistake in the declaration of the stream.
    pub(crate) fn wrong(&self, mistake: Mistake) {
        self.graph().wrong(mistake);
    }

    /// Adds a node with two outputs: its results, and the records that it rejects.
    pub(crate) fn then_or_else<K2, V2>(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> (Stream<K2, V2>, Self) {
        let node = self
            .graph()
            .add(&self.parents, kind, &self.stores, Box::new(make));
        let made = Stream {
            graph: Arc::clone(&self.graph),
            parents: vec![Exit::Node(node)],
            sources: self.sources.clone(),
            stores: self.stores.clone(),
            timers: Vec::new(),
            lineage: self.lineage.clone(),
            types: PhantomData,
        };
        let rest = Self {
            parents: vec![Exit::Rest(node)],
            ..self
        };
        (made, rest)
    }
}

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
    /// Lets the steps behind it use this store of an app.
    pub(crate) fn give_store(mut self, app: u64, store: usize) -> Self {
        let mut graph = self.graph();
        let is_ours = app == graph.token();
        if is_ours {
            graph.use_store(store, &self.sources);
        } else {
            graph.wrong(Mistake::OtherApp {
                method: "with_store",
                what: "store",
            });
        }
        drop(graph);
        if is_ours {
            self.stores.push(store);
        }
        self
    }

    /// Advances stream time while no records arrive. Once all inputs have been idle for `after`, stream time advances from its
    /// last value at the speed of the clock. Windows then close and event-time timers fire without a later record. It holds
    /// for the whole stage of this stream.
    ///
    /// A partition is idle if the task has read it to the end, and no transaction is open. The worker queries the brokers
    /// twice per second. Time without a response does not count. After an outage that was longer than
    /// `after`, the inputs have to be idle for `after` again, because producers may still write older records. The same
    /// holds after a restart, and after the task moves.
    ///
    /// Records that arrive after their windows were closed in this way are late. A replay reads the same records without
    /// pauses, so its results may differ.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let minute = Duration::from_secs(60);
    /// app.source(&Topic::<String, String>::plain("orders"))
    ///     .close_when_idle(Duration::from_secs(30))
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(minute))
    ///     .count(&WindowStore::plain("orders-per-minute"))
    ///     .emit_on_close()
    ///     .to(&Topic::with("orders-per-minute", TimeWindowed::of(minute), Plain));
    /// ```
    ///
    /// # Errors
    /// The start of the app fails if `after` is shorter than a second, if one stage has two different values, or if the
    /// stage reads a topic that the app itself writes: an idle topic does not prove that the writing stage has nothing more
    /// to write.
    pub fn close_when_idle(self, after: Duration) -> Self {
        self.graph().close_when_idle(after, &self.sources);
        self
    }

    /// Accepts records from the future, in the whole stage of this stream.
    ///
    /// By default, a record that is more than an hour ahead of the machine's clock (`max.timestamp.ahead.ms`) fails with
    /// [`IdentityError::FutureTimestamp`](crate::identity::IdentityError::FutureTimestamp) if its stage depends on stream
    /// time: windows, sessions, event-time timers or ticks, rows that expire, reordering. The error policy of its source
    /// decides about it, and it moves no stream time. Without this check, one wrong timestamp closes all windows, and all
    /// current records are late until the clock reaches it. Deduplication has a method of its own,
    /// [`SeenIds::trust_times`](crate::identity::SeenIds::trust_times), for stages without windows.
    ///
    /// Call it if timestamps are no times of a clock, or if the records are really from the future, as a forecast is.
    ///
    /// ```
    /// # use eos_core::state::WindowStore;
    /// # use eos_core::windows::Tumbling;
    /// # use eos_core::{App, Topic};
    /// # use eos_core::codec::{Plain, TimeWindowed};
    /// # use std::time::Duration;
    /// # let mut app = App::new("a");
    /// let day = Duration::from_secs(86_400);
    /// app.source(&Topic::<String, u64>::plain("forecasts"))
    ///     .trust_times()
    ///     .group_by_key()
    ///     .windowed_by(Tumbling::of(day))
    ///     .reduce(&WindowStore::plain("highest"), u64::max)
    ///     .to(&Topic::with("highest-forecasts", TimeWindowed::of(day), Plain));
    /// ```
    pub fn trust_times(self) -> Self {
        self.graph().trust_times(&self.sources);
        self
    }

    /// Gives the next step a tick of its own. Returns the index of its store.
    pub(crate) fn with_tick(mut self, name: &str, clock: Clock, period: Duration) -> (Self, usize) {
        let tick = {
            let mut graph = self.graph();
            if period < Duration::from_millis(1) {
                graph.wrong(Mistake::TickPeriod {
                    name: name.to_owned(),
                });
            }
            let tick = graph.keep(tick_spec(name, clock, period));
            graph.use_store(tick, &self.sources);
            tick
        };
        self.timers.push(tick);
        (self, tick)
    }

    /// Gives the next step a timer of an app.
    pub(crate) fn give_timer(mut self, app: u64, timer: usize) -> Self {
        if app == self.graph().token() {
            self.timers.push(timer);
        }
        self.give_store(app, timer)
    }

    /// The stores that the next step may use.
    fn usable(&self) -> Arc<[usize]> {
        self.stores.clone().into()
    }

    /// The same stream; its type proves that each key is in one partition.
    pub(crate) fn partitioned(self) -> Stream<K, V>
    where
        P: Colocated,
    {
        Stream {
            graph: self.graph,
            parents: self.parents,
            sources: self.sources,
            stores: self.stores,
            timers: self.timers,
            lineage: self.lineage,
            types: PhantomData,
        }
    }

    /// Writes the records to an internal topic and reads them back, so that one task has all records of a key.
    ///
    /// Operators with state per key need this after [`key_by`](Self::key_by). `topic` sets the codecs and a part of the
    /// name; the full name is `<app>-<name>-repartition`. The app creates the topic. It has as many partitions as the
    /// largest topic that feeds it.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let lines = Topic::<Option<String>, String>::plain("lines");
    /// app.source(&lines)
    ///     .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    ///     .key_by(|word| word.clone())
    ///     .repartition(&Topic::<String, String>::plain("words"))
    ///     .group_by_key()
    ///     .count(&KeyValueStore::plain("counts"))
    ///     .to(&Topic::plain("word-counts"));
    /// ```
    ///
    /// # Exactly-once
    /// Writing and reading are separate transactions. Each record gets through exactly once.
    pub fn repartition<KC, VC>(self, topic: &Topic<K, V, KC, VC>) -> Stream<K, V>
    where
        KC: Codec<K>,
        VC: Codec<V>,
    {
        self.repartition_as(topic, "repartition")
    }

    /// Sends records through an internal topic, `<app>-<name>-<suffix>`.
    pub(crate) fn repartition_as<KC, VC>(
        self,
        topic: &Topic<K, V, KC, VC>,
        suffix: &str,
    ) -> Stream<K, V>
    where
        KC: Codec<K>,
        VC: Codec<V>,
    {
        let source = self.graph().repartition(&self.parents, topic, suffix);
        Stream::new(self.graph, source)
    }

    /// Sets the error policy for records that fail. The default is [`ErrorPolicy::fail`].
    ///
    /// The policy belongs to the sources of this stream. It applies before and after this call, and on every branch.
    /// Two different policies for one source prevent the start of the app.
    ///
    /// ```
    /// # use eos_core::{App, ErrorPolicy, Topic};
    /// # let mut app = App::new("a");
    /// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
    /// app.source(&texts)
    ///     .on_error(ErrorPolicy::dead_letter("texts-dlq"))
    ///     .try_map(|text| Ok(text.parse::<u64>()?))
    ///     .to(&numbers);
    /// ```
    pub fn on_error(self, policy: impl Into<ErrorPolicy>) -> Self {
        self.graph().on_error(&self.sources, policy.into());
        self
    }

    /// Names the stage that this stream belongs to: all topics that one task reads together. The changelog topic of the
    /// stage's stores is called `<app>-<name>-changelog` then.
    ///
    /// Without a name, the stage is named after the first of its topics in alphabetical order. A topic that comes before
    /// it would give the stage another name, and so empty state. Such an app does not start, and the error names the
    /// line to add: the stage with its old name.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("shop");
    /// app.source(&Topic::<String, u64>::plain("orders"))
    ///     .stage("sales")
    ///     .group_by_key()
    ///     .count(&KeyValueStore::plain("counts"))
    ///     .to(&Topic::plain("order-counts"));
    /// ```
    pub fn stage(self, name: &str) -> Self {
        self.graph().name(name, &self.sources);
        self
    }

    /// Merges two streams. One task reads both, the older record first.
    ///
    /// The topics need equal numbers of partitions. One task reads the same partition of both topics. The task waits for
    /// a topic with more records, at most `max.task.idle.ms` (KIP-695). The consumer group subscribes to the topic that
    /// is declared first. Declaring another topic first later is a new layout.
    ///
    /// Kafka Streams' `merge` needs no equal partitions and keeps no order. The equivalent here is
    /// [`union`](Self::union).
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let (web, shop) = (Topic::<String, u64>::plain("web"), Topic::<String, u64>::plain("shop"));
    /// let sales = app.source(&web).merge(app.source(&shop));
    /// sales.to(&Topic::plain("sales"));
    /// ```
    pub fn merge(self, other: Self) -> Self {
        let mut stores = self.stores.clone();
        stores.extend(&other.stores);
        let merged = Self {
            stores,
            ..self.merged("merge", other)
        };
        merged.graph().link(&merged.sources);
        merged
    }

    /// Merges two streams in separate tasks. Each stream keeps its own order, with no order between the two.
    ///
    /// The topics may have different numbers of partitions, and different processes may read them. Therefore the records
    /// of one key are [`Scattered`]. [`merge`](Self::merge) reads both topics in one task, in order of time.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let regions = ["eu", "us", "asia"].map(|region| Topic::<String, u64>::plain(region));
    /// let streams = regions.iter().map(|region| app.source(region).scattered());
    /// if let Some(all) = streams.reduce(eos_core::Stream::union) {
    ///     all.to(&Topic::plain("everywhere"));
    /// }
    /// ```
    pub fn union<Q>(self, other: Stream<K, V, Q>) -> Stream<K, V, Scattered> {
        self.merged("union", other)
    }

    /// Changes the type to [`Scattered`], for loops and conditions over streams of both kinds.
    pub fn scattered(self) -> Stream<K, V, Scattered> {
        Stream {
            graph: self.graph,
            parents: self.parents,
            sources: self.sources,
            stores: Vec::new(),
            timers: Vec::new(),
            lineage: self.lineage,
            types: PhantomData,
        }
    }

    /// Applies a function to the stream. Use it for custom operators in a chain.
    ///
    /// ```
    /// # use eos_core::{App, Stream, Topic};
    /// # let mut app = App::new("a");
    /// fn shout(lines: Stream<String, String>) -> Stream<String, String> {
    ///     lines.map(|line| line.to_uppercase()).filter(|line| !line.is_empty())
    /// }
    /// app.source(&Topic::<String, String>::plain("lines")).pipe(shout).to(&Topic::plain("shouts"));
    /// ```
    pub fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }

    fn merged<Q, R>(mut self, method: &'static str, other: Stream<K, V, Q>) -> Stream<K, V, R> {
        if Arc::ptr_eq(&self.graph, &other.graph) {
            self.parents.extend(other.parents);
            self.lineage.extend(other.lineage);
            for source in other.sources {
                if !self.sources.contains(&source) {
                    self.sources.push(source);
                }
            }
        } else {
            self.of_other_app(&other, method, "stream");
        }
        Stream {
            graph: self.graph,
            parents: self.parents,
            sources: self.sources,
            stores: Vec::new(),
            timers: Vec::new(),
            lineage: self.lineage,
            types: PhantomData,
        }
    }

    /// Ends an unused stream, e.g. one output of [`branch`](Self::branch) or [`split_result`](Self::split_result). Its
    /// records count as processed.
    pub fn ignore(self) {
        let _end: Stream<(), (), P> = self.then(Kind::Ignore, || Box::new(Ignore));
    }

    /// Writes the stream to a topic, with timestamps and headers. The key decides the partition, as in Java's default
    /// partitioner.
    pub fn to<KC, VC>(self, topic: &Topic<K, V, KC, VC>)
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let output = self.graph().output(topic, false);
        let topic = topic.clone();
        let _end: Stream<(), (), P> = self.then(Kind::To(output), move || {
            Box::new(Write {
                output,
                topic: topic.clone(),
            })
        });
    }

    /// Writes the stream to a place of the app's [ledger](crate::boundary), such as a table of a database. A ledger's own
    /// crate has a method for it, such as `to_rows` of `eos-postgres`.
    ///
    /// # Exactly-once
    /// The row and the position behind its record commit in one transaction of the ledger.
    pub fn to_place(self, place: impl Place<K, V>) {
        let name = place.name();
        let place: Arc<dyn Place<K, V>> = Arc::new(place);
        let output = self.graph().place(&name);
        let _end: Stream<(), (), P> = self.then(Kind::ToPlace(output), move || {
            Box::new(WritePlace {
                output,
                place: Arc::clone(&place),
                row: Row::default(),
            })
        });
    }

    /// Writes each record to one of these topics, with timestamp and headers. `name` returns the topic's name.
    ///
    /// The app checks the declared topics when it starts. A record fails if `name` returns any other name. Kafka
    /// Streams' `to(TopicNameExtractor)` accepts any name.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let regions = ["orders-eu", "orders-us"].map(Topic::<String, String>::plain);
    /// app.source(&Topic::<String, String>::plain("orders"))
    ///     .route(&regions, |order| format!("orders-{}", order.key).into());
    /// ```
    pub fn route<'t, KC, VC>(
        self,
        topics: impl IntoIterator<Item = &'t Topic<K, V, KC, VC>>,
        name: impl for<'a> Fn(&'a Record<K, V>) -> Cow<'a, str> + Send + Sync + 'static,
    ) where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let topics: Arc<[_]> = topics.into_iter().cloned().collect();
        let first = {
            let mut graph = self.graph();
            let outputs: Vec<usize> = topics
                .iter()
                .map(|topic| graph.output(topic, false))
                .collect();
            if outputs.is_empty() {
                graph.wrong(Mistake::NoRoute);
            }
            outputs.first().copied().unwrap_or_default()
        };
        let name = Arc::new(name);
        let kind = Kind::Route(first, topics.len());
        let _end: Stream<(), (), P> = self.then(kind, move || {
            Box::new(Route::new(first, Arc::clone(&topics), Arc::clone(&name)))
        });
    }

    /// The same stream, with the stores of the tables whose updates it has.
    pub(crate) fn with_lineage(mut self, stores: &[usize]) -> Self {
        self.lineage.extend(stores);
        self
    }

    /// The stores of the tables whose updates these are.
    pub(crate) fn lineage(&self) -> &[usize] {
        &self.lineage
    }

    /// Lets the next node read the stores of a table. Records a mistake if the table belongs to another app.
    pub(crate) fn meets<L, W>(&self, table: &Stream<L, W>, stores: &[usize], method: &'static str)
    where
        L: 'static,
        W: 'static,
    {
        if self.shares(table, stores, (method, "table")) {
            self.graph().read_rows(&table.parents);
        }
    }

    /// Lets the next node use stores of another stream. If that stream belongs to another app, records a mistake and
    /// returns false.
    pub(crate) fn shares<L, W>(
        &self,
        other: &Stream<L, W>,
        stores: &[usize],
        (method, what): (&'static str, &'static str),
    ) -> bool
    where
        L: 'static,
        W: 'static,
    {
        let is_ours = Arc::ptr_eq(&self.graph, &other.graph);
        if is_ours {
            let mut graph = self.graph();
            for &store in stores {
                graph.use_store(store, &self.sources);
            }
        } else {
            self.of_other_app(other, method, what);
        }
        is_ours
    }

    /// Records that the next node reads a global table. Records a mistake if the table belongs to another app.
    pub(crate) fn meets_global(&self, of: &Arc<Mutex<Graph>>, table: usize, method: &'static str) {
        if Arc::ptr_eq(&self.graph, of) {
            self.graph().join_global(table);
            return;
        }
        let what = "global table";
        self.graph().wrong(Mistake::OtherApp { method, what });
        let mut other = of.lock().unwrap_or_else(PoisonError::into_inner);
        other.wrong(Mistake::OtherApp { method, what });
    }

    /// Records the mistake in both apps, so that either reports it.
    fn of_other_app<L: 'static, W: 'static, Q>(
        &self,
        other: &Stream<L, W, Q>,
        method: &'static str,
        what: &'static str,
    ) {
        self.graph().wrong(Mistake::OtherApp { method, what });
        other.graph().wrong(Mistake::OtherApp { method, what });
    }

    pub(crate) fn then<K2, V2, P2>(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> Stream<K2, V2, P2> {
        let node = self
            .graph()
            .add(&self.parents, kind, &self.stores, Box::new(make));
        Stream {
            graph: self.graph,
            parents: vec![Exit::Node(node)],
            sources: self.sources,
            stores: match kind.changes_keys() {
                true => Vec::new(),
                false => self.stores,
            },
            timers: self.timers,
            lineage: self.lineage,
            types: PhantomData,
        }
    }

    /// Adds a node that reads stores of other tables.
    pub(crate) fn then_reading<K2: 'static, V2: 'static, P2>(
        self,
        stores: &[usize],
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> Stream<K2, V2, P2> {
        let stream = self.then(kind, make);
        stream.reads(stores);
        stream
    }

    /// Declares the stores of other tables that the last node reads.
    pub(crate) fn reads(&self, stores: &[usize]) {
        let mut graph = self.graph();
        for exit in &self.parents {
            if let Exit::Node(node) = exit {
                graph.reads(*node, stores);
            }
        }
    }

    /// Adds a node of a table. Returns its updates and its changes.
    pub(crate) fn then_table<K2, V2, U>(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> (Stream<K2, U>, Stream<K2, Change<V2>>) {
        let updates: Stream<K2, U> = self.then(kind, make);
        let rest = updates.parents.iter().map(|exit| match exit {
            Exit::Node(node) => Exit::Rest(*node),
            other => *other,
        });
        let changes = Stream {
            graph: Arc::clone(&updates.graph),
            parents: rest.collect(),
            sources: updates.sources.clone(),
            stores: Vec::new(),
            timers: Vec::new(),
            lineage: Vec::new(),
            types: PhantomData,
        };
        (updates, changes)
    }

    fn part(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> (Self, Self) {
        let node = self
            .graph()
            .add(&self.parents, kind, &self.stores, Box::new(make));
        let way = |exit| Self {
            graph: Arc::clone(&self.graph),
            parents: vec![exit],
            sources: self.sources.clone(),
            stores: self.stores.clone(),
            timers: Vec::new(),
            lineage: self.lineage.clone(),
            types: PhantomData,
        };
        (way(Exit::Node(node)), way(Exit::Rest(node)))
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + 'static, V: Clone + 'static, P> Clone for Stream<K, V, P> {
    fn clone(&self) -> Self {
        self.graph().copy::<K, V>(&self.parents);
        Self {
            graph: Arc::clone(&self.graph),
            parents: self.parents.clone(),
            sources: self.sources.clone(),
            stores: self.stores.clone(),
            timers: Vec::new(),
            lineage: self.lineage.clone(),
            types: PhantomData,
        }
    }
}

impl<K, V, P> fmt::Debug for Stream<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("parents", &self.parents)
            .finish_non_exhaustive()
    }
}
