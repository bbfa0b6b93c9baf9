//! Records that can't be processed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{Backoff, ErrorPolicy, Record};

const SECOND: Duration = Duration::from_secs(1);

/// An app with this policy that converts values to upper case. The value `bad` fails.
fn picky(policy: impl Into<ErrorPolicy>) -> impl FnOnce(&mut App) {
    let policy = policy.into();
    move |app| {
        app.source(&text("in"))
            .on_error(policy)
            .try_map(|v| match &v[..] {
                "bad" => Err("not good".into()),
                "panic" => panic!("at the disco"),
                "large" => Ok("x".repeat(1000)),
                _ => Ok::<_, Failure>(v.to_uppercase()),
            })
            .to(&Topic::plain("out"));
    }
}

fn bench(policy: impl Into<ErrorPolicy>, values: &[&str]) -> Bench {
    let bench = Bench::with(Guarantee::ExactlyOnce, picky(policy));
    bench.kafka.broker().input.insert(tp(0), texts(values));
    bench.assign(&[0]);
    bench
}

#[test]
fn skipped_records_are_committed_as_if_they_had_been_processed() {
    let mut bench = bench(
        ErrorPolicy::skip(),
        &["a", "bad", "panic", "large", "b", "bad"],
    );
    bench.settle();
    bench.assert_done(&["A", "B"], 6);
    assert_eq!(bench.totals().skipped, 4);
}

#[test]
fn a_dead_letter_rides_with_its_offset_and_says_why() {
    let mut bench = bench(ErrorPolicy::dead_letter("dlq"), &["a", "bad", "b"]);
    bench.settle();
    let visible = bench.kafka.broker().visible.clone();
    let at = |n: usize| (visible[n].0, visible[n].1.as_str());
    assert_eq!([at(0).1, at(1).1, at(2).1], ["A", "bad", "B"]);
    assert_ne!(at(1).0, at(0).0, "another topic");
    assert_eq!(bench.committed(0), Some(3));
    let calls = bench.kafka.calls().join(" ");
    assert!(
        calls.contains("begin send send send send_offsets flush commit"),
        "one transaction: {calls}"
    );
    let headers = bench.kafka.broker().headers.clone();
    let header = |name: &str| {
        let name = format!("__streams.errors.{name}");
        let found = headers.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let ours = |name: &str| {
        let name = format!("__eos.errors.{name}");
        let found = headers.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!((ours("app"), ours("attempts")), ("app".into(), "1".into()));
    assert!(ours("time").parse::<i64>().is_ok(), "{headers:?}");
    assert_eq!(header("message"), "not good");
    assert_eq!(header("exception"), "Failure");
    assert_eq!(
        (header("topic"), header("partition"), header("offset")),
        ("in".into(), "0".into(), "1".into())
    );
}

#[test]
fn a_dead_letter_that_does_not_fit_stops_with_the_reason() {
    let mut bench = bench(ErrorPolicy::dead_letter("dlq"), &["a"]);
    bench.worker.shared.spec.output_limits = vec![Some(1000), Some(100)];
    bench.worker.pipeline = Pipeline::new(&[Some(1000), Some(100)], None, GlobalReads::default());
    bench.feed(0, &["bad"]);
    let error = bench.end().unwrap_err().to_string();
    assert!(
        error.contains("record 1 of in-0") && error.contains("topic dlq has"),
        "{error}"
    );
    assert!(!error.contains("on_error"), "it was used: {error}");
    assert_eq!(bench.committed(0), Some(1), "what came before it");
}

#[test]
fn a_retry_parks_the_task_and_no_other() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let mut bench = Bench::with(Guarantee::ExactlyOnce, move |app| {
        app.source(&text("in"))
            .on_error(ErrorPolicy::retry(3, Backoff::fixed(SECOND)))
            .try_map(move |v| match &v[..] {
                "flaky" if count.fetch_add(1, Ordering::Relaxed) < 2 => Err("not yet".into()),
                _ => Ok::<_, Failure>(v),
            })
            .to(&Topic::plain("out"));
    });
    bench.begun(&[tp(0), tp(1)]);
    bench.feed(0, &["flaky", "after"]);
    bench.assign(&[0, 1]);
    bench.steps(15);
    assert_eq!(tries.load(Ordering::Relaxed), 1, "750 ms later");
    assert_eq!(
        (bench.committed(0), bench.committed(1)),
        (Some(3), Some(3)),
        "what came before it is committed, and the other task is through"
    );
    bench.feed(1, &["meanwhile"]);
    bench.settle();
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(5), Some(4)));
    let visible = bench.visible();
    let position = |value| visible.iter().position(|v| v == value);
    assert!(position("meanwhile") < position("flaky"), "{visible:?}");
    assert!(position("flaky") < position("after"));
    assert_eq!(bench.kafka.broker().visible.len(), 9);
    assert_eq!(bench.totals().aborts, 0);
}

