//! Tier 1: every reachable (state, event) pair of the machine, with the rules of design §4 asserted
//! at each action by a model of the worker that performs them.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use super::*;

/// A call under way, which will return or fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Pending {
    Build,
    Init,
    Seal,
    SendOffsets,
    Flush,
    Commit,
    ConsumerCommit,
    Abort,
    ReadOutcome,
}

/// The knowledge of the worker and the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Shell {
    pub(super) pending: BTreeSet<Pending>,
    producer: bool,
    initialized: bool,
    open: bool,
    offsets_sent: bool,
    drained: bool,
    /// EndTxn(commit) may have reached the broker, and its outcome is unknown.
    undecided: bool,
    /// The worker knows that it committed.
    known_committed: bool,
    /// Effects that are neither applied nor discarded.
    unsettled: bool,
    /// A request may still arrive late.
    tainted: bool,
    /// At most once: the offsets of the records to process are being committed.
    claiming: bool,
    /// At most once: these offsets are committed.
    claimed: bool,
    /// The worker is to leave the group.
    leaves: bool,
    pub(super) stopped: bool,
}

impl Shell {
    /// Records an event before the machine takes it.
    pub(super) fn hear(&mut self, event: Event) {
        match event {
            Event::Built => {
                self.pending.remove(&Pending::Build);
                self.producer = true;
            }
            Event::Initialized => {
                self.pending.remove(&Pending::Init);
                self.initialized = true;
            }
            Event::Touched => {
                self.unsettled = true;
                self.leaves = false;
            }
            Event::Sealed => {
                self.pending.remove(&Pending::Seal);
            }
            Event::OffsetsSent => {
                self.pending.remove(&Pending::SendOffsets);
                self.offsets_sent = true;
            }
            Event::Drained => {
                self.pending.remove(&Pending::Flush);
                self.drained = true;
            }
            Event::Committed => {
                self.pending.remove(&Pending::Commit);
                self.pending.remove(&Pending::ConsumerCommit);
                self.undecided = false;
                self.known_committed = !self.claiming;
                self.open = false;
            }
            Event::Aborted => {
                self.pending.remove(&Pending::Abort);
                self.open = false;
            }
            Event::Resolved(outcome) => {
                self.pending.remove(&Pending::ReadOutcome);
                self.undecided = outcome == Outcome::Dirty;
                self.known_committed = outcome == Outcome::Committed;
            }
            Event::Unanswered => self.tainted |= self.open,
            Event::Failed(call, _) => self.hear_failure(call),
            Event::Start | Event::CommitDue | Event::Lost | Event::Tick => {}
        }
    }

    fn hear_failure(&mut self, call: CallSite) {
        match call {
            CallSite::Create => self.pending.remove(&Pending::Build),
            CallSite::Init => self.pending.remove(&Pending::Init),
            CallSite::Flush => self.pending.remove(&Pending::Flush),
            CallSite::Abort => {
                self.tainted = true;
                self.pending.remove(&Pending::Abort)
            }
            CallSite::Committed => self.pending.remove(&Pending::ReadOutcome),
            CallSite::ConsumerCommit => self.pending.remove(&Pending::ConsumerCommit),
            CallSite::SendOffsets => {
                self.tainted = true;
                self.pending.remove(&Pending::SendOffsets)
            }
            CallSite::Commit => {
                self.tainted = true;
                self.pending.remove(&Pending::Commit)
            }
            _ => false,
        };
    }

