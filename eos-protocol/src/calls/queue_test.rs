use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::backoff::Backoff;
use crate::time::Now;

fn at(ms: u64) -> Now {
    Now(Duration::from_millis(ms))
}

fn plan(at_once: usize, time_out: Option<u64>, times: u32) -> CallPlan {
    let wait = Duration::from_millis(100);
    CallPlan {
        at_once,
        time_out: time_out.map(Duration::from_millis),
        retry: (times > 0).then_some(CallRetry {
            times,
            backoff: Backoff {
                first: wait,
                most: wait,
            },
            is_jittered: false,
        }),
    }
}

fn queue(at_once: usize) -> CallQueue {
    CallQueue::new(plan(at_once, None, 0), 1)
}

const FAILED: CallEnd = CallEnd::Failed {
    is_permanent: false,
};
const REFUSED: CallEnd = CallEnd::Failed { is_permanent: true };

/// Starts all calls that may start. Returns their records.
fn starts(queue: &mut CallQueue, now: u64) -> Vec<Ticket> {
    std::iter::from_fn(|| queue.start(at(now))).collect()
}

fn records(tickets: &[Ticket]) -> Vec<u64> {
    tickets.iter().map(|ticket| ticket.record).collect()
}

fn done(queue: &mut CallQueue, ticket: Ticket) -> Counted {
    queue.ended(ticket, CallEnd::Done, at(0), 0)
}

#[test]
fn no_more_calls_run_than_allowed_and_four_times_as_many_records_are_admitted() {
    let mut queue = queue(2);
    let mut admitted = 0;
    while queue.has_room() {
        queue.admit(None, 1);
        admitted += 1;
    }
    assert_eq!(admitted, 8);
    let running = starts(&mut queue, 0);
    assert_eq!((records(&running), queue.running()), (vec![0, 1], 2));
    done(&mut queue, running[1]);
    assert_eq!(records(&starts(&mut queue, 0)), [2]);
    assert!(!queue.has_room(), "no record has left");
}

#[test]
fn large_records_are_admitted_until_they_have_64_mib() {
    let mut queue = queue(100);
    let mut admitted = 0;
    while queue.has_room() {
        let number = queue.admit(None, 1);
        queue.weigh(number, 1_000_000);
        admitted += 1;
    }
    assert_eq!(admitted, 68);
    queue.remove(0);
    assert!(queue.has_room());
    let number = queue.admit(None, 1);
    queue.weigh(number, 64 << 20);
    assert!(!queue.has_room());
    queue.clear(1);
    assert!(queue.has_room());
}

#[test]
fn records_leave_in_the_order_of_their_admission() {
    let mut queue = queue(4);
    for _ in 0..3 {
        queue.admit(None, 1);
    }
    let running = starts(&mut queue, 0);
    done(&mut queue, running[2]);
    assert_eq!((queue.turn(), queue.any_ended()), (None, Some(2)));
    done(&mut queue, running[0]);
    assert_eq!(queue.turn(), Some(0));
    assert!(queue.remove(0).is_empty());
    assert_eq!(queue.turn(), None);
    done(&mut queue, running[1]);
    for number in [1, 2] {
        assert_eq!(queue.turn(), Some(number));
        queue.remove(number);
    }
    assert!(queue.is_empty());
}

#[test]
fn the_calls_of_one_key_run_one_after_another() {
    let mut queue = queue(8);
    queue.admit(Some(b"hot"), 2);
    queue.admit(Some(b"hot"), 1);
    queue.admit(Some(b"cold"), 1);
    queue.admit(None, 2);
    let running = starts(&mut queue, 0);
    let begun: Vec<_> = running.iter().map(|it| (it.record, it.call)).collect();
    assert_eq!(begun, [(0, 0), (2, 0), (3, 0), (3, 1)]);
    done(&mut queue, running[0]);
    let second = starts(&mut queue, 0);
    assert_eq!((second[0].record, second[0].call, second.len()), (0, 1, 1));
    done(&mut queue, second[0]);
    assert_eq!(records(&starts(&mut queue, 0)), [1]);
}

#[test]
fn a_record_without_calls_only_waits_for_its_turn() {
    let mut queue = queue(1);
    queue.admit(Some(b"k"), 1);
    queue.admit(Some(b"k"), 0);
    let running = starts(&mut queue, 0);
    assert_eq!(queue.turn(), None);
    done(&mut queue, running[0]);
    queue.remove(0);
    assert_eq!(queue.turn(), Some(1));
}

