//! The content of a transaction, and its end.

use super::*;

#[test]
fn records_go_through_and_their_offsets_commit_with_them() {
    let mut bench = Bench::running();
    bench.assert_exact();
    let (_, metadata) = bench.kafka.broker().committed[&tp(0)].clone();
    assert!(metadata.starts_with("eos1;"), "{metadata}");
    // Width 2, second transaction.
    assert!(metadata.contains(";2;2;"), "{metadata}");
    bench.take(&["more"]);
    bench.assert_exact();
    assert_eq!(
        bench.kafka.calls(),
        ["begin", "send", "send_offsets", "flush", "commit"],
        "one transaction, offsets sent while the outputs drain"
    );
}

impl Bench {
    /// Commits "a". This call stays pending for 2 ms.
    fn commit_within_2_ms(&mut self, call: CallSite) {
        self.open(&["a"]);
        self.pending(call, 1);
        self.clock.pass(Duration::from_millis(100));
        self.step();
        self.step();
        self.clock.pass(Duration::from_millis(2));
        self.step();
    }
}

/// A worker that has committed a transaction of "a", for which it waited 2 ms.
fn committed_within_2_ms() -> Bench {
    let mut bench = Bench::running();
    bench.commit_within_2_ms(CallSite::Commit);
    assert_eq!(bench.kafka.calls().last().unwrap(), "commit");
    bench
}

/// A broker rejects requests before the markers are written, and librdkafka retries only after 20 ms.
#[test]
fn the_next_transaction_begins_once_the_markers_of_the_last_one_should_be_written() {
    let mut bench = committed_within_2_ms();
    bench.feed(0, &["b"]);
    for left in (1..=6).rev() {
        let left = Duration::from_millis(left);
        assert_eq!(bench.worker.step().unwrap(), Step::Idle(left));
        assert!(bench.kafka.calls().is_empty(), "three times as long");
        bench.clock.pass(Duration::from_millis(1));
    }
    bench.step();
    assert_eq!(bench.kafka.calls(), ["begin", "send"]);
    bench.settle_exactly();
}

/// Only the end of this wait wakes a worker whose queues have records, because a queue signals only when it becomes
/// non-empty.
#[test]
fn a_wait_for_markers_never_takes_longer_whenever_the_clock_is_read() {
    for late in (0..6_000).step_by(100) {
        let mut bench = committed_within_2_ms();
        bench.feed(0, &["b"]);
        bench.clock.pass(Duration::from_micros(late));
        bench.clock.tick();
        let begun = (0..100).any(|_| {
            if let Step::Idle(nap) = bench.worker.step().unwrap() {
                assert!(nap <= Duration::from_millis(6), "{nap:?}, {late} µs on");
            }
            !bench.kafka.calls().is_empty()
        });
        assert!(begun, "{late} µs on");
    }
}

/// Otherwise the next commit would seem to be free, and would come too soon.
#[test]
fn what_is_waited_for_markers_is_a_part_of_what_a_commit_costs() {
    let before = Bench::running().worker.txn.pace.cost();
    let mut bench = committed_within_2_ms();
    let took = Duration::from_millis(2 + 3 * 2);
    // One commit counts for an eighth.
    assert_eq!(bench.worker.txn.pace.cost(), (before * 7 + took) / 8);

    // Each reading of the clock takes 100 µs from now on.
    bench.clock.tick();
    bench.worker.wait(Duration::ZERO);
    let idle = bench.worker.txn.pace.idle();
    assert_eq!(idle, Duration::ZERO, "records may be there");
    bench.clock.pass(Duration::from_millis(6));
    bench.worker.wait(Duration::ZERO);
    assert_eq!(bench.worker.txn.pace.idle(), Duration::from_micros(100));
}

#[test]
fn a_revocation_does_not_wait_for_markers() {
    let mut bench = committed_within_2_ms();
    bench.revoke(0, false);
    bench.step();
    bench.step();
    assert!(bench.worker.tasks.is_empty(), "{:?}", bench.worker);
}

#[test]
fn without_transactions_there_are_no_markers_to_wait_for() {
    let mut bench = Bench::started(Guarantee::AtLeastOnce, shout);
    bench.kafka.calls();
    bench.commit_within_2_ms(CallSite::ConsumerCommit);
    bench.kafka.calls();
    bench.feed(0, &["b"]);
    bench.step();
    assert_eq!(bench.kafka.calls(), ["send"]);
}

