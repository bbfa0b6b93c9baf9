//! Windows: late records and forgotten windows, and crashes, which change neither.

mod changelogs;
mod stale_copies;

use eos_protocol::Partition;
use eos_protocol::state::{Family, RestoreKind, StoreId};
use eos_state::{Direction, KeyRange, StoreBackend, changelog};

use super::state::{Disk, stateful};
use super::*;
use crate::ErrorPolicy;
use crate::state::WindowStore;
use crate::store::window_of;
use crate::windows::Tumbling;

const CHANGELOG: &str = "app-in-windowed-changelog";
/// The call that starts to read the changelog.
const READ: &str = "assign app-in-windowed-changelog";
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
    counting_in(graceful(50), policy)
}

/// Windows of 100 ms with this grace.
fn graceful(grace: u64) -> Tumbling {
    Tumbling::of(ms(100)).grace(ms(grace))
}

fn counting_in(windows: Tumbling, policy: ErrorPolicy) -> impl Fn(&mut App) {
    move |app| {
        let source = app.source(&text("in")).on_error(policy.clone());
        let counts = source
            .try_map(|value| match value.starts_with("bad") {
                true => Err("bad".into()),
                false => Ok::<_, Failure>(value),
            })
            .filter(|value| !value.starts_with("drop"))
            .group_by_key()
            .windowed_by(windows)
            .late_to(&Topic::plain("late"))
            .count(&WindowStore::plain("counts"));
        let out = app.output(&text("out"));
        counts.to_stream().for_each(move |ctx, update| {
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
        Self::with(ErrorPolicy::fail())
    }

    fn with(policy: ErrorPolicy) -> Self {
        let disk = Disk::default();
        let bench = Bench::of(spec_on(&disk), counting(policy));
        bench.assign(&[0]);
        Self { bench, disk }
    }

    /// Feeds records with these times. Returns the outputs: `<start>:<count>` for an update, and the record itself if
    /// it was late.
    fn take(&mut self, records: &[&str]) -> Vec<String> {
        let before = self.bench.visible().len();
        self.bench.take(records);
        self.bench.visible().split_off(before)
    }

    fn totals(&self) -> crate::metrics::Totals {
        self.bench.totals()
    }

    fn late(&self) -> Vec<String> {
        let broker = self.bench.kafka.broker();
        let late = broker.visible.iter().filter(|(to, _)| *to == LATE);
        late.map(|(_, value)| value.clone()).collect()
    }

    /// Replaces the process by another one.
    fn restart(&mut self) {
        self.deploy(graceful(50));
        self.bench.settle();
    }

    /// Replaces the program by one with these windows.
    fn deploy(&mut self, windows: Tumbling) {
        let declare = counting_in(windows, ErrorPolicy::fail());
        self.bench.replace(spec_on(&self.disk), declare);
        self.bench.kafka.calls();
        self.bench.assign(&[0]);
    }

    /// As [`Self::deploy`], on an empty disk if `elsewhere`.
    fn deploy_at(&mut self, elsewhere: bool, windows: Tumbling) {
        if elsewhere {
            self.lose_database();
        }
        self.deploy(windows);
    }

    /// Lets the worker close its database, then wipes the disk.
    fn lose_database(&mut self) {
        let nowhere = spec_on(&Disk::default());
        self.bench.replace(nowhere, counting(ErrorPolicy::fail()));
        self.disk.wipe();
    }

    fn restart_without_a_database(&mut self) {
        self.lose_database();
        self.restart();
    }

    /// Restarts without a database while the former owner of the task trims the changelog `times` times. Each time, the
    /// next record to read is missing. Returns the result of the worker and the number of reads.
    fn restart_while_trimmed(&mut self, times: i64) -> (Result<(), WorkerError>, i64) {
        self.deploy_at(true, graceful(50));
        let mut reads = 0;
        for _ in 0..400 {
            if let Err(error) = self.bench.worker.step() {
                return (Err(error), reads);
            }
            self.bench.clock.pass(STEP);
            if self.bench.calls_begin_with(READ) {
                reads += 1;
                if reads <= times {
                    self.trim(reads);
                    self.bench.receives(out_of_range(changelog(), 0));
                }
            }
        }
        (Ok(()), reads)
    }

    /// Moves the start of the changelog to this offset.
    fn trim(&self, front: i64) {
        let mut broker = self.bench.kafka.broker();
        broker.starts.insert(changelog(), front);
    }

    /// Drops the worker. Returns the starts of the windows in its database.
    fn kept(self) -> Vec<i64> {
        let Self { bench, disk } = self;
        drop(bench);
        let databases = disk.databases.lock().unwrap();
        let (home, database) = databases.iter().next().unwrap();
        assert!(home.windowed);
        let id = StoreId::stamped(Family::Windowed, "counts");
        let mut cursor = database
            .scan(id, &KeyRange::all(), Direction::Forward)
            .unwrap();
        let mut starts = Vec::new();
        while let Some((key, _)) = cursor.entry() {
            starts.extend(window_of(key).map(|start| start.0));
            cursor.advance().unwrap();
        }
        starts
    }
}

fn spec_on(disk: &Disk) -> WorkerSpec {
    WorkerSpec {
        output_partitions: vec![1, 1, 2],
        output_limits: vec![None; 3],
        ..stateful(disk, 0)
    }
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
    // Records that are ten days old are late, however many there are.
    let ten_days = 10 * 24 * 3600 * 1000_i64;
    let now = format!("now@{}", ten_days + 10);
    windows.take(&[&now]);
    assert_eq!(windows.take(&["old@10", "old@11"]), ["old@10", "old@11"]);
}

/// Returns the outputs of `declare` for these records, with one transaction per group of records.
fn told(declare: impl FnOnce(&mut App), records: &[&[&str]]) -> Vec<String> {
    let spec = WorkerSpec {
        output_partitions: vec![1; 2],
        output_limits: vec![None; 2],
        ..spec_on(&Disk::default())
    };
    let mut bench = Bench::of(spec, declare);
    bench.assign(&[0]);
    for transaction in records {
        bench.take(transaction);
    }
    bench.visible()
}

/// `start:result@time`.
fn tell<A: std::fmt::Debug + 'static>(
    app: &mut App,
    updates: crate::Stream<crate::windows::Windowed<String>, A>,
) {
    let out = app.output(&text("out"));
    updates.for_each(move |ctx, update| {
        let (start, time) = (update.key.window.start.0, update.timestamp.unwrap().0);
        assert_eq!(update.key.window.end.0, start + 100);
        let text = format!("{start}:{:?}@{time}", update.value);
        ctx.emit(&out, update.key.key, text)
    });
}

fn hundreds(app: &mut App) -> crate::windows::WindowedGroup<String, String> {
    let source = app.source(&text("in"));
    source.group_by_key().windowed_by(graceful(50))
}

#[test]
fn the_last_result_of_each_window_is_emitted_once_per_commit_in_window_order() {
    let declare = |app: &mut App| {
        let counts = hundreds(app).count(&WindowStore::plain("counts"));
        tell(app, counts.emit_per_commit().to_stream());
    };
    let records: [&[&str]; 3] = [
        &["a@110", "b@20", "c@10", "d@120"],
        // Both windows are closed by the very transaction that counts the last of them.
        &["e@130", "f@900"],
        &["g@910"],
    ];
    assert_eq!(
        told(declare, &records),
        ["0:2@20", "100:2@120", "100:3@130", "900:1@900", "900:2@910"]
    );
}

/// As in `AggregateOrDelete`: the deletion of a missing row is an update, too. A deletion also deletes the row's time.
#[test]
fn a_deleted_result_is_a_tombstone_and_the_next_one_starts_empty() {
    let sums = |app: &mut App| {
        hundreds(app).aggregate_or_delete(
            &WindowStore::plain("sums"),
            || 0,
            |_, value, sum: u64| (!value.starts_with("end")).then_some(sum + 1),
        )
    };
    let each = |app: &mut App| {
        let updates = sums(app).to_stream();
        tell(app, updates);
    };
    let records: [&[&str]; 3] = [
        &["a@10", "a@80", "end@20"],
        &["a@30", "end@110"],
        &["a@120", "end@130", "a@115"],
    ];
    assert_eq!(
        told(each, &records),
        [
            "0:Some(1)@10",
            "0:Some(2)@80",
            "0:None@80",
            "0:Some(1)@30",
            "100:None@110",
            "100:Some(1)@120",
            "100:None@130",
            "100:Some(1)@115",
        ]
    );
    let last = |app: &mut App| {
        let updates = sums(app).emit_per_commit().to_stream();
        tell(app, updates);
    };
    assert_eq!(
        told(last, &records),
        [
            "0:None@80",
            "0:Some(1)@30",
            "100:None@110",
            "100:Some(1)@115"
        ],
        "a tombstone has the stream time"
    );
}

#[test]
fn the_first_value_of_a_window_is_kept_as_it_is_and_a_reducer_may_end_it() {
    let declare = |app: &mut App| {
        let least = hundreds(app).reduce_or_delete(&WindowStore::plain("least"), |one, other| {
            (!other.starts_with("end")).then(|| std::cmp::min(one, other))
        });
        tell(app, least.to_stream());
    };
    let records: [&[&str]; 2] = [&["b@1", "a@2", "end@3"], &["end@4", "f@5"]];
    assert_eq!(
        told(declare, &records),
        [
            "0:Some(\"b@1\")@1",
            "0:Some(\"a@2\")@2",
            "0:None@3",
            "0:Some(\"end@4\")@4",
            "0:Some(\"end@4\")@5"
        ]
    );
}

/// The database's position and the offset's metadata contain the stream time. Without them, a closed window would open
/// again.
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
    windows.bench.assert_called("abort");
}

