//! The worker against a scripted Kafka: what it calls, in which order, and what is visible at the
//! end. No broker, no threads, no waiting: what takes time is stepped.

mod metrics;
mod policies;
mod processors;
mod siblings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::{
    CallSite, CommitPolicy, Fault, FirstStart, Guarantee, Limits, MaxIdle, Pace, TransactionalId,
    WorkerId, code,
};

use super::fake::{Answer, Clock, Fake, abortable, fatal, tp};
use super::*;
use crate::client::GroupProtocol;
use crate::{App, Failure, Topic};

struct Bench {
    kafka: Fake,
    clock: Clock,
    worker: Worker<Fake>,
}

fn shout(app: &mut App) {
    app.source(&Topic::<String, String>::plain("in"))
        .try_map(|v| match &v[..] {
            "poison" => Err("poison".into()),
            "panic" => panic!("at the disco"),
            _ => Ok::<_, Failure>(v.to_uppercase()),
        })
        .to(&Topic::plain("out"));
}

fn spec(id: u16, guarantee: Guarantee) -> WorkerSpec {
    WorkerSpec {
        app: "app".into(),
        id: WorkerId(id),
        identity: TransactionalId::new(format!("app-i-{id}")),
        static_member: true,
        guarantee,
        policy: CommitPolicy {
            pace: Pace::Fixed,
            ..CommitPolicy::default()
        },
        max_idle: MaxIdle::default(),
        limits: Limits::default(),
        first_start: FirstStart::Earliest,
        accepted_layout: None,
        transaction_timeout: Duration::from_secs(30),
        protocol: GroupProtocol::Consumer,
        revoke_deadline: Duration::from_secs(20),
        offsets_deadline: Duration::from_secs(60),
        prefetch: 1 << 20,
        output_partitions: vec![1],
        output_limits: vec![Some(1000)],
        input_partitions: BTreeMap::from([("in".into(), 2)]),
    }
}

impl Bench {
    fn with(guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        Self::with_clock(Clock::default(), guarantee, declare)
    }

    fn with_clock(clock: Clock, guarantee: Guarantee, declare: impl FnOnce(&mut App)) -> Self {
        let kafka = Fake::default();
        for partition in [0, 1] {
            let log = (0..3).map(|n| format!("p{partition}r{n}")).collect();
            kafka.broker().input.insert(tp(partition), log);
        }
        let worker = new_worker(&kafka, &clock, spec(0, guarantee), declare);
        Self {
            kafka,
            clock,
            worker,
        }
    }

    fn new() -> Self {
        Self::with(Guarantee::ExactlyOnce, shout)
    }

    /// A worker that owns partition 0 and has committed its first records.
    fn running() -> Self {
        let mut bench = Self::new();
        bench.assign(&[0]);
        bench.settle();
        bench.kafka.calls();
        bench
    }

    fn assign(&self, partitions: &[i32]) {
        let partitions = partitions.iter().map(|&p| tp(p)).collect();
        self.kafka
            .event("app-i-0-consumer", SourceEvent::Assigned(partitions));
    }

    fn revoke(&self, partition: i32, lost: bool) {
        let event = SourceEvent::Revoked {
            partitions: vec![tp(partition)],
            lost,
        };
        self.kafka.event("app-i-0-consumer", event);
    }

    fn feed(&self, partition: i32, values: &[&str]) {
        let mut broker = self.kafka.broker();
        let log = broker.input.entry(tp(partition)).or_default();
        log.extend(values.iter().map(|&v| v.to_owned()));
    }

    fn step(&mut self) {
        self.worker.step().unwrap();
    }

    /// Steps until nothing happens any more, passing commit intervals.
    fn settle(&mut self) {
        for _ in 0..60 {
            self.step();
            self.clock.pass(Duration::from_millis(50));
        }
    }

    /// Steps until the worker ends, and says how.
    fn end(&mut self) -> Result<(), WorkerError> {
        for _ in 0..200 {
            if self.worker.step()? == Step::Stopped {
                return Ok(());
            }
            self.clock.pass(Duration::from_millis(50));
        }
        panic!("the worker goes on: {:?}", self.worker);
    }

