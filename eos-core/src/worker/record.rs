//! One record: from its partition through the nodes, and what its end means.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use eos_protocol::{
    Admission, Attempt, CommitCause, Event, Lag, Load, MaxIdle, Now, Offset, Pick, State, Supply,
    TaskId, Timestamp, TopicPartition, may_join,
};

use super::send::Unsent;
use super::state::TaskState;
use super::task::{Readiness, Task};
use super::{RecordsOf, Worker, WorkerError, error};
use crate::client::{Client, ClientError, Message, Records, Source};
use crate::ctx::{Ctx, Origin};
use crate::failpoints::{self, Defence, Point};
use crate::store::StateAccess;
use crate::topology::{Chains, Fault, Next, Raw};

/// How many records are fetched from one partition at a time.
const BATCH: usize = 512;

/// How a record went.
pub(super) enum Done {
    /// There was none that may be taken.
    Nothing,
    Next,
    /// The producer's queue is full, or the transaction can't go on.
    Wait,
    Failed(Box<WorkerError>),
}

impl Done {
    pub(super) fn failed(error: WorkerError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// A record that went through its nodes, but its effects wait in the scratch: the transaction that
/// was open meanwhile is committed first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) task: TaskId,
    pub(super) input: usize,
    pub(super) offset: Offset,
    pub(super) timestamp: Option<Timestamp>,
    /// What became of it, if it failed.
    failed: Option<Failed>,
}

/// What becomes of a record that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Skipped,
    DeadLetter,
}

impl Held {
    /// It failed, so nothing of it counts: its time, which may be as wrong as the rest, moves no
    /// stream time.
    pub(super) fn failed(self, how: Failed) -> Self {
        Self {
            timestamp: None,
            failed: Some(how),
            ..self
        }
    }
}

impl<C: Client> Worker<C> {
    /// Processes the next record of a task.
    pub(super) fn process(&mut self, task: &mut Task<RecordsOf<C>>) -> Done {
        if task.readiness != Readiness::Ready || self.is_parked(task) {
            return Done::Nothing;
        }
        let input = match self.choose(task) {
            Ok(Pick::Take(input)) => {
                task.waits_since = None;
                input
            }
            Ok(Pick::Nothing) => {
                task.waits_since = None;
                return Done::Nothing;
            }
            Ok(Pick::Wait(wait)) => {
                self.tell_if_long(task);
                self.nap_at_most(wait);
                return Done::Nothing;
            }
            Err(error) => {
                self.give_up(WorkerError::Client(error));
                return Done::Nothing;
            }
        };
        failpoints::taken();
        if let Err(error) = failpoints::hit(Point::Poll) {
            self.consumer_failed(error);
        }
        let Some(message) = task.fetched.get(input).and_then(Records::first) else {
            return Done::Nothing;
        };
        let (offset, timestamp) = (message.offset(), message.timestamp());
        match task.progress.admit(input, offset) {
            Ok(Admission::Process) => {}
            Ok(Admission::Repeated) => return self.drop_repeated(task, input, offset),
            Ok(Admission::GoBack(_)) if failpoints::undefended(Defence::StaleRecords) => {}
            Ok(Admission::GoBack(to)) => return self.go_back(task, input, to),
            Ok(Admission::Missing(expected)) => {
                self.look_for_missing(task, input, expected, offset);
                return Done::Nothing;
            }
            Err(error) => return Done::failed(error.into()),
        }
        let Some(from) = task.progress.inputs().get(input) else {
            return Done::Nothing;
        };
        let seen = task.progress.stream_time().max(task.time_given_back);
        let origin = Origin {
            task: task.progress.task,
            partition: &from.partition,
            offset,
            timestamp,
            stream_time: seen.max(timestamp),
            headers: &message.headers(),
        };
        let record = Held {
            task: task.progress.task,
            input,
            offset,
            timestamp,
            failed: None,
        };
        if self.isolation.is_culprit(&from.partition, offset) {
            let last = self.last_error.as_ref();
            let fault = Fault::Aborts(last.map(|e| format!("{e}{}", error::advice(e))));
            return self.condemn(task, record, fault);
        }
        if let Err((source, fault)) = self.run(
            &mut task.chains,
            task.state.as_ref(),
            input,
            origin,
            message,
        ) {
            if let Some(error) = Self::poisoned(record.task, task.state.as_ref()) {
                task.forget();
                self.scratch.get_mut().clear();
                return Done::failed(error);
            }
            return self.refused(task, record, source, fault);
        }
        // A closure may have made nothing of what its store answered.
        if let Some(error) = Self::poisoned(record.task, task.state.as_ref()) {
            task.forget();
            self.scratch.get_mut().clear();
            return Done::failed(error);
        }
        self.finished(task, record)
    }

    /// The record's effects are in the scratch.
    pub(super) fn finished(&mut self, task: &mut Task<RecordsOf<C>>, record: Held) -> Done {
        if self.may_join() {
            return self.merge(task, record);
        }
        self.held = Some(record);
        self.deferred_commit = Some(CommitCause::Slow);
        Done::Wait
    }