    /// Performs an action, asserting every rule that it could break.
    pub(super) fn perform(&mut self, guarantee: Guarantee, event: Event, action: Action) {
        let exactly_once = guarantee == Guarantee::ExactlyOnce;
        match action {
            Action::Build { .. } => {
                assert!(!self.producer, "one live producer per id");
                self.pending.insert(Pending::Build);
            }
            Action::Drop => {
                self.producer = false;
                self.initialized = false;
                self.open = false;
                self.tainted = false;
                self.pending.clear();
            }
            Action::Init => {
                assert!(exactly_once && self.producer);
                self.pending.insert(Pending::Init);
            }
            Action::Begin => {
                assert_eq!(event, Event::Touched, "rule 1: begin is lazy");
                assert!(exactly_once && self.initialized && !self.open);
                assert!(!self.tainted, "rule 7: a tainted producer begins nothing");
                assert!(
                    !self.undecided,
                    "begin only after the previous outcome is known"
                );
                self.open = true;
                self.offsets_sent = false;
                self.drained = false;
                self.known_committed = false;
            }
            Action::Seal => {
                self.drained = false;
                self.offsets_sent = false;
                self.pending.insert(Pending::Seal);
            }
            Action::SendOffsets => {
                assert!(exactly_once && self.open && !self.pending.contains(&Pending::Seal));
                self.pending.insert(Pending::SendOffsets);
            }
            Action::Flush => {
                assert!(
                    !self.pending.contains(&Pending::Seal),
                    "nothing is produced after the seal"
                );
                self.pending.insert(Pending::Flush);
            }
            Action::Commit => {
                assert!(exactly_once && self.open);
                assert!(self.offsets_sent, "rule 2: no commit without offsets");
                assert!(self.drained, "commit only what is acknowledged");
                self.undecided = true;
                self.pending.insert(Pending::Commit);
            }
            Action::CommitThroughConsumer => {
                assert!(
                    !exactly_once,
                    "rule 11: nothing commits through the consumer"
                );
                assert!(
                    self.drained || self.claiming,
                    "at least once: acknowledged before committed"
                );
                self.pending.insert(Pending::ConsumerCommit);
            }
            Action::Claim => {
                assert_eq!(guarantee, Guarantee::AtMostOnce);
                self.claiming = true;
                self.drained = false;
                self.pending.insert(Pending::ConsumerCommit);
            }
            Action::Claimed => {
                assert_eq!(
                    event,
                    Event::Committed,
                    "at most once: the offsets come first"
                );
                self.claiming = false;
                self.claimed = true;
            }
            Action::Leave => {
                assert!(!exactly_once, "init fences a late commit");
                self.leaves = true;
            }
            Action::Abort => {
                assert!(exactly_once && self.open);
                assert!(
                    !self.undecided,
                    "rule 5: an unanswered commit is never aborted"
                );
                // All work for the commit has ended.
                self.pending.clear();
                self.pending.insert(Pending::Abort);
            }
            Action::Apply => {
                assert!(
                    self.unsettled && self.known_committed,
                    "apply only what committed"
                );
                self.unsettled = false;
                self.known_committed = false;
                self.claimed = false;
            }
            Action::Discard => {
                let is_unclear = match event {
                    Event::Failed(CallSite::ConsumerCommit, class) => {
                        class != ErrorClass::GroupFenced
                    }
                    Event::Tick => self.pending.contains(&Pending::ConsumerCommit),
                    _ => false,
                };
                assert!(
                    self.leaves || !is_unclear,
                    "a commit that may arrive later is left behind"
                );
                self.claiming = false;
                self.claimed = false;

                assert!(self.unsettled, "nothing to discard");
                assert!(!self.undecided, "rule 6: what is in doubt is kept");
                assert!(!self.known_committed, "what committed is never discarded");
                self.unsettled = false;
            }
            Action::ReadOutcome => {
                assert!(
                    exactly_once && self.initialized,
                    "rule 6: the fence comes before reading"
                );
                self.pending.insert(Pending::ReadOutcome);
            }
            Action::Stop(_) => {
                assert!(!self.stopped);
                self.stopped = true;
            }
        }
    }

    /// The invariants between any two events.
    pub(super) fn check(&self, machine: &Transaction) {
        match machine.state() {
            State::Idle => {
                assert!(
                    self.producer && self.pending.is_empty() && !self.open,
                    "{self:?}"
                );
                assert!(
                    !self.unsettled && !self.undecided,
                    "idle holds no left-over: {self:?}"
                );
            }
            State::Open => {
                assert!(self.pending.is_empty(), "{self:?}");
                assert!(
                    self.claimed || machine.guarantee != Guarantee::AtMostOnce,
                    "at most once: no record before its offset is committed"
                );
            }
            State::Failed => assert!(self.stopped && !self.producer, "{self:?}"),
            State::Cold if machine.begun == 0 && machine.rebuilds_in_a_row == 0 => {}
            _ => assert!(
                !self.pending.is_empty(),
                "stuck in {:?}: {self:?}",
                machine.state()
            ),
        }
    }

    /// Every event that may come now.
    pub(super) fn enabled(&self, machine: &Transaction) -> Vec<Event> {
        use ErrorClass::{
            Abortable, Contended, Corrupted, Fatal, GroupFenced, ProducerFenced, ProducerLost,
            Retriable,
        };
        const CLASSES: [ErrorClass; 8] = [
            Retriable,
            Abortable,
            Contended,
            GroupFenced,
            ProducerFenced,
            ProducerLost,
            Corrupted,
            Fatal,
        ];
        let mut events = vec![Event::Tick, Event::Lost, Event::CommitDue];
        if self.producer && machine.guarantee == Guarantee::ExactlyOnce {
            events.push(Event::Unanswered);
        }
        if machine.state() == State::Cold && self.pending.is_empty() && !self.stopped {
            events.push(Event::Start);
        }
        // An error of the consumer or of a record may come at any time.
        let mut failures = vec![CallSite::Poll, CallSite::Send];
        if machine.takes_records() {
            events.push(Event::Touched);
        }
        if machine.state() == State::Open {
            failures.push(CallSite::Begin);
        }
        for pending in &self.pending {
            let (done, call): (&[Event], CallSite) = match pending {
                Pending::Build => (&[Event::Built], CallSite::Create),
                Pending::Init => (&[Event::Initialized], CallSite::Init),
                Pending::Seal => (&[Event::Sealed], CallSite::Send),
                Pending::SendOffsets => (&[Event::OffsetsSent], CallSite::SendOffsets),
                Pending::Flush => (&[Event::Drained], CallSite::Flush),
                Pending::Commit => (&[Event::Committed], CallSite::Commit),
                Pending::ConsumerCommit => (&[Event::Committed], CallSite::ConsumerCommit),
                Pending::Abort => (&[Event::Aborted], CallSite::Abort),
                Pending::ReadOutcome => (
                    &[
                        Event::Resolved(Outcome::Committed),
                        Event::Resolved(Outcome::Aborted),
                        Event::Resolved(Outcome::Dirty),
                    ],
                    CallSite::Committed,
                ),
            };
            events.extend(done);
            failures.push(call);
        }
        for call in failures {
            // A failed build is not retriable: it is a wrong configuration.
            let classes = if call == CallSite::Create {
                &CLASSES[6..]
            } else {
                &CLASSES[..]
            };
            events.extend(classes.iter().map(|&class| Event::Failed(call, class)));
        }
        events
    }
}

