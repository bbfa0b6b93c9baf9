//! The closures layer: one method per shape.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ctx::Ctx;
use crate::failure::{Done, Failure};
use crate::record::Record;
use crate::topic::Topic;
use crate::topology::{Filter, FlatMap, Graph, Map, NodeId, Process, Write};

/// A typed handle on an output topic, for [`Ctx::emit`]. Made by
/// [`App::output`](crate::App::output), checked when the app is built.
pub struct Output<K, V> {
    pub(crate) app: u64,
    pub(crate) index: usize,
    pub(crate) types: PhantomData<fn(K, V)>,
}

impl<K, V> Clone for Output<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Output<K, V> {}

impl<K, V> fmt::Debug for Output<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Output").field(&self.index).finish()
    }
}

/// Records on their way through an app.
///
/// Closures are `Fn`: an aborted transaction replays its records, so a closure may see a record
/// again whose effects never counted. What it keeps for itself outside of the record is not undone.
#[must_use = "a stream does nothing until it ends in `to` or `process`"]
pub struct Stream<K, V> {
    graph: Arc<Mutex<Graph>>,
    parent: NodeId,
    types: PhantomData<fn(K, V)>,
}

impl<K: 'static, V: 'static> Stream<K, V> {
    pub(crate) fn new(graph: Arc<Mutex<Graph>>, parent: NodeId) -> Self {
        Self {
            graph,
            parent,
            types: PhantomData,
        }
    }

    /// Changes the value and keeps the key.
    pub fn map<U: 'static>(self, f: impl Fn(V) -> U + Send + Sync + 'static) -> Stream<K, U> {
        self.mapped("map", move |value| Ok(Some(f(value))))
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
    ) -> Stream<K, U> {
        self.mapped("try_map", move |value| f(value).map(Some))
    }

    /// Changes the value, or drops the record.
    pub fn filter_map<U: 'static>(
        self,
        f: impl Fn(V) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<K, U> {
        self.mapped("filter_map", move |value| Ok(f(value)))
    }

    fn mapped<U: 'static>(
        self,
        kind: &'static str,
        f: impl Fn(V) -> Result<Option<U>, Failure> + Send + Sync + 'static,
    ) -> Stream<K, U> {
        let f = Arc::new(f);
        self.then(kind, move || {
            Box::new(Map::<K, V, U, _>::new(Arc::clone(&f)))
        })
    }

    /// Keeps the records that pass; the others still count as processed.
    pub fn filter(self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> Self {
        let f = Arc::new(f);
        self.then("filter", move || {
            Box::new(Filter::<K, V, _>::new(Arc::clone(&f)))
        })
    }

    /// Makes any number of records of one, each with its key.
    pub fn flat_map<I>(self, f: impl Fn(V) -> I + Send + Sync + 'static) -> Stream<K, I::Item>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_mapped("flat_map", move |value| Ok(f(value)))
    }

    /// Makes any number of records of one, or fails it.
    pub fn try_flat_map<I>(
        self,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        self.flat_mapped("try_flat_map", f)
    }

    fn flat_mapped<I>(
        self,
        kind: &'static str,
        f: impl Fn(V) -> Result<I, Failure> + Send + Sync + 'static,
    ) -> Stream<K, I::Item>
    where
        K: Clone,
        I: IntoIterator<Item: 'static> + 'static,
    {
        let f = Arc::new(f);
        self.then(kind, move || {
            Box::new(FlatMap::<K, V, I, _>::new(Arc::clone(&f)))
        })
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
        let _end: Stream<(), ()> = self.then("process", move || {
            Box::new(Process::<K, V, _>::new(Arc::clone(&f)))
        });
    }

    /// Ends the stream in a topic. Time and headers are carried along; the key decides the
    /// partition as Java's default partitioner does.
    pub fn to(self, topic: &Topic<K, V>) {
        let output = self.graph().output(topic);
        let topic = topic.clone();
        let _end: Stream<(), ()> = self.then("to", move || {
            Box::new(Write {
                output,
                topic: topic.clone(),
            })
        });
    }

    fn then<K2, V2>(
        self,
        kind: &'static str,
        make: impl Fn() -> Box<dyn crate::topology::Node> + Send + Sync + 'static,
    ) -> Stream<K2, V2> {
        let parent = self.graph().add(self.parent, kind, Box::new(make));
        Stream {
            graph: self.graph,
            parent,
            types: PhantomData,
        }
    }

    fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> fmt::Debug for Stream<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}