    /// As [`settle`](Self::settle), but the worker may end.
    fn settle_until_error(&mut self, end: &mut Result<(), WorkerError>) {
        for _ in 0..60 {
            if let Err(error) = self.worker.step() {
                *end = Err(error);
                return;
            }
            self.clock.pass(Duration::from_millis(50));
        }
    }

    fn visible(&self) -> Vec<String> {
        self.kafka
            .broker()
            .visible
            .iter()
            .map(|(_, v)| v.clone())
            .collect()
    }

    fn committed(&self, partition: i32) -> Option<i64> {
        self.kafka
            .broker()
            .committed
            .get(&tp(partition))
            .map(|(offset, _)| *offset)
    }

    /// Every record of partition 0 exactly once, in order, and its offset with it.
    #[track_caller]
    fn assert_exact(&self) {
        let script = self.kafka.broker().script.clone();
        let left = script
            .values()
            .map(std::collections::VecDeque::len)
            .sum::<usize>();
        assert_eq!(left, 0, "not every scripted fault has fired: {script:?}");
        let expected: Vec<String> = self
            .kafka
            .broker()
            .input
            .get(&tp(0))
            .into_iter()
            .flatten()
            .map(|v| v.to_uppercase())
            .collect();
        assert_eq!(self.visible(), expected);
        assert_eq!(self.committed(0), Some(expected.len() as i64));
    }
}

fn new_worker(
    kafka: &Fake,
    clock: &Clock,
    spec: WorkerSpec,
    declare: impl FnOnce(&mut App),
) -> Worker<Fake> {
    let mut app = App::new("app");
    declare(&mut app);
    let topology = app.check().unwrap();
    Worker::new(
        spec,
        clock.env(),
        topology,
        Arc::new(kafka.clone()),
        Arc::default(),
    )
    .unwrap()
}

#[test]
fn records_go_through_and_their_offsets_commit_with_them() {
    let mut bench = Bench::running();
    bench.assert_exact();
    let (_, metadata) = bench.kafka.broker().committed[&tp(0)].clone();
    assert!(metadata.starts_with("eos1;"), "{metadata}");
    assert!(
        metadata.contains(";2;2;"),
        "width 2, second transaction: {metadata}"
    );
    bench.feed(0, &["more"]);
    bench.settle();
    bench.assert_exact();
    assert_eq!(
        bench.kafka.calls(),
        ["begin", "send", "send_offsets", "flush", "commit"],
        "one transaction, offsets sent while the outputs drain"
    );
}

#[test]
fn rule_1_an_idle_worker_holds_nothing_open() {
    let mut bench = Bench::running();
    bench.settle();
    assert!(bench.kafka.calls().is_empty());
}

#[test]
fn rule_1_a_filter_that_drops_everything_still_commits_its_progress() {
    let mut bench = Bench::with(Guarantee::ExactlyOnce, |app| {
        app.source(&Topic::<String, String>::plain("in"))
            .filter(|_| false)
            .to(&Topic::plain("out"));
    });
    bench.assign(&[0]);
    bench.settle();
    assert!(bench.visible().is_empty());
    assert_eq!(bench.committed(0), Some(3));
}

#[test]
fn rule_10_a_first_start_is_committed_before_the_first_record() {
    let mut bench = Bench::new();
    bench.assign(&[0]);
    while bench.committed(0).is_none() {
        bench.step();
        assert!(bench.visible().is_empty());
    }
    assert_eq!(bench.committed(0), Some(0));
    let calls = bench.kafka.calls();
    let at = |call: &str| calls.iter().position(|c| c == call).unwrap_or(usize::MAX);
    assert!(at("commit") < at("send"), "{calls:?}");
}

#[test]
fn rule_8_an_abort_rewinds_and_what_was_aborted_is_done_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::UNKNOWN_PRODUCER_ID))],
    );
    bench.settle();
    bench.assert_exact();
    let calls = bench.kafka.calls();
    let at = |call: &str| calls.iter().position(|c| c == call);
    assert!(
        at("abort").is_some() && at("abort") < at("seek in-0@3"),
        "{calls:?}"
    );
    assert!(at("commit") > at("seek in-0@3"), "{calls:?}");
}

