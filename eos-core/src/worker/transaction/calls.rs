//! Performs what the transaction machine asks for and reports what came of it.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{
    Action, Backoff, CallSite, CommitCost, Deadline, ErrorClass, Event, Guarantee, Load, Nonce,
    Now, Outcome, State, Taken, TransactionalId, blames_a_record, until_markers_are_written,
};

use super::emitting::Emitting;
use super::error::{self, WorkerError};
use super::record::rewind_to;
use super::task::Readiness;
use super::{SLICE, Worker};
use crate::client::{Client, ClientError, OffsetToCommit, Producer, ProducerSpec, Source};
use crate::failpoints::{self, Defence, Point};
use crate::metrics::{Count, Stopwatch, in_ms};

/// How long to wait before a call that failed is made again.
const PAUSE: Duration = Duration::from_millis(10);

/// The calls that are under way: asked for by the machine, and not done yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) build_at: Option<Now>,
    init: bool,
    seal: bool,
    pub(super) send_offsets: bool,
    flush: bool,
    commit: bool,
    consumer_commit: bool,
    abort: bool,
    /// The name of the attempt that is being sealed.
    pub(super) nonce: Option<Nonce>,
    pub(super) read_outcome: bool,
    /// The offsets of the sealed transaction.
    pub(super) offsets: Vec<OffsetToCommit>,
    /// A call failed that is made again: not at once, for it may fail at once.
    pub(super) pause_until: Option<Now>,
    /// The machine has given up.
    over: bool,
}

impl Calls {
    fn busy(&self) -> bool {
        self.init
            || self.seal
            || self.send_offsets
            || self.flush
            || self.commit
            || self.consumer_commit
            || self.abort
            || self.read_outcome
    }
}

