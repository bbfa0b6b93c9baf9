//! One record at a time: from its partition through the nodes of its task into the open transaction.

mod emission;
mod inputs;
mod log_limiter;
mod policy;
mod run;
mod send;

use std::cell::RefCell;

use eos_protocol::{
    Admission, Attempt, CommitCause, Event, Now, Offset, Pick, TaskId, Timestamp, TopicPartition,
};

use super::shared::Shared;
use super::task::{Readiness, Task};
use super::tasks::Seek;
use super::transaction::TransactionDriver;
use super::wake::Wake;
use super::{RecordsOf, WorkerError, error};
use crate::client::{Client, Message, Records};
use crate::ctx::Origin;
use crate::failpoints::{self, Point};
use crate::metrics::{Count, WorkerMeter};
use crate::rules;
use crate::store::Buffers;
use crate::topology::{Fault, Scratch};

#[cfg(test)]
pub(super) use run::panic_text;

use emission::Emission;
use log_limiter::LogLimiter;
use send::Unsent;

/// What a part of a worker cannot do itself.
#[derive(Debug)]
pub(super) enum Raised {
    /// The machine decides.
    Event(Event),
    /// The worker ends, and the open transaction is aborted.
    GiveUp(Box<WorkerError>),
}

impl Raised {
    pub(super) fn give_up(error: WorkerError) -> Self {
        Self::GiveUp(Box::new(error))
    }
}

/// What became of a task's turn at its next record.
#[derive(Debug)]
pub(super) enum Done {
    /// No record may be taken.
    Dry,
    Next,
    /// The producer's queue is full, or there is no producer.
    Full,
    /// The record is processed, and waits for a transaction.
    Begin,
    /// The record waits until the open transaction is committed.
    Commit(CommitCause),
    /// The input goes back to this record.
    GoBack(Seek),
    /// A record that came before a rewind does not come again.
    Missing(MissingRecord),
    /// A record failed, and its policy stops the worker.
    Failed(Box<WorkerError>),
    Raise(Raised),
}

impl Done {
    fn failed(error: WorkerError) -> Self {
        Self::Failed(Box::new(error))
    }

    fn give_up(error: WorkerError) -> Self {
        Self::Raise(Raised::give_up(error))
    }
}

/// A record that came first before a rewind, and the one that came first after it.
#[derive(Debug)]
pub(super) struct MissingRecord {
    pub(super) partition: TopicPartition,
    pub(super) expected: Offset,
    pub(super) got: Offset,
}

/// A record that went through its nodes. Its effects are in the scratch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processed {
    pub(super) task: TaskId,
    input: usize,
    offset: Offset,
    timestamp: Option<Timestamp>,
    /// What became of it, if it failed.
    failed: Option<Failed>,
}

/// What becomes of a record that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    Skipped,
    DeadLetter,
}

impl Processed {
    /// It failed, so it moves no stream time: its timestamp may be as wrong as the rest.
    fn failed(self, how: Failed) -> Self {
        Self {
            timestamp: None,
            failed: Some(how),
            ..self
        }
    }
}

/// Counts of records that the meter does not have yet.
#[derive(Debug, Default)]
struct Counters {
    processed: u64,
    sent: u64,
    skipped: u64,
    dead_letters: u64,
    late: u64,
    retries: u64,
}

/// Takes records through the nodes of their tasks.
#[derive(Debug)]
pub(super) struct Pipeline {
    scratch: RefCell<Scratch>,
    buffers: RefCell<Buffers>,
    /// The effects of the last record that wait for room in the producer's queue.
    unsent: Option<Unsent>,
    /// A record that waits for a transaction.
    held: Option<Processed>,
    /// Progress of the results that are emitted once per commit.
    emission: Emission,
    /// The least of the size limits of all output topics, in bytes.
    least_limit: usize,
    /// The clock as of the last record.
    clock: Now,
    counters: Counters,
    log: LogLimiter,
    pub(super) wake: Wake,
}

impl Pipeline {
    pub(super) fn new(output_limits: &[Option<usize>]) -> Self {
        let limits = output_limits.iter().copied().flatten();
        Self {
            scratch: RefCell::default(),
            buffers: RefCell::default(),
            unsent: None,
            held: None,
            emission: Emission::default(),
            least_limit: limits.min().unwrap_or(usize::MAX),
            clock: Now::default(),
            counters: Counters::default(),
            log: LogLimiter::default(),
            wake: Wake::default(),
        }
    }

    /// Drops the effects of the record at hand.
    pub(super) fn clear(&mut self) {
        self.scratch.get_mut().clear();
    }

    /// The transaction is gone, and what was to join it.
    pub(super) fn discard(&mut self) {
        self.clear();
        self.unsent = None;
        self.held = None;
    }

    /// The transaction is aborted: what is not sent yet stays unsent.
    pub(super) fn abort(&mut self) {
        self.unsent = None;
    }

