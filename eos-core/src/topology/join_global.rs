//! Global tables in the graph, and the node that looks up a row of one for each record.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::error::{Mistake, Mistakes, check_name, check_store_name};
use super::fault::Fault;
use super::global_spec::GlobalSpec;
use super::graph::Graph;
use super::node::{Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::error_policy::{ErrorPolicy, LastResort};
use crate::global::GlobalTopic;
use crate::record::Record;

impl Graph {
    /// Adds a global table. Returns its index.
    pub(crate) fn global(&mut self, mut table: GlobalSpec) -> usize {
        table.number = self.declared();
        self.globals.push(table);
        self.globals.len() - 1
    }

    pub(crate) fn global_policy(&mut self, table: usize, policy: ErrorPolicy) {
        if let Some(table) = self.globals.get_mut(table) {
            table.policy = policy;
        }
    }

    /// Records that a stream is joined with a global table.
    pub(crate) fn join_global(&mut self, table: usize) {
        if let Some(table) = self.globals.get_mut(table) {
            table.is_joined = true;
        }
    }

    /// Checks the names, the policies and the uses of global tables.
    pub(super) fn check_globals(&self, mistakes: &mut Mistakes) {
        for (at, table) in self.globals.iter().enumerate() {
            let name = || table.name.to_string();
            mistakes.check(check_store_name(&table.name));
            mistakes.check(check_name(&table.topic));
            if self.globals.iter().take(at).any(|it| it.name == table.name) {
                mistakes.add(Mistake::SameGlobal { name: name() });
            }
            if !table.is_joined {
                mistakes.add(Mistake::UnusedGlobal { name: name() });
            }
            let policy = &table.policy;
            let allowed = matches!(policy.last(), LastResort::Fail | LastResort::Skip);
            if !allowed || policy.tries().is_some() {
                mistakes.add(Mistake::GlobalPolicy {
                    name: name(),
                    policy: Box::new(policy.clone()),
                });
            }
        }
    }
}

/// Type parameters without values.
type Types<K, V, R> = PhantomData<fn(K, V) -> R>;

/// Combines a record's value with the row of a global table, if there is one. Forwards the result with the record's own
/// time (`KStreamGlobalKTableJoin`). If `f` returns `None`, the record is dropped.
pub(crate) struct JoinGlobal<K, V, L, W, R, G, F> {
    table: usize,
    topic: Arc<dyn GlobalTopic<L, W>>,
    key: Arc<G>,
    f: Arc<F>,
    types: Types<K, V, R>,
}

impl<K, V, L, W, R, G, F> JoinGlobal<K, V, L, W, R, G, F> {
    pub(crate) fn new(
        table: usize,
        topic: Arc<dyn GlobalTopic<L, W>>,
        (key, f): (Arc<G>, Arc<F>),
    ) -> Self {
        Self {
            table,
            topic,
            key,
            f,
            types: PhantomData,
        }
    }
}

impl<K, V, L, W, R, G, F> Node for JoinGlobal<K, V, L, W, R, G, F>
where
    K: 'static,
    V: 'static,
    L: 'static,
    W: 'static,
    R: 'static,
    G: Fn(&K, &V) -> L + Send + Sync,
    F: Fn(V, Option<W>) -> Option<R> + Send + Sync,
{
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(Record {
            key,
            value,
            timestamp,
            headers,
        }) = take::<K, V>(record)
        else {
            return Ok(());
        };
        let wanted = (self.key)(&key, &value);
        let row = {
            let mut buffers = ctx.state().buffers.borrow_mut();
            buffers.globals.row(self.table, &*self.topic, &wanted)
        };
        match (self.f)(value, row.map_err(Fault::State)?) {
            Some(value) => next.forward(
                ctx,
                &mut Some(Record {
                    key,
                    value,
                    timestamp,
                    headers,
                }),
            ),
            None => Ok(()),
        }
    }
}
