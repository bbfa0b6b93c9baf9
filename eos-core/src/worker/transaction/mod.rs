//! The open transaction, with its state machine and producer.
//!
//! [`Worker::advance`](super::Worker) is the only caller of the machine. It carries out the events for the tasks (seal,
//! apply, discard). This module carries them out for the producer.

mod blame;
mod calls;
mod in_doubt;
mod offsets;
mod pace;

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{
    Action, Actions, Backoff, CallSite, CommitCause, CommitSize, Deadline, ErrorClass, Event,
    Guarantee, Nonce, Now, State, StopReason, Transaction, TransactionalId, blames_a_record,
};

use super::repeats::Repeats;
use super::shared::Shared;
use super::wake::Wake;
use super::{SLICE, WorkerError, error};
use crate::client::{Client, ClientError, OffsetToCommit, Producer, ProducerSpec, Source};
use crate::failpoints::{self, Point};
use crate::metrics::{Count, in_ms};
use crate::rules;

pub(super) use calls::Call;
pub(super) use in_doubt::{as_committed, read_outcome};

use blame::Blame;
use calls::Calls;
use pace::Pace;

type MemberOf<C> = <<C as Client>::Source as Source>::Member;

/// The sequence of transactions, with their producer.
pub(super) struct TransactionDriver<C: Client> {
    machine: Transaction,
    producer: Option<C::Producer>,
    calls: Calls,
    repeats: Repeats,
    pub(super) pace: Pace,
    pub(super) blame: Blame,
    pub(super) wake: Wake,
    last_error: Option<ClientError>,
    /// The group generation of the last `send_offsets`.
    generation: i32,
    /// Without rule 3: the member that sends all offsets.
    first_member: Option<MemberOf<C>>,
}

impl<C: Client> TransactionDriver<C> {
    pub(super) fn new(shared: &Shared<C>, source: &mut C::Source) -> Self {
        let spec = &shared.spec;
        let first_member = match rules::checks_member() {
            true => None,
            false => source.member().ok(),
        };
        // A commit to Kafka takes as long for many records as for one, since they were sent before.
        let has_ledger = shared.client.keeps_origins();
        let size = has_ledger.then(|| CommitSize::new(spec.limits.commit / 4));
        Self {
            machine: Transaction::new(spec.guarantee, spec.limits.clone()),
            producer: None,
            calls: Calls::default(),
            repeats: Repeats::default(),
            pace: Pace::new(spec.policy, size),
            blame: Blame::default(),
            wake: Wake::default(),
            last_error: None,
            generation: -1,
            first_member,
        }
    }

    pub(super) fn state(&self) -> State {
        self.machine.state()
    }

    /// Returns whether no transaction is open or in flight.
    pub(super) fn is_settled(&self) -> bool {
        matches!(
            self.state(),
            State::Cold | State::Initializing | State::Idle | State::Fenced | State::Failed
        )
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.state() == State::InDoubt
    }

    /// Returns whether a transaction is open and takes records.
    pub(super) fn is_open(&self) -> bool {
        self.state() == State::Open
    }

    /// Returns whether the open transaction could end too late, only because of the wait for the databases.
    pub(super) fn is_stalled(&self, shared: &Shared<C>) -> bool {
        let spec = &shared.spec;
        let is_stalled =
            spec.guarantee == Guarantee::ExactlyOnce && self.pace.is_stalled(shared.now(), spec);
        if is_stalled {
            tracing::warn!(
                app = %spec.app, worker = %spec.id, transaction = self.machine.number(),
                "repeating a transaction, because the state's disk has stalled: the coordinator would abort it after \
                 `transaction.timeout.ms`"
            );
        }
        is_stalled
    }

    pub(super) fn takes_records(&self) -> bool {
        self.machine.takes_records() && !self.pace.awaits_markers()
    }

    /// Returns whether the machine has stopped.
    pub(super) fn has_failed(&self) -> bool {
        self.calls.over && self.state() == State::Failed
    }

    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    pub(super) fn last_error(&self) -> Option<&ClientError> {
        self.last_error.as_ref()
    }

    pub(super) fn producer(&mut self) -> Option<&mut C::Producer> {
        self.producer.as_mut()
    }

    /// Closes the producer.
    pub(super) fn close(&mut self) {
        self.producer = None;
    }

    /// Feeds the machine. The caller carries out the actions in order.
    pub(super) fn step(&mut self, shared: &Shared<C>, event: Event) -> Actions {
        let at = shared.moment();
        self.pace.heard(event, at.now);
        self.machine.step(at, event)
    }