/// One step of machine and shell together. `late` makes a tick come after the deadline.
pub(super) fn step(machine: &mut Transaction, shell: &mut Shell, event: Event, late: bool) {
    let now = match machine.deadline() {
        Some(deadline) if late => Now::default().after(deadline.remaining(Now::default())),
        _ => Now::default(),
    };
    // Touched does not reach the machine while it takes no records.
    let settled = machine.state() == State::Failed;
    shell.hear(event);
    for action in machine.step(now.into(), event) {
        assert!(!settled, "a failed machine does nothing");
        shell.perform(machine.guarantee, event, action);
    }
    shell.check(machine);
}

/// A machine without times and endless counters.
type Shape = (State, [bool; 5], Option<StopReason>, [u32; 3]);

fn shape(m: &Transaction) -> Shape {
    let flags = [
        m.deadline.is_some(),
        m.offsets_sent,
        m.drained,
        m.tainted,
        m.initialized,
    ];
    let counts = [
        m.aborts_in_a_row,
        m.rebuilds_in_a_row.min(2),
        m.fenced_at.len() as u32,
    ];
    (m.state, flags, m.stop, counts)
}

fn walk(guarantee: Guarantee) -> (HashSet<(State, Event)>, usize) {
    let limits = Limits {
        fences: 3,
        aborts_in_a_row: 3,
        ..Limits::default()
    };
    let start = (Transaction::new(guarantee, limits), Shell::default());
    let mut seen = HashSet::from([(shape(&start.0), start.1.clone())]);
    let mut pairs = HashSet::new();
    let mut queue = VecDeque::from([start]);
    while let Some((machine, shell)) = queue.pop_front() {
        for event in shell.enabled(&machine) {
            for late in [false, true] {
                if late && (event != Event::Tick || machine.deadline().is_none()) {
                    continue;
                }
                pairs.insert((machine.state(), event));
                let (mut machine, mut shell) = (machine.clone(), shell.clone());
                step(&mut machine, &mut shell, event, late);
                if seen.insert((shape(&machine), shell.clone())) {
                    queue.push_back((machine, shell));
                }
            }
        }
    }
    (pairs, seen.len())
}

#[test]
fn every_reachable_pair_keeps_the_rules_exactly_once() {
    let (pairs, configurations) = walk(Guarantee::ExactlyOnce);
    let states: BTreeSet<State> = pairs.iter().map(|(state, _)| *state).collect();
    let transactional = State::ALL.into_iter().filter(|s| *s != State::Claiming);
    assert_eq!(
        states,
        transactional.collect(),
        "all eleven states are reached"
    );
    println!("{} pairs, {configurations} configurations", pairs.len());
    assert!(
        pairs.len() >= 120,
        "{} pairs: the walk got shorter",
        pairs.len()
    );
}

#[test]
fn every_reachable_pair_keeps_the_rules_at_least_once() {
    let (pairs, configurations) = walk(Guarantee::AtLeastOnce);
    let states: BTreeSet<State> = pairs.iter().map(|(state, _)| *state).collect();
    for never in [
        State::Initializing,
        State::Aborting,
        State::InDoubt,
        State::Claiming,
    ] {
        assert!(
            !states.contains(&never),
            "{never:?} has no meaning without transactions"
        );
    }
    println!("{} pairs, {configurations} configurations", pairs.len());
}

#[test]
fn every_reachable_pair_keeps_the_rules_at_most_once() {
    let (pairs, configurations) = walk(Guarantee::AtMostOnce);
    let states: BTreeSet<State> = pairs.iter().map(|(state, _)| *state).collect();
    assert!(states.contains(&State::Claiming));
    for never in [State::Initializing, State::Aborting, State::InDoubt] {
        assert!(
            !states.contains(&never),
            "{never:?} has no meaning without transactions"
        );
    }
    println!("{} pairs, {configurations} configurations", pairs.len());
}

/// No event in any state panics or makes a failed machine act.
#[test]
fn events_that_make_no_sense_change_nothing_bad() {
    let limits = Limits::default();
    let mut machine = Transaction::new(Guarantee::ExactlyOnce, limits);
    for event in [
        Event::Committed,
        Event::Aborted,
        Event::Sealed,
        Event::Drained,
        Event::Touched,
    ] {
        assert!(machine.step(Now(Duration::ZERO).into(), event).is_empty());
        assert_eq!(machine.state(), State::Cold);
    }
}
