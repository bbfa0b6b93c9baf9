//! A worker that the group removed as dead during a rebalance. The client reports no loss, the
//! worker is a new member, and its positions are old.

use super::*;

/// Lets a successor process the records of partition 0, and makes this worker a new member of the
/// group.
pub(super) fn succeed(bench: &Bench, values: &[&str]) {
    let mut broker = bench.kafka.broker();
    let output = broker.visible[0].0;
    let done = values.iter().map(|v| (output, v.to_uppercase()));
    broker.visible.extend(done);
    let committed = broker.committed.get_mut(&tp(0)).unwrap();
    committed.0 += values.len() as i64;
    broker.membership = Some((9, "member-2".into()));
}

fn rejoined(bench: &mut Bench) {
    let calls = bench.kafka.calls();
    assert_order(&calls, &["unsubscribe", "close", "subscribe in"]);
    assert_eq!(times(&calls, "commit"), 0, "{calls:?}");
    bench.kafka.broker().membership = Some((10, "member-3".into()));
    bench.assign(&[0]);
    bench.settle_exactly();
    bench.take(&["later"]);
    bench.assert_exact();
}

#[test]
fn rule_3_as_another_member_it_commits_nothing_and_rejoins() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    succeed(&bench, &["a", "b"]);
    assert_eq!(bench.metrics().totals.fences, 0);
    bench.settle();
    // R43: the refused commit of the former generation is counted.
    assert_eq!(bench.metrics().totals.fences, 1);
    rejoined(&mut bench);
}

/// The group assigns the claimed partitions again. None of them is new, so the assignment is empty.
#[test]
fn an_assignment_to_another_member_ends_what_the_one_before_had() {
    let mut bench = Bench::running();
    succeed(&bench, &[]);
    bench.assign(&[]);
    bench.settle();
    assert_eq!(bench.committed(0), Some(3));
    rejoined(&mut bench);
}

/// Returns a worker with a commit in doubt. A successor continues its partition before the outcome
/// is read.
fn succeeded_in_doubt() -> Bench {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.fails(CallSite::Commit, fatal(code::LOCAL_FENCED));
    bench.pending(CallSite::Init, 5);
    bench.steps_until(|bench| bench.worker.state() == State::InDoubt);
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

/// The worker was frozen. It reads the outcome of its commit before the client reports the loss of
/// its partitions.
#[test]
fn rule_6_later_commits_of_another_owner_close_the_tasks_and_no_more() {
    let mut bench = succeeded_in_doubt();
    bench.kafka.broker().membership = None;
    bench.settle();
    rejoined(&mut bench);
}

/// Returns an evicted worker whose consumer does not close at once.
fn closing(tries: usize) -> Bench {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    succeed(&bench, &["a", "b"]);
    bench.pending(CallSite::Close, tries);
    bench.steps(20);
    bench
}

#[test]
fn a_stop_while_its_consumer_closes_leaves_only_once() {
    let mut bench = closing(1_000);
    bench.worker.stop(StopMode::Leave);
    bench.kafka.broker().script.clear();
    bench.end().unwrap();
    let calls = bench.kafka.calls();
    let count = |call: &str| times(&calls, call);
    assert_eq!((count("unsubscribe"), count("close")), (1, 1), "{calls:?}");
    assert_eq!(count("subscribe in"), 0, "{calls:?}");
}

#[test]
fn a_consumer_that_does_not_close_in_time_is_abandoned() {
    let mut bench = closing(1_000);
    bench.assert_not_called("subscribe in");
    bench.steps(200);
    bench.assert_called("subscribe in");
    // The rest of the script is for the old consumer.
    bench.kafka.broker().script.clear();
    bench.kafka.broker().membership = Some((10, "member-3".into()));
    bench.assign(&[0]);
    bench.settle_exactly();
}
