//! Windows: what is late, what is forgotten, and that a crash changes neither.

use eos_protocol::Partition;
use eos_protocol::state::{Family, StoreId};
use eos_state::{Direction, KeyRange, StoreBackend, changelog};

use super::state::Disk;
use super::*;
use crate::store::window_of;
use crate::{ErrorPolicy, Tumbling, WindowStore};

const CHANGELOG: &str = "app-in-windowed-changelog";
/// Output topics, in order of declaration.
const LATE: usize = 0;

fn changelog() -> TopicPartition {
    TopicPartition::new(CHANGELOG, Partition::ZERO)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Counts in windows of 100 ms with a grace of 50 ms; a record that is called `drop` is filtered out.
fn counting(policy: ErrorPolicy) -> impl Fn(&mut App) {
    move |app| {
        let source = app
            .source(&Topic::<String, String>::plain("in"))
            .on_error(policy.clone());
        let counts = source
            .try_map(|value| match value.starts_with("bad") {
                true => Err("bad".into()),
                false => Ok::<_, Failure>(value),
            })
            .filter(|value| !value.starts_with("drop"))
            .group_by_key()
            .windowed_by(Tumbling::of(ms(100)).grace(ms(50)))
            .late_to(&Topic::plain("late"))
            .count(&WindowStore::plain("counts"));
        let out = app.output(&Topic::<String, String>::plain("out"));
        counts.to_stream().process(move |ctx, update| {
            let (start, n) = (update.key.window.start.0, update.value);
            ctx.emit(&out, update.key.key, format!("{start}:{n}"))
        });
    }
}

struct Windows {
    bench: Bench,
    disk: Disk,
}

impl Windows {
    fn new() -> Self {
        Self::with(ErrorPolicy::Fail)
    }

    fn with(policy: ErrorPolicy) -> Self {
        let (kafka, clock, disk) = (Fake::default(), Clock::default(), Disk::default());
        kafka.broker().input.insert(tp(0), Vec::new());
        let worker = new_worker(&kafka, &clock, spec_on(&disk), counting(policy));
        let bench = Bench {
            kafka,
            clock,
            worker,
        };
        bench.assign(&[0]);
        Self { bench, disk }
    }

    /// Records at these times, and what came of them: `<start>:<count>` of an update, the record itself
    /// where it was late.
    fn take(&mut self, records: &[&str]) -> Vec<String> {
        let before = self.bench.visible().len();
        self.bench.feed(0, records);
        self.bench.settle();
        self.bench.visible().split_off(before)
    }

    fn totals(&self) -> crate::metrics::Totals {
        let Bench { clock, worker, .. } = &self.bench;
        worker.meter.read(clock.env().now()).totals
    }

    fn late(&self) -> Vec<String> {
        let broker = self.bench.kafka.broker();
        let late = broker.visible.iter().filter(|(to, _)| *to == LATE);
        late.map(|(_, value)| value.clone()).collect()
    }

    /// Another process takes over.
    fn restart(&mut self) {
        let (kafka, clock) = (&self.bench.kafka, &self.bench.clock);
        let worker = new_worker(
            kafka,
            clock,
            spec_on(&self.disk),
            counting(ErrorPolicy::Fail),
        );
        self.bench.worker = worker;
        self.bench.kafka.calls();
        self.bench.assign(&[0]);
        self.bench.settle();
    }

    /// The same, with an empty disk.
    fn restart_without_a_database(&mut self) {
        let (kafka, clock) = (self.bench.kafka.clone(), self.bench.clock.clone());
        // The worker of before gives its database back, and then it is gone.
        let spec = spec_on(&Disk::default());
        drop(std::mem::replace(
            &mut self.bench.worker,
            new_worker(&kafka, &clock, spec, counting(ErrorPolicy::Fail)),
        ));
        self.disk.wipe();
        self.restart();
    }

    /// The same, while the changelog is trimmed by whoever had the task before: what is to be read next
    /// is not there any more, so many times. Answers how it ended, and how often it was read.
    fn restart_while_trimmed(&mut self, times: i64) -> (Result<(), WorkerError>, i64) {
        let (kafka, clock) = (self.bench.kafka.clone(), self.bench.clock.clone());
        self.disk.wipe();
        let worker = new_worker(
            &kafka,
            &clock,
            spec_on(&self.disk),
            counting(ErrorPolicy::Fail),
        );
        self.bench.worker = worker;
        self.disk.wipe();
        kafka.calls();
        self.bench.assign(&[0]);
        let mut reads = 0;
        for _ in 0..400 {
            if let Err(error) = self.bench.worker.step() {
                return (Err(error), reads);
            }
            clock.pass(ms(50));
            let read = |call: &String| call.starts_with("assign app-in-windowed-changelog");
            if kafka.calls().iter().any(read) {
                reads += 1;
                if reads <= times {
                    kafka.broker().starts.insert(changelog(), reads);
                    let event = SourceEvent::OutOfRange(changelog());
                    kafka.event("app-i-0-consumer", event);
                }
            }
        }
        (Ok(()), reads)
    }

    /// The starts of the windows that the database holds, the worker having gone.
    fn kept(self) -> Vec<i64> {
        let Self { bench, disk } = self;
        drop(bench);
        let databases = disk.databases.lock().unwrap();
        let (home, database) = databases.iter().next().unwrap();
        assert!(home.windowed);
        let id = StoreId::windowed("counts");
        let mut cursor = database
            .scan(id, &KeyRange::all(), Direction::Forward)
            .unwrap();
        let mut starts = Vec::new();
        while let Some((key, _)) = cursor.entry() {
            starts.push(window_of(key).unwrap().0);
            cursor.advance().unwrap();
        }
        starts
    }
}

fn spec_on(disk: &Disk) -> WorkerSpec {
    WorkerSpec {
        output_partitions: vec![1, 1, 2],
        output_limits: vec![None; 3],
        state: StateSpec {
            home: Arc::new(disk.clone()),
            cluster: "c".into(),
            ..StateSpec::default()
        },
        ..spec(0, Guarantee::ExactlyOnce)
    }
}

#[test]
fn what_is_kept_per_window_is_in_the_windowed_changelog() {
    let mut windows = Windows::new();
    assert_eq!(
        windows.take(&["a@0", "b@99", "c@100"]),
        ["0:1", "0:2", "100:1"]
    );
    let broker = windows.bench.kafka.broker();
    let logs: Vec<_> = broker.changelogs.keys().cloned().collect();
    assert_eq!(logs, [changelog()], "and in no other one");
    let records: Vec<_> = broker.changelogs[&changelog()].iter().flatten().collect();
    let id = StoreId::windowed("counts").to_be_bytes();
    let last = changelog::commit_record_key(Family::Windowed);
    for (key, value) in &records {
        assert!(key.starts_with(&id) || key[..] == last, "{key:?}");
        assert!(value.is_some(), "no tombstones");
    }
    assert_eq!(records.last().unwrap().0, last);
}

#[test]
fn windows_are_made_anew_from_their_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@99", "c@100"]);
    windows.restart_without_a_database();
    let calls = windows.bench.kafka.calls();
    let read = |call: &String| call.starts_with("assign app-in-windowed-changelog");
    assert!(calls.iter().any(read), "{calls:?}");
    assert_eq!(windows.take(&["d@100", "e@50"]), ["100:2", "0:3"]);
}

