//! The transaction machine (design §4).
//!
//! Each worker has one machine, which runs one transaction after the other.
//!
//! ```text
//!            Built          Initialized          Touched           CommitDue          Sealed
//!  Cold ───────────► Initializing ─────► Idle ──────────► Open ─────────────► Sealing ─────► SendingOffsets
//!   ▲                     ▲               ▲ ▲               │                    │                 │
//!   │ an unanswered       │               │ └── Aborted ─ Aborting ◄─────────────┴── an error ─────┤
//!   │ request, a second   │               │                 │                                      │ offsets
//!   │ abort in a row      │               ├── Committed ────┼───────────────── Committing ◄────────┘ sent,
//!   ├─────────────────────┼───────────────┘                 │                    │     all acknowledged
//!   │                     │                                 ▼                    ▼
//!   │                     └────────── Built ───────────── Fenced              InDoubt ─► Resolved: Idle
//!   └─ Failed (from anywhere: only a person helps)
//! ```
//!
//! The machine decides. The worker performs the actions and reports their results. Under [`Guarantee::AtLeastOnce`]
//! the states are the same, but no transaction begins, and the consumer commits once all records are acknowledged.
//!
//! Under [`Guarantee::AtMostOnce`] the consumer commits first: `Idle ─Touched→ Claiming ─Committed→ Open`. The worker
//! processes only the claimed records. The commit at the end returns the claimed records that it did not process.
//!
//! Without transactions, a commit that ends without a clear response may still arrive later. [`Action::Leave`] then
//! makes the worker leave the group, which refuses requests of a former member.

mod action;
mod limits;
#[cfg(test)]
mod random_test;
#[cfg(test)]
mod rules_test;
mod state;
#[cfg(test)]
mod walk_test;

use crate::broker_time::Moment;
use crate::errors::{CallSite, ErrorClass};
use crate::guarantee::Guarantee;
use crate::outcome::Outcome;
use crate::time::{Deadline, Now};

pub use action::{Action, Actions, Event, StopReason};
pub use limits::Limits;
pub use state::State;

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    guarantee: Guarantee,
    limits: Limits,
    state: State,
    deadline: Option<Deadline>,
    /// The remaining work in `SendingOffsets`.
    offsets_sent: bool,
    drained: bool,
    /// A request of this producer may still hit the next transaction.
    tainted: bool,
    /// Set while the machine aborts before it stops.
    stop: Option<StopReason>,
    /// Whether the transaction ends because of a cause that passes without this worker.
    contended: bool,
    /// Whether the transaction before was aborted.
    aborted_before: bool,
    /// Aborts in a row, without those of passing causes.
    aborts_in_a_row: u32,
    rebuilds_in_a_row: u32,
    fenced_at: Vec<Now>,
    begun: u64,
    /// Whether a producer was initialised once: the configuration works.
    initialized: bool,
}

impl Transaction {
    /// A machine without a producer. [`Event::Start`] starts it.
    #[must_use]
    pub fn new(guarantee: Guarantee, limits: Limits) -> Self {
        Self {
            guarantee,
            limits,
            state: State::Cold,
            deadline: None,
            offsets_sent: false,
            drained: false,
            tainted: false,
            stop: None,
            contended: false,
            aborted_before: false,
            aborts_in_a_row: 0,
            rebuilds_in_a_row: 0,
            fenced_at: Vec::new(),
            begun: 0,
            initialized: false,
        }
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns whether a record may be processed now.
    #[must_use]
    pub fn takes_records(&self) -> bool {
        matches!(self.state, State::Idle | State::Open)
    }

    /// The number of the latest transaction, which is the number of begun transactions.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.begun
    }

