//! How operators add their nodes, stores and mistakes to the graph behind a stream.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eos_state::StoreKind;

use super::Stream;
use crate::change::Change;
use crate::store::{KeyValueStore, StoreSpec};
use crate::timer::{Clock, tick_spec};
use crate::topology::{Exit, Graph, Kind, MadeOf, Mistake, Node};

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
    pub(super) fn of_other_app<L: 'static, W: 'static, Q>(
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

    pub(super) fn part(
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

    pub(super) fn graph(&self) -> std::sync::MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