#[test]
fn when_the_last_try_failed_the_next_policy_decides() {
    let policy = ErrorPolicy::retry(2, Backoff::fixed(SECOND)).then(ErrorPolicy::skip());
    let mut bench = bench(policy, &["bad", "a"]);
    bench.settle();
    bench.settle();
    assert_eq!(bench.visible(), ["A"]);
    let counts = bench.totals();
    assert_eq!((counts.retried, counts.skipped), (2, 1));
}

/// Rule 9: after two aborts by one record, the transactions are halved until the record is found. Its policy then
/// decides.
#[test]
fn rule_9_a_record_that_keeps_aborting_its_transaction_is_found_by_halving() {
    let mut bench = bench(ErrorPolicy::dead_letter("dlq"), &[]);
    let values: Vec<String> = (0..50).map(|n| format!("v{n}")).collect();
    let input = BTreeMap::from([(tp(0), values.clone())]);
    bench.kafka.broker().input.extend(input);
    bench.kafka.broker().toxic = Some("V33".into());
    bench.steps(1800);
    assert_eq!(bench.committed(0), Some(50));
    let mut expected: Vec<String> = values.iter().map(|v| v.to_uppercase()).collect();
    expected[33] = "v33".into();
    assert_eq!(bench.visible(), expected, "the dead letter as it was read");
    let counts = bench.totals();
    assert_eq!(counts.dead_letters, 1);
    assert!((3..20).contains(&counts.aborts), "{counts:?}");
}

/// Checks that the error names the second record, and that the first one is committed.
#[track_caller]
fn assert_blamed(error: &str, bench: &Bench) {
    let blame = "record 1 of in-0 could not be processed: every transaction that it is part of";
    assert!(error.contains(blame), "{error}");
    bench.assert_done(&["A"], 1);
}

#[test]
fn rule_9_without_a_policy_the_culprit_is_named() {
    let mut bench = bench(ErrorPolicy::fail(), &["a", "b", "c"]);
    bench.kafka.broker().toxic = Some("B".into());
    let error = bench.end_within(1200).unwrap_err().to_string();
    assert_blamed(&error, &bench);
    let fix = "`on_error` of its source can skip such records";
    assert!(error.contains(fix), "{error}");
}

/// The dead letter aborts its transactions like the output. Endless attempts would stop the partition without notice.
#[test]
fn rule_9_a_culprit_whose_dead_letter_is_refused_too_ends_the_worker() {
    let mut bench = bench(ErrorPolicy::dead_letter("dlq"), &["a", "B", "c"]);
    bench.kafka.broker().toxic = Some("B".into());
    let error = bench.end_within(1200).unwrap_err().to_string();
    assert_blamed(&error, &bench);
    assert!(!error.contains("`on_error`"), "{error}");
}

/// The operator can't take the decision back, so the paused record must not abort forever.
#[test]
fn rule_9_a_paused_record_whose_dead_letter_is_refused_ends_the_worker() {
    let policy = ErrorPolicy::pause().dead_letters_to("dlq");
    let mut bench = bench(policy, &["a", "B", "c"]);
    bench.kafka.broker().toxic = Some("B".into());
    let pauses = Arc::clone(&bench.worker.shared.spec.pauses);
    while pauses.paused().is_empty() {
        bench.steps(1);
    }
    let id = pauses.paused()[0].id;
    pauses.resume(id, crate::run::Resume::DeadLetter).unwrap();
    let error = bench.end_within(1200).unwrap_err().to_string();
    assert_blamed(&error, &bench);
}

