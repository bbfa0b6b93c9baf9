//! Assigned and revoked partitions, and the offsets at which reads begin.

use super::*;
use crate::global::GlobalTables;

#[test]
fn rule_10_a_first_start_is_committed_before_the_first_record() {
    let mut bench = Bench::new();
    bench.assign(&[0]);
    while bench.committed(0).is_none() {
        bench.step();
        assert!(bench.visible().is_empty());
        bench.clock.pass(Duration::from_millis(1));
    }
    assert_eq!(bench.committed(0), Some(0));
    let calls = bench.kafka.calls();
    assert!(place(&calls, "commit") < place(&calls, "send"), "{calls:?}");
}

#[test]
fn rule_8_an_abort_rewinds_and_what_was_aborted_is_done_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.next_flush_aborts();
    bench.settle_exactly();
    let calls = bench.kafka.calls();
    assert_order(&calls, &["abort", "seek in-0@3", "commit"]);
}

#[test]
fn rule_8_a_task_takes_nothing_before_its_seek_is_confirmed() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.next_flush_aborts();
    bench.pending(CallSite::Seek, 5);
    bench.settle_exactly();
}

#[test]
fn rule_8_a_seek_that_comes_too_early_becomes_an_assignment() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.next_flush_aborts();
    bench.kafka.answer(CallSite::Seek, [too_early()]);
    bench.settle_exactly();
    bench.assert_called("assign in-0@3");
}

#[test]
fn rule_8_a_record_left_over_from_before_the_rewind_is_not_taken_for_the_first() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b", "c"]);
    bench.kafka.broker().late_seeks = 1;
    bench.next_flush_aborts();
    bench.settle();
    assert_eq!(bench.kafka.broker().late_seeks, 0, "the fault has fired");
    bench.assert_exact();
}

#[test]
fn rule_4_a_revoke_commits_first_and_unassigns_last() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    assert_eq!(bench.kafka.calls(), ["begin", "send"]);
    bench.revoke(0, false);
    bench.settle_exactly();
    let calls = bench.kafka.calls();
    assert_eq!(
        calls,
        ["send_offsets", "flush", "commit", "unassign [in-0]"]
    );
}

#[test]
fn rule_4_a_loss_aborts_and_the_successor_does_it_again() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.kafka.calls();
    bench.revoke(0, true);
    bench.settle();
    assert_eq!(bench.kafka.calls(), ["abort", "unassign [in-0]"]);
    assert_eq!(bench.committed(0), Some(3));
    bench.assign(&[0]);
    bench.settle_exactly();
}

#[test]
fn rule_4_a_revoke_is_answered_even_if_the_commit_hangs() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.pending(CallSite::Flush, 10_000);
    bench.pending(CallSite::Abort, 10_000);
    bench.revoke(0, false);
    bench.steps(600);
    bench.assert_called("unassign [in-0]");
}

#[test]
fn a_retained_partition_is_rewound_too() {
    let mut bench = Bench::running_both();
    bench.feed(0, &["a"]);
    bench.feed(1, &["b"]);
    bench.step();
    bench.kafka.calls();
    bench.revoke(1, true);
    bench.settle();
    bench.assert_called("seek in-0@3");
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(4), Some(3)));
    assert_eq!(times(&bench.visible(), "A"), 1);
}

/// librdkafka treats the next (un)assign of any partition as the response to the revocation.
#[test]
fn rule_4_a_rewind_does_not_answer_a_revocation_that_waits() {
    let mut bench = Bench::running_both();
    bench.feed(0, &["a"]);
    bench.next_flush_aborts();
    let too_early = Answer::Fails(Fault::plain(code::LOCAL_STATE));
    bench.kafka.answer(CallSite::Seek, [too_early; 2]);
    bench.steps_until(|bench| !bench.worker.group.seeks.are_empty());
    bench.kafka.calls();
    bench.revoke(1, false);
    bench.settle();
    let calls = bench.kafka.calls();
    assert_order(
        &calls,
        &["unassign [in-1]", "unassign [in-0]", "assign in-0@3"],
    );
    assert_eq!(bench.committed(0), Some(4));
}

#[test]
fn an_offset_below_the_log_is_found_before_the_first_fetch() {
    let mut bench = Bench::new();
    bench.kafka.broker().first = 2;
    let committed = (1, String::new());
    bench.kafka.broker().committed.insert(tp(0), committed);
    bench.assign(&[0]);
    let error = bench.end_with(|e| matches!(e, WorkerError::OffsetOutOfRange { .. }));
    assert!(error.contains("is 1, but the log has 2 to 3"), "{error}");
}

