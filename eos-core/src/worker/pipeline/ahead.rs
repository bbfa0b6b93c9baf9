//! Records whose calls run ahead of their turn.
//!
//! A record is *admitted*: copied, and run through the nodes in front of the calls. It is *merged* in the order of
//! admission, when its calls have ended: then it takes the path of every record, with the results of its calls.

use std::cell::RefCell;
use std::time::Duration;

use eos_protocol::calls;
use eos_protocol::{Admission, AppId, Pick, TaskId, Timestamp, TopicPartition};

use super::{Done, Pipeline, Processed, Unit, inputs, origin, run};
use crate::async_calls::{CallKey, Executor};
use crate::client::{Client, ClientError, Message, Records, Source};
use crate::ctx::Origin;
use crate::metrics::Count;
use crate::rules;
use crate::topology::{Chains, Fault, Next, Scratch, generation};
use crate::worker::RecordsOf;
use crate::worker::ahead::{AdmittedCall, CallOrigin, Kept, Prepared};
use crate::worker::shared::Shared;
use crate::worker::task::{Readiness, Task};
use crate::worker::tasks::Tasks;
use crate::worker::transaction::TransactionDriver;

/// The number of times that one step takes results and starts the next calls.
const ROUNDS: usize = 16;
/// The least wait for a deadline or a try: the worker's clock counts whole milliseconds in tests.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The calls of a worker.
pub(super) struct CallsOfWorker {
    executor: Box<dyn Executor>,
    /// The effects of nodes in front of calls: prepared calls and nothing else.
    front: RefCell<Scratch>,
}

impl CallsOfWorker {
    pub(super) fn new(executor: Box<dyn Executor>) -> Self {
        Self {
            executor,
            front: RefCell::default(),
        }
    }
}

impl std::fmt::Debug for CallsOfWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallsOfWorker")
    }
}

impl Pipeline {
    /// Aborts the calls of closed tasks.
    pub(in crate::worker) fn abort_calls(&mut self, closed: &[TaskId]) {
        if let Some(calls) = &mut self.calls {
            closed
                .iter()
                .for_each(|task| calls.executor.abort_task(*task));
        }
    }

    /// Takes the results of calls, admits records if `admits`, and starts their calls. Returns whether any call ended.
    pub(in crate::worker) fn run_calls<C: Client>(
        &mut self,
        shared: &Shared<C>,
        tasks: &mut Tasks<RecordsOf<C>>,
        source: &mut C::Source,
        admits: bool,
    ) -> Result<bool, ClientError> {
        let Some(calls) = &mut self.calls else {
            return Ok(false);
        };
        calls.executor.wake_by(source.waker());
        let mut any = false;
        for _ in 0..ROUNDS {
            let ended = self.take_results(shared, tasks);
            self.expire(shared, tasks);
            if admits {
                for task in tasks.values_mut().filter(|it| may_start(it)) {
                    self.admit_all(shared, task, source)?;
                    self.start_calls(shared, task);
                }
            }
            any |= ended;
            if !ended {
                break;
            }
        }
        self.wake_for_calls(shared, tasks, admits);
        Ok(any)
    }

    fn take_results<C: Client>(
        &mut self,
        shared: &Shared<C>,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) -> bool {
        let Some(calls) = &mut self.calls else {
            return false;
        };
        let ended = calls.executor.take_ended();
        let any = !ended.is_empty();
        let now = shared.now();
        for (key, result) in ended {
            // The task may have been closed.
            let task = tasks.get_mut(key.task);
            if let Some(ahead) = task.and_then(|task| task.ahead.as_mut()) {
                ahead.ended(key.ticket, result, now, shared.env.entropy());
            }
        }
        any
    }

    /// Ends the calls whose time is over, and aborts those that nothing waits for.
    fn expire<C: Client>(&mut self, shared: &Shared<C>, tasks: &mut Tasks<RecordsOf<C>>) {
        let Some(calls) = &mut self.calls else {
            return;
        };
        let now = shared.now();
        for (task, ahead) in tasks
            .iter_mut()
            .filter_map(|(id, task)| Some((id, task.ahead.as_mut()?)))
        {
            let expired = ahead.expire(now, || shared.env.entropy());
            shared.meter.count(Count::CallsTimedOut, expired);
            for ticket in ahead.take_aborted() {
                calls.executor.abort(CallKey { task, ticket });
            }
        }
    }