#[test]
fn a_failed_call_is_tried_again_after_the_wait_and_ends_after_the_last_try() {
    let mut queue = CallQueue::new(plan(1, None, 2), 1);
    queue.admit(Some(b"k"), 1);
    queue.admit(Some(b"k"), 1);
    for (now, counted) in [
        (0, Counted::Again),
        (100, Counted::Again),
        (200, Counted::Ended { tries: 3 }),
    ] {
        if now > 0 {
            assert_eq!(queue.next_event(true), Some(at(now)));
            assert_eq!(
                starts(&mut queue, now - 1),
                [],
                "the next call of the key waits"
            );
        }
        let running = starts(&mut queue, now);
        assert_eq!(records(&running), [0]);
        assert_eq!(queue.ended(running[0], FAILED, at(now), 0), counted);
    }
    assert_eq!(queue.turn(), Some(0));
    assert_eq!(starts(&mut queue, 1_000), [], "its record is undecided");
    queue.remove(0);
    assert_eq!(records(&starts(&mut queue, 1_000)), [1]);
}

#[test]
fn a_try_that_the_limit_holds_back_wakes_nothing() {
    let mut queue = CallQueue::new(plan(1, None, 1), 1);
    queue.admit(None, 1);
    queue.admit(None, 1);
    let first = starts(&mut queue, 0)[0];
    queue.ended(first, FAILED, at(0), 0);
    let second = starts(&mut queue, 0)[0];
    assert_eq!((second.record, queue.next_event(true)), (1, None));
    done(&mut queue, second);
    assert_eq!(queue.next_event(true), Some(at(100)));
}

#[test]
fn a_record_that_has_failed_starts_no_more_calls() {
    for key in [Some(&b"k"[..]), None] {
        let mut queue = CallQueue::new(plan(2, None, 3), 1);
        queue.admit(key, 4);
        let running = starts(&mut queue, 0);
        let counted = queue.ended(running[0], REFUSED, at(0), 0);
        assert_eq!(counted, Counted::Ended { tries: 1 });
        assert_eq!(starts(&mut queue, 1_000), []);
        if let Some(&other) = running.get(1) {
            assert_eq!(queue.turn(), None, "a call of it runs");
            let counted = queue.ended(other, FAILED, at(0), 0);
            assert_eq!(counted, Counted::Ended { tries: 1 }, "no try follows");
        }
        assert_eq!(queue.turn(), Some(0));
    }
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    let mut queue = CallQueue::new(plan(1, None, 2), 1);
    queue.admit(None, 1);
    let running = starts(&mut queue, 0);
    let counted = queue.ended(running[0], REFUSED, at(0), 0);
    assert_eq!(counted, Counted::Ended { tries: 1 });
}

#[test]
fn the_result_of_a_try_that_timed_out_is_late() {
    let mut queue = CallQueue::new(plan(2, Some(50), 1), 1);
    queue.admit(None, 1);
    let first = starts(&mut queue, 0)[0];
    assert_eq!(
        (queue.expired(at(49)), queue.next_event(true)),
        (None, Some(at(50)))
    );
    assert_eq!(queue.expired(at(50)), Some(first));
    assert_eq!(queue.ended(first, FAILED, at(50), 0), Counted::Again);
    assert_eq!(queue.running(), 0);
    assert_eq!(done(&mut queue, first), Counted::Late);
    let second = starts(&mut queue, 150)[0];
    assert_ne!(first, second);
    assert_eq!(done(&mut queue, first), Counted::Late);
    assert_eq!(queue.expired(at(199)), None);
    assert_eq!(done(&mut queue, second), Counted::Ended { tries: 2 });
    assert_eq!(
        (queue.expired(at(9_999)), queue.next_event(true)),
        (None, None)
    );
    assert_eq!(
        done(&mut queue, second),
        Counted::Late,
        "it has ended before"
    );
}

