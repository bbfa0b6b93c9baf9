//! The path of a record into the open transaction.

mod ahead;
mod due;
mod early;
mod emission;
mod inputs;
mod log_limiter;
mod origin;
mod own_moments;
mod pause;
mod policy;
mod processed;
mod run;
mod send;
mod sequence;

use std::cell::RefCell;

use eos_protocol::{
    Admission, Clock, CommitCause, Event, Guarantee, Now, Offset, Pick, TaskId, Timestamp,
    TopicPartition,
};

use super::key_places::MisplacedKeys;
use super::shared::Shared;
use super::task::{Readiness, Task};
use super::tasks::Seek;
use super::transaction::TransactionDriver;
use super::wake::Wake;
use super::{RecordsOf, WorkerError};
use crate::async_calls::Executor;
use crate::client::{Client, Message, Producer, Records};
use crate::failpoints::{self, Point};
use crate::global::GlobalReads;
use crate::metrics::{Count, WorkerMeter};
use crate::rules;
use crate::store::Buffers;
use crate::topology::{Counts, Fault, Scratch};

use ahead::CallsOfWorker;
use emission::Emission;
use log_limiter::LogLimiter;
use origin::{origin, wall_clock};
use policy::{forget_given_up, store_failed};
use processed::{Failed, Processed, Unit};
use send::Unsent;

/// The bound before the machine's clock is read.
const UNKNOWN: Timestamp = Timestamp(i64::MIN);

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
    /// The inputs rewind to these records.
    Rewind(Vec<Seek>),
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

/// Record counts that are not in the meter yet.
#[derive(Debug, Default)]
struct Counters {
    processed: u64,
    sent: u64,
    skipped: u64,
    dead_letters: u64,
    retries: u64,
    repeated_letters: u64,
    misplaced: u64,
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
    /// At most once: whether a record waits for the commit of its offset.
    unclaimed: bool,
    /// The progress of the results that are emitted once per commit.
    emission: Emission,
    /// The lowest size limit of all output topics, in bytes.
    least_limit: usize,
    /// The time of the last record.
    clock: Now,
    /// The time at which the last record was early enough for its transaction.
    admitted_at: Option<Now>,
    /// Records up to this time are not far ahead of the machine's clock. Each step reads the clock again, because it may
    /// be set back.
    not_ahead: Timestamp,
    counters: Counters,
    /// The numbers that the failed record had in orders: see [`Scratch::numbers`].
    numbers: Vec<(usize, Vec<u8>)>,
    log: LogLimiter,
    misplaced: MisplacedKeys,
    /// The calls of the worker, if the app makes asynchronous calls.
    calls: Option<CallsOfWorker>,
    pub(super) wake: Wake,
}

impl Pipeline {
    pub(super) fn new(
        output_limits: &[Option<usize>],
        executor: Option<Box<dyn Executor>>,
        globals: GlobalReads,
    ) -> Self {
        let limits = output_limits.iter().copied().flatten();
        Self {
            scratch: RefCell::new(Scratch::with_limits(output_limits)),
            buffers: RefCell::new(Buffers {
                globals,
                ..Buffers::default()
            }),
            unsent: None,
            held: None,
            unclaimed: false,
            emission: Emission::default(),
            least_limit: limits.min().unwrap_or(usize::MAX),
            clock: Now::default(),
            admitted_at: None,
            not_ahead: UNKNOWN,
            counters: Counters::default(),
            numbers: Vec::new(),
            log: LogLimiter::default(),
            misplaced: MisplacedKeys::default(),
            calls: executor.map(CallsOfWorker::new),
            wake: Wake::default(),
        }
    }

    /// Ends the reads of global tables: a version that is still read costs memory.
    pub(super) fn end_reads(&self) {
        self.buffers.borrow_mut().globals.end();
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
        self.not_ahead = UNKNOWN;
        self.unclaimed = false;
    }