    /// Whether a transaction is open: begun now if need be (rule 1), when there is something for it
    /// to hold.
    pub(super) fn has_begun(&mut self) -> bool {
        if self.machine.state() == State::Idle {
            // Rule 7: what is found only now still comes before the begin.
            self.look_for_unanswered();
            self.feed(Event::Touched);
        }
        if self.machine.state() != State::Open {
            return false;
        }
        let env = &self.env;
        self.load.get_or_insert_with(|| Load {
            since: env.about_now(),
            records: 0,
            bytes: 0,
        });
        true
    }

    /// Whether a record that is finished by now may join the open transaction. What came before a
    /// slow one must not be aborted for it.
    fn may_join(&mut self) -> bool {
        let (timeout, commit) = (self.spec.transaction_timeout, self.spec.limits.commit);
        let now = self.env.about_now();
        self.last_read = now;
        let load = self.load.as_ref();
        load.is_none_or(|load| may_join(now, load, timeout, commit))
    }

    /// The record counts: its effects go into the open transaction, and its offset with them.
    fn merge(&mut self, task: &mut Task<RecordsOf<C>>, record: Held) -> Done {
        let Held {
            input,
            offset,
            timestamp,
            failed,
            ..
        } = record;
        // Held for as long as it has no transaction: if the begin fails for good, what is held goes.
        self.held = Some(record);
        if !self.has_begun() {
            if self.held.is_none() {
                task.forget();
            }
            return Done::Wait;
        }
        self.held = None;
        let late = self.scratch.get_mut().take_late();
        if late > 0 {
            self.late_records += late;
            self.tell_late(task, record);
        }
        self.kept += task.keep();
        task.progress.advance(input, offset, timestamp);
        let from = task.progress.inputs().get(input);
        let tried = |attempt: &Attempt| {
            attempt.offset == offset && from.is_some_and(|from| from.partition == attempt.partition)
        };
        if task.attempt.as_ref().is_some_and(tried) {
            task.attempt = None;
        }
        if let Some(fetched) = task.fetched.get_mut(input) {
            fetched.drop_first();
        }
        self.processed += 1;
        // Only now: one that waited may have been given back, and comes again.
        match failed {
            Some(Failed::Skipped) => self.skipped += 1,
            Some(Failed::DeadLetter) => self.dead_letters += 1,
            None => {}
        }
        if let Some(load) = &mut self.load {
            load.records += 1;
        }
        if self.scratch.get_mut().len() > 0 {
            self.unsent = Some(Unsent::all(task.progress.task.partition));
            if !self.send_some() {
                return Done::Wait;
            }
        }
        Done::Next
    }

    /// Merges the record that waited for its own transaction. Answers whether intake may go on.
    pub(super) fn merge_held(&mut self) -> bool {
        let Some(held) = self.held.take() else {
            return true;
        };
        let Some(mut task) = self.tasks.remove(&held.task) else {
            // Its task is gone, and its effects with it.
            self.scratch.get_mut().clear();
            return true;
        };
        let done = self.merge(&mut task, held);
        self.tasks.insert(held.task, task);
        self.catch_up();
        matches!(done, Done::Next)
    }

    /// Whether the task waits for the next try of a record.
    fn is_parked(&mut self, task: &Task<RecordsOf<C>>) -> bool {
        let Some(attempt) = &task.attempt else {
            return false;
        };
        let wait = attempt.wait(self.env.now());
        if !wait.is_zero() {
            self.nap_at_most(Some(wait));
        }
        !wait.is_zero()
    }

    /// The input that gives the next record. One input costs nothing; several are merged by
    /// timestamp (KIP-695).
    fn choose(&mut self, task: &mut Task<RecordsOf<C>>) -> Result<Pick, ClientError> {
        if task.fetched.len() == 1 {
            self.fetch(task, 0)?;
            let here = task.fetched.first().and_then(Records::first).is_some();
            return Ok(if here { Pick::Take(0) } else { Pick::Nothing });
        }
        let now = self.env.about_now();
        for input in 0..task.fetched.len() {
            let supply = self.supply(task, input, now)?;
            if let Some(slot) = task.supplies.get_mut(input) {
                *slot = (now, supply);
            }
        }
        let supplies = task.supplies.iter().map(|(_, supply)| *supply);
        Ok(task.merge.pick(now, supplies))
    }