    /// Reports the state after an event.
    pub(super) fn report(&self, shared: &Shared<C>, event: Event, before: State, at: Now) {
        let after = self.state();
        if before != after {
            shared.meter.moved(after, at);
            tracing::trace!(worker = %shared.spec.id, ?event, ?before, ?after, "transaction");
        }
    }

    /// Carries out an action that concerns only the producer.
    pub(super) fn perform(
        &mut self,
        shared: &Shared<C>,
        action: Action,
    ) -> Result<(), ClientError> {
        match action {
            // Without rule 5: the in-doubt producer stays, and aborts.
            Action::Build { .. }
                if self.is_in_doubt()
                    && self.calls.is_under_way(Call::Abort)
                    && !rules::never_aborts_in_doubt() => {}
            Action::Build { after } => {
                let wait = Backoff::jitter(after, shared.env.entropy());
                self.calls.build_at = Some(shared.now().after(wait));
            }
            Action::Drop => self.drop_producer(shared),
            Action::Init => self.calls.begin(Call::Init),
            Action::Begin => return self.begin(),
            Action::Seal => self.begin_sealing(shared),
            Action::SendOffsets => self.calls.begin(Call::SendOffsets),
            Action::Flush => self.calls.begin(Call::Flush),
            Action::Commit => {
                failpoints::hit(Point::PreCommit)?;
                self.calls.begin(Call::Commit);
            }
            Action::CommitThroughConsumer => self.calls.begin(Call::CommitThroughConsumer),
            Action::Abort => {
                failpoints::hit(Point::PreAbort)?;
                self.abort();
            }
            Action::ReadOutcome => self.calls.read_outcome = true,
            // Actions for the tasks: see `Worker::perform`.
            Action::Apply
            | Action::Discard
            | Action::Claim
            | Action::Claimed
            | Action::Leave
            | Action::Stop(_) => {}
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.calls = Calls::default();
        self.calls.begin(Call::Abort);
    }

    fn begin(&mut self) -> Result<(), ClientError> {
        failpoints::hit(Point::Begin)?;
        match &mut self.producer {
            Some(producer) => producer.begin(),
            None => Err(ClientError::new(CallSite::Begin, 0, "there is no producer")),
        }
    }

    fn begin_sealing(&mut self, shared: &Shared<C>) {
        let age = self.pace.seal(shared.now());
        // A closure that takes longer than `transaction.timeout.ms` aborts the records before it, but not itself if it
        // is alone. (Measured here: the time after this belongs to the brokers.)
        let is_late = age.is_some_and(|age| age >= shared.spec.transaction_timeout);
        self.blame.late(is_late);
        self.calls.seal = true;
    }

    fn drop_producer(&mut self, shared: &Shared<C>) {
        if self.is_in_doubt() && !rules::never_aborts_in_doubt() {
            return self.abort();
        }
        let unanswered = self.is_unanswered();
        if self.producer.take().is_some() && !self.calls.over {
            shared.meter.count(Count::Rebuilds, 1);
            shared.meter.count(Count::Quarantines, unanswered.into());
            tracing::info!(
                app = %shared.spec.app, worker = %shared.spec.id, id = %shared.spec.identity,
                state = ?self.state(), unanswered,
                last_error = self.last_error.as_ref().map(tracing::field::display),
                "replacing the producer"
            );
        }
        self.calls.clear();
    }

    /// Handles the stop of the machine. Returns the error that stops the worker.
    pub(super) fn stop(&mut self, shared: &Shared<C>, reason: StopReason) -> WorkerError {
        self.calls.over = true;
        error::from_reason(
            shared.spec.identity.as_str(),
            reason,
            self.last_error.take(),
        )
    }

    /// Returns the event for an action that failed at once: no action follows a failed begin, or a commit or an abort
    /// at which a failpoint fires.
    pub(super) fn action_failed(&mut self, shared: &Shared<C>, error: ClientError) -> Event {
        let (call, class) = (error.call, error.class());
        Self::count_fence(shared, class);
        self.last_error = Some(error);
        Event::Failed(call, class)
    }

    /// Returns the event for a failed call.
    pub(super) fn failed(&mut self, shared: &Shared<C>, error: ClientError) -> Event {
        let (call, class) = (error.call, error.class());
        self.note(shared, class, &error);
        if class == ErrorClass::Retriable {
            self.pause(shared, &error);
        } else {
            tracing::warn!(
                app = %shared.spec.app, worker = %shared.spec.id, transaction = self.machine.number(),
                ?class, %error, "a call of the transaction failed"
            );
        }
        // A later failure, such as that of an abort, is not the one that an operator has to fix.
        let known = self.last_error.as_ref().map(ClientError::class);
        if known != Some(ErrorClass::Fatal) || class == ErrorClass::Fatal {
            self.last_error = Some(error);
        }
        Event::Failed(call, class)
    }

    /// Pauses before a failed call is repeated, and logs a warning if the call keeps failing.
    fn pause(&mut self, shared: &Shared<C>, error: &ClientError) {
        let now = shared.now();
        if let Some(warning) = self.repeats.record(error.call, &error.to_string(), now) {
            warning.log(shared, error);
        }
        let pause = self.repeats.pause(shared.env.entropy());
        self.calls.pause_until = Some(now.after(pause));
    }

    fn count_fence(shared: &Shared<C>, class: ErrorClass) {
        let is_fence = matches!(class, ErrorClass::GroupFenced | ErrorClass::ProducerFenced);
        shared.meter.count(Count::Fences, is_fence.into());
    }

    /// Updates blame, pace and the fence counter after a failure.
    fn note(&mut self, shared: &Shared<C>, class: ErrorClass, error: &ClientError) {
        Self::count_fence(shared, class);
        self.blame.refused(blames_a_record(error.fault.code));
        if class == ErrorClass::Contended {
            self.pace.contended();
        }
    }

    /// Returns the event for a rejected output. Its record counts as taken, so the transaction must not be committed,
    /// whatever the class of the error.
    pub(super) fn send_failed(&mut self, shared: &Shared<C>, error: ClientError) -> Event {
        let (call, class) = match (error.call, error.class()) {
            (call, ErrorClass::Retriable) => (call, ErrorClass::Abortable),
            other => other,
        };
        self.note(shared, class, &error);
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, transaction = self.machine.number(),
            ?class, %error, "an output was refused"
        );
        self.last_error = Some(error);
        Event::Failed(call, class)
    }