#[test]
fn a_changelog_that_is_trimmed_while_it_is_read_is_read_from_its_new_front() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@500", "c@510"]);
    let (end, reads) = windows.restart_while_trimmed(1);
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(reads, 2);
    assert_eq!(windows.take(&["d@520"]), ["500:3"]);
}

#[test]
fn a_changelog_that_is_gone_wherever_it_is_read_stops_the_task() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@500", "c@510", "d@520", "e@530", "f@540"]);
    let (end, reads) = windows.restart_while_trimmed(i64::MAX);
    let error = end.unwrap_err().to_string();
    assert!(error.contains("its front was deleted meanwhile"), "{error}");
    assert_eq!(reads, 4);
}

#[test]
fn a_window_takes_records_until_its_end_and_grace_have_passed() {
    let mut windows = Windows::new();
    assert_eq!(windows.take(&["a@10", "b@149"]), ["0:1", "100:1"]);
    assert_eq!(windows.take(&["c@20"]), ["0:2"], "within grace");
    assert_eq!(windows.take(&["d@150", "e@30"]), ["100:2", "e@30"]);
    assert_eq!(windows.late(), ["e@30"]);
    let totals = windows.totals();
    assert_eq!(totals.late_records, 1);
    // Ten days: what is that old is late, however much of it there is.
    let ten_days = 10 * 24 * 3600 * 1000_i64;
    let now = format!("now@{}", ten_days + 10);
    windows.take(&[&now]);
    assert_eq!(windows.take(&["old@10", "old@11"]), ["old@10", "old@11"]);
}