#[test]
fn rule_1_an_idle_worker_holds_nothing_open() {
    let mut bench = Bench::running();
    bench.settle();
    assert!(bench.kafka.calls().is_empty());
}

#[test]
fn rule_1_a_filter_that_drops_everything_still_commits_its_progress() {
    let bench = Bench::started(Guarantee::ExactlyOnce, |app| {
        app.source(&text("in"))
            .filter(|_| false)
            .to(&Topic::plain("out"));
    });
    assert!(bench.visible().is_empty());
    assert_eq!(bench.committed(0), Some(3));
}

/// A failure while a task processes a record must rewind that same task.
#[test]
fn a_producer_that_is_fenced_while_sending_loses_nothing() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.fails(CallSite::Send, fatal(code::LOCAL_FENCED));
    bench.settle_exactly();
    bench.assert_called("new producer");
}

#[test]
fn a_full_queue_neither_loses_nor_doubles_an_output() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b", "c"]);
    bench.pending(CallSite::Send, 3);
    bench.settle_exactly();
}

#[test]
fn rule_3_an_unfenced_membership_is_never_sent() {
    let mut bench = Bench::running();
    for bad in [(-1, ""), (-1, "m"), (3, "")] {
        bench.kafka.broker().membership = Some((bad.0, bad.1.to_owned()));
        bench.feed(0, &["a"]);
        bench.settle_without_commit();
        bench.kafka.broker().membership = None;
        bench.settle_exactly();
    }
}

#[test]
fn at_least_once_repeats_what_was_not_acknowledged() {
    let mut bench = Bench::started(Guarantee::AtLeastOnce, shout);
    bench.feed(0, &["a", "b"]);
    bench.kafka.calls();
    bench.done_but(CallSite::Flush, abortable(-192));
    bench.settle();
    let calls = bench.kafka.calls();
    assert_ne!(times(&calls, "seek in-0@3"), 0, "{calls:?}");
    assert_ne!(times(&calls, "new producer"), 0, "{calls:?}");
    assert_eq!(times(&bench.visible(), "A"), 2, "doubled, as promised");
    assert_eq!(bench.committed(0), Some(5));
}

#[test]
fn rule_6_a_commit_in_doubt_that_did_happen_counts_once() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.done_but(CallSite::Commit, fatal(code::LOCAL_FENCED));
    bench.settle_exactly();
    bench.assert_called("new producer");
}

/// librdkafka reports a response that it can't read as abortable, but the broker may have committed.
#[test]
fn rule_5_an_abortable_response_to_a_commit_does_not_prove_that_it_failed() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.done_but(CallSite::Commit, abortable(-1));
    bench.settle_exactly();
    bench.assert_not_called("abort");
}

#[test]
fn rule_6_a_commit_in_doubt_that_did_not_happen_is_done_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.fails(CallSite::Commit, fatal(code::LOCAL_FENCED));
    bench.settle_exactly();
}

#[test]
fn rule_6_a_commit_that_never_answers_is_decided_by_the_next_producer() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.pending(CallSite::Commit, 230);
    bench.steps(300);
    bench.kafka.broker().script.clear();
    bench.settle_exactly();
    // Rule 5.
    bench.assert_not_called("abort");
}

#[test]
fn rule_7_an_unanswered_request_replaces_the_producer_before_the_next_begin() {
    let mut bench = Bench::running();
    bench.open(&["a"]);
    bench.kafka.broker().unanswered = true;
    bench.settle();
    bench.take(&["b"]);
    bench.assert_exact();
    let calls = bench.kafka.calls();
    assert_eq!(times(&calls, "begin"), 2);
    let last = calls.iter().rposition(|c| c == "begin");
    assert!(last > Some(place(&calls, "new producer")), "{calls:?}");
}

/// A late request of the new producer's init would affect the transaction that begins right after the verdict.
#[test]
fn rule_7_an_unanswered_init_replaces_the_producer_that_decided_a_doubt() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.done_but(CallSite::Commit, fatal(code::LOCAL_FENCED));
    bench.pending(CallSite::Committed, 4);
    bench.steps_until(|bench| times(&bench.kafka.broker().calls, "new producer") > 0);
    bench.kafka.broker().unanswered = true;
    bench.take(&["c"]);
    bench.assert_exact();
    let calls = bench.kafka.calls();
    let made: Vec<usize> = (0..calls.len())
        .filter(|&at| calls[at] == "new producer")
        .collect();
    assert_eq!(made.len(), 2, "{calls:?}");
    let between = &calls[made[0]..made[1]];
    assert_eq!(times(between, "begin"), 0, "{calls:?}");
}