    /// The deadline of the calls under way.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Sealing | State::SendingOffsets => {
                let floor = self.limits.end_floor();
                self.deadline.map(|deadline| deadline.reserving(floor))
            }
            _ => self.deadline,
        }
    }

    /// The time on the clock of the deadline. An outage must not end a start, so the first init of a producer uses
    /// the brokers' clock.
    #[must_use]
    pub fn clock(&self, at: Moment) -> Now {
        match self.state {
            State::Initializing => at.brokers,
            _ => at.now,
        }
    }

    /// Takes one event and decides the actions.
    ///
    /// An event without a meaning in the present state changes nothing, for example a late response of a dropped
    /// producer.
    #[must_use = "the actions have to be performed, in order"]
    pub fn step(&mut self, at: Moment, event: Event) -> Actions {
        let now = at.now;
        match (self.state, event) {
            (State::Failed, _) => Actions::none(),
            (_, Event::Failed(call, class)) => self.failed(now, call, class),
            (_, Event::Tick) => self.tick(at),
            (_, Event::Unanswered) => self.unanswered(),
            (_, Event::Lost) => self.lost(now),
            _ => self.went_well(at, event),
        }
    }

    fn went_well(&mut self, at: Moment, event: Event) -> Actions {
        let now = at.now;
        match (self.state, event) {
            (State::Cold, Event::Start) => Actions::one(Action::Build {
                after: self.backoff(),
            }),
            (State::Cold | State::Fenced, Event::Built) => self.built(at),
            (State::InDoubt, Event::Built) => {
                self.deadline = Some(Deadline::after(now, self.limits.init));
                Actions::one(Action::Init)
            }
            (State::Initializing, Event::Initialized) => {
                self.initialized = true;
                self.rest()
            }
            (State::InDoubt, Event::Initialized) => Actions::one(Action::ReadOutcome),
            (State::InDoubt, Event::Resolved(outcome)) => self.resolved(outcome),
            (State::Idle, Event::Touched) => self.begin(now),
            (State::Claiming, Event::Committed) => self.claimed(),
            (State::Open, Event::CommitDue) => self.seal(now),
            (State::Sealing, Event::Sealed) => self.send_offsets(),
            (State::SendingOffsets, Event::OffsetsSent) => {
                self.offsets_sent = true;
                self.commit_if_ready()
            }
            (State::SendingOffsets, Event::Drained) => {
                self.drained = true;
                self.commit_if_ready()
            }
            (State::Committing, Event::Committed) => self.committed(),
            (State::Aborting, Event::Aborted) => self.aborted(),
            _ => Actions::none(),
        }
    }

    fn built(&mut self, at: Moment) -> Actions {
        match self.guarantee {
            Guarantee::ExactlyOnce => {
                self.state = State::Initializing;
                self.deadline = Some(Deadline::after(self.clock(at), self.limits.init));
                Actions::one(Action::Init)
            }
            // An idempotent producer needs no init.
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => self.rest(),
        }
    }

    fn rest(&mut self) -> Actions {
        self.state = State::Idle;
        self.deadline = None;
        Actions::none()
    }

    fn begin(&mut self, now: Now) -> Actions {
        self.state = State::Open;
        self.begun += 1;
        // A fence may have ended the transaction before without an abort.
        self.contended = false;
        match self.guarantee {
            Guarantee::ExactlyOnce => Actions::one(Action::Begin),
            Guarantee::AtLeastOnce => Actions::none(),
            Guarantee::AtMostOnce => {
                self.state = State::Claiming;
                self.deadline = Some(Deadline::after(now, self.limits.commit));
                Actions::one(Action::Claim)
            }
        }
    }

    fn claimed(&mut self) -> Actions {
        self.state = State::Open;
        self.deadline = None;
        Actions::one(Action::Claimed)
    }

    fn seal(&mut self, now: Now) -> Actions {
        self.state = State::Sealing;
        self.deadline = Some(Deadline::after(now, self.limits.commit));
        Actions::one(Action::Seal)
    }

    fn send_offsets(&mut self) -> Actions {
        self.state = State::SendingOffsets;
        self.drained = false;
        match self.guarantee {
            Guarantee::ExactlyOnce => {
                self.offsets_sent = false;
                Actions::two(Action::SendOffsets, Action::Flush)
            }
            // Here the offsets *are* the commit, and come after all acknowledgements.
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => {
                self.offsets_sent = true;
                Actions::one(Action::Flush)
            }
        }
    }

    fn commit_if_ready(&mut self) -> Actions {
        if !(self.offsets_sent && self.drained) {
            return Actions::none();
        }
        self.state = State::Committing;
        Actions::one(self.commit_action())
    }

    fn commit_action(&self) -> Action {
        match self.guarantee {
            Guarantee::ExactlyOnce => Action::Commit,
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => Action::CommitThroughConsumer,
        }
    }

    fn committed(&mut self) -> Actions {
        self.settled();
        if self.tainted {
            return Actions::one(Action::Apply).then(self.rebuild());
        }
        self.rebuilds_in_a_row = 0;
        Actions::one(Action::Apply).then(self.rest())
    }

    fn aborted(&mut self) -> Actions {
        if let Some(reason) = self.stop.take() {
            return Actions::one(Action::Discard).then(self.fail(reason));
        }
        let is_second = self.aborted_before;
        if let Some(reason) = self.count_abort() {
            return Actions::one(Action::Discard).then(self.fail(reason));
        }
        // Rule 9: a second abort in a row heals a broken record sequence with a new producer.
        if self.tainted || is_second {
            return Actions::one(Action::Discard).then(self.rebuild());
        }
        Actions::one(Action::Discard).then(self.rest())
    }

    /// Resets the counters of aborts. The next transaction follows no abort.
    fn settled(&mut self) {
        self.contended = false;
        self.aborted_before = false;
        self.aborts_in_a_row = 0;
    }

    /// Counts an abort, unless its cause passes without this worker. Returns the reason to stop after too many.
    fn count_abort(&mut self) -> Option<StopReason> {
        self.aborted_before = true;
        if std::mem::take(&mut self.contended) {
            return None;
        }
        self.aborts_in_a_row += 1;
        let times = self.aborts_in_a_row;
        (times >= self.limits.aborts_in_a_row).then_some(StopReason::RepeatedAborts { times })
    }

    fn resolved(&mut self, outcome: Outcome) -> Actions {
        let rest = self.rest();
        match outcome {
            Outcome::Committed => {
                self.settled();
                Actions::one(Action::Apply).then(rest)
            }
            Outcome::Aborted => {
                if let Some(reason) = self.count_abort() {
                    return Actions::one(Action::Discard).then(self.fail(reason));
                }
                Actions::one(Action::Discard).then(rest)
            }
            Outcome::Dirty => self.fail(StopReason::Dirty),
        }
    }

    fn failed(&mut self, now: Now, call: CallSite, class: ErrorClass) -> Actions {
        use ErrorClass::{
            Abortable, Contended, Corrupted, Fatal, GroupFenced, ProducerFenced, ProducerLost,
            Retriable,
        };
        let reason = StopReason::Error { call, class };
        if !self.concerns(call) {
            return Actions::none();
        }
        match (self.state, class) {
            (State::Failed, _) => Actions::none(),

            // No transaction of ours is open, so there is nothing to abort.
            (State::Cold | State::Fenced, _) => self.fail(reason),
            // A wrong configuration, which a second try does not fix.
            (State::InDoubt, _) if call == CallSite::Create => self.fail(reason),
            (State::Initializing | State::InDoubt, Retriable | Contended) => self.again(call),
            (State::Initializing, ProducerFenced | ProducerLost) => self.fenced(now),
            (State::Initializing | State::Idle, GroupFenced | Corrupted) => self.fail(reason),
            (State::Initializing, Abortable | Fatal) => self.fail(reason),
            // Only `begin` and a report of the client can fail here.
            (State::Idle, ProducerFenced | ProducerLost) => self.fenced(now),
            (State::Idle, _) => self.fail(reason),
            // The outcome stays undecided. The next start decides it by the same steps.
            (State::InDoubt, ProducerFenced | ProducerLost) => self.in_doubt(now, class),
            (State::InDoubt, _) => self.fail(reason),

            // Open: EndTxn has not left, so an abort is safe.
            (State::Open | State::Sealing | State::SendingOffsets, Retriable) => self.again(call),
            (State::Open | State::Sealing | State::SendingOffsets, Abortable | GroupFenced) => {
                self.abort(now, call)
            }
            (State::Open | State::Sealing | State::SendingOffsets, Contended) => {
                self.contended = true;
                self.abort(now, call)
            }
            (State::Open | State::Sealing | State::SendingOffsets, ProducerFenced) => {
                Actions::one(Action::Discard).then(self.fenced(now))
            }
            // There is no producer to abort with, and no other owner to yield to. It counts as an abort, so that it
            // can't repeat forever.
            (State::Open | State::Sealing | State::SendingOffsets, ProducerLost) => {
                self.tainted = true;
                self.aborted()
            }
            (State::Open | State::Sealing | State::SendingOffsets, Corrupted | Fatal) => {
                self.stop = Some(reason);
                self.abort(now, call)
            }

            // Rule 5: only repeat the commit. Even an abortable error does not prove that the transaction did not
            // commit: librdkafka calls every response abortable that is unknown or unreadable
            // (`rd_kafka_txn_handle_EndTxn`).
            (State::Committing | State::Claiming, Retriable) => self.again(call),
            (State::Claiming, Corrupted | Fatal) => {
                self.stop = Some(reason);
                self.unclear(now, class)
            }
            (State::Committing, _) if !self.guarantee.is_transactional() => {
                self.unclear(now, class)
            }
            (State::Claiming, _) => self.unclear(now, class),
            (State::Committing, Contended) => {
                self.contended = true;
                self.in_doubt(now, class)
            }
            (State::Committing, _) => self.in_doubt(now, class),

            (State::Aborting, Retriable) => self.again(call),
            // The next producer's init ends a transaction that can't be aborted.
            (State::Aborting, _) => self.give_up_aborting(now, class),
        }
    }

    /// Returns whether a failure of this call counts now. While EndTxn is on its way, only the response to the commit
    /// itself counts (rule 5).
    fn concerns(&self, call: CallSite) -> bool {
        match self.state {
            State::Committing | State::Claiming => {
                matches!(call, CallSite::Commit | CallSite::ConsumerCommit)
            }
            State::Aborting => call == CallSite::Abort,
            State::InDoubt => {
                matches!(
                    call,
                    CallSite::Create | CallSite::Init | CallSite::Committed
                )
            }
            State::Initializing => call == CallSite::Init,
            State::Cold | State::Fenced => call == CallSite::Create,
            _ => true,
        }
    }

    /// Repeats the same call. Its deadline does not restart.
    fn again(&mut self, call: CallSite) -> Actions {
        let action = match (self.state, call) {
            (State::Initializing | State::InDoubt, CallSite::Init) => Action::Init,
            (State::InDoubt, CallSite::Committed) => Action::ReadOutcome,
            (State::SendingOffsets, CallSite::SendOffsets) if !self.offsets_sent => {
                Action::SendOffsets
            }
            (State::SendingOffsets, CallSite::Flush) if !self.drained => Action::Flush,
            (State::Committing | State::Claiming, CallSite::Commit | CallSite::ConsumerCommit) => {
                self.commit_action()
            }
            (State::Aborting, CallSite::Abort) => Action::Abort,
            // The worker itself offers a record again that did not fit the queue.
            _ => return Actions::none(),
        };
        self.taint(call);
        Actions::one(action)
    }

    /// Rule 7: any send_offsets, commit or abort that failed taints the producer.
    fn taint(&mut self, call: CallSite) {
        if matches!(
            call,
            CallSite::SendOffsets | CallSite::Commit | CallSite::Abort
        ) {
            self.tainted = true;
        }
    }

    fn abort(&mut self, now: Now, call: CallSite) -> Actions {
        self.taint(call);
        self.state = State::Aborting;
        self.deadline = Some(Deadline::after(now, self.limits.abort));
        match self.guarantee {
            Guarantee::ExactlyOnce => Actions::one(Action::Abort),
            // There is nothing to abort. A new producer drops the queued records.
            Guarantee::AtLeastOnce | Guarantee::AtMostOnce => {
                self.tainted = true;
                self.aborted()
            }
        }
    }

    /// A commit through the consumer failed. `class` is its last error: retriable if time ran out. Unless the group
    /// refused it, it may still happen, and would then reset the offsets of a later commit.
    fn unclear(&mut self, now: Now, class: ErrorClass) -> Actions {
        let actions = self.abort(now, CallSite::ConsumerCommit);
        match class {
            ErrorClass::GroupFenced => actions,
            _ => Actions::one(Action::Leave).then(actions),
        }
    }

    /// `class` is the last error of the abort: retriable if time ran out.
    fn give_up_aborting(&mut self, now: Now, class: ErrorClass) -> Actions {
        if class == ErrorClass::ProducerFenced && self.stop.is_none() {
            return Actions::one(Action::Discard).then(self.fenced(now));
        }
        // The next producer's init aborts it. The rest is as after any other abort.
        self.tainted = true;
        self.aborted()
    }

    /// `class` is the last error of the commit: retriable if time ran out.
    fn in_doubt(&mut self, now: Now, class: ErrorClass) -> Actions {
        if class == ErrorClass::ProducerFenced
            && let Some(storm) = self.storm(now)
        {
            return self.fail(storm);
        }
        self.replace(State::InDoubt)
    }

    /// Drops the producer. Its open transaction is lost.
    fn fenced(&mut self, now: Now) -> Actions {
        if let Some(storm) = self.storm(now) {
            return self.fail(storm);
        }
        self.replace(State::Fenced)
    }

    /// Two live owners of one id would fence each other forever. After a few fences within a short time this one
    /// stops, because only an operator can decide which is right.
    fn storm(&mut self, now: Now) -> Option<StopReason> {
        self.fenced_at
            .retain(|&at| now.since(at) < self.limits.fence_window);
        self.fenced_at.push(now);
        let times = u32::try_from(self.fenced_at.len()).unwrap_or(u32::MAX);
        (times >= self.limits.fences).then_some(StopReason::FencedAgain { times })
    }

    /// Quarantine (rule 7): late requests of the old producer meet a newer epoch.
    fn rebuild(&mut self) -> Actions {
        self.replace(State::Cold)
    }

    fn replace(&mut self, state: State) -> Actions {
        self.state = state;
        self.deadline = None;
        self.tainted = false;
        let after = self.backoff();
        self.rebuilds_in_a_row += 1;
        Actions::two(Action::Drop, Action::Build { after })
    }

    fn backoff(&self) -> std::time::Duration {
        self.limits.backoff.before(self.rebuilds_in_a_row)
    }

    fn fail(&mut self, reason: StopReason) -> Actions {
        self.state = State::Failed;
        self.deadline = None;
        Actions::two(Action::Drop, Action::Stop(reason))
    }

    fn unanswered(&mut self) -> Actions {
        match self.state {
            // There is no producer, or a new one that never sent more than its init. A late init can only fence; it
            // changes no transaction.
            State::Cold | State::Fenced | State::InDoubt | State::Initializing => Actions::none(),
            State::Idle => self.rebuild(),
            _ => {
                self.tainted = true;
                Actions::none()
            }
        }
    }

    fn lost(&mut self, now: Now) -> Actions {
        match self.state {
            State::Open | State::Sealing | State::SendingOffsets => self.abort(now, CallSite::Poll),
            // EndTxn has left with offsets that the group accepted while this member owned them.
            _ => Actions::none(),
        }
    }

    fn tick(&mut self, at: Moment) -> Actions {
        let (now, clock) = (at.now, self.clock(at));
        if !self
            .deadline()
            .is_some_and(|deadline| deadline.passed(clock))
        {
            return Actions::none();
        }
        match self.state {
            // Brokers that worked once are waited for: they return, or an operator stops the app.
            State::Initializing if self.initialized => self.rebuild(),
            State::Initializing => self.fail(StopReason::InitTimedOut),
            State::InDoubt => self.replace(State::InDoubt),
            // EndTxn has not left.
            State::Sealing | State::SendingOffsets => self.abort(now, CallSite::SendOffsets),
            State::Claiming => self.unclear(now, ErrorClass::Retriable),
            State::Committing if !self.guarantee.is_transactional() => {
                self.unclear(now, ErrorClass::Retriable)
            }
            State::Committing => self.in_doubt(now, ErrorClass::Retriable),
            State::Aborting => self.give_up_aborting(now, ErrorClass::Retriable),
            _ => Actions::none(),
        }
    }
}
