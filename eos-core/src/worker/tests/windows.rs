//! Windows: what is late, what is forgotten, and that a crash changes neither.

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

    /// Records at these times, and what came of them: `<start>:<count>` of an update, the record itself
    /// where it was late.
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

    /// Another process takes over.
    fn restart(&mut self) {
        self.deploy(graceful(50));
        self.bench.settle();
    }

    /// Another program takes over, whose windows are these.
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

    /// The starts of the windows that the database holds, the worker having gone.
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
    let id = StoreId::stamped(Family::Windowed, "counts").to_be_bytes();
    let last = changelog::commit_record_key(Family::Windowed);
    for (key, value) in &records {
        assert!(key.starts_with(&id) || key[..] == last, "{key:?}");
        assert!(value.is_some(), "no tombstones");
    }
    assert_eq!(records.last().unwrap().0, last);
}

#[test]
fn windows_are_rebuilt_from_their_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@99", "c@100"]);
    windows.restart_without_a_database();
    assert!(windows.bench.calls_begin_with(READ));
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
    assert!(
        error.contains("its first records were deleted meanwhile"),
        "{error}"
    );
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

/// What `declare` makes of these records, in one transaction each.
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

/// As `AggregateOrDelete` has it: the deletion of nothing is an update, too, and the time goes with the row.
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

/// As with Kafka Streams, where it never gets to the windows: a broken record may have a broken time.
#[test]
fn a_record_that_fails_moves_no_stream_time() {
    let mut windows = Windows::with(ErrorPolicy::skip());
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

/// A restore reads them: on which terms they are over is committed only by what comes behind it.
#[test]
fn the_first_commit_behind_a_restore_forgets_what_is_over() {
    let mut windows = Windows::new();
    windows.take(&["a@0", "b@100", "c@200"]);
    windows.take(&["d@300"]);
    windows.restart_without_a_database();
    windows.take(&["drop@301"]);
    assert_eq!(windows.kept(), [200, 300]);
}

#[test]
fn windows_of_another_length_are_refused_and_nothing_is_lost() {
    for elsewhere in [false, true] {
        let mut windows = Windows::new();
        windows.take(&["a@10", "b@110"]);
        windows.deploy_at(elsewhere, Tumbling::of(ms(200)).grace(ms(50)));
        windows.bench.feed(0, &["c@120"]);
        let error = windows.bench.end().unwrap_err().to_string();
        assert!(
            error.contains("store counts: its windows are 100ms long"),
            "{error}"
        );
        assert!(error.contains("200ms long in this program"), "{error}");
        assert!(error.contains("under another app name"), "{error}");
        windows.deploy(graceful(50));
        assert_eq!(windows.take(&[]), ["100:2"]);
    }
}

/// It was forgotten when it was over. Open again, it would begin at one.
#[test]
fn a_window_that_was_over_stays_closed_when_the_grace_grows() {
    for elsewhere in [false, true] {
        let mut windows = Windows::new();
        windows.deploy(graceful(0));
        windows.take(&["a@10", "b@110"]);
        windows.deploy_at(elsewhere, graceful(500));
        let more = ["c@20", "d@120", "e@300", "f@130"];
        let expected = ["c@20", "100:2", "300:1", "100:3"];
        assert_eq!(windows.take(&more), expected, "{elsewhere}");
        // Nor does the next start of the same program know better.
        windows.deploy_at(elsewhere, graceful(500));
        assert_eq!(windows.take(&["g@30", "h@140"]), ["g@30", "100:4"]);
    }
}

#[test]
fn a_smaller_grace_holds_at_once() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy(graceful(0));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["c@20", "100:2"]);
}

/// What a program forgets it has to say, though it counts nothing: the next one may be the one before.
#[test]
fn what_a_smaller_grace_has_forgotten_is_not_open_again_for_the_larger_one() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy(graceful(0));
    windows.take(&["drop@120"]);
    windows.deploy(graceful(500));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["c@20", "100:2"]);
    windows.deploy_at(true, graceful(500));
    assert_eq!(windows.take(&["e@20", "f@120"]), ["e@20", "100:3"]);
}

/// What it restored is what was there: it has committed nothing.
#[test]
fn a_program_that_only_started_has_forgotten_nothing() {
    let mut windows = Windows::new();
    windows.deploy(graceful(500));
    windows.take(&["a@10", "b@110"]);
    windows.deploy_at(true, graceful(0));
    windows.bench.settle();
    windows.deploy(graceful(500));
    assert_eq!(windows.take(&["c@20", "d@120"]), ["0:2", "100:2"]);
}

#[test]
fn a_trimmed_changelog_contains_the_window_terms() {
    let mut windows = Windows::new();
    windows.deploy(graceful(0));
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@390"]);
    let trimmed = windows.trimmed().unwrap();
    windows.trim(trimmed);
    windows.deploy_at(true, graceful(500));
    assert_eq!(windows.take(&["d@410", "e@310"]), ["400:1", "300:2"]);
    assert_eq!(windows.take(&["f@210"]), ["f@210"]);
}

