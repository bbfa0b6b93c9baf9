//! Tasks with a backlog share transactions.

use super::*;

const TASKS: i32 = 20;

fn many(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// A worker with 20 tasks. All but the last one had a backlog in the first transaction, and have one now.
fn bench() -> Bench {
    let mut spec = spec(0, Guarantee::ExactlyOnce);
    spec.input_partitions = BTreeMap::from([("in".into(), TASKS.unsigned_abs())]);
    let mut bench = Bench::of(spec, shout);
    bench.assign(&(0..TASKS).collect::<Vec<_>>());
    bench.settle();
    feed(&bench, 100);
    bench.step();
    assert_eq!(touched(&bench).len(), TASKS as usize, "none is known");
    bench
}

/// Feeds 100 records to each partition while the open transaction commits. Returns the tasks that the first step of
/// the next transaction touched.
fn next(bench: &mut Bench) -> Vec<i32> {
    feed(bench, 100);
    bench.worker.commit_now();
    let before = touched(bench);
    bench.steps_until(|bench| ![&before, &Vec::new()].contains(&&touched(bench)));
    touched(bench)
}

/// Feeds this many records to each partition, and three to the last one.
fn feed(bench: &Bench, records: usize) {
    let mut broker = bench.kafka.broker();
    for partition in 0..TASKS {
        let records = if partition == TASKS - 1 { 3 } else { records };
        let log = broker.input.entry(tp(partition)).or_default();
        log.extend(many(records));
    }
}

fn touched(bench: &Bench) -> Vec<i32> {
    let tasks = bench.worker.tasks.values();
    let touched = tasks.filter(|task| task.progress.touched());
    touched
        .map(|task| task.progress.task.partition.get())
        .collect()
}

#[test]
fn a_transaction_touches_few_tasks_with_a_backlog_and_the_next_one_others() {
    let mut bench = bench();
    let first = next(&mut bench);
    assert_eq!(first.len(), 8 + 1, "{first:?}");
    assert!(first.contains(&(TASKS - 1)), "a task without a backlog");

    let second = next(&mut bench);
    let again = second.iter().filter(|task| first.contains(task));
    assert_eq!(again.collect::<Vec<_>>(), [&(TASKS - 1)], "{second:?}");
}

#[test]
fn skipped_tasks_take_their_records_when_the_others_have_none() {
    let mut bench = bench();
    assert!(next(&mut bench).len() < TASKS as usize);
    let seen = touched(&bench).len();
    for _ in 0..TASKS {
        bench.step();
    }
    assert_eq!(touched(&bench).len(), seen, "a fetch may be under way");
    // Less than the interval, so this is one transaction.
    for _ in seen..TASKS as usize {
        bench.step();
        bench.clock.pass(Duration::from_millis(3));
        bench.step();
        bench.step();
    }
    assert_eq!(touched(&bench).len(), TASKS as usize);
    bench.settle();
    assert_eq!(bench.visible().len(), 2 * (100 * (TASKS as usize - 1) + 3));
    for partition in 0..TASKS - 1 {
        assert_eq!(bench.committed(partition), Some(200));
    }
}

/// Otherwise the commits of other tasks would hide a task whose transactions always fail.
#[test]
fn a_transaction_after_an_aborted_one_touches_the_same_tasks() {
    let mut bench = bench();
    let aborted = next(&mut bench);
    bench.fails(CallSite::Commit, abortable(code::INVALID_TXN_STATE));
    bench.worker.commit_now();
    bench.steps_until(|bench| touched(bench).is_empty());
    bench.steps_until(|bench| !touched(bench).is_empty());
    assert_eq!(touched(&bench), aborted);
    bench.settle();
    for partition in 0..TASKS - 1 {
        assert_eq!(bench.committed(partition), Some(200));
    }
}

#[test]
fn a_new_record_does_not_wait_for_tasks_whose_backlog_is_over() {
    let mut bench = bench();
    bench.worker.commit_now();
    bench.steps_until(|bench| bench.worker.state() == State::Idle);
    assert!(
        bench.worker.tasks.values().any(|task| task.has_backlog),
        "the backlogs are still known"
    );
    let last = TASKS - 2;
    bench.feed(last, &["new"]);
    while bench.worker.step().unwrap() == Step::Busy {}
    assert_eq!(touched(&bench), [last]);
}

#[test]
fn before_a_repartition_a_transaction_touches_all_tasks() {
    let mut bench = bench();
    bench.worker.shared.has_repartitions = true;
    feed(&bench, 100);
    bench.worker.commit_now();
    let is_through = |bench: &Bench, partition| bench.committed(partition) == Some(200);
    let with_backlog = 0..TASKS - 1;
    bench.steps_until(|bench| with_backlog.clone().any(|it| is_through(bench, it)));
    assert!(with_backlog.clone().all(|it| is_through(&bench, it)));
}
