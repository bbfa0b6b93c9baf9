//! The results that are emitted once per commit.

use eos_protocol::{Offset, TaskId};
use eos_state::Changed;

use super::send::Unsent;
use super::{Pipeline, Raised};
use crate::client::{Client, Headers};
use crate::ctx::Origin;
use crate::rules;
use crate::worker::between::Between;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::tasks::Tasks;
use crate::worker::transaction::TransactionDriver;
use crate::worker::{RecordsOf, WorkerError};

/// The progress of the sealing transaction's results.
#[derive(Debug, Default)]
pub(super) struct Emission {
    /// The last task whose results are all emitted. Tasks are emitted in order.
    through: Option<TaskId>,
    /// The next node of the task after it.
    node: usize,
    /// The results of that node, once it has begun.
    results: Option<Changed>,
}

impl Pipeline {
    /// Emits the results of all tasks. Returns false while the producer's queue is full.
    pub(in crate::worker) fn emit_results<C: Client>(
        &mut self,
        shared: &Shared<C>,
        tasks: &mut Tasks<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Result<bool, Raised> {
        let has_results = |task: &Task<_>| {
            task.state.is_some() && task.progress.touched() && task.chains.emitter(0).is_some()
        };
        while let Some(id) = tasks.next_after(self.emission.through, has_results) {
            self.give_held_back(tasks);
            let Some(task) = tasks.get_mut(id) else {
                return Ok(false);
            };
            match self.emit_of(shared, task, txn) {
                Ok(true) => {
                    self.emission = Emission {
                        through: Some(id),
                        ..Emission::default()
                    };
                }
                Err(Raised::GiveUp(error)) => {
                    tracing::error!(
                        app = %shared.spec.app, worker = %shared.spec.id, %error, "the commit failed"
                    );
                    self.clear();
                    return Err(Raised::GiveUp(error));
                }
                full_or_raised => return full_or_raised,
            }
        }
        Ok(true)
    }

    /// Drops the record that waits for a transaction of its own, as if it had never arrived: the results need the
    /// scratch, which holds its effects. Its task has the next turn, so that the next transaction begins with this
    /// record. Behind other records it would be too slow for that transaction too, and for each later one.
    fn give_held_back<R: crate::client::Records>(&mut self, tasks: &mut Tasks<R>) {
        if !rules::gives_held_records_back() {
            return;
        }
        let Some(held) = self.held.take() else {
            return;
        };
        self.clear();
        tasks.begin_turn(held.task);
        if let Some(task) = tasks.get_mut(held.task) {
            task.between = match held.record() {
                Some(_) => Between::record_first(),
                None => Between::default(),
            };
            task.pauses.iter_mut().for_each(|it| it.rule.given_back());
            task.forget();
        }
    }

    /// Continues the results of one task. Returns false while the producer's queue is full.
    fn emit_of<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Result<bool, Raised> {
        let id = task.progress.task;
        let headers = Headers::new();
        while let Some((node, store)) = task.chains.emitter(self.emission.node) {
            let (Some(spec), Some(state)) = (shared.topology.stores().get(store), &mut task.state)
            else {
                break;
            };
            let mut results = match self.emission.results.take() {
                Some(results) => results,
                None => (state.store.changed(spec.id)).map_err(|source| {
                    Raised::give_up(WorkerError::Store {
                        task: id,
                        source: Box::new(source),
                    })
                })?,
            };
            while let Some(state) = &task.state
                && let Some(result) = results.next(&state.store)
            {
                let Some(input) = task.progress.inputs().first() else {
                    break;
                };
                let origin = Origin {
                    task: id,
                    partition: &input.partition,
                    offset: Offset::new(input.next.get() - 1).unwrap_or(Offset::ZERO),
                    timestamp: None,
                    stream_time: task.progress.stream_time(),
                    // Due items may be left to the next transaction.
                    handled_to: None,
                    wall_clock: super::wall_clock(shared, Some(state)),
                    // A fault in an emission has no policy. The moment comes as due work.
                    takes_moments: false,
                    headers: &headers,
                };
                let emitted =
                    self.run_result(shared, &mut task.chains, node, state, result, &origin);
                // A closure may have ignored the error of its store.
                if let Some(error) = self.poisoned(shared, id, Some(state)) {
                    return Err(Raised::give_up(error));
                }
                emitted.map_err(|fault| {
                    Raised::give_up(WorkerError::Results {
                        task: id,
                        store: spec.name.to_string(),
                        reason: fault.into(),
                    })
                })?;
                txn.pace.keeps(task.keep());
                if let Some(counts) = self.scratch.get_mut().take_counts() {
                    self.counters.of_operators.add(&counts);
                }
                if self.scratch.get_mut().len() > 0 {
                    self.unsent = Some(Unsent::all(id.partition));
                    if !self.send_rest(shared, txn)? {
                        self.emission.node = node;
                        self.emission.results = Some(results);
                        return Ok(false);
                    }
                }
            }
            self.emission.node = node + 1;
        }
        Ok(true)
    }
}
