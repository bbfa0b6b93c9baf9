//! The metrics of a worker after the events that they count.

use std::sync::{Barrier, mpsc};
use std::thread;

use eos_protocol::{Generation, Partition, StageId};

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_commit_is_counted_by_its_cause_and_its_phases_are_timed() {
    let mut bench = Bench::running();
    let before = bench.totals();
    assert_eq!(before.commits.by(CommitCause::FirstStart), 1);
    assert_eq!(before.commits.by(CommitCause::Interval), 1);
    assert_eq!((before.records_in, before.records_out), (3, 3));

    bench.feed(0, &["a", "b"]);
    // Each pending call is repeated one step later, after 50 ms.
    bench.pending(CallSite::SendOffsets, 1);
    bench.pending(CallSite::Flush, 3);
    bench.pending(CallSite::Commit, 2);
    bench.settle_exactly();

    let after = bench.totals();
    assert_eq!(after.commits.by(CommitCause::Interval), 2);
    assert_eq!(after.commits.total(), 3);
    assert_eq!((after.records_in, after.records_out), (5, 5));
    assert_eq!((after.aborts, after.rebuilds), (0, 0));
    let times = &after.commit_times;
    assert_eq!(
        times.seal.max,
        ms(50),
        "in the step after the one that saw it due"
    );
    assert_eq!(times.send_offsets.max, ms(50));
    assert_eq!(times.drain.max, ms(150), "beside the offsets");
    assert_eq!(times.commit.max, ms(100));
    assert_eq!(times.latency.stats().max, ms(300));
    let counts = [times.seal, times.send_offsets, times.drain, times.commit];
    assert!(counts.iter().all(|spent| spent.count == 3), "{times:?}");
}

#[test]
fn an_abort_is_counted_and_what_is_done_again_is_counted_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.next_flush_aborts();
    bench.settle_exactly();
    let totals = bench.totals();
    assert_eq!((totals.aborts, totals.rebuilds), (1, 0));
    assert_eq!(totals.records_in, 3 + 2 * 2);
    assert_eq!(totals.commits.total(), 3, "the abort is no commit");
    assert_eq!(totals.commit_times.latency.stats().count, 3);
}

#[test]
fn a_quarantined_producer_counts_as_rebuilt_though_its_commit_ended_well() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.kafka.broker().unanswered = true;
    bench.settle_exactly();
    let totals = bench.totals();
    assert_eq!((totals.rebuilds, totals.aborts), (1, 0));
    assert_eq!(totals.quarantines, 1);
}

/// An idle zombie is fenced at the begin of its next transaction.
#[test]
fn a_fence_is_counted_at_any_call() {
    for call in [CallSite::Begin, CallSite::Commit] {
        let mut bench = Bench::running();
        bench.feed(0, &["a"]);
        bench.fails(call, fatal(code::LOCAL_FENCED));
        assert_eq!(bench.totals().fences, 0);
        bench.settle_exactly();
        assert_eq!(bench.totals().fences, 1, "{call:?}");
    }
}

#[test]
fn a_transaction_in_doubt_is_timed_until_it_is_decided() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.done_but(CallSite::Commit, fatal(code::LOCAL_FENCED));
    bench.pending(CallSite::Init, 4);
    bench.settle_exactly();
    let totals = bench.totals();
    assert_eq!((totals.commits.total(), totals.aborts), (3, 0));
    assert_eq!((totals.rebuilds, totals.quarantines), (1, 0));
    let commit = totals.commit_times.commit.max;
    assert!(commit >= ms(200), "{commit:?}");
}

#[test]
fn an_open_transaction_has_an_age_until_it_is_settled() {
    let mut bench = Bench::running();
    assert_eq!(bench.metrics().open_for, None);
    bench.open(&["a"]);
    assert_eq!(bench.metrics().state, Some(State::Open));
    bench.clock.pass(ms(70));
    assert_eq!(bench.metrics().open_for, Some(ms(70)));
    bench.pending(CallSite::Commit, 2);
    bench.clock.pass(ms(30));
    bench.step();
    bench.clock.pass(ms(50));
    bench.step();
    assert_eq!(bench.metrics().state, Some(State::Committing));
    assert_eq!(bench.metrics().open_for, Some(ms(150)));
    bench.settle();
    let metrics = bench.metrics();
    assert_eq!((metrics.state, metrics.open_for), (Some(State::Idle), None));
}