/// The position says it, and the offset's metadata: without them a closed window would open again.
#[test]
fn a_closed_window_stays_closed_after_a_crash() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@500"]);
    windows.restart();
    assert_eq!(windows.take(&["c@20"]), ["c@20"], "on the same database");
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["d@20"]), ["d@20"], "on a new one");
    assert_eq!(windows.take(&["e@520"]), ["500:2"]);
}

#[test]
fn an_aborted_transaction_closes_no_window() {
    let mut windows = Windows::new();
    windows.take(&["a@10"]);
    windows.bench.next_flush_aborts();
    assert_eq!(windows.take(&["b@20", "c@500"]), ["0:2", "500:1"]);
    assert!(windows.bench.kafka.calls().contains(&"abort".to_owned()));
}

#[test]
fn a_closure_sees_stream_time_with_its_own_record() {
    let (kafka, clock) = (Fake::default(), Clock::default());
    let log = ["a@none", "b@5", "c@3", "d@9"].map(str::to_owned).to_vec();
    kafka.broker().input.insert(tp(0), log);
    let spec = spec(0, Guarantee::ExactlyOnce);
    let worker = new_worker(&kafka, &clock, spec, |app| {
        let out = app.output(&Topic::<String, String>::plain("out"));
        app.source(&Topic::<String, String>::plain("in"))
            .process(move |ctx, record| {
                let seen = ctx.stream_time().map(|time| time.0);
                ctx.emit(&out, record.key, format!("{seen:?}"))
            });
    });
    let mut bench = Bench {
        kafka,
        clock,
        worker,
    };
    bench.assign(&[0]);
    bench.settle();
    assert_eq!(bench.visible(), ["None", "Some(5)", "Some(5)", "Some(9)"]);
}

#[test]
fn a_record_that_is_dropped_moves_stream_time_too() {
    let mut windows = Windows::new();
    assert_eq!(windows.take(&["a@10", "drop@500", "b@20"]), ["0:1", "b@20"]);
}

/// As with Kafka Streams, where it never gets to the windows: a broken record may have a broken time.
#[test]
fn a_record_that_fails_moves_no_stream_time() {
    let mut windows = Windows::with(ErrorPolicy::Skip);
    assert_eq!(windows.take(&["a@10", "bad@500", "b@20"]), ["0:1", "0:2"]);
    assert_eq!(windows.take(&["c@30"]), ["0:3"]);
}

#[test]
fn one_record_from_the_far_future_closes_everything_before_it() {
    let mut windows = Windows::new();
    let year_9999 = "b@253370764800000";
    assert_eq!(
        windows.take(&["a@10", year_9999, "c@20"]),
        ["0:1", "253370764800000:1", "c@20"]
    );
    let last = format!("d@{}", i64::MAX);
    assert_eq!(
        windows.take(&[&last, "e@30"]),
        ["9223372036854775800:1", "e@30"]
    );
    assert_eq!(windows.kept(), [9_223_372_036_854_775_800]);
}

#[test]
fn a_record_without_a_time_fails_and_the_policy_decides() {
    for time in ["none", "-1"] {
        let record = format!("b@{time}");
        let mut windows = Windows::with(ErrorPolicy::Skip);
        assert_eq!(windows.take(&["a@10", &record, "c@20"]), ["0:1", "0:2"]);
        let mut windows = Windows::new();
        windows.bench.feed(0, &[&record]);
        let error = windows.bench.end().unwrap_err().to_string();
        assert!(error.contains("the record has no time"), "{error}");
        assert!(error.contains("LogAppendTime"), "{error}");
    }
}

#[test]
fn a_database_forgets_what_is_over_and_the_changelog_gets_no_tombstones() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@100", "c@200"]);
    windows.take(&["d@300"]);
    // 0 and 100 are over at 300: their retention is 150.
    let logged = windows.bench.kafka.broker().changelogs[&changelog()].clone();
    let values = logged.iter().flatten().map(|(_, value)| value);
    assert!(values.into_iter().all(Option::is_some));
    assert_eq!(windows.kept(), [200, 300]);
}

