//! The path of a record into the open transaction.

mod due;
mod emission;
mod inputs;
mod log_limiter;
mod policy;
mod run;
mod send;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{
    Admission, Attempt, Clock, CommitCause, Event, Now, Offset, Pick, TaskId, Timestamp,
    TopicPartition,
};

use super::shared::Shared;
use super::task::{Readiness, Task};
use super::task_state::TaskState;
use super::tasks::Seek;
use super::transaction::TransactionDriver;
use super::wake::Wake;
use super::{RecordsOf, WorkerError, error};
use crate::client::{Client, Message, Records};
use crate::ctx::Origin;
use crate::dedup::IdentityError;
use crate::failpoints::{self, Point};
use crate::failure::Failure;
use crate::metrics::{Count, WorkerMeter};
use crate::rules;
use crate::store::Buffers;
use crate::topology::{Counts, Fault, Scratch};

pub(crate) use run::panic_text;

use emission::Emission;
use log_limiter::LogLimiter;
use send::Unsent;

/// The longest accepted time of a record ahead of the machine's clock, in a stage that refuses records from the future.
const MOST_AHEAD: Duration = Duration::from_secs(3_600);

/// A follow-up action that needs the whole worker.
#[derive(Debug)]
pub(super) enum Raised {
    /// Feed this event to the machine.
    Event(Event),
    /// Stop the worker and abort the open transaction.
    GiveUp(Box<WorkerError>),
}

impl Raised {
    pub(super) fn give_up(error: WorkerError) -> Self {
        Self::GiveUp(Box::new(error))
    }
}

/// The result of a task's turn at its next record.
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
    /// The input rewinds to this record.
    GoBack(Seek),
    /// A record that was delivered before a rewind is missing after it.
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

/// The first record before a rewind, and the first record after it.
#[derive(Debug)]
pub(super) struct MissingRecord {
    pub(super) partition: TopicPartition,
    pub(super) expected: Offset,
    pub(super) got: Offset,
}

/// A processed record or due item. Its effects are in the scratch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processed {
    pub(super) task: TaskId,
    unit: Unit,
    timestamp: Option<Timestamp>,
    /// The fate of the record, if it failed.
    failed: Option<Failed>,
}

/// The origin of the effects in the scratch.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Record {
        input: usize,
        offset: Offset,
    },
    /// A due item of this clock.
    Due(Clock),
    /// A change of the index of due items of this clock.
    Index(Clock),
}

impl Processed {
    /// The same, for a change of the index of due items.
    fn of_index(self, clock: Clock) -> Self {
        Self {
            unit: Unit::Index(clock),
            ..self
        }
    }

    /// Returns the input and the offset of a record.
    fn record(&self) -> Option<(usize, Offset)> {
        match self.unit {
            Unit::Record { input, offset } => Some((input, offset)),
            Unit::Due(_) | Unit::Index(_) => None,
        }
    }
}

/// The fate of a failed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    Skipped,
    DeadLetter,
}

impl Processed {
    /// Marks the record as failed. It does not advance stream time, because its timestamp may be as wrong as the rest.
    fn failed(self, how: Failed) -> Self {
        Self {
            timestamp: None,
            failed: Some(how),
            ..self
        }
    }
}

/// Record counts that are not in the meter yet.
#[derive(Debug, Default)]
struct Counters {
    processed: u64,
    sent: u64,
    skipped: u64,
    dead_letters: u64,
    retries: u64,
    of_operators: Counts,
}

/// Takes records through the nodes of their tasks.
#[derive(Debug)]
pub(super) struct Pipeline {
    scratch: RefCell<Scratch>,
    buffers: RefCell<Buffers>,
    /// The effects of the last record that the producer has not taken yet.
    unsent: Option<Unsent>,
    /// A record that waits for a transaction.
    held: Option<Processed>,
    /// The progress of the results that are emitted once per commit.
    emission: Emission,
    /// The lowest size limit of all output topics, in bytes.
    least_limit: usize,
    /// The time of the last record.
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

    /// Drops the effects of the current record.
    pub(super) fn clear(&mut self) {
        self.scratch.get_mut().clear();
    }

    /// Drops everything that was to join the discarded transaction.
    pub(super) fn discard(&mut self) {
        self.clear();
        self.unsent = None;
        self.held = None;
    }

    /// Drops the unsent outputs of an aborted transaction.
    pub(super) fn abort(&mut self) {
        self.unsent = None;
    }

