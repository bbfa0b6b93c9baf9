//! Tier 1: the rules of design §4 that the machine keeps, one test each, by number.

use std::time::Duration;

use super::*;
use Action::{Abort, Apply, Begin, Build, Commit, Discard, Drop, Flush, Init, ReadOutcome};
use Action::{CommitThroughConsumer, Seal, SendOffsets, Stop};
use ErrorClass::{
    Abortable, Contended, Fatal, GroupFenced, ProducerFenced, ProducerLost, Retriable,
};

const T0: Now = Now(Duration::ZERO);

struct Life {
    machine: Transaction,
    now: Now,
}

impl Life {
    fn new(guarantee: Guarantee) -> Self {
        Self {
            machine: Transaction::new(guarantee, Limits::default()),
            now: T0,
        }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.machine
            .step(self.now.into(), event)
            .into_iter()
            .collect()
    }

    fn fail(&mut self, call: CallSite, class: ErrorClass) -> Vec<Action> {
        self.on(Event::Failed(call, class))
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now = self.now.after(time);
        self.on(Event::Tick)
    }

    /// A life in the given state, by the shortest path.
    fn in_state(state: State) -> Self {
        let mut life = Self::new(Guarantee::ExactlyOnce);
        let way = [
            (State::Initializing, vec![Event::Start, Event::Built]),
            (State::Idle, vec![Event::Initialized]),
            (State::Open, vec![Event::Touched]),
            (State::Sealing, vec![Event::CommitDue]),
            (State::SendingOffsets, vec![Event::Sealed]),
            (State::Committing, vec![Event::OffsetsSent, Event::Drained]),
        ];
        for (reached, events) in way {
            for event in events {
                life.on(event);
            }
            if reached == state {
                break;
            }
        }
        assert_eq!(life.machine.state(), state);
        life
    }
}

fn now_build() -> Action {
    Build {
        after: Duration::ZERO,
    }
}

#[test]
fn a_whole_transaction() {
    let mut life = Life::new(Guarantee::ExactlyOnce);
    assert_eq!(life.on(Event::Start), [now_build()]);
    assert_eq!(life.on(Event::Built), [Init]);
    assert_eq!(life.on(Event::Initialized), []);
    assert_eq!(life.on(Event::Touched), [Begin]);
    assert_eq!(life.on(Event::Touched), []);
    assert_eq!(life.on(Event::CommitDue), [Seal]);
    assert_eq!(life.on(Event::Sealed), [SendOffsets, Flush]);
    assert_eq!(life.on(Event::Drained), []);
    assert_eq!(life.on(Event::OffsetsSent), [Commit]);
    assert_eq!(life.on(Event::Committed), [Apply]);
    assert_eq!(life.machine.state(), State::Idle);
    assert_eq!(life.machine.number(), 1);
}

#[test]
fn rule_1_begin_is_lazy() {
    let mut life = Life::in_state(State::Idle);
    assert_eq!(
        life.on(Event::CommitDue),
        [],
        "nothing open, nothing to commit"
    );
    assert_eq!(
        life.pass(Duration::from_secs(3600)),
        [],
        "idle for an hour: nothing open"
    );
    assert_eq!(life.on(Event::Touched), [Begin]);
}

#[test]
fn rule_4_a_loss_aborts_and_a_commit_under_way_is_left_alone() {
    for state in [State::Open, State::Sealing, State::SendingOffsets] {
        let mut life = Life::in_state(state);
        assert_eq!(life.on(Event::Lost), [Abort], "{state:?}");
        assert_eq!(life.on(Event::Aborted), [Discard]);
    }
    let mut life = Life::in_state(State::Committing);
    assert_eq!(life.on(Event::Lost), []);
    assert_eq!(life.on(Event::Committed), [Apply]);
}

#[test]
fn rule_5_after_a_commit_time_out_only_commit_again() {
    let mut life = Life::in_state(State::Committing);
    for _ in 0..5 {
        assert_eq!(life.fail(CallSite::Commit, Retriable), [Commit]);
        assert_eq!(life.on(Event::Lost), [], "not even a loss aborts it");
    }
    assert_eq!(life.pass(Limits::default().commit), [Drop, now_build()]);
    assert_eq!(life.machine.state(), State::InDoubt);
}