#[test]
fn rule_8_a_task_takes_nothing_before_its_seek_is_confirmed() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::UNKNOWN_PRODUCER_ID))],
    );
    bench.kafka.answer(CallSite::Seek, [Answer::Pending; 5]);
    bench.settle();
    bench.assert_exact();
}

#[test]
fn rule_8_a_seek_that_comes_too_early_becomes_an_assignment() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::UNKNOWN_PRODUCER_ID))],
    );
    bench.kafka.answer(
        CallSite::Seek,
        [Answer::Fails(Fault::plain(code::LOCAL_STATE))],
    );
    bench.settle();
    bench.assert_exact();
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"assign in-0@3".to_owned()), "{calls:?}");
}

#[test]
fn rule_8_a_record_left_over_from_before_the_rewind_is_not_taken_for_the_first() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b", "c"]);
    bench.kafka.broker().late_seeks = 1;
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::UNKNOWN_PRODUCER_ID))],
    );
    bench.settle();
    assert_eq!(bench.kafka.broker().late_seeks, 0, "the fault has fired");
    bench.assert_exact();
}

/// A failure while a task is at work must rewind that very task.
#[test]
fn a_producer_that_is_fenced_while_sending_loses_nothing() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench
        .kafka
        .answer(CallSite::Send, [Answer::Fails(fatal(code::LOCAL_FENCED))]);
    bench.settle();
    bench.assert_exact();
    assert!(bench.kafka.calls().contains(&"new producer".to_owned()));
}

#[test]
fn a_full_queue_neither_loses_nor_doubles_an_output() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b", "c"]);
    bench.kafka.answer(CallSite::Send, [Answer::Pending; 3]);
    bench.settle();
    bench.assert_exact();
}

#[test]
fn rule_3_an_unfenced_membership_is_never_sent() {
    let mut bench = Bench::running();
    for bad in [(-1, ""), (-1, "m"), (3, "")] {
        bench.kafka.broker().membership = Some((bad.0, bad.1.to_owned()));
        bench.feed(0, &["a"]);
        bench.settle_without_commit();
        bench.kafka.broker().membership = None;
        bench.settle();
        bench.assert_exact();
    }
}

impl Bench {
    /// A few steps, long enough for one failed commit.
    fn settle_without_commit(&mut self) {
        let before = self.visible();
        for _ in 0..6 {
            self.step();
            self.clock.pass(Duration::from_millis(50));
        }
        assert_eq!(self.visible(), before);
    }
}

#[test]
fn rule_4_a_revoke_commits_first_and_unassigns_last() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.step();
    assert_eq!(bench.kafka.calls(), ["begin", "send"]);
    bench.revoke(0, false);
    bench.settle();
    bench.assert_exact();
    assert_eq!(
        bench.kafka.calls(),
        ["send_offsets", "flush", "commit", "unassign [in-0]"]
    );
}

#[test]
fn rule_4_a_loss_aborts_and_the_successor_does_it_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.step();
    bench.kafka.calls();
    bench.revoke(0, true);
    bench.settle();
    assert_eq!(bench.kafka.calls(), ["abort", "unassign [in-0]"]);
    assert_eq!(bench.committed(0), Some(3));
    bench.assign(&[0]);
    bench.settle();
    bench.assert_exact();
}

#[test]
fn rule_4_a_revoke_is_answered_even_if_the_commit_hangs() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.step();
    bench
        .kafka
        .answer(CallSite::Flush, [Answer::Pending; 10_000]);
    bench
        .kafka
        .answer(CallSite::Abort, [Answer::Pending; 10_000]);
    bench.revoke(0, false);
    for _ in 0..600 {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"unassign [in-0]".to_owned()), "{calls:?}");
}

#[test]
fn a_retained_partition_is_rewound_too() {
    let mut bench = Bench::new();
    bench.assign(&[0, 1]);
    bench.settle();
    bench.feed(0, &["a"]);
    bench.feed(1, &["b"]);
    bench.step();
    bench.kafka.calls();
    bench.revoke(1, true);
    bench.settle();
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"seek in-0@3".to_owned()), "{calls:?}");
    assert_eq!((bench.committed(0), bench.committed(1)), (Some(4), Some(3)));
    assert_eq!(bench.visible().iter().filter(|v| *v == "A").count(), 1);
}