    /// Intake has ended.
    pub(super) fn begin_emission(&mut self) {
        self.emission = Emission::default();
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// The task of the record that waits for a transaction.
    pub(super) fn held_task(&self) -> Option<TaskId> {
        self.held.map(|record| record.task)
    }

    /// Takes the record that waits for a transaction.
    pub(super) fn take_held(&mut self) -> Option<Processed> {
        self.held.take()
    }

    /// Drops a record that waits for a transaction, if its task is among these.
    pub(super) fn forget(&mut self, gone: impl Fn(TaskId) -> bool) {
        if self.held_task().is_some_and(gone) {
            self.held = None;
            self.clear();
        }
    }

    /// The worker begins to take records.
    pub(super) fn set_clock(&mut self, now: Now) {
        self.clock = now;
    }

    /// The clock as of the last record: any of them may be slow.
    pub(super) fn clock(&self) -> Now {
        self.clock
    }

    /// Adds the counts of this step to the meter.
    pub(super) fn count(&mut self, meter: &WorkerMeter) {
        let counts = std::mem::take(&mut self.counters);
        for (what, number) in [
            (Count::RecordsIn, counts.processed),
            (Count::RecordsOut, counts.sent),
            (Count::Skipped, counts.skipped),
            (Count::DeadLetters, counts.dead_letters),
            (Count::Late, counts.late),
            (Count::Retried, counts.retries),
        ] {
            meter.count(what, number);
        }
    }

    /// Processes the next record of a task.
    pub(super) fn process<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        source: &mut C::Source,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if task.readiness != Readiness::Ready || self.is_parked(shared, task) {
            return Done::Dry;
        }
        let input = match inputs::choose(shared, task, source) {
            Ok(Pick::Take(input)) => {
                task.waits_since = None;
                input
            }
            Ok(Pick::Nothing) => {
                task.waits_since = None;
                return Done::Dry;
            }
            Ok(Pick::Wait(wait)) => {
                inputs::warn_if_long(shared, task);
                wait.into_iter().for_each(|wait| self.wake.after(wait));
                return Done::Dry;
            }
            Err(error) => return Done::give_up(WorkerError::Client(error)),
        };
        failpoints::taken();
        if let Err(error) = failpoints::hit(Point::Poll)
            && let Some(error) = shared.consumer_failed(error)
        {
            return Done::give_up(error);
        }
        let Some(message) = task.fetched.get(input).and_then(Records::first) else {
            return Done::Dry;
        };
        let (offset, timestamp) = (message.offset(), message.timestamp());
        match task.progress.admit(input, offset) {
            Ok(Admission::Process) => {}
            Ok(Admission::Repeated) => return inputs::drop_repeated(shared, task, input, offset),
            Ok(Admission::GoBack(_)) if !rules::drops_stale_records() => {}
            Ok(Admission::GoBack(to)) => return inputs::go_back(shared, task, input, to),
            Ok(Admission::Missing(expected)) => {
                return inputs::missing(task, input, expected, offset);
            }
            Err(error) => return Done::failed(error.into()),
        }
        let Some(from) = task.progress.inputs().get(input) else {
            return Done::Dry;
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
        let record = Processed {
            task: task.progress.task,
            input,
            offset,
            timestamp,
            failed: None,
        };
        if txn.blame.is_culprit(&from.partition, offset) {
            let last = txn.last_error();
            let fault = Fault::Aborts(last.map(|e| format!("{e}{}", error::advice(e))));
            return self.condemn(shared, task, record, fault, txn);
        }
        let run = self.run(
            shared,
            &mut task.chains,
            task.state.as_ref(),
            input,
            origin,
            message,
        );
        // A closure may have ignored the error of its store.
        if let Some(error) = run::poisoned(record.task, task.state.as_ref()) {
            task.forget();
            self.clear();
            return Done::failed(error);
        }
        match run {
            Ok(()) => self.finished(shared, task, record, txn),
            Err((source, fault)) => self.refused(shared, task, record, source, fault, txn),
        }
    }

    /// The record's effects are in the scratch.
    fn finished<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        self.clock = shared.env.about_now();
        if txn.pace.admits(self.clock, &shared.spec) {
            return self.merge(shared, task, record, txn);
        }
        self.held = Some(record);
        Done::Commit(CommitCause::Slow)
    }

    /// The record counts: its effects go into the open transaction, and its offset with them.
    pub(super) fn merge<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if !txn.is_open() {
            self.held = Some(record);
            return Done::Begin;
        }
        let late = self.scratch.get_mut().take_late();
        if late > 0 {
            self.counters.late += late;
            self.warn_late(shared, task, record);
        }
        txn.pace.took(task.keep());
        let Processed { input, offset, .. } = record;
        task.progress.advance(input, offset, record.timestamp);
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
        self.counters.processed += 1;
        // Only now: a record that waited may have been given back, and comes again.
        match record.failed {
            Some(Failed::Skipped) => self.counters.skipped += 1,
            Some(Failed::DeadLetter) => self.counters.dead_letters += 1,
            None => {}
        }
        if self.scratch.get_mut().len() == 0 {
            return Done::Next;
        }
        self.unsent = Some(Unsent::all(task.progress.task.partition));
        match self.send_rest(shared, txn) {
            Ok(true) => Done::Next,
            Ok(false) => Done::Full,
            Err(raised) => Done::Raise(raised),
        }
    }

    /// Whether the task waits for the next try of a record.
    fn is_parked<C: Client>(&mut self, shared: &Shared<C>, task: &Task<RecordsOf<C>>) -> bool {
        let Some(attempt) = &task.attempt else {
            return false;
        };
        let wait = attempt.wait(shared.now());
        if !wait.is_zero() {
            self.wake.after(wait);
        }
        !wait.is_zero()
    }
}
