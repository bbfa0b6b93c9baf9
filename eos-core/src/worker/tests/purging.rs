//! Purged records: only records that are committed.

use super::*;

const WORDS: &str = "app-words-repartition";

fn words() -> TopicPartition {
    TopicPartition::new(WORDS, eos_protocol::Partition::ZERO)
}

fn through_a_repartition(app: &mut App) {
    app.source(&text("in"))
        .key_by(|word: &String| word.clone())
        .repartition(&Topic::plain("words"))
        .to(&Topic::plain("out"));
}

/// A worker that reads a repartition topic, with a commit interval of an hour.
fn bench() -> Bench {
    bench_from(FirstStart::Earliest)
}

fn bench_from(first_start: FirstStart) -> Bench {
    let mut spec = spec(0, Guarantee::ExactlyOnce);
    spec.first_start = first_start;
    spec.output_partitions = vec![1, 1];
    spec.output_limits = vec![None, None];
    spec.input_partitions.insert(WORDS.into(), 1);
    spec.policy.interval = Duration::from_secs(3600);
    let bench = Bench::of(spec, through_a_repartition);
    bench.feed_to(words(), &["a", "b", "c"]);
    bench.feed(0, &["a", "b", "c"]);
    // The records were written by a task of this group.
    bench.begun(&[tp(1)]);
    bench.assign_these([words(), tp(0)]);
    bench
}

/// Two apps may have the same repartition topic. This app has committed nothing yet, so the records are not its own.
#[test]
fn records_of_another_app_in_a_repartition_topic_stop_the_task() {
    let mut bench = bench();
    bench.kafka.broker().committed.clear();
    let error = bench.end().unwrap_err();
    assert!(
        is_foreign(&error) && error.to_string().contains(WORDS),
        "{error}"
    );
    assert_eq!(bench.visible().len(), 0);
}

fn is_foreign(error: &WorkerError) -> bool {
    matches!(
        error,
        WorkerError::Start(eos_protocol::StartError::ForeignRecords { .. })
    )
}

/// The worker has the tasks that write the topic. A committed start of these tasks would prove to a worker that reads
/// the topic that the records are the group's own.
#[test]
fn records_of_another_app_stop_the_tasks_that_would_write_beside_them() {
    let mut bench = bench();
    bench.kafka.broker().committed.clear();
    bench.kafka.broker().events.clear();
    bench.assign(&[0]);
    let error = bench.end().unwrap_err();
    assert!(is_foreign(&error), "{error}");
    assert!(
        bench.kafka.broker().committed.is_empty(),
        "a start is committed"
    );
}

#[test]
fn an_offset_of_a_reader_proves_the_records_to_a_writer_that_starts_over() {
    let mut bench = bench();
    bench.kafka.broker().committed.clear();
    bench.kafka.broker().events.clear();
    bench.begun(&[words()]);
    bench.assign(&[0]);
    bench.settle();
    assert!(bench.committed(0).is_some());
}

/// A coordinator that loads reports all offsets missing for a moment.
#[test]
fn offsets_that_are_missing_for_a_moment_accuse_no_other_app() {
    let mut bench = bench();
    let before = std::mem::take(&mut bench.kafka.broker().committed);
    // Longer than one task waits before it starts without an offset.
    bench.steps(20);
    bench.kafka.broker().committed = before;
    bench.settle();
    bench.an_hour_passes();
    assert_eq!(bench.committed_of(&words()), Some(3));
}

/// Windows behind the repartition close by the youngest record: no partition may run ahead of the others.
#[test]
fn tasks_that_feed_a_repartition_stay_side_by_side() {
    let mut bench = bench();
    bench.assign(&[1]);
    bench.feed(1, &["a", "b", "c"]);
    bench.an_hour_passes();
    bench.an_hour_passes();
    let many = |value| vec![value; 200];
    bench.feed(0, &many("x"));
    bench.feed(1, &many("y"));
    bench.an_hour_passes();
    bench.an_hour_passes();
    let outputs = bench.visible();
    let outputs = &outputs[outputs.len() - 400..];
    let longest = outputs.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    assert!(longest <= Some(64), "{longest:?} of one in a row");
}

/// One task alone had records for a while: its lead would last for as long as there is a backlog.
#[test]
fn a_task_behind_the_others_of_its_stage_catches_up() {
    let mut bench = bench();
    bench.assign(&[1]);
    bench.an_hour_passes();
    bench.an_hour_passes();
    // These records take more than a second.
    bench.feed(0, &["x"; 3_000]);
    bench.an_hour_passes();
    bench.an_hour_passes();
    let before = bench.visible().len();
    bench.feed(0, &["x"; 600]);
    bench.feed(1, &["y"; 600]);
    bench.an_hour_passes();
    bench.an_hour_passes();
    let outputs = &bench.visible()[before..];
    let last = outputs.iter().rposition(|value| value == "y").unwrap();
    let leading = outputs[..last].iter().filter(|value| *value == "x").count();
    assert_eq!(leading, 0, "of 600, before all of the other task");
}

impl Bench {
    fn due(&mut self) -> Vec<(TopicPartition, i64)> {
        // The worker fills the queue once a second.
        self.clock.pass(Duration::from_secs(2));
        self.step();
        let due = self.worker.shared.spec.purge_queue.due().into_iter();
        due.map(|(partition, below)| (partition, below.get()))
            .collect()
    }

    /// Longer than a commit interval.
    fn an_hour_passes(&mut self) {
        self.clock.pass(Duration::from_secs(3601));
        self.settle();
    }
}

