//! The ends of a worker: requested stops and errors.

use super::super::group::JOIN;
use super::*;

#[test]
fn a_record_that_fails_leaves_no_trace_and_what_came_before_it_counts() {
    for bad in ["poison", "panic"] {
        let mut bench = Bench::running();
        bench.feed(0, &["good", bad, "never"]);
        let error = bench.end_with(|e| matches!(e, WorkerError::Record { .. }));
        assert!(error.contains("record 4 of in-0"), "{error}");
        let committed = bench.committed(0);
        assert_eq!(committed, Some(4), "a restart begins with the bad record");
        assert_eq!(bench.visible().last().map(String::as_str), Some("GOOD"));
    }
}

#[test]
fn an_offset_that_is_gone_names_the_log_and_the_way_out() {
    // If the requested offset is unknown, it may be the worker's own one.
    for asked in [1_000, -1001] {
        let mut bench = Bench::running();
        bench.receives(out_of_range(tp(0), asked));
        let error = bench.end_with(|e| matches!(e, WorkerError::OffsetOutOfRange { .. }));
        assert!(error.contains("--group app --topic in-0"), "{error}");
    }
}

/// Commands for the consumer group do not change the positions in a ledger.
#[test]
fn offset_errors_name_the_storage_of_the_position() {
    let gone = |in_ledger| {
        let offset = |n| Offset::new(n).unwrap();
        let error = WorkerError::OffsetOutOfRange {
            partition: tp(0),
            group: "app".to_owned(),
            in_ledger,
            wanted: offset(5),
            first: offset(17),
            end: offset(90),
        };
        error.to_string()
    };
    assert!(gone(false).contains("--group app --topic in-0"));
    let text = gone(true);
    assert!(text.ends_with("set the position in its ledger"), "{text}");
    let unstable = |last| {
        let (partitions, waited_s) = (2, 60);
        let error = WorkerError::OffsetsUnstable {
            partitions,
            waited_s,
            last,
        };
        error.to_string()
    };
    let failed = |code| Some(ClientError::new(CallSite::Committed, code, "its text"));
    for last in [None, failed(code::UNSTABLE_OFFSET_COMMIT)] {
        let text = unstable(last);
        assert!(text.contains("kafka-transactions.sh list"), "{text}");
    }
    let text = unstable(failed(code::NETWORK_EXCEPTION));
    assert!(
        text.contains("its text") && !text.contains("kafka-transactions"),
        "{text}"
    );
}

#[test]
fn a_permanent_error_stops_with_the_transaction_aborted() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    let denied = abortable(code::TOPIC_AUTHORIZATION_FAILED);
    bench.fails(CallSite::Flush, denied);
    let error = bench.end().unwrap_err().to_string();
    assert!(error.starts_with("Kafka refused: flushing"), "{error}");
    bench.assert_called("abort");
    assert_eq!(bench.committed(0), Some(3));
}

#[test]
fn endless_fencing_ends_with_an_error_that_names_the_fix() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    let fenced = Answer::Fails(fatal(code::LOCAL_FENCED));
    bench.kafka.answer(CallSite::Send, [fenced; 50]);
    let error = bench.end_with(|e| matches!(e, WorkerError::TwoOwners { .. }));
    assert!(error.contains("delete the file `instance`"), "{error}");
}

#[test]
fn a_restart_stop_commits_and_keeps_the_membership() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.kafka.calls();
    bench.worker.stop(StopMode::Restart);
    bench.end().unwrap();
    bench.assert_exact();
    let calls = bench.kafka.calls();
    assert_eq!(calls, ["send_offsets", "flush", "commit", "close"]);
}

/// The stop also waits for the LeaveGroup, because librdkafka sends none for a static member that has begun to close.
/// In the full kill test, the partitions of such a member stood still for 32 s.
#[test]
fn a_leaving_stop_answers_its_own_revocation_before_it_closes() {
    let mut bench = Bench::running();
    bench.worker.stop(StopMode::Leave);
    bench.end().unwrap();
    let calls = bench.kafka.calls();
    assert_eq!(calls, ["unsubscribe", "unassign [in-0]", "leave", "close"]);
}

/// The worker may be a member from its last run, and only a worker that has joined can leave. In the kill test, a
/// process that left right after a restart held two partitions for 30 s.
#[test]
fn one_who_is_asked_to_leave_before_it_has_joined_joins_first() {
    let mut bench = Bench::new();
    bench.worker.stop(StopMode::Leave);
    for _ in 0..3 {
        bench.step();
    }
    bench.assert_not_called("unsubscribe");
    bench.assign(&[]);
    bench.end().unwrap();
    let calls = bench.kafka.calls();
    assert_eq!(
        calls,
        ["assign ", "unsubscribe", "unassign []", "leave", "close"]
    );
}

/// Two workers run on one thread with one clock. The first one waits for an offset that another producer's open
/// transaction holds, and its other task continues.
#[test]
fn a_worker_that_waits_for_stable_offsets_stops_no_other() {
    let mut bench = Bench::running();
    bench.kafka.broker().unstable.insert(tp(1));
    bench.assign(&[1]);
    bench.feed(0, &["a"]);
    let spec = spec(1, Guarantee::AtLeastOnce);
    let mut second = new_worker(&bench.kafka, &bench.clock, spec, shout);
    for _ in 0..20 {
        bench.step();
        second.step().unwrap();
        bench.clock.pass(Duration::from_millis(20));
    }
    bench.assert_exact();
    assert_eq!(bench.committed(1), None, "still waiting");
    bench.kafka.broker().unstable.clear();
    bench.settle();
    assert_eq!(bench.committed(1), Some(3));
}

/// The group may be waiting for members that are dead.
#[test]
fn a_close_that_does_not_end_is_abandoned() {
    let mut bench = Bench::running();
    bench.pending(CallSite::Close, 10_000);
    bench.worker.stop(StopMode::Restart);
    let before = bench.clock.env().now();
    bench.end().unwrap();
    let took = bench.clock.env().now().since(before);
    assert!(took >= JOIN && took < JOIN * 2, "{took:?}");
}

/// The abort after this error also fails if nothing of the transaction has arrived yet (librdkafka #4849). The operator
/// has to grant a permission, so the first error is reported.
#[test]
fn the_error_that_needs_an_operator_is_reported_and_not_later_failures() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    let denied = abortable(code::GROUP_AUTHORIZATION_FAILED);
    bench.fails(CallSite::SendOffsets, denied);
    bench.fails(CallSite::Abort, fatal(code::INVALID_TXN_STATE));
    let error = bench.end().unwrap_err().to_string();
    assert!(error.contains("--add --operation Read --group"), "{error}");
}