    /// Admits records while there is room.
    fn admit_all<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        source: &mut C::Source,
    ) -> Result<(), ClientError> {
        while task.ahead.as_ref().is_some_and(|ahead| ahead.has_room()) {
            match inputs::choose(shared, task, source)? {
                Pick::Take(input) => {
                    task.waits_since = None;
                    self.admit(shared, task, input);
                }
                Pick::Nothing => {
                    task.waits_since = None;
                    return Ok(());
                }
                Pick::Wait(wait) => {
                    inputs::warn_if_long(shared, task);
                    wait.into_iter().for_each(|wait| self.wake.after(wait));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Admits the first fetched record of an input.
    fn admit<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        input: usize,
    ) {
        let timestamp = task.head_time(input);
        let fetched = task.fetched.get(input).and_then(Records::first);
        let (Some(fetched), Some(from)) = (fetched, task.progress.inputs().get(input)) else {
            return;
        };
        let message = Kept::of(fetched);
        let next = task.ahead.as_ref().and_then(|ahead| ahead.next(input));
        let is_known = message.offset() < next.unwrap_or(from.next);
        let origin = origin_of(&shared.spec.app, &from.partition, &message);
        let prepared = match is_known {
            // The turn of the record drops it, or ends in an error.
            true => Prepared::default(),
            false => self.prepare(shared, task, input, &message, timestamp),
        };
        if let Some(fetched) = task.fetched.get_mut(input) {
            fetched.drop_first();
        }
        if let Some(ahead) = &mut task.ahead {
            ahead.admit((input, message, timestamp), origin, prepared);
        }
    }

    /// Runs a record through the nodes in front of its calls.
    fn prepare<C: Client>(
        &self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        input: usize,
        message: &Kept,
        timestamp: Option<Timestamp>,
    ) -> Prepared {
        let headers = message.headers();
        let mut prepared = Prepared::default();
        let generation = generation(&headers);
        let (Some(calls), Some(from)) = (&self.calls, task.progress.inputs().get(input)) else {
            return prepared;
        };
        if let Err(fault) = generation {
            prepared.fault = Some((0, fault));
            return prepared;
        }
        let seen = task.progress.stream_time();
        let origin = Origin {
            task: task.progress.task,
            partition: &from.partition,
            offset: message.offset(),
            timestamp,
            stream_time: seen.max(timestamp),
            handled_to: seen,
            wall_clock: None,
            takes_moments: false,
            headers: &headers,
        };
        let raw = message.raw(timestamp, &headers);
        let ctx = self.ctx_on(shared, &calls.front, None, &origin);
        let sources = task.chains.inputs.get_mut(input).into_iter().flatten();
        for (n, source) in sources.enumerate().filter(|(_, it)| it.makes_calls) {
            let mut next = Next::all(&mut task.chains.places, source.first);
            let entered = run::catch(&calls.front, || source.entry.enter(&ctx, &raw, &mut next));
            let made = std::mem::take(&mut calls.front.borrow_mut().calls);
            if let Err(fault) = entered {
                prepared.fault = Some((n, fault));
                break;
            }
            let made = made.into_iter().map(|call| AdmittedCall::new(n, call));
            prepared.calls.extend(made);
        }
        prepared
    }

    /// Starts the calls of a task that may start.
    fn start_calls<C: Client>(&mut self, shared: &Shared<C>, task: &mut Task<RecordsOf<C>>) {
        let (Some(calls), Some(ahead)) = (&mut self.calls, &mut task.ahead) else {
            return;
        };
        let (now, mut repeated) = (shared.now(), 0);
        while let Some(begun) = ahead.start(&shared.spec.app, now) {
            repeated += u64::from(begun.is_repeated);
            let (task, ticket) = (task.progress.task, begun.ticket);
            calls.executor.start(CallKey { task, ticket }, begun.call);
        }
        shared.meter.count(Count::CallsRepeated, repeated);
    }

    fn wake_for_calls<C: Client>(
        &mut self,
        shared: &Shared<C>,
        tasks: &Tasks<RecordsOf<C>>,
        admits: bool,
    ) {
        let nap = self.calls.as_ref().and_then(|calls| calls.executor.nap());
        let events = tasks.values().filter_map(|task| {
            let starts = admits && may_start(task);
            task.ahead.as_ref()?.next_event(starts)
        });
        let event = events.min();
        let event = event.map(|at| at.since(shared.now()).max(LEAST_WAIT));
        for wait in nap.into_iter().chain(event) {
            self.wake.after(wait);
        }
    }

    /// Processes the record whose turn it is, if its calls have ended.
    pub(super) fn process_admitted<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let Some(ahead) = task.ahead.as_mut() else {
            return Done::Dry;
        };
        if !ahead.begin_turn() {
            return Done::Dry;
        }
        let Some(current) = ahead.current() else {
            return Done::Dry;
        };
        let (input, offset) = (current.input, current.message.offset());
        let timestamp = current.timestamp;
        if let Some(done) = super::taken(shared) {
            return done;
        }
        match task.progress.admit(input, offset) {
            Ok(Admission::Process) => {}
            Ok(Admission::Rewind(_)) if !rules::drops_stale_records() => {}
            other => return inputs::unexpected(shared, task, input, offset, other),
        }
        let record = Processed {
            task: task.progress.task,
            unit: Unit::Record { input, offset },
            timestamp,
            failed: None,
        };
        if let Some(done) = self.decided_early(shared, task, &record, txn) {
            return done;
        }
        if task.ahead.as_ref().is_some_and(|ahead| ahead.is_spent()) {
            self.admit_again(shared, task);
            // Its calls start in the next step.
            self.wake.after(Duration::ZERO);
            return Done::Dry;
        }
        if let (Some(places), Some(from), Some(current)) = (
            &task.places,
            task.progress.inputs().get(input),
            task.ahead.as_ref().and_then(|ahead| ahead.current()),
        ) {
            let (app, key) = (shared.spec.app.as_str(), current.message.key());
            self.check_place(app, places, input, &from.partition, key);
        }
        let run = self.run_admitted(shared, task);
        self.ran(shared, task, record, run, txn)
    }

    /// Runs the nodes of the current record: those behind its calls, and those of sources without calls.
    fn run_admitted<C: Client>(
        &self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
    ) -> Result<(), (usize, Fault)> {
        let seen = task.seen();
        let Some(ahead) = &mut task.ahead else {
            return Ok(());
        };
        let Prepared { calls, fault } = ahead.spend();
        if let Some(fault) = fault {
            return Err(fault);
        }
        let mut results = Vec::new();
        for call in calls {
            match call.result {
                Some(Ok(result)) => results.push((call.source, call.prepared, result)),
                Some(Err(fault)) => return Err((call.source, fault)),
                // Another call of the record has failed.
                None => {}
            }
        }
        let Some(current) = ahead.current() else {
            return Ok(());
        };
        let Some(from) = task.progress.inputs().get(current.input) else {
            return Ok(());
        };
        let (message, headers) = (&current.message, current.message.headers());
        let state = task.state.as_ref();
        let place = (&from.partition, message.offset(), current.timestamp);
        let own = task.own_moments.as_deref();
        let origin = origin(
            shared,
            task.progress.task,
            place,
            seen,
            (state, own),
            &headers,
        );
        let raw = message.raw(current.timestamp, &headers);
        let ctx = self.ctx(shared, state, &origin);
        let Chains { inputs, places } = &mut task.chains;
        let sources = inputs.get_mut(current.input).into_iter().flatten();
        let (mut results, mut at) = (results.into_iter().peekable(), 0);
        run::catch(&self.scratch, || {
            for (n, source) in sources.enumerate() {
                at = n;
                let before = self.scratch.borrow().len();
                if !source.makes_calls {
                    let mut next = Next::all(places, source.first);
                    source.entry.enter(&ctx, &raw, &mut next)?;
                }
                while let Some((_, call, result)) = results.next_if(|(of, ..)| *of == n) {
                    if let Some((node, mut next)) = Next::behind(places, call.place) {
                        node.resume(&ctx, call.rest, result, &mut next)?;
                    }
                }
                self.oversize(shared, before).map_or(Ok(()), Err)?;
            }
            Ok(())
        })
        .map_err(|fault| (at, fault))
    }

    /// Admits the current record again: the nodes in front of its calls run again, and so do the calls.
    fn admit_again<C: Client>(&mut self, shared: &Shared<C>, task: &mut Task<RecordsOf<C>>) {
        let Some(mut ahead) = task.ahead.take() else {
            return;
        };
        if let Some(current) = ahead.current() {
            let (input, headers) = (current.input, current.message.headers());
            let raw = current.message.raw(current.message.timestamp(), &headers);
            let own = || task.own_time_of(input, &raw);
            let timestamp = current.timestamp.or_else(own);
            let prepared = self.prepare(shared, task, input, &current.message, timestamp);
            ahead.repeat(prepared, timestamp);
        }
        task.ahead = Some(ahead);
    }
}

/// Returns whether calls of a task may start.
fn may_start<R: Records>(task: &Task<R>) -> bool {
    task.readiness == Readiness::Ready && !task.stands_still()
}

/// Returns the parts of its calls' ids that a record determines.
fn origin_of(app: &AppId, from: &TopicPartition, message: &Kept) -> CallOrigin {
    let headers = message.headers();
    let own = headers.iter().map(|header| (header.name(), header.value()));
    let before = calls::origin(own, app, &from.topic);
    let (partition, offset) = before.map_or((from.partition, message.offset()), |it| {
        (it.partition, it.offset)
    });
    CallOrigin {
        partition: TopicPartition::new(from.topic.clone(), partition),
        offset,
        // An unreadable header fails the record before its calls.
        generation: generation(&headers).unwrap_or_default(),
    }
}