#[test]
fn rule_11_at_least_once_commits_through_the_consumer_after_everything_is_acknowledged() {
    let mut bench = Bench::with(Guarantee::AtLeastOnce, shout);
    bench.assign(&[0]);
    bench.settle_exactly();
    let calls = bench.kafka.calls();
    for call in ["init", "begin", "send_offsets", "commit"] {
        assert_eq!(times(&calls, call), 0, "{call}");
    }
    assert!(
        calls.ends_with(&["flush".into(), "consumer commit".into()]),
        "{calls:?}"
    );
}

#[test]
fn the_very_first_record_may_fail_too() {
    let mut bench = Bench::running();
    bench.feed(0, &["poison"]);
    bench.end_with(|e| matches!(e, WorkerError::Record { .. }));
    assert_eq!(bench.committed(0), Some(3));
}

/// The records before a slow record are committed before its effects join a transaction, however many they are. Two
/// slow records in a row are never in one transaction.
#[test]
fn a_slow_record_costs_no_abort_of_what_came_before_it() {
    let clock = Clock::default();
    let slow = clock.clone();
    let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, move |app| {
        let slow = slow.clone();
        app.source(&text("in"))
            .map(move |v| {
                if v.starts_with("slow") {
                    slow.pass(Duration::from_secs(25));
                }
                v
            })
            .to(&Topic::plain("out"));
    });
    bench.feed(0, &["slow1", "slow2", "quick"]);
    bench.assign(&[0]);
    bench.settle();
    assert_eq!(bench.committed(0), Some(6));
    let mut calls = bench.kafka.calls();
    calls.retain(|call| matches!(&call[..], "begin" | "send" | "commit" | "abort"));
    assert_eq!(
        calls.join(" "),
        "begin commit begin send send send commit begin send commit begin send send commit",
        "the start offset; three; slow1; slow2 and what fits behind it"
    );
    assert_eq!(bench.visible().len(), 6);
}

/// The broker removes offsets that were not committed for a week.
#[test]
fn offsets_of_an_idle_task_are_committed_daily_as_they_are() {
    let mut bench = Bench::running();
    let before = bench.kafka.broker().committed[&tp(0)].clone();
    bench.kafka.broker().committed.clear();
    bench.clock.pass(Duration::from_secs(23 * 60 * 60));
    bench.settle();
    assert_eq!(bench.committed(0), None);
    bench.clock.pass(Duration::from_secs(60 * 60));
    bench.settle();
    let after = bench.kafka.broker().committed[&tp(0)].clone();
    assert_eq!(after, before, "name and all");
    bench.take(&["more"]);
    bench.assert_exact();
}

/// The record counts as taken, but its outputs are not in the producer.
#[test]
fn an_output_that_is_refused_aborts_whatever_the_error_says_of_itself() {
    let mut bench = Bench::running();
    let passing = Fault {
        retriable: true,
        ..Fault::plain(-1)
    };
    bench.fails(CallSite::Send, passing);
    bench.take(&["a", "b"]);
    bench.assert_exact();
}

/// The rest of an interrupted call can be mistaken for the outcome of another call.
#[test]
fn a_commit_is_one_call_with_all_the_time_there_is() {
    let mut bench = Bench::running();
    bench.take(&["a"]);
    let limits = bench.worker.shared.spec.limits;
    let given = bench.kafka.broker().last_commit_slice;
    let all = given > limits.end_floor() && given <= limits.commit;
    assert!(all, "{given:?}");
}

/// A server without free connections gets fewer attempts the longer it refuses them.
#[test]
fn a_failing_init_is_repeated_less_often() {
    let mut bench = Bench::new();
    let refused = Answer::Fails(Fault::plain(code::LEDGER_UNAVAILABLE));
    bench.kafka.answer(CallSite::Init, vec![refused; 8]);
    let mut waited = 0_u64;
    while !bench.kafka.calls().contains(&"init".to_owned()) {
        bench.step();
        bench.clock.pass(Duration::from_millis(1));
        waited += 1;
        assert!(waited < 10_000, "the worker has no producer");
    }
    // Eight pauses, each between half of its longest time and all of it.
    let longest = [10, 20, 40, 80, 160, 320, 640, 1_000].iter().sum::<u64>();
    let allowed = longest / 2..=longest + 20;
    assert!(allowed.contains(&waited), "{waited} ms");
    bench.assign(&[0]);
    bench.settle_exactly();
}