#[test]
fn what_is_revoked_before_it_started_is_given_back() {
    let mut bench = Bench::new();
    bench.kafka.broker().unstable.insert(tp(0));
    bench.assign(&[0]);
    bench.step();
    bench.revoke(0, false);
    bench.settle();
    bench.assert_called("unassign [in-0]");
    assert!(bench.worker.tasks.is_empty());
}

/// The transaction of a dead peer delays its own partitions, and not those that were assigned with them.
#[test]
fn the_stable_ones_of_an_assignment_start_at_once() {
    let mut bench = Bench::new();
    bench.kafka.broker().unstable.insert(tp(1));
    bench.assign(&[0, 1]);
    bench.settle();
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(3), None));
    bench.kafka.broker().unstable.clear();
    bench.settle();
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(3), Some(3)));
    assert_eq!(bench.visible().len(), 6);
}

#[test]
fn offsets_that_never_become_stable_end_with_an_error() {
    let mut bench = Bench::new();
    bench.kafka.broker().unstable.insert(tp(0));
    bench.assign(&[0]);
    bench.step();
    let error = bench.end_after(Duration::from_secs(61));
    assert_error(&error, |e| matches!(e, WorkerError::OffsetsUnstable { .. }));
}

/// After each rewind a later record comes first, although the log still has the earlier one.
#[test]
fn rule_8_a_record_that_the_client_skips_stops_the_app() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.kafka.broker().late_seeks = 9;
    bench.next_flush_aborts();
    let error = bench.end().unwrap_err();
    assert!(
        matches!(error, WorkerError::RecordsSkipped { expected, got, .. }
            if (expected.get(), got.get()) == (3, 4)),
        "{error}"
    );
    assert_eq!(bench.visible().len(), 3, "nothing behind the gap");
    assert!(bench.kafka.broker().late_seeks < 8, "the fault has fired");
}

/// The same, but the log now begins behind the record, or may have lost it to compaction.
#[test]
fn rule_8_a_record_that_is_deleted_before_it_comes_again_is_left_out() {
    for compacted in [false, true] {
        let mut bench = Bench::running();
        bench.feed(0, &["a", "b"]);
        bench.kafka.broker().late_seeks = 9;
        if compacted {
            bench.worker.shared.spec.compacted.insert("in".into());
        } else {
            bench.kafka.broker().starts.insert(tp(0), 4);
        }
        bench.next_flush_aborts();
        bench.settle();
        let last = bench.visible().pop();
        assert_eq!(last.as_deref(), Some("B"));
        assert_eq!(bench.visible().len(), 4, "compacted: {compacted}");
        assert_eq!(bench.committed(0), Some(5));
    }
}

/// An outage of any length passes by itself: time without brokers does not count.
#[test]
fn offsets_are_waited_for_while_no_broker_answers() {
    let mut bench = Bench::new();
    bench.kafka.broker().unstable.insert(tp(0));
    bench.begun(&[tp(0)]);
    bench.assign(&[0]);
    bench.kafka.broker().away = true;
    for _ in 0..100 {
        bench.step();
        bench.clock.pass(Duration::from_secs(10));
    }
    bench.kafka.broker().away = false;
    bench.kafka.broker().unstable.clear();
    bench.settle_exactly();
}

/// The query for topics may fail permanently while others succeed. Brokers that respond to any query are not away.
#[test]
fn a_deadline_runs_while_brokers_answer_any_query() {
    let mut bench = Bench::new();
    let mut spec = spec(0, Guarantee::ExactlyOnce);
    spec.first_start = FirstStart::Latest;
    bench.replace(spec, shout);
    bench.kafka.broker().away = true;
    bench.kafka.broker().unstable.insert(tp(1));
    bench.assign(&[1]);
    // Each response has the offset of partition 0, the eldest, and lacks that of partition 1.
    let error = bench.end_after(Duration::from_secs(400));
    assert_error(&error, |e| matches!(e, WorkerError::OffsetsUnstable { .. }));
}

/// A coordinator that resigns reports no offset for a moment (KAFKA-20416).
#[test]
fn an_offset_that_is_missing_for_a_moment_does_not_start_a_task_over() {
    let mut bench = Bench::running();
    let before = bench.kafka.broker().committed.clone();
    bench.replace(spec(0, Guarantee::ExactlyOnce), shout);
    bench.kafka.broker().committed.clear();
    bench.assign(&[0]);
    bench.steps(10);
    bench.kafka.broker().committed = before;
    bench.settle_exactly();
}

/// After a failed read of a global table, the next start must not resolve "latest" again.
#[test]
fn a_first_start_is_committed_before_the_global_tables_are_read() {
    let mut bench = Bench::new();
    let mut spec = spec(0, Guarantee::ExactlyOnce);
    spec.first_start = FirstStart::Latest;
    let globals = Arc::new(GlobalTables::of(std::iter::once("rates".into())));
    spec.globals = Arc::clone(&globals);
    bench.replace(spec, shout);
    bench.assign(&[0]);
    bench.settle();
    let claimed = bench.committed(0);
    assert!(claimed.is_some(), "the start is committed");
    bench.feed(0, &["after"]);
    bench.settle();
    assert_eq!(bench.committed(0), claimed, "no record is taken");
    globals.open(std::iter::empty());
    bench.settle();
    assert!(bench.committed(0) > claimed);
}