    /// A task that waits for one of its inputs says so when it takes longer than it was told to: a
    /// broker that does not answer looks like an app that does nothing.
    fn tell_if_long(&self, task: &mut Task<RecordsOf<C>>) {
        const LONG: Duration = Duration::from_secs(30);
        let asked = match self.spec.max_idle {
            MaxIdle::Never => Duration::ZERO,
            MaxIdle::For(idle) => idle,
        };
        let now = self.env.about_now();
        let since = *task.waits_since.get_or_insert(now);
        if now.since(since) < asked + LONG {
            return;
        }
        task.waits_since = Some(now);
        for (input, (_, supply)) in task.progress.inputs().iter().zip(&task.supplies) {
            let lag = match supply {
                Supply::Empty { lag } if *lag != Lag::Zero => lag,
                _ => continue,
            };
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, task = %task.progress.task,
                partition = %input.partition, next = %input.next, ?lag,
                "records of a sibling topic wait for this partition: no broker says that it has \
                 none, and none came for {} s", LONG.as_secs()
            );
        }
    }

    /// What an input has. One that was dry at this tick of the clock is not asked again: to ask for
    /// each record of the others would cost more than the records.
    fn supply(
        &mut self,
        task: &mut Task<RecordsOf<C>>,
        input: usize,
        now: Now,
    ) -> Result<Supply, ClientError> {
        const DRY: Supply = Supply::Empty { lag: Lag::Zero };
        if task.supplies.get(input) == Some(&(now, DRY)) {
            return Ok(DRY);
        }
        self.fetch(task, input)?;
        let head = task.fetched.get(input).and_then(Records::first);
        if let Some(record) = head {
            let timestamp = record.timestamp();
            return Ok(Supply::Head { timestamp });
        }
        let lag = task
            .progress
            .inputs()
            .get(input)
            .map_or(Lag::Unknown, |input| {
                Lag::of(input.next, self.source.end(&input.partition))
            });
        Ok(Supply::Empty { lag })
    }

    /// Fetches records of an input if there are none at hand.
    fn fetch(&mut self, task: &mut Task<RecordsOf<C>>, input: usize) -> Result<(), ClientError> {
        match (
            task.fetched.get_mut(input),
            task.progress.inputs().get(input),
        ) {
            (Some(fetched), Some(input)) if fetched.first().is_none() => {
                self.source.take(&input.partition, BATCH, fetched)
            }
            _ => Ok(()),
        }
    }

    fn drop_repeated(
        &mut self,
        task: &mut Task<RecordsOf<C>>,
        input: usize,
        offset: Offset,
    ) -> Done {
        if let Some(input) = task.progress.inputs().get(input) {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, partition = %input.partition,
                %offset, "delivered once more, dropped"
            );
        }
        if let Some(fetched) = task.fetched.get_mut(input) {
            fetched.drop_first();
        }
        Done::Next
    }

    /// The first record after a rewind was another one than before it: rewinds once more.
    fn go_back(&mut self, task: &mut Task<RecordsOf<C>>, input: usize, to: Offset) -> Done {
        if let Some(input) = task.progress.inputs().get(input) {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, partition = %input.partition,
                offset = %to, "another record than before the rewind came first, asking again"
            );
            rewind_to(&mut self.rewinds, input.partition.clone(), to);
        }
        // Of this input only: the others are not sought, what was fetched of them does not come
        // again.
        task.drop_fetched_of(input);
        task.readiness = Readiness::Rewinding;
        Done::Next
    }

    /// Runs the record through every chain that reads this input. Effects stay in the scratch.
    /// A fault comes with the source that it happened behind, by its place in the input's list.
    fn run(
        &self,
        chains: &mut Chains,
        state: Option<&TaskState>,
        input: usize,
        origin: Origin<'_>,
        message: &impl Message,
    ) -> Result<(), (usize, Fault)> {
        let raw = Raw {
            key: message.key(),
            value: message.value(),
            timestamp: origin.timestamp,
            headers: origin.headers,
        };
        let ctx = Ctx::new(
            self.topology.token(),
            self.topology.outputs(),
            &self.scratch,
            StateAccess {
                specs: self.topology.stores(),
                task: state.map(|state| &state.store),
                windows: state.map_or(&[], |state| state.windows.stores()),
                buffers: &self.buffers,
            },
            origin,
        );
        let Some(sources) = chains.inputs.get_mut(input) else {
            return Ok(());
        };
        let places = &mut chains.places[..];
        // A panic in a closure is an error of the record: processors that it could have left half
        // done are discarded, and the scratch is cleared.
        let mut at = 0;
        catch_unwind(AssertUnwindSafe(|| {
            for (n, source) in sources.iter_mut().enumerate() {
                at = n;
                let mut next = Next::all(places, source.first);
                let before = self.scratch.borrow().len();
                source.entry.enter(&ctx, &raw, &mut next)?;
                if let Some(too_large) = self.oversize(before) {
                    return Err(too_large);
                }
            }
            Ok(())
        }))
        .unwrap_or_else(|panic| Err(Fault::Panic(panic_text(&*panic))))
        .map_err(|fault| (at, fault))
    }
    /// A record failed and left no trace: what came before it is committed, then the worker stops.
    pub(super) fn fail_record(&mut self, error: WorkerError) {
        tracing::error!(app = %self.spec.app, worker = %self.spec.id, %error, "record failed");
        if self.failure.is_none() {
            self.failure = Some(error);
            self.commit(CommitCause::RecordFailed);
        }
    }
}

/// Goes back there, whatever was to be gone back to before.
pub(super) fn rewind_to(
    rewinds: &mut Vec<(TopicPartition, Offset)>,
    partition: TopicPartition,
    to: Offset,
) {
    match rewinds.iter_mut().find(|(known, _)| *known == partition) {
        Some((_, offset)) => *offset = to,
        None => rewinds.push((partition, to)),
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
        .to_owned()
}