#[test]
fn rule_5_before_the_commit_has_left_the_deadline_aborts() {
    for state in [State::Sealing, State::SendingOffsets] {
        let mut life = Life::in_state(state);
        assert_eq!(life.pass(Duration::from_secs(7)), []);
        let rest = Duration::from_millis(500);
        assert_eq!(life.pass(rest), [Abort], "{state:?}");
    }
}

/// However long the outputs took to drain, EndTxn has a quarter of the time; the whole is bounded.
#[test]
fn rule_4_the_end_of_the_transaction_has_time_of_its_own() {
    let mut life = Life::in_state(State::SendingOffsets);
    assert_eq!(life.on(Event::OffsetsSent), []);
    assert_eq!(life.pass(Duration::from_millis(7400)), []);
    assert_eq!(life.on(Event::Drained), [Commit]);
    assert_eq!(life.pass(Duration::from_millis(2500)), []);
    assert_eq!(life.machine.state(), State::Committing);
    life.pass(Duration::from_millis(100));
    assert_eq!(life.machine.state(), State::InDoubt, "after 10 s");
}

#[test]
fn rule_6_what_is_in_doubt_is_kept_until_a_new_producer_has_decided_it() {
    for class in [Abortable, ProducerFenced, Fatal, GroupFenced] {
        let mut life = Life::in_state(State::Committing);
        assert_eq!(
            life.fail(CallSite::Commit, class),
            [Drop, now_build()],
            "{class:?}"
        );
        assert_eq!(life.on(Event::Built), [Init]);
        assert_eq!(life.on(Event::Initialized), [ReadOutcome]);
        let mut committed = Life {
            machine: life.machine.clone(),
            now: T0,
        };
        assert_eq!(committed.on(Event::Resolved(Outcome::Committed)), [Apply]);
        assert_eq!(committed.machine.state(), State::Idle);
        let mut dirty = Life {
            machine: life.machine.clone(),
            now: T0,
        };
        assert_eq!(
            dirty.on(Event::Resolved(Outcome::Dirty)),
            [Drop, Stop(StopReason::Dirty)]
        );
        assert_eq!(life.on(Event::Resolved(Outcome::Aborted)), [Discard]);
        assert_eq!(life.machine.state(), State::Idle);
    }
}

#[test]
fn rule_7_an_unanswered_request_rebuilds_the_producer_before_the_next_begin() {
    let mut life = Life::in_state(State::Committing);
    assert_eq!(life.on(Event::Unanswered), []);
    assert_eq!(
        life.on(Event::Committed),
        [Apply, Drop, now_build()],
        "even if it ended well"
    );
    assert_eq!(life.on(Event::Touched), [], "no begin on the way");
    assert_eq!(life.on(Event::Built), [Init]);
    life.on(Event::Initialized);
    assert_eq!(life.on(Event::Touched), [Begin]);

    let mut life = Life::in_state(State::Idle);
    assert_eq!(life.on(Event::Unanswered), [Drop, now_build()]);
}

#[test]
fn rule_7_a_failed_send_offsets_or_commit_taints_even_if_the_retry_succeeds() {
    let mut life = Life::in_state(State::SendingOffsets);
    assert_eq!(life.fail(CallSite::SendOffsets, Retriable), [SendOffsets]);
    life.on(Event::OffsetsSent);
    assert_eq!(life.on(Event::Drained), [Commit]);
    assert_eq!(life.on(Event::Committed), [Apply, Drop, now_build()]);

    let mut life = Life::in_state(State::Committing);
    assert_eq!(life.fail(CallSite::Commit, Retriable), [Commit]);
    assert_eq!(life.on(Event::Committed), [Apply, Drop, now_build()]);

    let mut life = Life::in_state(State::Open);
    assert_eq!(life.fail(CallSite::Send, Abortable), [Abort]);
    assert_eq!(life.fail(CallSite::Abort, Retriable), [Abort]);
    assert_eq!(life.on(Event::Aborted), [Discard, Drop, now_build()]);
}