    /// Begins to commit the claims of these offsets.
    pub(super) fn claim(&mut self, offsets: Vec<OffsetToCommit>) {
        self.calls.nonce = None;
        self.calls.offsets = offsets;
        self.calls.begin(Call::CommitThroughConsumer);
    }

    /// Records the begin of a transaction. Returns whether it is open.
    pub(super) fn begun(&mut self, shared: &Shared<C>) -> bool {
        let open = self.is_open();
        if open {
            self.pace.opened(shared.env.about_now());
        }
        open
    }

    /// Returns the reason to commit the open transaction now, if there is one.
    #[inline(always)]
    pub(super) fn commit_due(&self, shared: &Shared<C>, now: Now) -> Option<CommitCause> {
        let most_kept = shared.spec.state.uncommitted_bytes;
        self.pace.due(now, self.blame.most_records(), most_kept)
    }

    /// Makes the worker wait for the markers of the last transaction.
    pub(super) fn look_at_markers(&mut self, shared: &Shared<C>) {
        let idle = self.state() == State::Idle;
        if let Some(wait) = self.pace.look_at_markers(shared.now(), idle) {
            self.wake.after(wait);
        }
    }

    /// Records that the transaction is committed and applied.
    pub(super) fn committed(&mut self, shared: &Shared<C>) {
        let (spec, now) = (&shared.spec, shared.now());
        let partitions = self.calls.offsets.len();
        let has_markers = spec.guarantee == Guarantee::ExactlyOnce && shared.client.has_markers();
        let phases = self.pace.committed(now, has_markers, partitions);
        shared.meter.committed(self.pace.cause(), &phases);
        tracing::debug!(
            app = %spec.app, worker = %spec.id, transaction = self.machine.number(),
            generation = self.generation, cause = self.pace.cause().name(),
            seal_ms = in_ms(phases.seal), send_offsets_ms = in_ms(phases.send_offsets),
            drain_ms = in_ms(phases.drain), commit_ms = in_ms(phases.commit),
            apply_ms = in_ms(phases.apply), whole_ms = in_ms(phases.whole), "committed"
        );
    }

    /// Records that the transaction was discarded.
    pub(super) fn discarded(&self, shared: &Shared<C>) {
        shared.meter.count(Count::Aborts, 1);
        tracing::info!(
            app = %shared.spec.app, worker = %shared.spec.id, transaction = self.machine.number(),
            "transaction dropped; rewinding to the last commit"
        );
    }

    /// Returns the time to build the next producer, if there is one.
    pub(super) fn builds_at(&self) -> Option<Now> {
        self.calls.build_at
    }