#[test]
fn a_closure_sees_stream_time_with_its_own_record() {
    let mut bench = Bench::of(spec(0, Guarantee::ExactlyOnce), |app| {
        let out = app.output(&text("out"));
        app.source(&text("in")).for_each(move |ctx, record| {
            let seen = ctx.stream_time().map(|time| time.0);
            ctx.emit(&out, record.key, format!("{seen:?}"))
        });
    });
    bench.assign(&[0]);
    bench.take(&["a@none", "b@5", "c@3", "d@9"]);
    assert_eq!(bench.visible(), ["None", "Some(5)", "Some(5)", "Some(9)"]);
}

#[test]
fn a_record_that_is_dropped_moves_stream_time_too() {
    let mut windows = Windows::new();
    assert_eq!(windows.take(&["a@10", "drop@500", "b@20"]), ["0:1", "b@20"]);
}

/// As in Kafka Streams, where a failed record never reaches the windows. Its time may be wrong as well.
#[test]
fn a_record_that_fails_moves_no_stream_time() {
    let mut windows = Windows::with(ErrorPolicy::skip());
    assert_eq!(windows.take(&["a@10", "bad@500", "b@20"]), ["0:1", "0:2"]);
    assert_eq!(windows.take(&["c@30"]), ["0:3"]);
}