impl<C: Client> Worker<C> {
    /// Tells the machine and does what it answers.
    pub(super) fn feed(&mut self, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let before = self.machine.state();
            let now = self.env.now();
            self.stopwatch.heard(event, now);
            for action in self.machine.step(self.machine_time(now), event) {
                if let Err(error) = self.perform(action) {
                    let (call, class) = (error.call, error.class());
                    self.last_error = Some(error);
                    // Begin is the one call that answers at once; nothing follows it. (Nor is there
                    // anything behind a commit or an abort at which a failpoint fires.)
                    next = Some(Event::Failed(call, class));
                }
            }
            let after = self.machine.state();
            if before != after {
                self.meter.moved(after, now);
                tracing::trace!(worker = %self.spec.id, ?event, ?before, ?after, "transaction");
            }
        }
    }

    /// The clock of the transaction machine. An outage must not end a start, so the deadline of a producer's
    /// first init runs only while brokers answer.
    fn machine_time(&self, now: Now) -> Now {
        match self.machine.state() {
            State::Cold | State::Fenced | State::Initializing => self.brokers.at(now),
            _ => now,
        }
    }

    pub(super) fn failed(&mut self, error: ClientError) {
        let (call, class) = (error.call, error.class());
        self.blamed |= blames_a_record(error.fault.code);
        if class == ErrorClass::Retriable {
            self.calls.pause_until = Some(self.env.now().after(PAUSE));
        } else {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, transaction = self.machine.number(),
                ?class, %error, "a call of the transaction failed"
            );
        }
        // What fails after it, an abort for one, is not what a person has to mend.
        let known = self.last_error.as_ref().map(ClientError::class);
        if known != Some(ErrorClass::Fatal) || class == ErrorClass::Fatal {
            self.last_error = Some(error);
        }
        self.feed(Event::Failed(call, class));
    }

    fn perform(&mut self, action: Action) -> Result<(), ClientError> {
        match action {
            // Without rule 5: the producer that is in doubt stays, and aborts.
            Action::Drop if self.is_in_doubt() && failpoints::undefended(Defence::AbortInDoubt) => {
                self.calls = Calls {
                    abort: true,
                    ..Calls::default()
                };
            }
            Action::Build { .. }
                if self.is_in_doubt()
                    && self.calls.abort
                    && failpoints::undefended(Defence::AbortInDoubt) => {}
            Action::Build { after } => {
                let wait = Backoff::jitter(after, self.env.entropy());
                self.calls.build_at = Some(self.env.now().after(wait));
            }
            Action::Drop => self.drop_producer(),
            Action::Init => self.calls.init = true,
            Action::Begin => return self.begin(),
            Action::Seal => {
                let (now, most) = (self.env.now(), self.spec.transaction_timeout);
                self.stopwatch = Stopwatch::start(now);
                // A closure that takes longer than `transaction.timeout.ms` costs what came before
                // it its transaction; alone it costs nothing. (Measured here: what comes after is
                // the brokers' time.)
                let late = |load: &Load| now.since(load.since) >= most;
                self.blamed |= self.load.as_ref().is_some_and(late);
                self.calls.seal = true;
                self.emitting = Emitting::default();
            }
            Action::SendOffsets => self.calls.send_offsets = true,
            Action::Flush => self.calls.flush = true,
            Action::Commit => {
                if failpoints::undefended(Defence::ApplyAfterCommit) {
                    self.apply_state();
                }
                failpoints::hit(Point::PreCommit)?;
                self.calls.commit = true;
            }
            Action::CommitThroughConsumer => self.calls.consumer_commit = true,
            Action::Abort => {
                failpoints::hit(Point::PreAbort)?;
                self.calls = Calls {
                    abort: true,
                    ..Calls::default()
                };
                self.unsent = None;
            }
            Action::Apply => self.apply(),
            Action::Discard => self.discard(),
            Action::ReadOutcome => self.calls.read_outcome = true,
            Action::Stop(reason) => {
                self.calls.over = true;
                let error =
                    error::from_reason(self.spec.identity.as_str(), reason, self.last_error.take());
                self.failure.get_or_insert(error);
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), ClientError> {
        failpoints::hit(Point::Begin)?;
        match &mut self.producer {
            Some(producer) => producer.begin(),
            None => Err(ClientError::new(CallSite::Begin, 0, "there is no producer")),
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.machine.state() == State::InDoubt
    }

    fn drop_producer(&mut self) {
        if self.is_in_doubt() && failpoints::undefended(Defence::KeepInDoubt) {
            let states = self.tasks.values_mut().filter_map(|t| t.state.as_mut());
            states.for_each(|state| state.store.discard());
        }
        let unanswered = self.is_unanswered();
        if self.producer.take().is_some() && !self.calls.over {
            self.meter.count(Count::Rebuilds, 1);
            self.meter.count(Count::Quarantines, unanswered.into());
            tracing::info!(
                app = %self.spec.app, worker = %self.spec.id, id = %self.spec.identity,
                state = ?self.machine.state(), unanswered,
                last_error = self.last_error.as_ref().map(tracing::field::display),
                "replacing the producer"
            );
        }
        self.calls = Calls {
            over: self.calls.over,
            ..Calls::default()
        };
    }

    fn apply(&mut self) {
        let taken = self.tasks.values().flat_map(|task| task.progress.taken());
        self.isolation.committed(taken);
        self.blamed = false;
        self.stopwatch.known(self.env.now());
        self.apply_state();
        let now = self.env.now();
        for task in self.tasks.values_mut() {
            let held = self
                .held
                .is_some_and(|held| held.task == task.progress.task);
            task.committed(now, held);
        }
        self.load = None;
        let phases = self.stopwatch.stop(now);
        if self.spec.guarantee == Guarantee::ExactlyOnce {
            let known = Now(now.0.saturating_sub(phases.apply));
            self.begins_at = known.after(until_markers_are_written(phases.commit));
        }
        self.pacer.committed(CommitCost {
            took: phases.whole + self.begins_at.since(now),
            idle: std::mem::take(&mut self.idle),
            partitions: u32::try_from(self.calls.offsets.len()).unwrap_or(u32::MAX),
        });
        self.meter.committed(self.cause, &phases);
        tracing::debug!(
            app = %self.spec.app, worker = %self.spec.id, transaction = self.machine.number(),
            generation = self.generation, cause = self.cause.name(),
            seal_ms = in_ms(phases.seal), send_offsets_ms = in_ms(phases.send_offsets),
            drain_ms = in_ms(phases.drain), commit_ms = in_ms(phases.commit),
            apply_ms = in_ms(phases.apply), whole_ms = in_ms(phases.whole), "committed"
        );
    }

    /// Drops what the transaction held and remembers where to go back to.
    fn discard(&mut self) {
        self.scratch.borrow_mut().clear();
        self.unsent = None;
        self.held = None;
        self.kept = 0;
        let records = self.load.take().map_or(0, |load| load.records);
        failpoints::given_back(records);
        if let Some(WorkerError::Record {
            prefix_committed, ..
        }) = &mut self.failure
        {
            *prefix_committed = false;
        }
        if std::mem::take(&mut self.blamed) {
            let tasks = self.tasks.values();
            let taken: Vec<Taken> = tasks.flat_map(|task| task.progress.taken()).collect();
            if !taken.is_empty() {
                self.isolation.aborted(&taken, records);
            }
        }
        let in_rebalance = !self.quiet();
        for task in self.tasks.values_mut() {
            task.chains.discard();
            if let Some(state) = &mut task.state {
                state.discard();
            }
            if failpoints::undefended(Defence::StreamTime) {
                task.time_given_back = task.progress.stream_time();
            }
            let back = if failpoints::undefended(Defence::Rewind)
                || (in_rebalance && failpoints::undefended(Defence::RewindRetained))
            {
                Vec::new()
            } else {
                task.progress.discarded()
            };
            if !back.is_empty() {
                if !failpoints::undefended(Defence::StaleRecords) {
                    task.drop_fetched();
                }
                task.readiness = Readiness::Rewinding;
                for (partition, to) in back {
                    rewind_to(&mut self.rewinds, partition, to);
                }
            }
        }
        self.meter.count(Count::Aborts, 1);
        tracing::info!(
            app = %self.spec.app, worker = %self.spec.id, transaction = self.machine.number(),
            "transaction dropped, going back to the last commit"
        );
    }

    /// Goes on with whatever is under way. Answers whether anything is.
    pub(super) fn drive(&mut self) -> Result<bool, WorkerError> {
        if let Some(at) = self.calls.build_at
            && self.env.now() >= at
        {
            self.calls.build_at = None;
            self.build();
        }
        if !self.calls.busy() {
            self.look_for_unanswered();
            return Ok(false);
        }
        if let Some(until) = self.calls.pause_until {
            let now = self.env.now();
            if now < until {
                self.nap_at_most(Some(until.since(now)));
                return Ok(false);
            }
            self.calls.pause_until = None;
        }
        if self.calls.seal && self.send_rest() && self.emit_results() && self.send_changes() {
            self.calls.seal = false;
            self.seal();
        }
        if self.calls.send_offsets {
            self.send_offsets();
        }
        self.drive_producer();
        if self.calls.consumer_commit {
            let done = self.source.commit(&self.calls.offsets, SLICE);
            self.report(done, |calls| &mut calls.consumer_commit, Event::Committed);
        }
        if self.calls.read_outcome {
            self.read_outcome();
        }
        Ok(true)
    }

    /// The calls that are just made again until they are done.
    fn drive_producer(&mut self) {
        let slice = self.slice();
        if self.calls.init {
            let done = self.on_producer(|p| p.init(slice));
            let well = matches!(done, Poll::Ready(Ok(())));
            self.report(done, |calls| &mut calls.init, Event::Initialized);
            if well {
                // A late InitProducerId would fence what is begun now.
                self.look_for_unanswered();
            }
        }
        if self.calls.flush {
            let done = if failpoints::undefended(Defence::Drain) {
                Poll::Ready(Ok(()))
            } else {
                self.on_producer(|p| p.flush(slice))
            };
            self.report(done, |calls| &mut calls.flush, Event::Drained);
        }
        if self.calls.commit {
            // All the time that there is, in one call: the client may take what is left of an
            // interrupted one for the outcome of another (docs/design/0018). A revocation has more.
            let done = self.commit_for(self.time_left());
            if done.is_ready() {
                self.look_for_unanswered();
            }
            self.report(done, |calls| &mut calls.commit, Event::Committed);
        }
        if self.calls.abort {
            let done = self.on_producer(|p| p.abort(slice));
            if done.is_ready() {
                self.look_for_unanswered();
            }
            if done.is_ready()
                && self.is_in_doubt()
                && failpoints::undefended(Defence::AbortInDoubt)
            {
                self.calls.abort = false;
                return self.feed(Event::Resolved(Outcome::Aborted));
            }
            self.report(done, |calls| &mut calls.abort, Event::Aborted);
        }
    }

    fn commit_for(&mut self, slice: Duration) -> Poll<Result<(), ClientError>> {
        let slice = if failpoints::is_due(Point::InCommit) {
            // Time for EndTxn to leave, and hardly any for its answer.
            Duration::from_millis(1)
        } else {
            slice
        };
        let done = self.on_producer(|p| p.commit(slice));
        failpoints::hit(Point::InCommit)?;
        if matches!(done, Poll::Ready(Ok(()))) {
            failpoints::hit(Point::PostCommit)?;
        }
        done
    }

    fn on_producer(
        &mut self,
        call: impl FnOnce(&mut C::Producer) -> Poll<Result<(), ClientError>>,
    ) -> Poll<Result<(), ClientError>> {
        self.producer.as_mut().map_or(Poll::Pending, call)
    }

    fn report(
        &mut self,
        done: Poll<Result<(), ClientError>>,
        call: impl FnOnce(&mut Calls) -> &mut bool,
        event: Event,
    ) {
        let Poll::Ready(result) = done else { return };
        *call(&mut self.calls) = false;
        match result {
            Ok(()) => self.feed(event),
            Err(error) => self.failed(error),
        }
    }

    /// Until the deadline of the transaction.
    fn time_left(&self) -> Duration {
        let now = self.machine_time(self.env.now());
        let left = |deadline: Deadline| deadline.remaining(now);
        self.machine.deadline().map_or(SLICE, left).max(SLICE)
    }

    /// How long a call may block: not past the deadline of the transaction.
    pub(super) fn slice(&self) -> Duration {
        self.machine.deadline().map_or(SLICE, |deadline| {
            deadline.slice(self.machine_time(self.env.now()), SLICE)
        })
    }

    fn transactional_id(&self) -> TransactionalId {
        if failpoints::undefended(Defence::OwnId) {
            let id = format!("{}-{:x}", self.spec.identity, self.env.entropy());
            return TransactionalId::new(id);
        }
        self.spec.identity.clone()
    }

    fn build(&mut self) {
        let transactional = self.spec.guarantee == Guarantee::ExactlyOnce;
        let built = self.client.producer(&ProducerSpec {
            client_id: format!("{}-producer", self.spec.identity),
            transactional_id: transactional.then(|| self.transactional_id()),
            transaction_timeout: self.spec.transaction_timeout,
            request_timeout: self.spec.limits.commit / 2,
            topics: self.topology.output_names(),
            batch_limits: self.spec.output_limits.clone(),
        });
        match built {
            Ok(producer) => {
                self.producer = Some(producer);
                self.feed(Event::Built);
            }
            Err(error) => self.failed(error),
        }
    }

    /// Rule 7: a request that was never answered may hit the next transaction.
    pub(super) fn look_for_unanswered(&mut self) {
        if self.is_unanswered() {
            self.feed(Event::Unanswered);
        }
    }

    fn is_unanswered(&self) -> bool {
        self.producer.as_ref().is_some_and(Producer::unanswered)
            && !failpoints::undefended(Defence::Quarantine)
    }

    /// Stops if the machine has given up.
    pub(super) fn check(&mut self) -> Result<(), WorkerError> {
        if self.calls.over
            && self.machine.state() == State::Failed
            && let Some(failure) = self.failure.take()
        {
            return Err(failure);
        }
        Ok(())
    }
}