#[test]
fn a_restore_leaves_out_what_is_over() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@100", "c@200"]);
    windows.take(&["d@300"]);
    windows.restart_without_a_database();
    assert_eq!(windows.kept(), [200, 300]);
}

#[test]
fn a_record_that_fails_is_not_counted_as_late() {
    let mut windows = Windows::with(ErrorPolicy::Skip);
    windows.take(&["a@500", "b@none", "c@10"]);
    let totals = windows.totals();
    assert_eq!((totals.skipped, totals.late_records), (1, 1));
}

impl Windows {
    /// Up to where the changelog is of no use any more, as far as that was told.
    fn trimmed(&mut self) -> Option<i64> {
        self.bench.settle();
        let due = self.bench.worker.spec.done_with.due();
        let log = due.into_iter().find(|(log, _)| *log == changelog());
        log.map(|(_, below)| below.get())
    }

    fn log(&self) -> Vec<Option<Vec<u8>>> {
        let broker = self.bench.kafka.broker();
        let log = broker.changelogs[&changelog()].iter();
        log.map(|r| r.as_ref().map(|(key, _)| key.clone()))
            .collect()
    }
}

#[test]
fn a_changelog_goes_as_far_as_all_windows_are_over() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    assert_eq!(windows.trimmed(), None);
    windows.take(&["c@159"]);
    assert_eq!(windows.trimmed(), None, "kept for 150 ms from 10 on");
    let before = windows.log().len() as i64;
    windows.take(&["d@400"]);
    let trimmed = windows.trimmed().unwrap();
    assert_eq!(trimmed, before, "everything up to the last transaction");
    let last = changelog::commit_record_key(Family::Windowed);
    let rest = windows.log().split_off(trimmed as usize);
    assert!(rest.iter().flatten().any(|key| key[..] == last), "{rest:?}");
    // What is left is enough.
    let start = (changelog(), trimmed);
    windows.bench.kafka.broker().starts.extend([start]);
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["e@410", "f@20"]), ["400:2", "f@20"]);
}

#[test]
fn without_a_later_commit_record_nothing_of_it_goes() {
    let mut windows = Windows::new();
    windows.take(&["a@10"]);
    // Stream time goes on, and nothing is written.
    windows.take(&["drop@5000"]);
    windows.take(&["drop@9000"]);
    assert_eq!(windows.trimmed(), None);
    windows.restart_without_a_database();
    assert_eq!(windows.take(&["b@9001"]), ["9000:1"]);
}

/// A closure may write to a window that begins later than its record.
#[test]
fn a_window_of_the_future_keeps_its_changelog() {
    let ahead = |app: &mut App| {
        let store =
            app.window_store(&WindowStore::<String, u64>::plain("counts").retention(ms(150)));
        app.source(&Topic::<String, String>::plain("in"))
            .with_store(&store)
            .process(move |ctx, record| {
                let time = record.timestamp.map_or(0, |time| time.0);
                let start = crate::Timestamp(if time == 10 { 5000 } else { time });
                ctx.window_store(&store).put(&record.value, start, &1)?;
                Ok(())
            });
    };
    let mut windows = Windows::new();
    let Bench { kafka, clock, .. } = &windows.bench;
    let (kafka, clock) = (kafka.clone(), clock.clone());
    let again = |disk: &Disk| {
        let mut spec = spec_on(disk);
        spec.output_partitions = vec![1];
        spec.output_limits = vec![None];
        new_worker(&kafka, &clock, spec, ahead)
    };
    windows.bench.worker = again(&windows.disk);
    windows.bench.assign(&[0]);
    windows.take(&["a@10"]);
    windows.take(&["b@400"]);
    windows.take(&["c@800"]);
    assert_eq!(windows.trimmed(), None, "5000 is to come");
    // Nor does whoever comes next forget it.
    windows.bench.worker = again(&windows.disk);
    windows.bench.assign(&[0]);
    windows.bench.settle();
    windows.take(&["d@1200"]);
    windows.take(&["e@1600"]);
    assert_eq!(windows.trimmed(), None);
    windows.take(&["f@5150"]);
    windows.take(&["g@5400"]);
    assert!(windows.trimmed().is_some());
}