#[test]
fn results_of_a_former_incarnation_do_not_count() {
    let mut queue = queue(2);
    queue.admit(None, 1);
    let before = starts(&mut queue, 0);
    assert_eq!(queue.clear(2), before);
    assert!(queue.is_empty() && queue.running() == 0);
    queue.admit(None, 1);
    let after = starts(&mut queue, 0);
    let Ticket { incarnation, .. } = before[0];
    assert_eq!(
        before[0],
        Ticket {
            incarnation,
            ..after[0]
        },
        "only the incarnation differs"
    );
    assert_eq!(done(&mut queue, before[0]), Counted::Late);
    assert_eq!(done(&mut queue, after[0]), Counted::Ended { tries: 1 });
}

#[test]
fn a_repeated_record_comes_before_later_records_of_its_key() {
    let mut queue = queue(8);
    for _ in 0..3 {
        queue.admit(Some(b"k"), 1);
    }
    let first = starts(&mut queue, 0)[0];
    queue.ended(first, REFUSED, at(0), 0);
    assert_eq!(queue.repeat(0, 1), []);
    assert_eq!(queue.turn(), None);
    let again = starts(&mut queue, 0);
    assert_eq!(records(&again), [0]);
    assert_eq!(done(&mut queue, first), Counted::Late);
    done(&mut queue, again[0]);
    let second = starts(&mut queue, 0);
    assert_eq!(records(&second), [1]);
    // The record failed behind its call, while a later call of the key runs.
    assert_eq!(queue.repeat(0, 1), []);
    assert_eq!(starts(&mut queue, 0), []);
    done(&mut queue, second[0]);
    assert_eq!(records(&starts(&mut queue, 0)), [0]);
    assert_eq!(queue.repeat(0, 0).len(), 1, "a running call is aborted");
    assert_eq!((queue.running(), queue.turn()), (0, Some(0)));
    queue.remove(0);
    assert_eq!(queue.turn(), Some(1));
    assert_eq!(records(&starts(&mut queue, 0)), [2]);
}

#[derive(Debug, Clone)]
enum Op {
    Admit(u8, u32),
    Start,
    End(usize, CallEnd),
    Pass(u64),
    Merge,
    Repeat(u32),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![4 => Just(CallEnd::Done), 1 => Just(FAILED), 1 => Just(REFUSED)];
    prop_oneof![
        4 => (0..4u8, 0..3u32).prop_map(|(key, calls)| Op::Admit(key, calls)),
        4 => Just(Op::Start),
        4 => (0..8usize, end).prop_map(|(at, end)| Op::End(at, end)),
        1 => (0..120u64).prop_map(Op::Pass),
        3 => Just(Op::Merge),
        1 => (0..3u32).prop_map(Op::Repeat),
        1 => Just(Op::Clear),
    ]
}

/// Key 0 is none.
fn key_of(key: u8) -> Option<[u8; 1]> {
    (key > 0).then_some([key])
}

/// The first record made no call at first, because a node in front of the calls failed.
#[test]
fn a_repeated_record_does_not_wait_for_a_failed_call_of_a_later_record() {
    let mut queue = queue(2);
    let first = queue.admit(Some(b"k"), 0);
    let second = queue.admit(Some(b"k"), 1);
    let running = queue.start(at(0)).unwrap();
    assert_eq!(running.record, second);
    queue.repeat(first, 1);
    assert_eq!(queue.start(at(0)), None, "one call of a key at a time");
    queue.ended(running, FAILED, at(0), 0);
    let next = queue.start(at(0)).unwrap();
    assert_eq!(next.record, first);
    queue.ended(next, CallEnd::Done, at(0), 0);
    assert_eq!(queue.turn(), Some(first));
    queue.remove(first);
    assert_eq!(queue.turn(), Some(second));
}

#[test]
fn a_record_that_failed_before_its_calls_keeps_its_place() {
    let mut queue = queue(4);
    let first = queue.admit(Some(b"k"), 0);
    queue.hold(first);
    let second = queue.admit(Some(b"k"), 1);
    let other = queue.admit(Some(b"l"), 1);
    assert_eq!(queue.start(at(0)).unwrap().record, other);
    assert_eq!(queue.start(at(0)), None, "the second waits for the first");
    assert_eq!(queue.turn(), Some(first), "which waits for no call");
    // It fails again, and then calls.
    queue.repeat(first, 0);
    queue.hold(first);
    assert_eq!(queue.start(at(0)), None);
    queue.repeat(first, 1);
    let called = queue.start(at(0)).unwrap();
    assert_eq!(called.record, first);
    queue.ended(called, CallEnd::Done, at(0), 0);
    assert_eq!(queue.start(at(0)).unwrap().record, second);
    queue.remove(first);
    // The next record is given up.
    let third = queue.admit(Some(b"m"), 0);
    queue.hold(third);
    let fourth = queue.admit(Some(b"m"), 1);
    assert_eq!(queue.start(at(0)), None);
    queue.remove(third);
    assert_eq!(queue.start(at(0)).unwrap().record, fourth);
}

