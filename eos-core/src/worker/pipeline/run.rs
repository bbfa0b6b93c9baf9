//! Runs closures and processors on one record or one result.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eos_protocol::TaskId;
use eos_state::Write;

use super::Pipeline;
use crate::client::{Client, Message};
use crate::ctx::{Ctx, Origin};
use crate::panics::panic_text;
use crate::store::{MostAhead, StateAccess};
use crate::topology::{Chains, Fault, Moment, Next, Node, Raw, Scratch};
use crate::worker::WorkerError;
use crate::worker::shared::Shared;
use crate::worker::task_state::TaskState;

impl Pipeline {
    /// Runs the record through every chain that reads this input. Effects stay in the scratch. A fault includes the
    /// failed source, as an index into the input's sources.
    #[inline(always)]
    pub(super) fn run<C: Client>(
        &self,
        shared: &Shared<C>,
        chains: &mut Chains,
        state: Option<&TaskState>,
        input: usize,
        origin: &Origin<'_>,
        message: &impl Message,
    ) -> Result<(), (usize, Fault)> {
        let raw = Raw {
            key: message.key(),
            value: message.value(),
            timestamp: origin.timestamp,
            headers: origin.headers,
        };
        let ctx = self.ctx(shared, state, origin);
        let Some(sources) = chains.inputs.get_mut(input) else {
            return Ok(());
        };
        let places = &mut chains.places[..];
        // A panic in a closure is an error of the record: possibly half-done processors are discarded, and the scratch
        // is cleared.
        let mut at = 0;
        catch(&self.scratch, || {
            for (n, source) in sources.iter_mut().enumerate() {
                at = n;
                let mut next = Next::all(places, source.first);
                let before = self.scratch.borrow().len();
                source.entry.enter(&ctx, &raw, &mut next)?;
                if let Some(too_large) = self.oversize(shared, before) {
                    return Err(too_large);
                }
            }
            Ok(())
        })
        .map_err(|fault| (at, fault))
    }

    /// Runs one result through the nodes behind its own. Effects stay in the scratch.
    pub(super) fn run_result<C: Client>(
        &self,
        shared: &Shared<C>,
        chains: &mut Chains,
        node: usize,
        state: &TaskState,
        result: Write<'_>,
        origin: &Origin<'_>,
    ) -> Result<(), Fault> {
        self.run_node(shared, chains, node, state, origin, |node, ctx, next| {
            node.emit(ctx, result.key, result.value, next)
        })
    }

    /// Runs the node at this place of the chains on a due item of it. Effects stay in the scratch.
    pub(super) fn run_due<C: Client>(
        &self,
        shared: &Shared<C>,
        chains: &mut Chains,
        node: usize,
        state: &TaskState,
        moment: Moment<'_>,
        origin: &Origin<'_>,
    ) -> Result<(), Fault> {
        self.run_node(shared, chains, node, state, origin, |node, ctx, next| {
            node.due(ctx, moment, next)
        })
    }

    /// Runs the node at this place of the chains without a record.
    fn run_node<C: Client>(
        &self,
        shared: &Shared<C>,
        chains: &mut Chains,
        node: usize,
        state: &TaskState,
        origin: &Origin<'_>,
        run: impl FnOnce(&mut dyn Node, &Ctx<'_>, &mut Next<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let ctx = self.ctx(shared, Some(state), origin);
        let places = &mut chains.places[..];
        catch(&self.scratch, || {
            let Some((node, mut next)) = Next::behind(places, node) else {
                return Ok(());
            };
            run(node, &ctx, &mut next)?;
            self.oversize(shared, 0).map_or(Ok(()), Err)
        })
    }

    /// Returns the error of a failed database. It does not depend on the record, so no policy may continue.
    #[inline(always)]
    pub(super) fn poisoned<C: Client>(
        &self,
        shared: &Shared<C>,
        task: TaskId,
        state: Option<&TaskState>,
    ) -> Option<WorkerError> {
        // Most stages without state are in apps without global tables.
        if state.is_none() && shared.topology.globals().is_empty() {
            return None;
        }
        self.database_error(task, state)
    }

    fn database_error(&self, task: TaskId, state: Option<&TaskState>) -> Option<WorkerError> {
        if let Some((table, source)) = self.buffers.borrow().globals.failed() {
            return Some(WorkerError::Global {
                table: table.to_string(),
                source: Box::new(source.clone()),
            });
        }
        let source = Box::new(state?.store.poison()?.clone());
        Some(WorkerError::Store { task, source })
    }

    #[inline(always)]
    pub(super) fn ctx<'a, C: Client>(
        &'a self,
        shared: &'a Shared<C>,
        state: Option<&'a TaskState>,
        origin: &'a Origin<'a>,
    ) -> Ctx<'a> {
        self.ctx_on(shared, &self.scratch, state, origin)
    }

    /// As [`ctx`](Self::ctx), with another scratch.
    #[inline(always)]
    pub(super) fn ctx_on<'a, C: Client>(
        &'a self,
        shared: &'a Shared<C>,
        scratch: &'a RefCell<Scratch>,
        state: Option<&'a TaskState>,
        origin: &'a Origin<'a>,
    ) -> Ctx<'a> {
        let topology = &*shared.topology;
        if !topology.globals().is_empty() {
            self.end_reads();
        }
        let limit = shared
            .spec
            .most_ahead
            .filter(|_| state.is_some() && topology.refuses_future(origin.task.stage).is_some());
        let most_ahead = limit.map(|limit| MostAhead {
            wall_clock: shared.env.wall(),
            limit,
        });
        Ctx::new(
            topology.token(),
            (topology.outputs(), &shared.spec.output_partitions),
            scratch,
            StateAccess {
                specs: topology.stores(),
                task: state.map(|state| &state.store),
                windows: state.map_or(&[], |state| state.windows.stores()),
                closed: state.map_or(&[], |state| state.row_stores.closed()),
                most_ahead,
                buffers: &self.buffers,
            },
            origin,
        )
    }

    /// Returns the first output from number `from` on that its topic rejects.
    #[inline(always)]
    pub(super) fn oversize<C: Client>(&self, shared: &Shared<C>, from: usize) -> Option<Fault> {
        if self.scratch.borrow().is_surely_below(self.least_limit) {
            return None;
        }
        self.find_oversize(shared, from)
    }

    #[inline(never)]
    fn find_oversize<C: Client>(&self, shared: &Shared<C>, from: usize) -> Option<Fault> {
        let scratch = self.scratch.borrow();
        let (output, bytes, limit) = scratch.oversize(from)?;
        let topic = shared.topology.outputs().get(output)?.name.clone();
        Some(Fault::Oversize {
            topic,
            bytes,
            limit,
        })
    }
}

/// Returns a panic as a fault. If a closure unwraps the failure of `forward`, moments still come first.
pub(super) fn catch(
    scratch: &RefCell<Scratch>,
    run: impl FnOnce() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let done = catch_unwind(AssertUnwindSafe(run));
    done.unwrap_or_else(|panic| match scratch.borrow_mut().fault.take() {
        Some(fault @ Fault::MomentsFirst(_)) => Err(fault),
        _ => Err(Fault::Panic(panic_text(&*panic))),
    })
}