#[test]
fn rule_7_rebuilds_in_quick_succession_back_off() {
    let mut life = Life::in_state(State::Idle);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let actions = life.on(Event::Unanswered);
        let [Drop, Build { after }] = actions[..] else {
            panic!("{actions:?}")
        };
        waits.push(after.as_millis());
        life.on(Event::Built);
        life.on(Event::Initialized);
    }
    assert_eq!(waits, [0, 100, 200, 400]);
}

#[test]
fn rule_9_the_second_abort_in_a_row_rebuilds_the_producer() {
    let mut life = Life::in_state(State::Open);
    assert_eq!(life.fail(CallSite::Send, Abortable), [Abort]);
    assert_eq!(life.on(Event::Aborted), [Discard]);
    assert_eq!(life.on(Event::Touched), [Begin]);
    assert_eq!(life.fail(CallSite::Send, Abortable), [Abort]);
    assert_eq!(life.on(Event::Aborted), [Discard, Drop, now_build()]);
}

/// A lock or a full disk may stay for an hour. The worker waits between its tries, and stops for no number of them.
#[test]
fn aborts_of_a_passing_cause_repeat_without_end() {
    let mut life = Life::in_state(State::Open);
    let mut waits = Vec::new();
    for _ in 0..100 {
        assert_eq!(life.fail(CallSite::Flush, Contended), [Abort]);
        let actions = life.on(Event::Aborted);
        waits.extend(actions.iter().find_map(|action| match action {
            Build { after } => Some(after.as_millis()),
            _ => None,
        }));
        for event in [Event::Built, Event::Initialized, Event::Touched] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Open);
    }
    assert_eq!(waits[..4], [0, 100, 200, 400]);
    assert_eq!(waits.last(), Some(&5_000));
    // Other aborts count as before.
    life.fail(CallSite::Send, Abortable);
    life.on(Event::Aborted);
    assert_eq!(life.machine.aborts_in_a_row, 1);
}

/// The abort after a passing cause meets a fence, so the transaction ends without being counted.
#[test]
fn a_passing_cause_excuses_only_its_own_transaction() {
    let mut life = Life::in_state(State::Open);
    life.fail(CallSite::Flush, Contended);
    life.fail(CallSite::Abort, ProducerFenced);
    for event in [Event::Built, Event::Initialized, Event::Touched] {
        life.on(event);
    }
    assert_eq!(life.machine.state(), State::Open);
    life.fail(CallSite::Send, Abortable);
    life.on(Event::Aborted);
    assert_eq!(life.machine.aborts_in_a_row, 1);
}

#[test]
fn a_contended_commit_is_resolved_and_does_not_count() {
    let mut life = Life::in_state(State::Committing);
    for _ in 0..50 {
        life.fail(CallSite::Commit, Contended);
        assert_eq!(life.machine.state(), State::InDoubt);
        for event in [
            Event::Built,
            Event::Initialized,
            Event::Resolved(Outcome::Aborted),
            Event::Touched,
            Event::CommitDue,
            Event::Sealed,
            Event::OffsetsSent,
            Event::Drained,
        ] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Committing);
    }
    assert_eq!(life.machine.aborts_in_a_row, 0);
}

#[test]
fn rule_9_aborts_without_end_stop_the_worker() {
    let mut life = Life::in_state(State::Open);
    for _ in 1..Limits::default().aborts_in_a_row {
        life.fail(CallSite::Send, Abortable);
        life.on(Event::Aborted);
        for event in [Event::Built, Event::Initialized, Event::Touched] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Open);
    }
    life.fail(CallSite::Send, Abortable);
    let last = life.on(Event::Aborted);
    assert_eq!(
        last,
        [
            Discard,
            Drop,
            Stop(StopReason::RepeatedAborts { times: 32 })
        ]
    );
}

