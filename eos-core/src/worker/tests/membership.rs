//! A worker that the group took for dead while a rebalance was under way: no loss is reported, it
//! is another member, and what it holds is old.

use super::*;

/// A successor did the records of partition 0 meanwhile, and the group has this worker as a new
/// member.
fn succeed(bench: &Bench, values: &[&str]) {
    let mut broker = bench.kafka.broker();
    let output = broker.visible[0].0;
    let done = values.iter().map(|v| (output, v.to_uppercase()));
    broker.visible.extend(done.collect::<Vec<_>>());
    let committed = broker.committed.get_mut(&tp(0)).unwrap();
    committed.0 += values.len() as i64;
    broker.membership = Some((9, "member-2".into()));
}

fn rejoined(bench: &mut Bench) {
    let calls = bench.kafka.calls();
    let at = |call: &str| calls.iter().position(|c| c == call);
    let (left, joined) = (at("unsubscribe"), at("subscribe in"));
    let closed = at("close");
    assert!(
        left.is_some() && left < closed && closed < joined,
        "{calls:?}"
    );
    assert!(!calls.contains(&"commit".to_owned()), "{calls:?}");
    bench.kafka.broker().membership = Some((10, "member-3".into()));
    bench.assign(&[0]);
    bench.settle();
    bench.assert_exact();
    bench.feed(0, &["later"]);
    bench.settle();
    bench.assert_exact();
}

#[test]
fn rule_3_as_another_member_it_commits_nothing_and_joins_anew() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    succeed(&bench, &["a", "b"]);
    bench.settle();
    rejoined(&mut bench);
}

/// The group gave back what it claimed: nothing is new, so nothing is assigned.
#[test]
fn an_assignment_to_another_member_ends_what_the_one_before_had() {
    let mut bench = Bench::running();
    succeed(&bench, &[]);
    bench.assign(&[]);
    bench.settle();
    assert_eq!(bench.committed(0), Some(3));
    rejoined(&mut bench);
}

/// A commit in doubt, whose partition a successor goes on with before the outcome is read.
fn succeeded_in_doubt() -> Bench {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench
        .kafka
        .answer(CallSite::Commit, [Answer::Fails(fatal(code::LOCAL_FENCED))]);
    bench.kafka.answer(CallSite::Init, [Answer::Pending; 5]);
    while bench.worker.state() != State::InDoubt {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    succeed(&bench, &["a"]);
    let mut broker = bench.kafka.broker();
    let (_, name) = broker.committed.get_mut(&tp(0)).unwrap();
    *name = name.replace(";2;2;", ";2;3;");
    drop(broker);
    bench
}

#[test]
fn what_is_in_doubt_when_it_is_another_member_is_not_its_own_any_more() {
    let mut bench = succeeded_in_doubt();
    bench.assign(&[]);
    bench.settle();
    rejoined(&mut bench);
}

/// It was frozen, and reads what became of its commit before it hears that its partitions are lost.
#[test]
fn rule_6_what_somebody_else_has_committed_since_closes_the_tasks_and_no_more() {
    let mut bench = succeeded_in_doubt();
    bench.kafka.broker().membership = None;
    bench.settle();
    rejoined(&mut bench);
}

/// Evicted, and its consumer does not close at once.
fn closing(tries: usize) -> Bench {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    succeed(&bench, &["a", "b"]);
    bench
        .kafka
        .answer(CallSite::Close, vec![Answer::Pending; tries]);
    for _ in 0..20 {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    bench
}

#[test]
fn a_stop_while_its_consumer_closes_leaves_only_once() {
    let mut bench = closing(1_000);
    bench.worker.stop(StopMode::Leave);
    bench.kafka.broker().script.clear();
    bench.end().unwrap();
    let calls = bench.kafka.calls();
    let count = |call: &str| calls.iter().filter(|c| *c == call).count();
    assert_eq!((count("unsubscribe"), count("close")), (1, 1), "{calls:?}");
    assert_eq!(count("subscribe in"), 0, "{calls:?}");
}

#[test]
fn a_consumer_that_does_not_close_in_time_is_abandoned() {
    let mut bench = closing(1_000);
    assert!(!bench.kafka.calls().contains(&"subscribe in".to_owned()));
    for _ in 0..200 {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    assert!(bench.kafka.calls().contains(&"subscribe in".to_owned()));
    // The rest of the script is the old consumer's.
    bench.kafka.broker().script.clear();
    bench.kafka.broker().membership = Some((10, "member-3".into()));
    bench.assign(&[0]);
    bench.settle();
    bench.assert_exact();
}