proptest! {
    /// A random history: the limit holds, no two calls of a key run at once, first tries of a key start in order, records leave
    /// in order, and all of them leave in the end.
    #[test]
    fn every_history_keeps_the_rules(
        ops in prop::collection::vec(op(), 0..120),
        at_once in 1..4usize,
        time_out in prop::option::of(1..80u64),
        times in 0..3u32,
    ) {
        let mut queue = CallQueue::new(plan(at_once, time_out, times), 0);
        let (mut now, mut incarnation) = (0, 0);
        let mut keys: BTreeMap<u64, u8> = BTreeMap::new();
        let mut running: Vec<Ticket> = Vec::new();
        let mut begun: BTreeMap<u8, (u64, u32)> = BTreeMap::new();
        let mut left = None;
        let finish = std::iter::repeat_n([Op::Start, Op::End(0, CallEnd::Done), Op::Pass(100), Op::Merge], 200);
        for op in ops.into_iter().chain(finish.flatten()) {
            match op {
                Op::Admit(key, calls) if queue.has_room() => {
                    let number = queue.admit(key_of(key).as_ref().map(|key| &key[..]), calls);
                    keys.insert(number, key);
                    if calls == 0 && now % 2 == 0 {
                        queue.hold(number);
                    }
                }
                Op::Admit(..) => prop_assert_eq!(queue.len(), 4 * at_once),
                Op::Start => {
                    while let Some(ticket) = queue.start(at(now)) {
                        let key = keys[&ticket.record];
                        if key > 0 {
                            prop_assert!(running.iter().all(|it| keys[&it.record] != key));
                            let place = (ticket.record, ticket.call);
                            let first = begun.entry(key).or_insert(place);
                            // Only repetitions of the first record go back.
                            if place < *first {
                                prop_assert_eq!(Some(&place.0), keys.keys().next());
                            } else {
                                *first = place;
                            }
                        }
                        running.push(ticket);
                    }
                    prop_assert!(running.len() <= at_once);
                }
                Op::End(which, end) if !running.is_empty() => {
                    let ticket = running.remove(which % running.len());
                    let counted = queue.ended(ticket, end, at(now), 7);
                    prop_assert_ne!(counted, Counted::Late);
                    prop_assert_eq!(queue.ended(ticket, end, at(now), 7), Counted::Late);
                    if end == CallEnd::Done || end == REFUSED {
                        prop_assert_ne!(counted, Counted::Again);
                    }
                }
                Op::End(..) => {}
                Op::Pass(time) => {
                    now += time;
                    while let Some(ticket) = queue.expired(at(now)) {
                        prop_assert!(running.contains(&ticket));
                        running.retain(|it| *it != ticket);
                        prop_assert_ne!(queue.ended(ticket, FAILED, at(now), 0), Counted::Late);
                    }
                }
                Op::Merge => {
                    if let Some(number) = queue.turn() {
                        prop_assert!(left < Some(number));
                        prop_assert_eq!(queue.remove(number), []);
                        left = Some(number);
                        keys.remove(&number);
                    }
                }
                Op::Repeat(calls) => {
                    if let Some(&number) = keys.keys().next() {
                        let aborted = queue.repeat(number, calls);
                        if calls == 0 && now % 2 == 0 {
                            queue.hold(number);
                        }
                        running.retain(|it| !aborted.contains(it));
                    }
                }
                Op::Clear => {
                    incarnation += 1;
                    let mut aborted = queue.clear(incarnation);
                    aborted.sort();
                    running.sort();
                    prop_assert_eq!(&aborted, &running);
                    for ticket in std::mem::take(&mut running) {
                        prop_assert_eq!(queue.ended(ticket, CallEnd::Done, at(now), 0), Counted::Late);
                    }
                    (left, keys) = (None, BTreeMap::new());
                    begun.clear();
                }
            }
            prop_assert_eq!(queue.running(), running.len());
        }
        prop_assert!(queue.is_empty(), "{queue:?}");
    }
}