#[test]
fn inputs_report_their_position_and_the_offsets_that_are_held_back() {
    let mut bench = Bench::new();
    bench.kafka.broker().held_back.insert(tp(0), 4);
    bench.kafka.broker().silent.insert(tp(1));
    bench.assign(&[0, 1]);
    bench.settle();
    let metrics = bench.metrics();
    assert_eq!(metrics.generation, Generation::new(7).ok());
    let ids: Vec<_> = metrics.tasks.iter().map(|task| task.id).collect();
    let task = |n| TaskId {
        stage: StageId(0),
        partition: Partition::new(n).unwrap(),
    };
    assert_eq!(ids, [task(0), task(1)]);
    let input = |n: usize| metrics.tasks[n].inputs[0].clone();
    assert_eq!((input(0).partition, input(0).next), (tp(0), offset(3)));
    // All readable records are processed, and yet the input is not at its end.
    assert_eq!((input(0).lag, input(0).held_back), (Some(4), Some(4)));
    assert_eq!((input(1).lag, input(1).held_back), (None, None));
}

#[test]
fn what_waits_is_lag_and_a_partition_that_went_is_gone() {
    let mut bench = Bench::running();
    // The producer's queue is full, so only the first record is processed.
    bench.pending(CallSite::Send, 30);
    bench.feed(0, &["a", "b", "c"]);
    bench.steps(15);
    let input = bench.metrics().tasks[0].inputs[0].clone();
    assert_eq!((input.next, input.lag), (offset(4), Some(2)));
    bench.settle();
    assert_eq!(bench.metrics().tasks[0].inputs[0].lag, Some(0));

    // Records that another producer's transaction holds back add to the lag of the waiting records.
    bench.kafka.broker().held_back.insert(tp(0), 3);
    bench.pending(CallSite::Send, 30);
    bench.feed(0, &["d", "e"]);
    bench.steps(15);
    let input = bench.metrics().tasks[0].inputs[0].clone();
    assert_eq!((input.next, input.lag), (offset(7), Some(1 + 3)));
    bench.kafka.broker().held_back.clear();
    bench.settle();
    assert_eq!(bench.metrics().tasks[0].inputs[0].lag, Some(0));

    bench.revoke(0, false);
    bench.settle();
    let metrics = bench.metrics();
    assert!(metrics.tasks.is_empty());
    assert_eq!(metrics.totals.rebalances, 2);
}

/// A scraper reads from another thread. The worker is in the closure meanwhile and stores nothing.
#[test]
fn ages_grow_while_a_closure_hangs() {
    let (begun, over) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (clock, (sender, receiver)) = (Clock::default(), mpsc::channel());
    let worker = thread::spawn({
        let (clock, begun, over) = (clock.clone(), Arc::clone(&begun), Arc::clone(&over));
        move || {
            let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, |app| {
                app.source(&text("in"))
                    .map(move |value| {
                        if value == "hang" {
                            begun.wait();
                            over.wait();
                        }
                        value
                    })
                    .to(&Topic::plain("out"));
            });
            bench.assign(&[0]);
            bench.settle();
            sender.send(Arc::clone(&bench.worker.shared.meter)).unwrap();
            bench.feed(0, &["a", "hang"]);
            bench.step();
        }
    });
    let meter = receiver.recv().unwrap();
    let read = || meter.read(clock.env().now());
    begun.wait();
    let before = read();
    clock.pass(Duration::from_secs(3));
    let after = read();
    over.wait();
    worker.join().unwrap();

    assert_eq!(before.state, Some(State::Open));
    // `settle` lets time pass after its last step.
    assert_eq!(before.last_step, Some(ms(50)));
    assert_eq!(after.last_step, Some(ms(3_050)));
    assert_eq!(before.open_for, Some(ms(0)));
    assert_eq!(after.open_for, Some(ms(3_000)));
    assert_eq!(read().last_step, Some(ms(0)), "it is through");
}

#[test]
fn the_first_step_has_an_age_too() {
    let bench = Bench::new();
    bench.clock.pass(ms(70));
    assert_eq!(bench.metrics().last_step, Some(ms(70)), "since it was made");
}

fn offset(n: i64) -> Offset {
    Offset::new(n).unwrap()
}