#[test]
fn rule_9_a_fenced_worker_comes_back_but_two_live_owners_end_with_an_error() {
    let mut life = Life::in_state(State::Open);
    for _ in 0..2 {
        let actions = life.fail(CallSite::Send, ProducerFenced);
        assert!(
            matches!(actions[..], [Discard, Drop, Build { .. }]),
            "{actions:?}"
        );
        for event in [Event::Built, Event::Initialized, Event::Touched] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Open);
    }
    let stop = Stop(StopReason::FencedAgain { times: 3 });
    assert_eq!(
        life.fail(CallSite::Send, ProducerFenced),
        [Discard, Drop, stop]
    );

    // The same three fences, but an hour apart, are three accidents.
    let mut life = Life::in_state(State::Open);
    for _ in 0..3 {
        life.now = life.now.after(Duration::from_secs(3600));
        life.fail(CallSite::Send, ProducerFenced);
        for event in [Event::Built, Event::Initialized, Event::Touched] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Open);
    }
}

/// An outage stops the brokers' clock, on which the deadline of the first init runs, but not the time between fences.
#[test]
fn rule_9_fences_hours_apart_are_accidents_regardless_of_the_brokers_clock() {
    let mut life = Life::in_state(State::Open);
    life.now = life.now.after(Duration::from_secs(3 * 3600));
    life.fail(CallSite::Send, ProducerFenced);
    for hour in [4, 5] {
        let at = Moment {
            now: Now(Duration::from_secs(hour * 3600)),
            brokers: Now(Duration::from_secs(60)),
        };
        let _ = life.machine.step(at, Event::Built);
        assert_eq!(life.machine.state(), State::Initializing);
        let fenced = Event::Failed(CallSite::Init, ProducerFenced);
        let actions: Vec<_> = life.machine.step(at, fenced).into_iter().collect();
        assert!(matches!(actions[..], [Drop, Build { .. }]), "{actions:?}");
    }
}

#[test]
fn the_deadline_of_the_first_init_stands_still_in_an_outage() {
    let mut life = Life::new(Guarantee::ExactlyOnce);
    life.on(Event::Start);
    life.on(Event::Built);
    let mut tick = |now, brokers| {
        let [now, brokers] = [now, brokers].map(|s| Now(Duration::from_secs(s)));
        let _ = life.machine.step(Moment { now, brokers }, Event::Tick);
        life.machine.state()
    };
    assert_eq!(tick(7200, 1), State::Initializing);
    assert_eq!(tick(7201, 7200), State::Failed);
}

#[test]
fn rule_9_a_producer_that_was_not_fenced_is_replaced_after_each_abort() {
    let mut life = Life::in_state(State::Open);
    for _ in 1..Limits::default().aborts_in_a_row {
        let actions = life.fail(CallSite::Send, ProducerLost);
        assert!(
            matches!(actions[..], [Discard, Drop, Build { .. }]),
            "{actions:?}"
        );
        for event in [Event::Built, Event::Initialized, Event::Touched] {
            life.on(event);
        }
        assert_eq!(life.machine.state(), State::Open);
    }
    let times = Limits::default().aborts_in_a_row;
    let stop = Stop(StopReason::RepeatedAborts { times });
    assert_eq!(
        life.fail(CallSite::Send, ProducerLost),
        [Discard, Drop, stop]
    );
}

#[test]
fn rule_11_at_least_once_flushes_first_and_commits_through_the_consumer() {
    let mut life = Life::new(Guarantee::AtLeastOnce);
    life.on(Event::Start);
    assert_eq!(life.on(Event::Built), [], "nothing to initialise");
    assert_eq!(life.on(Event::Touched), [], "nothing to begin");
    assert_eq!(life.on(Event::CommitDue), [Seal]);
    assert_eq!(life.on(Event::Sealed), [Flush]);
    assert_eq!(life.on(Event::Drained), [CommitThroughConsumer]);
    assert_eq!(life.on(Event::Committed), [Apply]);
}

