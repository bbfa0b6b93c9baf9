//! Results that go on once per commit, when intake has ended.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use eos_protocol::{Offset, TaskId, Timestamp, TopicPartition};
use eos_state::{Changed, Write};

use super::record::panic_text;
use super::send::Unsent;
use super::state::TaskState;
use super::task::Task;
use super::{RecordsOf, Worker, WorkerError};
use crate::client::{Client, Headers};
use crate::ctx::{Ctx, Origin};
use crate::failpoints::{self, Defence};
use crate::store::StateAccess;
use crate::topology::{Chains, Fault, Next};

/// How far they are, in the transaction being sealed.
#[derive(Debug, Default)]
pub(super) struct Emitting {
    /// Tasks are gone through in order: up to this one they are through.
    through: Option<TaskId>,
    /// In the task after it: from this node on.
    node: usize,
    /// The results of that node, if it has begun.
    results: Option<Changed>,
}

impl<C: Client> Worker<C> {
    /// Hands on the results of the transaction, of all tasks. True once they are all with the producer;
    /// false while its queue is full, or if that failed.
    pub(super) fn emit_results(&mut self) -> bool {
        while let Some(id) = self.next_to_emit() {
            self.give_held_back();
            let Some(mut task) = self.tasks.remove(&id) else {
                return false;
            };
            let done = self.emit_of(&mut task);
            self.tasks.insert(id, task);
            match done {
                Ok(true) => {
                    self.emitting = Emitting {
                        through: Some(id),
                        ..Emitting::default()
                    };
                }
                Ok(false) => {
                    self.catch_up();
                    return false;
                }
                Err(error) => {
                    tracing::error!(
                        app = %self.spec.app, worker = %self.spec.id, %error, "the commit failed"
                    );
                    self.scratch.get_mut().clear();
                    self.give_up(*error);
                    self.catch_up();
                    return false;
                }
            }
        }
        true
    }

    /// The next task that has such results.
    fn next_to_emit(&self) -> Option<TaskId> {
        let from = (self.emitting.through).map_or(Bound::Unbounded, Bound::Excluded);
        let mut tasks = self.tasks.range((from, Bound::Unbounded));
        let found = tasks.find(|(_, task)| {
            task.state.is_some() && task.progress.touched() && task.chains.emitter(0).is_some()
        });
        found.map(|(id, _)| *id)
    }

    /// A record that waits for a transaction of its own has its effects in the scratch, where results are
    /// to go. It is taken as if it had never come. Its task has the next turn, so that the next transaction
    /// begins with it: behind others it would be too slow for that one as well, for ever.
    fn give_held_back(&mut self) {
        if failpoints::undefended(Defence::HeldBack) {
            return;
        }
        let Some(held) = self.held.take() else {
            return;
        };
        self.scratch.get_mut().clear();
        let turn = self.tasks.keys().position(|id| *id == held.task);
        self.turn = turn.unwrap_or_default();
        if let Some(task) = self.tasks.get_mut(&held.task) {
            task.forget();
        }
    }

    /// Goes on with the results of one task. False while the producer's queue is full.
    fn emit_of(&mut self, task: &mut Task<RecordsOf<C>>) -> Result<bool, Box<WorkerError>> {
        let (id, topology) = (task.progress.task, Arc::clone(&self.topology));
        while let Some((node, store)) = task.chains.emitter(self.emitting.node) {
            let (Some(spec), Some(state)) = (topology.stores().get(store), &mut task.state) else {
                break;
            };
            let mut results = match self.emitting.results.take() {
                Some(results) => results,
                None => (state.store.changed(spec.id)).map_err(|source| WorkerError::Store {
                    task: id,
                    source: Box::new(source),
                })?,
            };
            while let Some(state) = &task.state
                && let Some(result) = results.next(&state.store)
            {
                let emitted = self.emit_one(&mut task.chains, node, state, result, {
                    let input = task.progress.inputs().first();
                    let now = task.progress.stream_time();
                    input.map(|input| (id, &input.partition, input.next, now))
                });
                // A closure may have made nothing of what its store answered.
                if let Some(error) = Self::poisoned(id, Some(state)) {
                    return Err(error.into());
                }
                emitted.map_err(|fault| WorkerError::Results {
                    task: id,
                    store: spec.name.to_string(),
                    reason: fault.into(),
                })?;
                self.kept += task.keep();
                if self.scratch.get_mut().len() > 0 {
                    self.unsent = Some(Unsent::all(id.partition));
                    if !self.send_some() {
                        self.emitting.node = node;
                        self.emitting.results = Some(results);
                        return Ok(false);
                    }
                }
            }
            self.emitting.node = node + 1;
        }
        Ok(true)
    }

    /// Takes one result through the nodes behind its own. Effects stay in the scratch.
    fn emit_one(
        &self,
        chains: &mut Chains,
        node: usize,
        state: &TaskState,
        result: Write<'_>,
        last: Option<(TaskId, &TopicPartition, Offset, Option<Timestamp>)>,
    ) -> Result<(), Fault> {
        let Some((task, partition, next, stream_time)) = last else {
            return Ok(());
        };
        let headers = Headers::new();
        let ctx = Ctx::new(
            self.topology.token(),
            self.topology.outputs(),
            &self.scratch,
            StateAccess {
                specs: self.topology.stores(),
                task: Some(&state.store),
                windows: state.windows.stores(),
                buffers: &self.buffers,
            },
            Origin {
                task,
                partition,
                offset: Offset::new(next.get() - 1).unwrap_or(Offset::ZERO),
                timestamp: None,
                stream_time,
                headers: &headers,
            },
        );
        let places = &mut chains.places[..];
        catch_unwind(AssertUnwindSafe(|| {
            let Some((node, mut next)) = Next::behind(places, node) else {
                return Ok(());
            };
            node.emit(&ctx, result.key, result.value, &mut next)?;
            self.oversize(0).map_or(Ok(()), Err)
        }))
        .unwrap_or_else(|panic| Err(Fault::Panic(panic_text(&*panic))))
    }
}