    /// Begins to emit results, at the end of intake.
    pub(super) fn begin_emission(&mut self) {
        self.emission = Emission::default();
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Returns the task of the record that waits for a transaction.
    pub(super) fn held_task(&self) -> Option<TaskId> {
        self.held.map(|record| record.task)
    }

    /// Takes the record that waits for a transaction.
    pub(super) fn take_held(&mut self) -> Option<Processed> {
        self.held.take()
    }

    /// Drops the record that waits for a transaction, if its task is among these.
    pub(super) fn forget(&mut self, gone: impl Fn(TaskId) -> bool) {
        if self.held_task().is_some_and(gone) {
            self.held = None;
            self.clear();
        }
    }

    /// Sets the clock before the worker takes records.
    pub(super) fn set_clock(&mut self, now: Now) {
        self.clock = now;
    }

    /// Returns the time of the last record. Any record may be slow.
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
            (Count::Late, counts.of_operators.late),
            (Count::LateWindows, counts.of_operators.late_windows),
            (Count::NewIds, counts.of_operators.new_ids),
            (Count::Duplicates, counts.of_operators.duplicates),
            (Count::TooOld, counts.of_operators.too_old),
            (Count::WithoutId, counts.of_operators.without_id),
            (Count::Stale, counts.of_operators.stale),
            (Count::Gaps, counts.of_operators.gaps),
            (Count::GivenUp, counts.of_operators.given_up),
            (Count::Retried, counts.retries),
        ] {
            meter.count(what, number);
        }
    }

    /// Processes the next due item or record of a task.
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
        if !task.has_due() {
            return self.process_record(shared, task, source, txn);
        }
        if let Some(done) = self.due(shared, task, Clock::Stream, txn) {
            return done;
        }
        let is_record_first = std::mem::take(&mut task.is_record_first);
        if !is_record_first && let Some(done) = self.between_records(shared, task, txn) {
            return done;
        }
        match self.process_record(shared, task, source, txn) {
            Done::Dry if is_record_first => {
                let done = self.between_records(shared, task, txn);
                done.unwrap_or(Done::Dry)
            }
            done => done,
        }
    }

    /// Handles the next item that has no order relative to records. These items and records alternate.
    fn between_records<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let wall = self.due(shared, task, Clock::Wall, txn);
        wall.or_else(|| self.due(shared, task, Clock::Background, txn))
    }

    /// Processes the next record of a task.
    fn process_record<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        source: &mut C::Source,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
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
        let timestamp = task.head_time(input);
        let Some(message) = task.fetched.get(input).and_then(Records::first) else {
            return Done::Dry;
        };
        let offset = message.offset();
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
            handled_to: seen,
            wall_clock: wall_clock(shared, task.state.as_ref()),
            takes_moments: true,
            headers: &message.headers(),
        };
        let record = Processed {
            task: task.progress.task,
            unit: Unit::Record { input, offset },
            timestamp,
            failed: None,
        };
        if txn.blame.is_culprit(&from.partition, offset) {
            let last = txn.last_error();
            let fault = Fault::Aborts(last.map(|e| format!("{e}{}", error::advice(e))));
            return self.condemn(shared, task, record, fault, txn);
        }
        if let Some(fault) = from_the_future(shared, task.progress.task, timestamp) {
            // The policy of the first source of the topic decides.
            return self.refused(shared, task, record, 0, fault, txn);
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

    /// Handles a record whose effects are in the scratch.
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

    /// Adds the effects and the offset of a record to the open transaction.
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
        if let Some(counts) = self.scratch.get_mut().take_counts() {
            self.counters.of_operators.add(&counts);
            if counts.late > 0 {
                self.warn_late(shared, task, record);
            }
        }
        txn.pace.took(task.keep());
        match record.unit {
            Unit::Record { input, offset } => {
                task.rounds.end(Clock::Stream);
                if let Some(idle) = &mut task.idle {
                    idle.reset(self.clock);
                }
                task.progress.advance(input, offset, record.timestamp);
                let from = task.progress.inputs().get(input);
                let tried = |attempt: &Attempt| {
                    attempt.offset == offset
                        && from.is_some_and(|from| from.partition == attempt.partition)
                };
                if task.attempt.as_ref().is_some_and(tried) {
                    task.attempt = None;
                }
                if let Some(fetched) = task.fetched.get_mut(input) {
                    fetched.drop_first();
                }
                self.counters.processed += 1;
            }
            Unit::Due(clock) => {
                task.progress.handled_due(clock);
                task.due_attempt = None;
                task.is_record_first = clock != Clock::Stream;
            }
            Unit::Index(clock) => {
                task.progress.touch();
                task.is_record_first = clock != Clock::Stream;
            }
        }
        // Only now, because a waiting record may have been dropped and is delivered again.
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

    /// Whether the task waits for the next attempt of a record.
    fn is_parked<C: Client>(&mut self, shared: &Shared<C>, task: &Task<RecordsOf<C>>) -> bool {
        let due = task.due_attempt.as_ref().map(|due| &due.attempt);
        let attempts = task.attempt.as_ref().into_iter().chain(due);
        let Some(wait) = attempts.map(|it| it.wait(shared.now())).max() else {
            return false;
        };
        if !wait.is_zero() {
            self.wake.after(wait);
        }
        !wait.is_zero()
    }
}

/// Returns the fault of a record that is far ahead of the machine's clock, in a stage that refuses such records. If stream
/// time jumped, a deduplication would refuse all current records as too old.
fn from_the_future<C: Client>(
    shared: &Shared<C>,
    task: TaskId,
    time: Option<Timestamp>,
) -> Option<Fault> {
    let store = shared.topology.refuses_future(task.stage)?;
    let time = time?;
    let ahead = time.0.saturating_sub(shared.env.wall_clock().0);
    let ahead = Duration::from_millis(u64::try_from(ahead).unwrap_or(0));
    (ahead > MOST_AHEAD).then(|| {
        let store = Arc::clone(store);
        Fault::User(Failure::permanent(IdentityError::FutureTimestamp {
            store,
            time,
            ahead,
        }))
    })
}

/// Returns the time of the machine's clock, if a timer of the task uses it.
fn wall_clock<C: Client>(shared: &Shared<C>, state: Option<&TaskState>) -> Option<Timestamp> {
    state
        .is_some_and(|state| state.has_due_of(Clock::Wall))
        .then(|| shared.env.wall_clock())
}