    /// At most once: whether a record waits for the commit of its offset.
    pub(super) fn needs_claim(&self) -> bool {
        self.unclaimed
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
            (Count::JoinAlone, counts.of_operators.alone),
            (Count::JoinTooLatePairs, counts.of_operators.too_late_pairs),
            (Count::StaleAnswers, counts.of_operators.stale_answers),
            (Count::Misplaced, counts.misplaced),
            (Count::Retried, counts.retries),
            (Count::RepeatedLetters, counts.repeated_letters),
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
        if !task.pauses.is_empty()
            && let Some(done) = self.stand_still(shared, task, txn)
        {
            return done;
        }
        if !task.has_due() {
            return self.process_record(shared, task, source, txn);
        }
        if !rules::keeps_rows_for_moments()
            && let Some(done) = self.due(shared, task, Clock::Background, txn)
        {
            return done;
        }
        if let Some(done) = self.due(shared, task, Clock::Stream, txn) {
            return done;
        }
        if let Some(done) = self.between_records(shared, task, txn) {
            return done;
        }
        let state = task.state.as_ref();
        let set = state.map_or(0, |state| state.store.take_set(Clock::Background));
        let any_came = task.between.record(set);
        match self.process_record(shared, task, source, txn) {
            Done::Dry if any_came => {
                let done = self.between_records(shared, task, txn);
                done.unwrap_or(Done::Dry)
            }
            done => done,
        }
    }