#[test]
fn at_most_once_commits_through_the_consumer_before_it_takes_a_record() {
    let mut life = Life::new(Guarantee::AtMostOnce);
    life.on(Event::Start);
    life.on(Event::Built);
    assert_eq!(life.on(Event::Touched), [Action::Claim]);
    assert!(!life.machine.takes_records());
    assert_eq!(
        life.fail(CallSite::ConsumerCommit, Retriable),
        [CommitThroughConsumer]
    );
    assert_eq!(life.on(Event::Committed), [Action::Claimed]);
    assert!(life.machine.takes_records());
    assert_eq!(life.on(Event::CommitDue), [Seal]);
    assert_eq!(life.on(Event::Sealed), [Flush]);
    assert_eq!(life.on(Event::Drained), [CommitThroughConsumer]);
    assert_eq!(life.on(Event::Committed), [Apply]);
}

#[test]
fn a_consumer_commit_that_may_arrive_later_leaves_the_group() {
    for (guarantee, events) in [
        (Guarantee::AtMostOnce, &[Event::Touched][..]),
        (
            Guarantee::AtLeastOnce,
            &[
                Event::Touched,
                Event::CommitDue,
                Event::Sealed,
                Event::Drained,
            ],
        ),
    ] {
        let life = || {
            let mut life = Life::new(guarantee);
            for event in [Event::Start, Event::Built].iter().chain(events) {
                life.on(*event);
            }
            life
        };
        let actions = life().pass(Limits::default().commit);
        assert!(
            matches!(actions[..], [Action::Leave, Discard, Drop, Build { .. }]),
            "{actions:?}"
        );
        let actions = life().fail(CallSite::ConsumerCommit, Abortable);
        assert_eq!(actions[0], Action::Leave);
        // The group has refused it.
        let actions = life().fail(CallSite::ConsumerCommit, GroupFenced);
        assert_eq!(actions[0], Discard);
    }
}

#[test]
fn a_permanent_error_aborts_before_it_stops() {
    let mut life = Life::in_state(State::SendingOffsets);
    assert_eq!(life.fail(CallSite::SendOffsets, Fatal), [Abort]);
    let reason = StopReason::Error {
        call: CallSite::SendOffsets,
        class: Fatal,
    };
    assert_eq!(life.on(Event::Aborted), [Discard, Drop, Stop(reason)]);
}

#[test]
fn an_init_that_does_not_end_is_begun_again_once_one_has_ended() {
    let mut life = Life::in_state(State::Idle);
    assert_eq!(life.on(Event::Unanswered), [Drop, now_build()]);
    for _ in 0..20 {
        life.on(Event::Built);
        assert_eq!(life.fail(CallSite::Init, Retriable), [Init]);
        let again = life.pass(Limits::default().init);
        assert!(matches!(again[..], [Drop, Build { .. }]), "{again:?}");
    }
    life.on(Event::Built);
    assert_eq!(life.on(Event::Initialized), []);
    assert_eq!(life.machine.state(), State::Idle);
}

#[test]
fn rule_6_what_is_in_doubt_stays_so_until_a_broker_answers() {
    let mut life = Life::in_state(State::Committing);
    life.fail(CallSite::Commit, Fatal);
    for _ in 0..20 {
        assert_eq!(life.on(Event::Built), [Init]);
        life.pass(Limits::default().init);
        assert_eq!(life.machine.state(), State::InDoubt);
    }
    life.on(Event::Built);
    assert_eq!(life.on(Event::Initialized), [ReadOutcome]);
    assert_eq!(life.on(Event::Resolved(Outcome::Committed)), [Apply]);
}

#[test]
fn the_first_init_that_does_not_end_stops() {
    let mut life = Life::in_state(State::Initializing);
    assert_eq!(life.fail(CallSite::Init, Retriable), [Init]);
    assert_eq!(
        life.pass(Limits::default().init),
        [Drop, Stop(StopReason::InitTimedOut)]
    );
}

#[test]
fn a_producer_that_cannot_be_made_stops_even_in_doubt() {
    let mut life = Life::in_state(State::Committing);
    life.fail(CallSite::Commit, Fatal);
    for class in [Retriable, Fatal] {
        let mut life = Life {
            machine: life.machine.clone(),
            now: T0,
        };
        let reason = StopReason::Error {
            call: CallSite::Create,
            class,
        };
        assert_eq!(life.fail(CallSite::Create, class), [Drop, Stop(reason)]);
    }
}