#[test]
fn a_record_that_fails_is_not_counted_as_late() {
    let mut windows = Windows::with(ErrorPolicy::skip());
    windows.take(&["a@500", "b@none", "c@10"]);
    let totals = windows.totals();
    assert_eq!((totals.skipped, totals.late_records), (1, 1));
}

impl Windows {
    /// Up to where the changelog is of no use any more, as far as that was told.
    fn trimmed(&mut self) -> Option<i64> {
        self.bench.settle();
        let due = self.bench.worker.shared.spec.purge_queue.due();
        let log = due.into_iter().find(|(log, _)| *log == changelog());
        log.map(|(_, below)| below.get())
    }

    /// Stream time, and how far a window is ahead of it.
    fn ahead(&self) -> (Option<i64>, Option<Duration>) {
        let metrics = self.bench.metrics();
        let [task] = &metrics.tasks[..] else {
            panic!("{metrics:?}");
        };
        (task.stream_time.map(|time| time.0), task.windows_ahead)
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
    windows.trim(trimmed);
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

impl Windows {
    /// The task goes to another host, and comes back. There these records are taken, and the changelog is
    /// trimmed as far as `front` says. Answers how its state was made whole on its return.
    fn away(&mut self, records: &[&str], front: impl FnOnce(&mut Self) -> i64) -> RestoreKind {
        let here = std::mem::take(&mut self.disk);
        self.restart();
        for record in records {
            self.take(&[record]);
        }
        let front = front(self);
        self.trim(front);
        self.disk = here;
        self.restart();
        let restores = self.totals().restores;
        let kinds = restores.iter().filter(|(_, count)| *count == 1);
        let [(kind, _)] = kinds.collect::<Vec<_>>()[..] else {
            panic!("{restores:?}");
        };
        kind
    }
}

/// What the copy missed is trimmed, and what it holds is over: it goes on with what is left, and nothing
/// that it held is seen again.
#[test]
fn a_copy_whose_windows_have_all_expired_continues_with_a_trimmed_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@30"]);
    // The last of them is trimmed away, and the copy here never heard of it.
    let records = ["d@40", "e@400", "f@800"];
    let kind = windows.away(&records, |windows| windows.trimmed().unwrap());
    assert_eq!(kind, RestoreKind::Replayed);
    assert_eq!(windows.take(&["g@810", "h@50"]), ["800:2", "h@50"]);
    assert_eq!(windows.kept(), [800]);
}

/// Our own trimming does not do that: a later value of the window that is live may have been there.
#[test]
fn a_copy_with_a_live_window_is_rebuilt_from_a_trimmed_changelog() {
    let mut windows = Windows::new();
    windows.take(&["a@10", "b@20"]);
    windows.take(&["c@30"]);
    let records = ["d@40", "e@50"];
    let kind = windows.away(&records, |windows| {
        assert_eq!(windows.trimmed(), None);
        let log = windows.log();
        let commit = changelog::commit_record_key(Family::Windowed);
        let ends = (0..)
            .zip(&log)
            .filter(|(_, key)| key.as_deref() == Some(&commit));
        let ends: Vec<i64> = ends.map(|(at, _)| at).collect();
        ends[ends.len() - 2] + 1
    });
    assert_eq!(kind, RestoreKind::Rebuilt);
    assert_eq!(windows.take(&["f@60"]), ["0:6"]);
}

/// A closure may write to a window that begins later than its record.
#[test]
fn a_window_of_the_future_keeps_its_changelog() {
    let ahead = |app: &mut App| {
        let store = app.store(&WindowStore::<String, u64>::plain("counts").retention(ms(150)));
        app.source(&text("in"))
            .with_store(&store)
            .for_each(move |ctx, record| {
                let time = record.timestamp.map_or(0, |time| time.0);
                let start = crate::Timestamp(if time == 10 { 5000 } else { time });
                ctx.store(&store).put(&record.value, start, &1)?;
                Ok(())
            });
    };
    let mut windows = Windows::new();
    let start = |windows: &mut Windows| {
        let mut spec = spec_on(&windows.disk);
        spec.output_partitions = vec![1];
        spec.output_limits = vec![None];
        windows.bench.replace(spec, ahead);
        windows.bench.assign(&[0]);
    };
    start(&mut windows);
    windows.take(&["a@10"]);
    windows.take(&["b@400"]);
    windows.take(&["c@800"]);
    assert_eq!(windows.trimmed(), None, "5000 is to come");
    assert_eq!(windows.ahead(), (Some(800), Some(ms(4_200))));
    // The next owner does not forget it either.
    start(&mut windows);
    windows.bench.settle();
    windows.take(&["d@1200"]);
    windows.take(&["e@1600"]);
    assert_eq!(windows.trimmed(), None);
    assert_eq!(windows.ahead(), (Some(1600), Some(ms(3_400))));
    windows.take(&["f@5150"]);
    assert_eq!(windows.ahead(), (Some(5150), None));
    windows.take(&["g@5400"]);
    assert!(windows.trimmed().is_some());
}