/// If a record fails in one source, the outputs of another source of the same topic are dropped as well.
#[test]
fn a_record_counts_for_all_its_sources_or_for_none() {
    let bench = Bench::started(Guarantee::ExactlyOnce, |app| {
        let topic = text("in");
        let copied = app.source(&topic).on_error(ErrorPolicy::skip());
        copied.to(&Topic::plain("copy"));
        app.source(&topic).on_error(ErrorPolicy::skip()).for_each(
            |_, record: Record<String, String>| -> Result<(), Failure> { Err(record.value.into()) },
        );
    });
    assert_eq!(bench.committed(0), Some(3));
    assert_eq!(bench.visible(), Vec::<String>::new());
}

/// An outage aborts transactions again and again, even one with a single record. That record is not to blame.
#[test]
fn rule_9_an_outage_condemns_no_record() {
    let mut bench = bench(ErrorPolicy::skip(), &[]);
    bench.settle();
    bench.feed(0, &["a"]);
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::REQUEST_TIMED_OUT)); 10],
    );
    bench.steps(1800);
    assert_eq!(bench.visible(), ["A"]);
    let totals = bench.totals();
    assert_eq!((totals.skipped, totals.aborts), (0, 10));
}

/// A closure takes longer than the transaction may. The records before it would be aborted each time, forever.
#[test]
fn rule_9_a_record_slower_than_a_transaction_gets_one_of_its_own() {
    let clock = Clock::default();
    let slow = clock.clone();
    let kafka = Arc::new(Mutex::new(None::<Fake>));
    let at_broker = Arc::clone(&kafka);
    let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, move |app| {
        app.source(&text("in"))
            .map(move |v| {
                if v == "slow" {
                    slow.pass(Duration::from_secs(40));
                    // The coordinator aborts a transaction that is open for longer than 30 s.
                    at_broker.lock().unwrap().iter().for_each(Fake::expire);
                }
                v
            })
            .to(&Topic::plain("out"));
    });
    *kafka.lock().unwrap() = Some(bench.kafka.clone());
    let values = texts(&["a", "b", "slow", "c"]);
    bench.kafka.broker().input.insert(tp(0), values);
    bench.assign(&[0]);
    bench.steps(1800);
    bench.assert_done(&["a", "b", "slow", "c"], 4);
}

/// A worker that hangs with one record in its transaction loses the transaction each time. The record itself took no
/// time, so a policy must not drop it.
#[test]
fn rule_9_a_worker_that_stands_still_condemns_no_record() {
    let clock = Clock::default();
    let mut bench = Bench::with_clock(clock.clone(), Guarantee::ExactlyOnce, |app| {
        app.source(&text("in"))
            .on_error(ErrorPolicy::skip())
            .to(&Topic::plain("out"));
    });
    bench.kafka.broker().input.insert(tp(0), texts(&["a"]));
    bench.assign(&[0]);
    let mut stalls = 0;
    for _ in 0..2_000 {
        bench.steps(1);
        if stalls < 2 && bench.worker.txn.state() == State::Open {
            stalls += 1;
            clock.pass(Duration::from_secs(40));
            bench.kafka.expire();
        }
    }
    assert_eq!((stalls, bench.totals().skipped), (2, 0));
    bench.assert_done(&["a"], 1);
}

/// The outputs of a record wait for its transaction. If the transaction can't begin, the record is delivered again.
#[test]
fn a_begin_that_fails_costs_no_output() {
    let mut bench = bench(ErrorPolicy::fail(), &[]);
    bench.settle();
    bench.feed(0, &["a", "b"]);
    bench.fails(CallSite::Begin, fatal(code::LOCAL_FENCED));
    bench.settle();
    bench.settle();
    assert!(bench.kafka.broker().script[&CallSite::Begin].is_empty());
    bench.assert_done(&["A", "B"], 2);
}

/// An abort of earlier records does not give a record more tries than it has.
#[test]
fn an_abort_between_two_tries_does_not_reset_their_count() {
    let policy = ErrorPolicy::retry(2, Backoff::fixed(SECOND)).then(ErrorPolicy::skip());
    let mut bench = bench(policy, &[]);
    bench.settle();
    bench.feed(0, &["a", "bad"]);
    bench.fails(CallSite::Commit, abortable(code::INVALID_TXN_STATE));
    bench.steps(240);
    bench.assert_done(&["A"], 2);
    let totals = bench.totals();
    assert_eq!((totals.aborts, totals.retried, totals.skipped), (1, 2, 1));
}