const YEAR_9999: &str = "b@253370764800000";
const HOUR: i64 = 3_600_000;

/// Windows that take records of up to an hour ahead of the clock.
fn up_to_an_hour_ahead(policy: ErrorPolicy) -> Windows {
    let mut windows = Windows::with(policy.clone());
    let mut spec = spec_on(&windows.disk);
    spec.most_ahead = Some(Duration::from_secs(3600));
    windows.bench.replace(spec, counting(policy));
    windows.bench.assign(&[0]);
    windows.bench.settle();
    windows
}

/// The policy decides about the record, and the metrics count it.
#[test]
fn a_record_from_the_far_future_closes_no_window() {
    let mut windows = up_to_an_hour_ahead(ErrorPolicy::skip());
    let last = format!("d@{}", i64::MAX);
    let records = ["a@10", YEAR_9999, &last, "c@20"];
    assert_eq!(windows.take(&records), ["0:1", "0:2"]);
    assert_eq!(windows.totals().skipped, 2);
    assert_eq!(windows.kept(), [0]);
    let mut windows = up_to_an_hour_ahead(ErrorPolicy::fail());
    windows.bench.feed(0, &[YEAR_9999]);
    let error = windows.bench.end().unwrap_err().to_string();
    for part in [
        "ahead of the machine's clock",
        "max.timestamp.ahead.ms",
        "trust_times",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_record_up_to_the_limit_ahead_is_processed() {
    let mut windows = up_to_an_hour_ahead(ErrorPolicy::skip());
    let now = windows.bench.worker.shared.env.wall_clock().0;
    // The clock advances during the steps, by less than a minute.
    let records = [
        format!("a@{}", now + HOUR + 60_000),
        format!("b@{}", now + HOUR),
    ];
    let taken = windows.take(&[&records[0], &records[1]]);
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(windows.totals().skipped, 1);
}

#[test]
fn without_a_limit_a_record_from_the_far_future_closes_everything_before_it() {
    let mut windows = Windows::new();
    assert_eq!(
        windows.take(&["a@10", YEAR_9999, "c@20"]),
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
        let mut windows = Windows::with(ErrorPolicy::skip());
        assert_eq!(windows.take(&["a@10", &record, "c@20"]), ["0:1", "0:2"]);
        let mut windows = Windows::new();
        windows.bench.feed(0, &[&record]);
        let error = windows.bench.end().unwrap_err().to_string();
        assert!(error.contains("the record has no timestamp"), "{error}");
        assert!(error.contains("LogAppendTime"), "{error}");
    }
}

#[test]
fn a_record_that_fails_is_not_counted_as_late() {
    let mut windows = Windows::with(ErrorPolicy::skip());
    windows.take(&["a@500", "b@none", "c@10"]);
    let totals = windows.totals();
    assert_eq!((totals.skipped, totals.late_records), (1, 1));
}

/// A worker with this many tasks, whose windows close after three seconds without records. Each has one window.
fn idle_tasks(tasks: i32) -> Bench {
    let spec = WorkerSpec {
        input_partitions: BTreeMap::from([("in".into(), tasks.unsigned_abs())]),
        output_partitions: vec![2],
        output_limits: vec![None],
        ..spec_on(&Disk::default())
    };
    let mut bench = Bench::of(spec, |app| {
        let source = app.source(&text("in")).close_when_idle(ms(3_000));
        let counts = source
            .group_by_key()
            .windowed_by(graceful(50))
            .count(&WindowStore::plain("counts"))
            .emit_on_close();
        let out = app.output(&text("out"));
        counts.for_each(move |ctx, result| {
            ctx.emit(&out, result.key.key, format!("{}", result.value))
        });
    });
    bench.assign(&(0..tasks).collect::<Vec<_>>());
    for partition in 0..tasks {
        bench.feed(partition, &["a@10"]);
    }
    bench.settle();
    assert!(bench.visible().is_empty());
    bench
}

#[test]
fn a_partition_without_a_leader_keeps_no_window_of_another_one_open() {
    let mut bench = idle_tasks(2);
    bench.kafka.broker().leaderless.insert(tp(0));
    bench.steps(400);
    assert_eq!(bench.visible().len(), 1);
    bench.kafka.broker().leaderless.clear();
    bench.steps(400);
    assert_eq!(bench.visible().len(), 2);
}

#[test]
fn a_changelog_without_a_leader_keeps_no_window_open() {
    let mut bench = idle_tasks(2);
    bench.kafka.broker().leaderless.insert(changelog());
    // A query of the changelogs is under way then.
    bench.steps(100);
    for partition in 0..2 {
        bench.feed(partition, &["a@1000000"]);
    }
    bench.steps(400);
    assert_eq!(bench.visible().len(), 4);
}

/// The first response ends the waits of all tasks, which are ten seconds each.
#[test]
fn windows_of_all_tasks_close_soon_after_an_outage() {
    let mut bench = idle_tasks(8);
    bench.kafka.broker().leaderless = (0..8).map(tp).collect();
    bench.steps(1_200);
    assert!(bench.visible().is_empty());
    bench.kafka.broker().leaderless.clear();
    bench.steps(400);
    assert_eq!(bench.visible().len(), 8);
}