/// While a task waits for a missing offset, the tasks that have their offsets continue.
#[test]
fn a_missing_offset_holds_no_other_task_up() {
    let mut bench = Bench::new();
    bench.begun(&[tp(1)]);
    bench.assign(&[0, 1]);
    bench.steps(10);
    assert_eq!((bench.committed(0), bench.committed(1)), (None, Some(3)));
    bench.settle();
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(3), Some(3)));
}

#[test]
fn a_leader_that_is_away_for_a_moment_delays_a_start_and_no_more() {
    let mut bench = Bench::new();
    let away = |code| bench.fails(CallSite::Bounds, Fault::plain(code));
    away(code::LOCAL_UNKNOWN_PARTITION);
    bench.pending(CallSite::Bounds, 1);
    away(code::OFFSET_NOT_AVAILABLE);
    bench.begun(&[tp(0)]);
    bench.assign(&[0]);
    for _ in 0..20 {
        bench.step();
    }
    let left = |bench: &Bench| bench.kafka.broker().script[&CallSite::Bounds].len();
    assert_eq!(left(&bench), 2, "asked again after a pause, not at once");
    bench.settle();
    assert_eq!(left(&bench), 0, "the fault has fired");
    bench.assert_exact();
}

#[test]
fn a_log_without_reported_bounds_ends_at_the_last_known_ones() {
    let mut bench = Bench::new();
    let away = Answer::Fails(Fault::plain(code::LEADER_NOT_AVAILABLE));
    bench.kafka.answer(CallSite::Bounds, [away; 9]);
    bench.assign(&[0]);
    bench.begun(&[tp(0)]);
    bench.step();
    bench.step();
    let error = bench.end_after(Duration::from_secs(61));
    assert!(
        matches!(&error, WorkerError::Client(e) if e.call == CallSite::Bounds),
        "{error}"
    );
}

#[test]
fn a_partition_revoked_while_its_bounds_are_queried_never_starts() {
    let mut bench = Bench::new();
    bench.pending(CallSite::Bounds, 5);
    bench.begun(&[tp(0), tp(1)]);
    bench.assign(&[0, 1]);
    bench.step();
    bench.step();
    bench.revoke(0, false);
    bench.settle();
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(0), Some(3)));
    bench.assert_called("unassign [in-0]");
}

/// Returns a worker with two partitions, of which the first is about to rewind.
fn rewinding() -> Bench {
    let mut bench = Bench::running_both();
    bench.feed(0, &["a"]);
    bench.next_flush_aborts();
    bench.steps_until(|bench| !bench.worker.group.seeks.are_empty());
    bench.kafka.calls();
    bench
}

fn too_early() -> Answer {
    Answer::Fails(Fault::plain(code::LOCAL_STATE))
}

/// The client may have a revocation that it has not reported yet. A new assignment would count as its response.
#[test]
fn rule_4_nothing_is_reassigned_while_a_transaction_is_open() {
    let mut bench = rewinding();
    bench.feed(1, &["b"]);
    bench.pending(CallSite::Seek, 1);
    while bench.worker.state() != State::Open {
        bench.step();
        bench.kafka.answer(CallSite::Seek, [too_early()]);
    }
    bench.kafka.answer(CallSite::Seek, [too_early(); 30]);
    bench.kafka.calls();
    bench.settle();
    let calls = bench.kafka.calls();
    assert_order(&calls, &["commit", "unassign [in-0]"]);
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(4), Some(4)));
}

#[test]
fn rule_8_a_partition_goes_back_however_busy_the_others_are() {
    let mut bench = rewinding();
    bench.feed(1, &["b"]);
    bench.pending(CallSite::Seek, 1);
    bench.kafka.answer(CallSite::Seek, [too_early(); 100]);
    for _ in 0..50 {
        bench.feed(1, &["more"]);
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    assert_eq!(bench.committed(0), Some(4));
}

#[test]
fn rule_4_responses_that_assigning_again_may_have_caused_are_read_before_the_next_begin() {
    let mut bench = rewinding();
    bench.feed(1, &["b"]);
    bench.kafka.answer(CallSite::Seek, [too_early()]);
    bench.kafka.broker().revoked_in_seek = Some(tp(1));
    bench.settle();
    let calls = bench.kafka.calls();
    assert_order(&calls, &["assign in-0@3", "unassign [in-1]", "begin"]);
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(4), Some(3)));
}
