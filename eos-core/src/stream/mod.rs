//! The closures layer: one method per shape.

mod stateless;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use eos_state::StoreKind;

use crate::codec::{Codec, Encode};
use crate::ctx::Ctx;
use crate::error_policy::ErrorPolicy;
use crate::failure::Done;
use crate::keys::{Partitioned, Scattered, Together};
use crate::processor::Processor;
use crate::record::Record;
use crate::store::{KeyValueStore, Store, StoreSpec};
use crate::topic::Topic;
use crate::topology::{
    Closure, Exit, Graph, Ignore, Kind, Node, Process, Tee, TopologyError, Write,
};

/// Records on their way through an app.
///
/// Closures are `Fn`: an aborted transaction replays its records, so a closure may see a record
/// again whose effects never counted. What it keeps for itself outside of the record is not undone:
/// that belongs into a [`Processor`].
///
/// `P` says where the records of one key are: [`Partitioned`] or [`Scattered`].
#[must_use = "a stream does nothing until it ends in `to`, `process` or `process_with`"]
pub struct Stream<K, V, P = Partitioned> {
    graph: Arc<Mutex<Graph>>,
    /// What the next node stands behind; several after a merge.
    parents: Vec<Exit>,
    /// The sources that its records come from.
    sources: Vec<usize>,
    types: Types<K, V, P>,
}

/// Types that are named but not held.
type Types<K, V, P> = PhantomData<(fn(K, V), P)>;