#[test]
fn records_of_a_repartition_topic_are_done_with_once_their_commit_is_known() {
    let mut bench = bench();
    bench.settle();
    assert_eq!(bench.worker.state(), State::Open);
    assert_eq!(bench.due(), [], "they are processed, and not committed");
    bench.an_hour_passes();
    assert_eq!(bench.due(), [(words(), 3)], "and nothing of another worker");
    assert_eq!(bench.committed_of(&words()), Some(3));
}

#[cfg(feature = "failpoints")]
#[test]
fn without_that_they_are_done_with_before() {
    let faults = crate::failpoints::Failpoints::parse("", "purge_after_commit").unwrap();
    let _entered = faults.enter();
    let mut bench = bench();
    bench.settle();
    // The first commit gave its offset a name.
    bench.feed_to(words(), &["d"]);
    bench.an_hour_passes();
    bench.feed_to(words(), &["e"]);
    bench.settle();
    assert_eq!(bench.worker.state(), State::Open);
    assert_eq!(bench.due(), [(words(), 5)], "one more than is committed");
}

#[test]
fn what_an_abort_gives_back_is_not_done_with() {
    let mut bench = bench();
    bench.settle();
    bench.next_flush_aborts();
    bench.an_hour_passes();
    assert_eq!(bench.due(), []);
    bench.an_hour_passes();
    assert_eq!(bench.due(), [(words(), 3)]);
}

/// The next owner may find offsets that no transaction of this app committed.
#[test]
fn offsets_without_a_name_are_not_believed() {
    let mut bench = bench();
    let unnamed = (2, String::new());
    bench.kafka.broker().committed.insert(words(), unnamed);
    bench.begun(&[tp(0)]);
    bench.settle();
    assert_eq!(bench.due(), []);
    bench.an_hour_passes();
    assert_eq!(bench.due(), [(words(), 3)]);
}

#[test]
fn what_was_committed_before_is_done_with_at_once() {
    let mut bench = bench();
    bench.settle();
    bench.an_hour_passes();
    let mut spec = bench.worker.shared.spec.clone();
    spec.purge_queue = Arc::default();
    bench.replace(spec, through_a_repartition);
    bench.assign_these([words()]);
    bench.settle();
    bench.feed_to(words(), &["d"]);
    bench.settle();
    assert_eq!(bench.due(), [(words(), 3)]);
}

/// The policy for a first start applies to the topics of other apps. The records of the app's own topic were written
/// for this app, maybe by another worker just before.
#[test]
fn a_first_start_takes_a_repartition_topic_from_its_beginning() {
    let mut bench = bench_from(FirstStart::Latest);
    bench.settle();
    bench.an_hour_passes();
    assert_eq!(
        bench.visible(),
        ["a", "b", "c"],
        "and none of the others' topic"
    );
}

/// Another worker has committed the records that this reader wants. The group will report the loss of the partition.
#[test]
fn a_purged_repartition_topic_is_no_error_for_its_previous_owner() {
    let mut bench = bench();
    bench.settle();
    bench.kafka.broker().starts.insert(words(), 100);
    bench.receives(out_of_range(words(), 3));
    for _ in 0..5 {
        bench.worker.step().unwrap();
    }
    bench.revoke_this(words(), true);
    bench.settle();
    bench.an_hour_passes();
    assert!(bench.worker.step().is_ok());
}

/// Another worker owned the partition meanwhile, and the records that it had read were purged. The client detected the
/// missing offset before the rebalance, but reports it afterwards, and has stopped the new fetch.
#[test]
fn a_report_of_an_offset_before_ours_is_no_error_and_the_partition_is_sought() {
    let mut bench = bench();
    bench.settle();
    let late = out_of_range(words(), 1);
    bench.receives(late.clone());
    bench.receives(late);
    bench.settle();
    let sought = format!("seek {WORDS}-0@3");
    let calls = bench.kafka.calls();
    assert!(calls.contains(&sought), "{calls:?}");
    bench.feed_to(words(), &["d"]);
    // The records before the report are committed first, and then those after it.
    bench.an_hour_passes();
    bench.an_hour_passes();
    assert!(bench.worker.step().is_ok());
    assert_eq!(bench.visible().last().map(String::as_str), Some("d"));
}

#[test]
fn a_repartition_topic_that_lost_unread_records_is_an_error_in_the_end() {
    let mut bench = bench();
    bench.settle();
    bench.kafka.broker().starts.insert(words(), 100);
    bench.receives(out_of_range(words(), 3));
    bench.worker.step().unwrap();
    let error = bench.end_after(Duration::from_secs(3601));
    assert_error(&error, |e| {
        matches!(e, WorkerError::OffsetOutOfRange { .. })
    });
}

/// Between the two queries at the start of a task, another worker committed, and its records were purged.
#[test]
fn a_committed_offset_that_moved_before_the_bounds_were_known_is_queried_again() {
    let mut bench = bench();
    bench.settle();
    bench.an_hour_passes();
    let spec = bench.worker.shared.spec.clone();
    bench.replace(spec, through_a_repartition);
    let before = bench.visible().len();
    bench.pending(CallSite::Bounds, 3);
    bench.assign_these([words()]);
    bench.step();
    bench.step();
    {
        let mut broker = bench.kafka.broker();
        assert!(
            broker.script[&CallSite::Bounds].len() < 3,
            "its offset is known"
        );
        let log = broker.input.get_mut(&words()).unwrap();
        log.extend(["d", "e", "f"].map(str::to_owned));
        broker.committed.get_mut(&words()).unwrap().0 = 5;
        broker.starts.insert(words(), 5);
    }
    bench.settle();
    bench.an_hour_passes();
    assert_eq!(bench.visible()[before..], ["f"]);
    assert_eq!(bench.committed_of(&words()), Some(6));
}
