//! The closures layer: one method per shape.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use eos_state::StoreKind;

use crate::ctx::Ctx;
use crate::error_policy::ErrorPolicy;
use crate::failure::{Done, Failure};
use crate::keys::{Partitioned, Scattered, Together};
use crate::processor::Processor;
use crate::record::Record;
use crate::store::{KeyValueStore, Store, StoreSpec};
use crate::topic::Topic;
use crate::topology::{
    Branch, Closure, Exit, FlatMap, Graph, KeyBy, Kind, Map, Node, Peek, Process, Tee,
    TopologyError, Write,
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
    pub fn repartition(self, topic: &Topic<K, V>) -> Stream<K, V> {
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

    /// Changes the value and keeps the key.
    pub fn map<U: 'static>(self, f: impl Fn(V) -> U + Send + Sync + 'static) -> Stream<K, U, P> {
        self.mapped(Kind::Map, move |value| Ok(Some(f(value))))
    }

    /// Changes the value, or fails the record. Any error converts by `?`:
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let (texts, numbers) = (Topic::<String, String>::plain("t"), Topic::<String, u64>::plain("n"));
    /// app.source(&texts).try_map(|text| Ok(text.parse::<u64>()?)).to(&numbers);
    /// ```
    pub fn try_map<U: 'static>(
        self,
        f: impl Fn(V) -> Result<U, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.mapped(Kind::TryMap, move |value| f(value).map(Some))
    }

    /// Changes the value, or drops the record.
    pub fn filter_map<U: 'static>(
        self,
        f: impl Fn(V) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        self.mapped(Kind::FilterMap, move |value| Ok(f(value)))
    }

    fn mapped<U: 'static>(
        self,
        kind: Kind,
        f: impl Fn(V) -> Result<Option<U>, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U, P> {
        let f = Arc::new(f);
        self.then(kind, move || {
            Box::new(Map::<K, V, U, _>::new(Arc::clone(&f)))
        })
    }

    /// Keeps the records that pass; the others still count as processed.
    pub fn filter(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        self.then(Kind::Filter, move || {
            Box::new(Branch::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Makes any number of records of one, each with its key.
    pub fn flat_map<I>(self, f: impl Fn(V) -> I + Send + Sync + 'static) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_mapped(Kind::FlatMap, move |value| Ok(f(value)))
    }

    /// Makes any number of records of one, or fails it.
    pub fn try_flat_map<I>(
        self,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_mapped(Kind::TryFlatMap, f)
    }

    fn flat_mapped<I>(
        self,
        kind: Kind,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item, P>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        let f = Arc::new(f);
        self.then(kind, move || {
            Box::new(FlatMap::<K, V, I, _>::new(Arc::clone(&f)))
        })
    }

    /// Changes the key; the value decides it. The only method that does.
    ///
    /// The new key decides the partition of the output. Until then the records of one new key are
    /// [`Scattered`].
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let lines = Topic::<String, String>::plain("lines");
    /// let by_length = Topic::<u64, String>::plain("lines-by-length");
    /// app.source(&lines).key_by(|line| line.len() as u64).to(&by_length);
    /// ```
    pub fn key_by<L: 'static>(
        self,
        f: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Stream<L, V, Scattered> {
        let f = Arc::new(f);
        self.then(Kind::KeyBy, move || {
            Box::new(KeyBy::<K, V, L, _>::new(Arc::clone(&f)))
        })
    }

    /// Looks at each value and changes nothing: for logs and measurements. It sees a record again
    /// when its transaction is aborted.
    pub fn peek(self, f: impl Fn(&V) + Send + Sync + 'static) -> Self {
        self.peek_record(move |record| f(&record.value))
    }

    /// As [`peek`](Self::peek), with key, time and headers.
    pub fn peek_record(self, f: impl Fn(&Record<K, V>) + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        self.then(Kind::Peek, move || {
            Box::new(Peek::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Parts the stream in two: the records that pass, and all others. Branch the second one again
    /// for more.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// # let amounts = Topic::<String, u64>::plain("amounts");
    /// let (large, others) = app.source(&amounts).branch(|amount| *amount > 1000);
    /// let (medium, small) = others.branch(|amount| *amount > 100);
    /// large.to(&Topic::plain("large"));
    /// medium.to(&Topic::plain("medium"));
    /// small.to(&Topic::plain("small"));
    /// ```
    pub fn branch(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> (Self, Self) {
        let f = Arc::new(f);
        self.part(Kind::Branch, move || {
            Box::new(Branch::<K, V, _>::new(Arc::clone(&f)))
        })
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

    /// Puts two streams together. Each keeps its order; between them there is none.
    ///
    /// Streams of different topics stay independent: other tasks read them, maybe elsewhere, so the
    /// records of one key are [`Scattered`]. Where one task should read both, in order of time, there
    /// is [`merge_by_time`](Self::merge_by_time).
    pub fn merge<Q>(self, other: Stream<K, V, Q>) -> Stream<K, V, Scattered> {
        self.merged("merge", other)
    }

    /// Puts two streams together that one task reads in order of time.
    ///
    /// Their topics become siblings: they need equally many partitions, and the records of both
    /// with the same partition number are read by one task, the older one first (KIP-695: it waits
    /// for a topic that has more, at most `max.task.idle.ms`). The topic declared first is the one
    /// that the consumer group subscribes to; to change it later means a new layout.
    ///
    /// ```
    /// # use eos_core::{App, Topic};
    /// # let mut app = App::new("a");
    /// let (web, shop) = (Topic::<String, u64>::plain("web"), Topic::<String, u64>::plain("shop"));
    /// let sales = app.source(&web).merge_by_time(app.source(&shop));
    /// sales.to(&Topic::plain("sales"));
    /// ```
    pub fn merge_by_time(self, other: Self) -> Self {
        let merged: Self = self.merged("merge_by_time", other);
        merged.graph().link(&merged.sources);
        merged
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

    /// Ends the stream in a topic. Time and headers are carried along; the key decides the
    /// partition as Java's default partitioner does.
    pub fn to(self, topic: &Topic<K, V>) {
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