/// To librdkafka the next (un)assign of whatever partition is the answer to the revocation.
#[test]
fn rule_4_a_rewind_does_not_answer_a_revocation_that_waits() {
    let mut bench = Bench::new();
    bench.assign(&[0, 1]);
    bench.settle();
    bench.feed(0, &["a"]);
    bench.kafka.answer(
        CallSite::Flush,
        [Answer::Fails(abortable(code::UNKNOWN_PRODUCER_ID))],
    );
    let too_early = Answer::Fails(Fault::plain(code::LOCAL_STATE));
    bench.kafka.answer(CallSite::Seek, [too_early; 2]);
    while bench.worker.rewinds.is_empty() {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    bench.kafka.calls();
    bench.revoke(1, false);
    bench.settle();
    let calls = bench.kafka.calls();
    let at = |call: &str| calls.iter().position(|c| c == call).unwrap_or(usize::MAX);
    assert!(at("unassign [in-1]") < at("unassign [in-0]"), "{calls:?}");
    assert!(at("unassign [in-0]") < at("assign in-0@3"), "{calls:?}");
    assert_eq!(bench.committed(0), Some(4));
}

#[test]
fn at_least_once_repeats_what_was_not_acknowledged() {
    let mut bench = Bench::with(Guarantee::AtLeastOnce, shout);
    bench.assign(&[0]);
    bench.settle();
    bench.feed(0, &["a", "b"]);
    bench.kafka.calls();
    bench
        .kafka
        .answer(CallSite::Flush, [Answer::DoneBut(abortable(-192))]);
    bench.settle();
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"seek in-0@3".to_owned()), "{calls:?}");
    assert!(calls.contains(&"new producer".to_owned()), "{calls:?}");
    let visible = bench.visible();
    assert_eq!(
        visible.iter().filter(|v| *v == "A").count(),
        2,
        "doubled, as promised"
    );
    assert_eq!(bench.committed(0), Some(5));
}

#[test]
fn an_offset_below_the_log_is_found_before_the_first_fetch() {
    let mut bench = Bench::new();
    let partition = tp(0);
    bench.kafka.broker().first = 2;
    let committed = (1, String::new());
    bench.kafka.broker().committed.insert(partition, committed);
    bench.assign(&[0]);
    let error = bench.end().unwrap_err();
    assert!(
        matches!(error, WorkerError::OffsetOutOfRange { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("is 1, but the log has 2 to 3"),
        "{error}"
    );
}

#[test]
fn what_is_revoked_before_it_started_is_given_back() {
    let mut bench = Bench::new();
    bench.kafka.broker().unstable.insert(tp(0));
    bench.assign(&[0]);
    bench.step();
    bench.revoke(0, false);
    bench.settle();
    let calls = bench.kafka.calls();
    assert!(calls.contains(&"unassign [in-0]".to_owned()), "{calls:?}");
    assert!(bench.worker.tasks.is_empty());
}

#[test]
fn rule_6_a_commit_in_doubt_that_did_happen_counts_once() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench.kafka.answer(
        CallSite::Commit,
        [Answer::DoneBut(fatal(code::LOCAL_FENCED))],
    );
    bench.settle();
    bench.assert_exact();
    assert!(bench.kafka.calls().contains(&"new producer".to_owned()));
}

/// librdkafka calls an answer abortable that it can't read; the broker may have committed.
#[test]
fn rule_5_an_abortable_answer_to_a_commit_is_no_proof_that_it_did_not_happen() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench
        .kafka
        .answer(CallSite::Commit, [Answer::DoneBut(abortable(-1))]);
    bench.settle();
    bench.assert_exact();
    assert!(!bench.kafka.calls().contains(&"abort".to_owned()));
}