    /// Builds the next producer, if it is due. Returns its event.
    pub(super) fn build_if_due(&mut self, shared: &Shared<C>) -> Option<Event> {
        let at = self.calls.build_at?;
        if shared.now() < at {
            return None;
        }
        self.calls.build_at = None;
        let spec = &shared.spec;
        let transactional = spec.guarantee == Guarantee::ExactlyOnce;
        let built = shared.client.producer(&ProducerSpec {
            client_id: format!("{}-producer", spec.identity),
            transactional_id: transactional.then(|| transactional_id(shared)),
            transaction_timeout: spec.transaction_timeout,
            request_timeout: spec.limits.commit / 2,
            topics: shared.topology.output_names(),
            batch_limits: spec.output_limits.clone(),
        });
        Some(match built {
            Ok(producer) => {
                self.producer = Some(producer);
                Event::Built
            }
            Err(error) => self.failed(shared, error),
        })
    }

    /// Returns whether calls are in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.is_busy()
    }

    /// Returns whether the pause after a failed call is not over yet.
    pub(super) fn pauses(&mut self, shared: &Shared<C>) -> bool {
        let Some(until) = self.calls.pause_until else {
            return false;
        };
        let left = until.since(shared.now());
        if left.is_zero() {
            self.calls.pause_until = None;
            return false;
        }
        self.wake.after(left);
        true
    }

    pub(super) fn is_sealing(&self) -> bool {
        self.calls.seal
    }

    pub(super) fn reads_outcome(&self) -> bool {
        self.calls.read_outcome
    }

    pub(super) fn outcome_read(&mut self) {
        self.calls.read_outcome = false;
    }

    pub(super) fn is_under_way(&self, call: Call) -> bool {
        self.calls.is_under_way(call)
    }

    /// Ends a call. A success clears its failures.
    pub(super) fn done(&mut self, shared: &Shared<C>, call: Call, succeeded: bool) {
        self.calls.end(call);
        if succeeded && self.repeats.reset() {
            tracing::info!(
                app = %shared.spec.app, worker = %shared.spec.id, ?call, "calls succeed again"
            );
        }
    }

    /// Returns the name of the attempt that is being sealed.
    pub(super) fn nonce(&mut self, shared: &Shared<C>) -> Nonce {
        // Each attempt has another name.
        let fresh = || match rules::names_each_attempt() {
            true => Nonce(shared.env.entropy()),
            false => Nonce(0),
        };
        *self.calls.nonce.get_or_insert_with(fresh)
    }

    /// Continues a call of the producer.
    pub(super) fn call(&mut self, shared: &Shared<C>, call: Call) -> Poll<Result<(), ClientError>> {
        let (slice, left) = (self.slice(shared), self.time_left(shared));
        let Some(producer) = &mut self.producer else {
            return Poll::Pending;
        };
        match call {
            Call::Init => producer.init(slice),
            Call::Flush if !rules::drains_before_commit() => Poll::Ready(Ok(())),
            Call::Flush => producer.flush(slice),
            // The call gets all the remaining time at once: the client may mistake the rest of an interrupted call for
            // the outcome of another (docs/design/0018). A revocation has more time.
            Call::Commit => commit_for(producer, left),
            Call::Abort => producer.abort(slice),
            Call::SendOffsets | Call::CommitThroughConsumer => Poll::Pending,
        }
    }

    fn remaining(&self, shared: &Shared<C>) -> Option<(Deadline, Now)> {
        let now = self.machine.clock(shared.moment());
        Some((self.machine.deadline()?, now))
    }

    /// Returns the time until the deadline of the transaction.
    fn time_left(&self, shared: &Shared<C>) -> Duration {
        let left = self.remaining(shared);
        left.map_or(SLICE, |(deadline, now)| deadline.remaining(now).max(SLICE))
    }

    /// Returns the longest time that a call may block: not past the deadline of the transaction.
    fn slice(&self, shared: &Shared<C>) -> Duration {
        let left = self.remaining(shared);
        left.map_or(SLICE, |(deadline, now)| deadline.slice(now, SLICE))
    }

    /// Rule 7: whether a request without a response may affect the next transaction.
    pub(super) fn is_unanswered(&self) -> bool {
        self.producer.as_ref().is_some_and(Producer::unanswered)
            && rules::quarantines_unanswered_producers()
    }
}

fn commit_for<P: Producer>(producer: &mut P, slice: Duration) -> Poll<Result<(), ClientError>> {
    let slice = if failpoints::is_due(Point::InCommit) {
        // Time to send EndTxn, and hardly any time for its response.
        Duration::from_millis(1)
    } else {
        slice
    };
    let done = producer.commit(slice);
    failpoints::hit(Point::InCommit)?;
    if matches!(done, Poll::Ready(Ok(()))) {
        failpoints::hit(Point::PostCommit)?;
    }
    done
}

fn transactional_id<C: Client>(shared: &Shared<C>) -> TransactionalId {
    let identity = &shared.spec.identity;
    if !rules::keeps_transactional_id() {
        return TransactionalId::new(format!("{identity}-{:x}", shared.env.entropy()));
    }
    identity.clone()
}
