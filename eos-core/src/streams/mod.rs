//! Streams and their operators.

mod calls;
mod foreign;
mod graph;
mod process;
mod stateless;
pub(crate) mod timed;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::boundary::{Place, Row};
use crate::codec::{Codec, Encode};
use crate::error_policy::ErrorPolicy;
use crate::keys::{Colocated, Partitioned, Scattered};
use crate::record::Record;
use crate::topic::Topic;
use crate::topology::{Exit, Graph, Ignore, Kind, Mistake, Route, Write, WritePlace};

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

impl<K: 'static, V: 'static, P> Stream<K, V, P> {
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
    /// name; the full name is `<app>-<name>-repartition`. The app creates the topic. If the task that reads the topic has
    /// other input topics, the topic has their partition count. Otherwise, it has as many partitions as the largest topic that
    /// feeds it.
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