#[test]
fn rule_6_a_commit_in_doubt_that_did_not_happen_is_done_again() {
    let mut bench = Bench::running();
    bench.feed(0, &["a", "b"]);
    bench
        .kafka
        .answer(CallSite::Commit, [Answer::Fails(fatal(code::LOCAL_FENCED))]);
    bench.settle();
    bench.assert_exact();
}

#[test]
fn rule_6_a_commit_that_never_answers_is_decided_by_the_next_producer() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.kafka.answer(CallSite::Commit, [Answer::Pending; 230]);
    for _ in 0..300 {
        bench.step();
        bench.clock.pass(Duration::from_millis(50));
    }
    bench.kafka.broker().script.clear();
    bench.settle();
    bench.assert_exact();
    assert!(!bench.kafka.calls().contains(&"abort".to_owned()), "rule 5");
}

#[test]
fn rule_7_an_unanswered_request_replaces_the_producer_before_the_next_begin() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.step();
    bench.kafka.broker().unanswered = true;
    bench.settle();
    bench.feed(0, &["b"]);
    bench.settle();
    bench.assert_exact();
    let calls = bench.kafka.calls();
    let rebuilt = calls.iter().position(|c| c == "new producer").unwrap();
    assert_eq!(calls.iter().filter(|c| *c == "begin").count(), 2);
    assert!(
        calls.iter().rposition(|c| c == "begin") > Some(rebuilt),
        "{calls:?}"
    );
}

#[test]
fn rule_11_at_least_once_commits_through_the_consumer_after_everything_is_acknowledged() {
    let mut bench = Bench::with(Guarantee::AtLeastOnce, shout);
    bench.assign(&[0]);
    bench.settle();
    bench.assert_exact();
    let calls = bench.kafka.calls();
    assert!(
        !calls
            .iter()
            .any(|c| ["init", "begin", "send_offsets", "commit"].contains(&&c[..]))
    );
    assert!(
        calls.ends_with(&["flush".into(), "consumer commit".into()]),
        "{calls:?}"
    );
}

#[test]
fn a_record_that_fails_leaves_no_trace_and_what_came_before_it_counts() {
    for bad in ["poison", "panic"] {
        let mut bench = Bench::running();
        bench.feed(0, &["good", bad, "never"]);
        let error = bench.end().unwrap_err();
        assert!(matches!(error, WorkerError::Record { .. }), "{error}");
        assert!(error.to_string().contains("record 4 of in-0"), "{error}");
        assert_eq!(
            bench.committed(0),
            Some(4),
            "a restart begins with the bad record"
        );
        assert_eq!(bench.visible().last().map(String::as_str), Some("GOOD"));
    }
}

#[test]
fn the_very_first_record_may_fail_too() {
    let mut bench = Bench::running();
    bench.feed(0, &["poison"]);
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::Record { .. }), "{error}");
    assert_eq!(bench.committed(0), Some(3));
}

#[test]
fn an_offset_that_is_gone_names_the_log_and_the_way_out() {
    let mut bench = Bench::running();
    bench
        .kafka
        .event("app-i-0-consumer", SourceEvent::OutOfRange(tp(0)));
    let error = bench.end().unwrap_err();
    assert!(
        matches!(error, WorkerError::OffsetOutOfRange { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("--group app --topic in-0"),
        "{error}"
    );
}

#[test]
fn a_permanent_error_stops_with_the_transaction_aborted() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    let denied = abortable(code::TOPIC_AUTHORIZATION_FAILED);
    bench.kafka.answer(CallSite::Flush, [Answer::Fails(denied)]);
    let error = bench.end().unwrap_err();
    assert!(
        error.to_string().starts_with("Kafka refused: flushing"),
        "{error}"
    );
    assert!(bench.kafka.calls().contains(&"abort".to_owned()));
    assert_eq!(bench.committed(0), Some(3));
}

#[test]
fn being_fenced_for_ever_ends_with_an_error_that_names_the_fix() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.kafka.answer(
        CallSite::Send,
        [Answer::Fails(fatal(code::LOCAL_FENCED)); 50],
    );
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::TwoOwners { .. }), "{error}");
    assert!(
        error.to_string().contains("delete the file `instance`"),
        "{error}"
    );
}