impl<K: 'static, V: 'static> Stream<K, V> {
    pub(crate) fn new(graph: Arc<Mutex<Graph>>, source: usize) -> Self {
        Self {
            graph,
            parents: vec![Exit::Source(source)],
            sources: vec![source],
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static> Stream<K, V> {
    /// A store that only the next node uses.
    pub(crate) fn own_store<L: 'static, W: 'static>(&self, store: &KeyValueStore<L, W>) -> usize {
        self.own(store.spec(StoreKind::Point))
    }

    /// A store of any kind that only the next node uses.
    pub(crate) fn own(&self, store: StoreSpec) -> usize {
        let mut graph = self.graph();
        let at = graph.keep(store);
        graph.use_store(at, &self.sources);
        at
    }

    /// Remembers an error that shows while the stream is declared.
    pub(crate) fn wrong(&self, error: TopologyError) {
        self.graph().wrong(error);
    }

    /// A node with two ways out: what it makes, and the records that it does not take.
    pub(crate) fn then_or_else<K2, V2>(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> (Stream<K2, V2>, Self) {
        let node = self.graph().add(&self.parents, kind, Box::new(make));
        let made = Stream {
            graph: Arc::clone(&self.graph),
            parents: vec![Exit::Node(node)],
            sources: self.sources.clone(),
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
    /// Lets the closures that come after it use a store, by [`Ctx::store`], [`Ctx::ordered_store`] or
    /// [`Ctx::window_store`]. Several streams may use one
    /// store: one task reads all their topics then, which need equally many partitions.
    ///
    /// Only where the records of a key are in one task: after [`key_by`](Self::key_by) there is
    /// [`repartition`](Self::repartition) first.
    pub fn with_store<L: 'static, W: 'static, S>(self, store: &Store<L, W, S>) -> Self
    where
        P: Together,
    {
        {
            let mut graph = self.graph();
            if store.app == graph.token() {
                graph.use_store(store.index, &self.sources);
            } else {
                graph.wrong(TopologyError::OtherApp {
                    method: "with_store",
                    what: "store",
                });
            }
        }
        self
    }

    /// The records, which the type shows to be in one partition per key.
    pub(crate) fn partitioned(self) -> Stream<K, V>
    where
        P: Together,
    {
        Stream {
            graph: self.graph,
            parents: self.parents,
            sources: self.sources,
            types: PhantomData,
        }
    }

    /// Sends the records through a topic of the app's own, so that all records of a key come
    /// together in one task again: what keeps something per key needs that after
    /// [`key_by`](Self::key_by).
    ///
    /// `topic` gives the codecs and a name: the topic is called `<app>-<name>-repartition`. The app
    /// creates it, with as many partitions as the largest of the topics that feed it.
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
    /// Both sides are transactions of their own; each record gets through once.
    pub fn repartition<KC, VC>(self, topic: &Topic<K, V, KC, VC>) -> Stream<K, V>
    where
        KC: Codec<K>,
        VC: Codec<V>,
    {
        let source = self.graph().repartition(&self.parents, topic);
        Stream::new(self.graph, source)
    }

    /// What becomes of records that can't be processed; [`ErrorPolicy::Fail`] by default.
    ///
    /// It applies to the sources that this stream comes from, and so to everything that happens to
    /// their records: before and after this call, and on every branch. Two different ones for one
    /// source are an error when the app starts.
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

    /// Gives each record to two streams. To read a topic once more instead, call
    /// [`App::source`](crate::App::source) again.
    pub fn tee(self) -> (Self, Self)
    where
        K: Clone,
        V: Clone,
    {
        self.part(Kind::Tee, || Box::new(Tee::<K, V>(PhantomData)))
    }

    /// Puts two streams together. One task reads both, the older record first.
    ///
    /// Their topics become siblings: they need equally many partitions, and one task reads the records of both with the
    /// same partition number (KIP-695: it waits for a topic that has more, at most `max.task.idle.ms`). The consumer
    /// group subscribes to the topic that was declared first; to change it later means a new layout. Kafka Streams'
    /// `merge` needs no equal partitions and keeps no order: that is [`union`](Self::union).
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let (web, shop) = (Topic::<String, u64>::plain("web"), Topic::<String, u64>::plain("shop"));
    /// let sales = app.source(&web).merge(app.source(&shop));
    /// sales.to(&Topic::plain("sales"));
    /// ```
    pub fn merge(self, other: Self) -> Self {
        let merged: Self = self.merged("merge", other);
        merged.graph().link(&merged.sources);
        merged
    }

    /// Puts two streams together whose tasks stay apart. Each stream keeps its order; there is none between them.
    ///
    /// The topics may have different numbers of partitions, and different processes may read them, so the records of one
    /// key are [`Scattered`]. [`merge`](Self::merge) reads both topics in one task, in order of time.
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

    /// Forgets that the records of one key are in one task: for loops and conditions over streams of both kinds.
    pub fn scattered(self) -> Stream<K, V, Scattered> {
        Stream {
            graph: self.graph,
            parents: self.parents,
            sources: self.sources,
            types: PhantomData,
        }
    }

    /// Applies a function to the stream: an operator of your own, in the order of the chain.
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
            types: PhantomData,
        }
    }

    /// Ends the stream in a closure that emits through [`Ctx`] to any number of outputs.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let lines = Topic::<String, String>::plain("lines");
    /// let (words, lengths) = (
    ///     app.output(&Topic::<String, String>::plain("words")),
    ///     app.output(&Topic::<String, u64>::plain("lengths")),
    /// );
    /// app.source(&lines).process(move |ctx, line| {
    ///     for word in line.value.split_whitespace() {
    ///         ctx.emit(&words, line.key.clone(), word.to_owned())?;
    ///     }
    ///     ctx.emit(&lengths, line.key, line.value.len() as u64)
    /// });
    /// ```
    pub fn process<R: Done>(
        self,
        f: impl for<'c> Fn(&Ctx<'c>, Record<K, V>) -> R + Send + Sync + 'static,
    ) {
        let f = Arc::new(move |ctx: &Ctx<'_>, record: Record<K, V>| f(ctx, record).done());
        self.process_with(move || Closure(Arc::clone(&f)));
    }

    /// Ends the stream in processors: `make` makes one for each task, and a new one after the
    /// records of an aborted transaction. See [`Processor`].
    pub fn process_with<T: Processor<K, V>>(self, make: impl Fn() -> T + Send + Sync + 'static) {
        let make = Arc::new(make);
        let _end: Stream<(), (), P> = self.then(Kind::Process, move || {
            Box::new(Process::<K, V, T, _>::new(Arc::clone(&make)))
        });
    }

    /// Ends a stream that is not wanted: one way out of [`branch`](Self::branch) or
    /// [`split_result`](Self::split_result). Its records count as processed.
    pub fn ignore(self) {
        let _end: Stream<(), (), P> = self.then(Kind::Ignore, || Box::new(Ignore));
    }

    /// Ends the stream in a topic. Time and headers are carried along; the key decides the
    /// partition as Java's default partitioner does.
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

    /// Lets the next node use the store of a table, or says that it is another app's.
    pub(crate) fn meets<L, W>(&self, table: &Stream<L, W>, store: usize, method: &'static str)
    where
        L: 'static,
        W: 'static,
    {
        if Arc::ptr_eq(&self.graph, &table.graph) {
            self.graph().use_store(store, &self.sources);
        } else {
            self.of_other_app(table, method, "table");
        }
    }

    /// Whichever of the two apps is run says so.
    fn of_other_app<L: 'static, W: 'static, Q>(
        &self,
        other: &Stream<L, W, Q>,
        method: &'static str,
        what: &'static str,
    ) {
        self.graph().wrong(TopologyError::OtherApp { method, what });
        other
            .graph()
            .wrong(TopologyError::OtherApp { method, what });
    }

    pub(crate) fn then<K2, V2, P2>(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> Stream<K2, V2, P2> {
        let node = self.graph().add(&self.parents, kind, Box::new(make));
        Stream {
            graph: self.graph,
            parents: vec![Exit::Node(node)],
            sources: self.sources,
            types: PhantomData,
        }
    }

    fn part(
        self,
        kind: Kind,
        make: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
    ) -> (Self, Self) {
        let node = self.graph().add(&self.parents, kind, Box::new(make));
        let way = |exit| Self {
            graph: Arc::clone(&self.graph),
            parents: vec![exit],
            sources: self.sources.clone(),
            types: PhantomData,
        };
        (way(Exit::Node(node)), way(Exit::Rest(node)))
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, P> fmt::Debug for Stream<K, V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("parents", &self.parents)
            .finish_non_exhaustive()
    }
}