    /// Handles the next due item of a task whose next record has to wait.
    pub(in crate::worker) fn process_due<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if !task.has_due() || !task.pauses.is_empty() || self.is_parked(shared, task) {
            return Done::Dry;
        }
        if let Some(done) = self.due(shared, task, Clock::Stream, txn) {
            return done;
        }
        let state = task.state.as_ref();
        let set = state.map_or(0, |state| state.store.take_set(Clock::Background));
        task.between.record(set);
        self.between_records(shared, task, txn).unwrap_or(Done::Dry)
    }

    /// Handles the next item that has no order relative to records.
    fn between_records<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        for clock in [Clock::Wall, Clock::Background] {
            if task.between.may_come(clock)
                && let Some(done) = self.due(shared, task, clock, txn)
            {
                return Some(done);
            }
        }
        None
    }

    /// Processes the next record of a task. Inlined with its parts: without that, a map needs 2 % more instructions
    /// (docs/design/0030).
    #[inline(always)]
    fn process_record<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        source: &mut C::Source,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if task.ahead.is_some() {
            return self.process_admitted(shared, task, txn);
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
        if let Some(done) = taken(shared) {
            return done;
        }
        let Some((offset, timestamp)) = task.head_place(input) else {
            return Done::Dry;
        };
        if timestamp.is_some() && inputs::take_back_choice(task, input) {
            // The worker chose this record first because its time was not readable. Now the time is readable, and another
            // input may be first.
            return Done::Next;
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
        let (Some(from), Some(message)) = (
            task.progress.inputs().get(input),
            task.fetched.get(input).and_then(Records::first),
        ) else {
            return Done::Dry;
        };
        let (state, headers) = (task.state.as_ref(), message.headers());
        let seen = task.seen();
        if let Some(places) = &task.places {
            let app = shared.spec.app.as_str();
            self.check_place(app, places, input, &from.partition, message.key());
        }
        let place = (&from.partition, offset, timestamp);
        let own = task.own_moments.as_deref();
        let origin = origin(
            shared,
            task.progress.task,
            place,
            seen,
            (state, own),
            &headers,
        );
        let run = self.run(shared, &mut task.chains, state, input, &origin, message);
        self.ran(shared, task, record, run, txn)
    }

    /// Handles a record that has run. Its effects are in the scratch.
    #[inline(always)]
    fn ran<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        run: Result<(), (usize, Fault)>,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        // A closure may have ignored the error of its store.
        if let Some(error) = self.poisoned(shared, record.task, task.state.as_ref()) {
            task.forget();
            self.clear();
            return Done::failed(error);
        }
        match run {
            Ok(()) if record.timestamp.is_none() && lacks_own_time(task, record) => {
                self.comes_again(task)
            }
            Ok(()) => {
                if task.parked.is_some()
                    && let Err(source) = Self::letter_processed(task)
                {
                    let (task, source) = (record.task, Box::new(source));
                    return Done::failed(WorkerError::Store { task, source });
                }
                self.finished(shared, task, record, txn)
            }
            Err((_, Fault::MomentsFirst(timers))) => {
                self.moments_first(shared, task, record, timers, txn)
            }
            Err((source, fault)) => self.refused(shared, task, record, source, fault, txn),
        }
    }

    /// Discards the effects of a record whose codec was not available at the first decode. The worker takes the record again,
    /// with its time.
    #[inline(never)]
    fn comes_again<R: Records>(&mut self, task: &mut Task<R>) -> Done {
        task.forget();
        self.clear();
        Done::Next
    }

    /// Handles a record whose effects are in the scratch.
    #[inline(always)]
    fn finished<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if record.failed.is_some()
            && let Err(source) = forget_given_up(shared, task, record)
        {
            return store_failed(record, source);
        }
        self.clock = shared.env.about_now();
        // At most once, a processed record must be in the transaction: its claim is given back otherwise.
        // Within a tick of the coarse clock, the result stays true, because a later transaction is younger. Only the first
        // records of an empty transaction may be admitted late, and then the coordinator's timer has just begun.
        if shared.spec.guarantee == Guarantee::AtMostOnce
            || self.admitted_at == Some(self.clock)
            || txn.pace.admits(self.clock, &shared.spec)
        {
            self.admitted_at = Some(self.clock);
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
                task.past_sets.end(Clock::Stream);
                if let Some(idle) = &mut task.idle {
                    idle.reset(self.clock);
                }
                task.progress.advance(input, offset, record.timestamp);
                task.end_attempt(input, offset);
                task.drop_head(input);
                self.counters.processed += 1;
            }
            Unit::Due(clock, item) => {
                task.progress.handled_due(item);
                task.due_attempt = None;
                task.between.came(clock);
            }
            Unit::Index(clock) => {
                task.progress.touch();
                task.between.came(clock);
            }
        }
        // Counted only now, because a waiting record may have been dropped and is delivered again.
        if let Some(failed) = record.failed {
            match failed {
                Failed::Skipped(count) => self.counters.skipped += count,
                Failed::DeadLetter(count) => self.counters.dead_letters += count,
            }
            task.pauses.iter_mut().for_each(|it| it.rule.merged());
        }
        if self.scratch.get_mut().len() == 0 {
            return Done::Next;
        }
        if shared.client.keeps_origins()
            && let (Some((input, offset)), Some(producer)) = (record.record(), txn.producer())
            && let Some(input) = task.progress.inputs().get(input)
        {
            producer.begin_record(&input.partition, offset);
        }
        self.unsent = Some(Unsent::all(task.progress.task.partition));
        match self.send_rest(shared, txn) {
            Ok(true) => Done::Next,
            Ok(false) => Done::Full,
            Err(raised) => Done::Raise(raised),
        }
    }

    /// Returns whether the task waits for the next attempt of a record.
    #[inline(always)]
    fn is_parked<C: Client>(&mut self, shared: &Shared<C>, task: &Task<RecordsOf<C>>) -> bool {
        // Nearly all tasks wait for no attempt.
        if task.attempt.is_none() && task.due_attempt.is_none() {
            return false;
        }
        self.waits_for_attempt(shared, task)
    }

    #[inline(never)]
    fn waits_for_attempt<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &Task<RecordsOf<C>>,
    ) -> bool {
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

/// Returns whether a record without a time is in a topic whose times are in keys and values.
#[inline(never)]
fn lacks_own_time<R: Records>(task: &Task<R>, record: Processed) -> bool {
    let record = record.record();
    record.is_some_and(|(input, _)| task.has_own_times(input))
}

/// Counts a taken record. A test may fail it.
fn taken<C: Client>(shared: &Shared<C>) -> Option<Done> {
    failpoints::taken();
    let error = failpoints::hit(Point::Poll).err()?;
    Some(Done::give_up(shared.consumer_failed(error)?))
}