#[test]
fn a_restart_stop_commits_and_keeps_the_membership() {
    let mut bench = Bench::running();
    bench.feed(0, &["a"]);
    bench.step();
    bench.kafka.calls();
    bench.worker.stop(StopMode::Restart);
    bench.end().unwrap();
    bench.assert_exact();
    assert_eq!(
        bench.kafka.calls(),
        ["send_offsets", "flush", "commit", "close"]
    );
}

/// And waits for the LeaveGroup: librdkafka sends none for a static member that has begun to close.
/// Seen in the full kill test: the partitions of one that left stood still for 32 s.
#[test]
fn a_leaving_stop_answers_its_own_revocation_before_it_closes() {
    let mut bench = Bench::running();
    bench.worker.stop(StopMode::Leave);
    bench.end().unwrap();
    assert_eq!(
        bench.kafka.calls(),
        ["unsubscribe", "unassign [in-0]", "leave", "close"]
    );
}

/// It may be a member from its last run, and only who has joined can leave: seen in the kill test,
/// where a process asked to leave right after a restart held two partitions for 30 s.
#[test]
fn one_who_is_asked_to_leave_before_it_has_joined_joins_first() {
    let mut bench = Bench::new();
    bench.worker.stop(StopMode::Leave);
    for _ in 0..3 {
        bench.step();
    }
    assert!(!bench.kafka.calls().contains(&"unsubscribe".to_owned()));
    bench.assign(&[]);
    bench.end().unwrap();
    assert_eq!(
        bench.kafka.calls(),
        ["assign ", "unsubscribe", "unassign []", "leave", "close"]
    );
}

/// One thread, one clock, two workers; the first waits for an offset that somebody else's open
/// transaction holds, and its other task works on.
#[test]
fn a_worker_that_waits_for_stable_offsets_stops_nobody() {
    let mut bench = Bench::running();
    bench.kafka.broker().unstable.insert(tp(1));
    bench.assign(&[1]);
    bench.feed(0, &["a"]);
    let mut second = new_worker(
        &bench.kafka,
        &bench.clock,
        spec(1, Guarantee::AtLeastOnce),
        shout,
    );
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

/// A dead peer's transaction holds up its own partitions, not those that came with them.
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
    bench.clock.pass(Duration::from_secs(61));
    let error = bench.end().unwrap_err();
    assert!(
        matches!(error, WorkerError::OffsetsUnstable { .. }),
        "{error}"
    );
}

/// The prefix commits before the slow record's effects join a transaction, whatever its length: two
/// slow ones in a row are never in one.
#[test]
fn a_slow_record_costs_no_abort_of_what_came_before_it() {
    let clock = Clock::default();
    let slow = clock.clone();
    let mut bench = Bench::with_clock(clock, Guarantee::ExactlyOnce, move |app| {
        let slow = slow.clone();
        app.source(&Topic::<String, String>::plain("in"))
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
    let calls = bench.kafka.calls();
    let about: Vec<&str> = calls
        .iter()
        .map(String::as_str)
        .filter(|call| matches!(*call, "begin" | "send" | "commit" | "abort"))
        .collect();
    assert_eq!(
        about.join(" "),
        "begin commit begin send send send commit begin send commit begin send send commit",
        "the start offset; three; slow1; slow2 and what fits behind it"
    );
    assert_eq!(bench.visible().len(), 6);
}

/// The broker forgets offsets that were not committed for a week.
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
    assert_eq!(
        bench.kafka.broker().committed[&tp(0)],
        before,
        "name and all"
    );
    bench.feed(0, &["more"]);
    bench.settle();
    bench.assert_exact();
}

/// The group may be waiting for members that are dead.
#[test]
fn a_close_that_does_not_end_is_abandoned() {
    let mut bench = Bench::running();
    bench
        .kafka
        .answer(CallSite::Close, [Answer::Pending; 10_000]);
    bench.worker.stop(StopMode::Restart);
    let before = bench.clock.env().now();
    bench.end().unwrap();
    let took = bench.clock.env().now().since(before);
    assert!(took >= JOIN && took < JOIN * 2, "{took:?}");
}
