//! State: what a transaction changed is in the changelog, in the database and nowhere else.

use std::sync::Mutex;

use eos_protocol::Partition;
use eos_protocol::state::{Position, RestartError, Standing, StoreId};
use eos_state::{Batch, Cursor, Direction, KeyRange, MemoryBackend, StoreBackend, StoreError};

use super::*;
use crate::{KeyValueStore, Output, Store};

type Databases = Arc<Mutex<BTreeMap<TaskHome, MemoryBackend>>>;

/// A disk: databases outlive workers.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) databases: Databases,
    /// Every write to a database fails from now on.
    full: Arc<Mutex<bool>>,
    /// The next database to discard is locked by another reader.
    looked_at: Arc<Mutex<bool>>,
    /// So does every read.
    broken: Arc<Mutex<bool>>,
}

/// A database that is open; it goes back to the disk when it is closed.
#[derive(Debug)]
struct Open {
    task: TaskHome,
    disk: Disk,
    inner: Option<MemoryBackend>,
}

impl Home for Disk {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let found = self.databases.lock().unwrap().remove(task);
        Ok(Some(Box::new(Open {
            task: task.clone(),
            disk: self.clone(),
            inner: Some(found.unwrap_or_default()),
        })))
    }

    fn discard(&self, task: &TaskHome) -> Result<bool, HomeError> {
        if std::mem::take(&mut *self.looked_at.lock().unwrap()) {
            return Ok(false);
        }
        self.databases.lock().unwrap().remove(task);
        Ok(true)
    }
}

impl Open {
    fn inner(&self) -> &MemoryBackend {
        self.inner.as_ref().unwrap()
    }
}

impl StoreBackend for Open {
    fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        if *self.disk.broken.lock().unwrap() {
            return Err(StoreError::Io {
                path: "/state".into(),
                source: eos_state::EngineFault::new("input/output error"),
            });
        }
        self.inner().get(store, key, value)
    }

    fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        self.inner().multi_get(store, keys, found)
    }

    fn scan<'a>(
        &'a self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Box<dyn Cursor + 'a>, StoreError> {
        self.inner().scan(store, range, direction)
    }

    fn stores(&self) -> Result<Vec<StoreId>, StoreError> {
        self.inner().stores()
    }

    fn apply(&mut self, batch: &Batch<'_>, position: &Position) -> Result<(), StoreError> {
        if *self.disk.full.lock().unwrap() {
            return Err(StoreError::DiskFull {
                path: "/state".into(),
                source: eos_state::EngineFault::new("no space left on device"),
            });
        }
        self.inner.as_mut().unwrap().apply(batch, position)
    }

    fn position(&self) -> Option<&Position> {
        self.inner().position()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let inner = self.inner.take().unwrap();
        let mut databases = self.disk.databases.lock().unwrap();
        databases.insert(self.task.clone(), inner);
    }
}

pub(super) const CHANGELOG: &str = "app-in-changelog";

pub(super) fn changelog() -> TopicPartition {
    TopicPartition::new(CHANGELOG, Partition::ZERO)
}

pub(super) fn counts_and_out(
    app: &mut App,
) -> (Store<KeyValueStore<String, u64>>, Output<String, String>) {
    let counts = app.store(&KeyValueStore::plain("counts"));
    (counts, app.output(&text("out")))
}

pub(super) fn counting(app: &mut App) {
    let (counts, out) = counts_and_out(app);
    app.source(&text("in"))
        .on_error(crate::ErrorPolicy::skip())
        .with_store(&counts)
        .for_each(move |ctx, record| {
            let word = record.value;
            let n = ctx.store(&counts).update(&word, |n| n.unwrap_or(0) + 1)?;
            if word == "poison" {
                return Err("poison".into());
            }
            ctx.emit(&out, record.key, format!("{word}={n}"))
        });
}

pub(super) fn stateful(disk: &Disk, id: u16) -> WorkerSpec {
    WorkerSpec {
        output_partitions: vec![1, 2],
        output_limits: vec![None, None],
        state: StateSpec {
            home: Arc::new(disk.clone()),
            cluster: "c".into(),
            ..StateSpec::default()
        },
        ..spec(id, Guarantee::ExactlyOnce)
    }
}

fn bench_on(disk: &Disk) -> Bench {
    let bench = Bench::of(stateful(disk, 0), counting);
    bench.feed(0, &["a", "b", "a"]);
    bench.assign(&[0]);
    bench
}

/// A worker that has counted and committed its first words.
fn counted() -> (Bench, Disk) {
    let disk = Disk::default();
    let mut bench = bench_on(&disk);
    bench.settle();
    (bench, disk)
}

/// As [`counted`], with a second task that has counted its words.
fn both_counted() -> (Bench, Disk) {
    let disk = Disk::default();
    let mut bench = bench_on(&disk);
    bench.feed(1, &["x", "y"]);
    bench.assign(&[1]);
    bench.settle();
    (bench, disk)
}

impl Bench {
    /// Replaces the process by another one, as after a crash.
    fn restart(&mut self, disk: &Disk) {
        self.replace(stateful(disk, 0), counting);
        self.kafka.calls();
        self.assign(&[0]);
    }

    /// Replaces the worker by one on another disk, which releases the databases of its own disk.
    fn restart_elsewhere(&mut self) {
        self.replace(stateful(&Disk::default(), 0), counting);
    }

    fn restart_on_wiped(&mut self, disk: &Disk) {
        self.restart(disk);
        disk.wipe();
    }

    /// Checks the counts of both tasks, and one more word of the first task.
    #[track_caller]
    fn assert_both_counted(&self) {
        let mut counts = self.visible();
        counts.sort();
        assert_eq!(counts, ["a=1", "a=2", "a=3", "b=1", "x=1", "y=1"]);
    }

    /// The last count that each word was sent with: each one more than the one before.
    #[track_caller]
    fn assert_counted(&self) {
        let mut counts = BTreeMap::<String, u64>::new();
        for output in self.visible() {
            let (word, n) = output.split_once('=').unwrap();
            let count = counts.entry(word.to_owned()).or_default();
            *count += 1;
            assert_eq!(n, count.to_string(), "{:?}", self.visible());
        }
        let broker = self.kafka.broker();
        let mut expected = BTreeMap::<String, u64>::new();
        for word in broker.input[&tp(0)].iter().filter(|word| *word != "poison") {
            *expected.entry(word.clone()).or_default() += 1;
        }
        assert_eq!(counts, expected);
        // What a reader of the whole changelog would have at the end.
        let mut logged = BTreeMap::new();
        for (key, value) in broker.changelogs[&changelog()].iter().flatten() {
            logged.insert(key.clone(), value.clone());
        }
        let id = StoreId::plain("counts").to_be_bytes();
        let kept = expected.iter().map(|(word, n)| {
            let key = [&id[..], word.as_bytes()].concat();
            (key, Some(n.to_be_bytes().to_vec()))
        });
        logged.retain(|key, _| key.len() > 4);
        assert_eq!(logged, kept.collect());
    }

    fn read_changelog(&self) -> bool {
        self.calls_begin_with("assign app-in-changelog")
    }

    fn cut_changelog(&self, records: usize) {
        let mut broker = self.kafka.broker();
        let log = broker.changelogs.get_mut(&changelog()).unwrap();
        log.truncate(records);
    }

    fn restart_error(&mut self) -> RestartError {
        match self.end().unwrap_err() {
            WorkerError::Restart(error) => *error,
            other => panic!("{other}"),
        }
    }
}

impl Disk {
    fn task() -> TaskHome {
        TaskHome {
            task: eos_protocol::TaskId::default(),
            windowed: false,
        }
    }

    pub(super) fn wipe(&self) {
        self.databases.lock().unwrap().clear();
    }

    fn seq(&self) -> u64 {
        let databases = self.databases.lock().unwrap();
        let position = databases[&Self::task()].position().unwrap();
        match &position.standing {
            Standing::At { seq, .. } => seq.0,
            Standing::Restoring { .. } => panic!("restoring"),
        }
    }
}

#[test]
fn counts_go_to_the_changelog_once_a_key_and_a_commit_record_comes_last() {
    let (bench, _disk) = counted();
    bench.assert_counted();
    let broker = bench.kafka.broker();
    let log = &broker.changelogs[&changelog()];
    let keys = log.iter().map(|r| r.as_ref().map(|(key, _)| key.len()));
    let keys: Vec<_> = keys.collect();
    assert_eq!(
        keys,
        [Some(5), Some(5), Some(4), None],
        "a, b, the commit record, the marker: one transaction"
    );
    let (_, metadata) = &broker.committed[&tp(0)];
    assert!(metadata.contains(";2;"), "{metadata}");
    let fields: Vec<&str> = metadata.split(';').collect();
    assert_eq!(
        fields[5], fields[3],
        "it names its commit record: {metadata}"
    );
}

#[test]
fn a_record_that_fails_leaves_no_trace_in_the_store() {
    let mut bench = bench_on(&Disk::default());
    bench.take(&["poison", "a", "poison"]);
    bench.assert_counted();
    assert_eq!(bench.committed(0), Some(6));
}

#[test]
fn an_aborted_transaction_leaves_no_trace_in_the_store() {
    let (mut bench, _disk) = counted();
    bench.next_flush_aborts();
    bench.take(&["b", "a"]);
    bench.assert_called("abort");
    bench.take(&["a"]);
    bench.assert_counted();
}

#[test]
fn a_commit_in_doubt_is_applied_once_or_not_at_all() {
    for happened in [true, false] {
        let (mut bench, disk) = counted();
        bench.feed(0, &["b", "c"]);
        let fault = fatal(code::LOCAL_FENCED);
        match happened {
            true => bench.done_but(CallSite::Commit, fault),
            false => bench.fails(CallSite::Commit, fault),
        }
        bench.settle();
        bench.take(&["c"]);
        bench.assert_counted();
        bench.restart(&disk);
        bench.settle();
        assert!(!bench.read_changelog(), "the database is exact, too");
    }
}

#[test]
fn a_restart_on_an_exact_database_reads_nothing() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    bench.take(&["a", "c"]);
    assert!(!bench.read_changelog());
    bench.assert_counted();
}

#[test]
fn a_restart_without_a_database_rebuilds_it() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    bench.take(&["a", "c"]);
    assert!(bench.read_changelog());
    bench.assert_counted();
    drop(bench);
    assert_eq!(disk.seq(), 3, "the first start, and twice words");
}

#[test]
fn a_database_of_before_is_brought_to_the_committed_offsets() {
    let (mut bench, disk) = counted();
    // Its copy is taken while it is closed.
    let elsewhere = Disk::default();
    bench.restart(&elsewhere);
    bench.take(&["a", "c", "c"]);
    bench.assert_counted();
    bench.restart(&disk);
    bench.take(&["c"]);
    assert!(bench.read_changelog());
    bench.assert_counted();
}

/// To librdkafka any (un)assign is the answer to a revocation, one that was not heard of yet included.
#[test]
fn nothing_is_assigned_for_a_restore_while_a_transaction_is_open() {
    let (mut bench, disk) = both_counted();
    bench.restart_on_wiped(&disk);
    bench.settle();
    bench.kafka.calls();
    // Its transaction stays open for as long as no time passes.
    bench.feed(0, &["a"]);
    bench.step();
    bench.assign(&[1]);
    for _ in 0..20 {
        bench.step();
    }
    bench.settle();
    let calls = bench.kafka.calls();
    let mut open = false;
    for call in &calls {
        match &call[..] {
            "begin" => open = true,
            "commit" | "abort" => open = false,
            // The answer to the assignment itself; it adds nothing.
            "assign " => {}
            call => assert!(!(open && call.contains("assign")), "{calls:#?}"),
        }
    }
    let read = |call: &&String| call.starts_with("assign app-in-changelog-1");
    assert!(calls.iter().any(|call| read(&call)), "{calls:#?}");
    bench.assert_both_counted();
}

#[test]
fn a_task_that_is_revoked_while_it_is_restored_comes_back() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    // The end that is to be reached is not there yet.
    bench.kafka.broker().open_at_end = 5;
    bench.cut_changelog(2);
    bench.settle();
    assert!(bench.read_changelog());
    bench.revoke(0, false);
    bench.settle();
    let calls = bench.kafka.calls();
    let gone = |call: &String| call.starts_with("unassign") && call.contains("changelog");
    assert!(calls.iter().any(gone), "{calls:#?}");
    bench.assign(&[0]);
    bench.settle();
    assert!(bench.read_changelog());
}

/// A closure may make nothing of what its store answers.
#[test]
fn a_failed_store_stops_the_worker_even_if_the_closure_does_not_care() {
    let disk = Disk::default();
    let mut bench = bench_on(&disk);
    let carefree = |app: &mut App| {
        let (counts, out) = counts_and_out(app);
        app.source(&text("in"))
            .with_store(&counts)
            .for_each(move |ctx, record| {
                let n = ctx.store(&counts).get(&record.value).unwrap_or_default();
                ctx.emit(&out, record.key, format!("{n:?}"))
            });
    };
    bench.replace(stateful(&disk, 0), carefree);
    *disk.broken.lock().unwrap() = true;
    bench.end_with(|e| matches!(e, WorkerError::Store { .. }));
    assert!(bench.visible().is_empty());
}

#[test]
fn offsets_are_queried_again_while_another_task_works() {
    let (mut bench, disk) = both_counted();
    bench.restart(&disk);
    bench.settle();
    let kept = bench.kafka.broker().committed.remove(&tp(1)).unwrap();
    // Its transaction is open when partition 1 comes without an offset.
    bench.feed(0, &["a"]);
    bench.step();
    bench.assign(&[1]);
    for _ in 0..12 {
        bench.step();
    }
    bench.kafka.broker().committed.insert(tp(1), kept);
    bench.settle();
    bench.assert_both_counted();
}

/// While a coordinator loads, it has no offsets for a moment.
#[test]
fn offsets_that_are_missing_for_a_moment_stop_no_task() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    let kept = std::mem::take(&mut bench.kafka.broker().committed);
    bench.settle_without_commit();
    bench.kafka.broker().committed = kept;
    bench.take(&["a"]);
    bench.assert_counted();
}

/// A restore that starts over commits the open transaction of its siblings. Otherwise it would spin until that
/// commit is due.
#[test]
fn a_restore_that_starts_over_ends_the_open_transaction() {
    let (mut bench, disk) = counted();
    let log = TopicPartition::new(CHANGELOG, Partition::new(1).unwrap());
    bench.assign(&[1]);
    bench.settle();
    bench.feed(1, &["x"]);
    bench.settle();
    let older = bench.kafka.broker().committed[&tp(1)].clone();
    bench.feed(1, &["y"]);
    bench.settle();
    bench.restart(&disk);
    bench.settle();
    let newer = bench.kafka.broker().committed.insert(tp(1), older).unwrap();
    // The changelog is ahead of these offsets. Its records become readable later.
    let mut broker = bench.kafka.broker();
    let rest = broker.changelogs.get_mut(&log).unwrap().split_off(0);
    broker.open_at_end = i64::try_from(rest.len()).unwrap();
    drop(broker);
    bench.assign(&[1]);
    for _ in 0..10 {
        bench.step();
    }
    bench.open(&["a"]);
    bench.kafka.calls();
    let mut broker = bench.kafka.broker();
    broker.open_at_end = 0;
    broker.changelogs.get_mut(&log).unwrap().extend(rest);
    drop(broker);
    // No time passes, so the commit does not become due.
    for _ in 0..10 {
        bench.step();
    }
    let calls = bench.kafka.calls();
    assert!(calls.iter().any(|call| call == "commit"), "{calls:#?}");
    assert!(calls.contains(&format!("unassign [{log}]")), "{calls:#?}");
    bench.kafka.broker().committed.insert(tp(1), newer);
    bench.settle();
    let mut counts = bench.visible();
    counts.sort();
    assert_eq!(counts, ["a=1", "a=2", "a=3", "b=1", "x=1", "y=1"]);
}

#[test]
fn reset_offsets_stop_the_task() {
    let (mut bench, disk) = counted();
    bench.restart(&disk);
    let reset = (0, String::new());
    bench.kafka.broker().committed.insert(tp(0), reset);
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::OffsetReset { .. }));
    assert!(error.to_string().contains("--reset-offsets"), "{error}");
}

#[test]
fn offsets_that_are_gone_stop_the_task_even_without_a_database() {
    let (mut bench, disk) = counted();
    bench.restart_on_wiped(&disk);
    bench.kafka.broker().committed.clear();
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::OffsetGone { .. }));
}

#[test]
fn a_changelog_that_lost_its_end_stops_the_task() {
    let (mut bench, disk) = counted();
    bench.take(&["a"]);
    bench.restart_on_wiped(&disk);
    bench.cut_changelog(4);
    let error = bench.restart_error();
    assert_error(&error, |e| matches!(e, RestartError::ChangelogLost { .. }));
}

/// Compaction removes the named commit record once a new owner has written another one. The former owner reads the
/// offsets again, and finds those of the new owner.
#[test]
fn a_commit_record_that_a_new_owner_replaced_is_no_lost_one() {
    let (mut bench, disk) = counted();
    bench.take(&["a"]);
    bench.restart_on_wiped(&disk);
    let replaced = bench.kafka.broker().changelogs[&changelog()].clone();
    bench.cut_changelog(2);
    bench.kafka.calls();
    let restore_starts_over = |bench: &Bench| {
        let calls = bench.kafka.calls();
        calls
            .iter()
            .any(|call| call.starts_with("unassign [app-in-changelog"))
    };
    bench.steps_until(restore_starts_over);
    let mut broker = bench.kafka.broker();
    broker.changelogs.insert(changelog(), replaced);
    drop(broker);
    bench.take(&["c"]);
    bench.assert_counted();
}

#[test]
fn a_disk_that_is_full_stops_the_worker_and_a_restart_heals() {
    let (mut bench, disk) = counted();
    *disk.full.lock().unwrap() = true;
    bench.feed(0, &["a", "c"]);
    let error = bench.end_with(|e| matches!(e, WorkerError::Store { .. }));
    assert!(error.contains("disk is full"), "{error}");
    *disk.full.lock().unwrap() = false;
    bench.restart(&disk);
    bench.take(&["a"]);
    bench.assert_counted();
}

#[test]
fn a_transaction_with_many_changes_is_committed_early() {
    let disk = Disk::default();
    let mut bench = bench_on(&disk);
    let mut spec = stateful(&disk, 0);
    spec.state.uncommitted_bytes = 1;
    bench.replace(spec, counting);
    bench.settle();
    bench.assert_counted();
    let (_, metadata) = bench.kafka.broker().committed[&tp(0)].clone();
    assert!(
        metadata.contains(";4;"),
        "one for the start, three records: {metadata}"
    );
}

impl Bench {
    /// A recreated database, before the changelog is read.
    fn restart_reading(&mut self, disk: &Disk) {
        self.restart_on_wiped(disk);
        self.steps_until(Self::read_changelog);
    }

    /// What the client says of a changelog, having stopped to read it.
    fn changelog_is_out_of_range(&self) {
        self.receives(out_of_range(changelog(), 0));
    }
}

/// The app never deletes from it. (The changelog of windows is trimmed: `windows.rs`.)
#[test]
fn a_changelog_of_plain_stores_whose_front_goes_while_it_is_read_stops_the_task() {
    let (mut bench, disk) = counted();
    bench.restart_reading(&disk);
    bench.kafka.broker().starts.insert(changelog(), 1);
    bench.changelog_is_out_of_range();
    let error = bench.end().unwrap_err().to_string();
    assert!(
        error.contains("the records deleted before that offset would be missing"),
        "{error}"
    );
}

#[test]
fn a_changelog_that_was_out_of_range_for_a_moment_is_read_on() {
    let (mut bench, disk) = counted();
    bench.restart_reading(&disk);
    bench.changelog_is_out_of_range();
    bench.step();
    bench.settle();
    assert!(
        bench.read_changelog(),
        "the client stops at such a partition"
    );
    bench.take(&["a", "b"]);
    bench.assert_counted();
}

impl Bench {
    /// Restores of this worker: exact, replayed, rebuilt, first; and the records read for them.
    fn restores(&self) -> ([u64; 4], u64) {
        let totals = self.totals();
        let mut kinds = totals.restores.iter().map(|(_, n)| n);
        (
            std::array::from_fn(|_| kinds.next().unwrap()),
            totals.restored_records,
        )
    }
}

#[test]
fn restores_are_counted_by_what_they_were_made_from() {
    let (mut bench, disk) = counted();
    assert_eq!(bench.restores(), ([0, 0, 0, 1], 0));
    bench.restart(&disk);
    bench.settle();
    assert_eq!(bench.restores(), ([1, 0, 0, 0], 0), "nothing was read");
    let elsewhere = Disk::default();
    bench.restart(&elsewhere);
    bench.take(&["a"]);
    assert_eq!(bench.restores(), ([0, 0, 1, 0], 3), "a, b, a commit record");
    bench.restart(&disk);
    bench.settle();
    let (kinds, records) = bench.restores();
    assert_eq!(kinds, [0, 1, 0, 0]);
    assert!(records >= 2, "a and a commit record: {records}");
    assert!(bench.metrics().restoring.is_empty());
}

#[test]
fn a_restore_reports_the_remaining_offsets() {
    let (mut bench, disk) = counted();
    bench.kafka.broker().open_at_end = 5;
    bench.restart_reading(&disk);
    bench.kafka.broker().open_at_end = 0;
    bench.kafka.broker().starts.insert(changelog(), 4);
    bench.clock.pass(Duration::from_secs(1));
    bench.step();
    let metrics = bench.metrics();
    let [one] = metrics.restoring[..] else {
        panic!("{metrics:?}");
    };
    assert_eq!((one.records, one.remaining), (0, Some(9)));
}

/// The scan for left-over tasks may hold a short lock on a database that is to be discarded.
#[test]
fn no_copy_is_restored_on_top_of_the_one_that_was_to_go() {
    let (mut bench, disk) = counted();
    bench.restart_elsewhere();
    let id = StoreId::plain("counts");
    {
        let mut databases = disk.databases.lock().unwrap();
        let database = databases.values_mut().next().unwrap();
        let position = database.position().unwrap().clone();
        let mut batch = eos_state::Batch::new();
        batch.write(id, b"stale", Some(b"x"));
        database.apply(&batch, &position).unwrap();
    }
    *disk.looked_at.lock().unwrap() = true;
    let mut spec = stateful(&disk, 0);
    spec.state.cluster = "another".into();
    bench.replace(spec, counting);
    bench.kafka.calls();
    bench.assign(&[0]);
    bench.steps(1200);
    let still = *disk.looked_at.lock().unwrap();
    assert!(!still, "the worker did not try to discard it");
    bench.take(&["a", "b"]);
    bench.restart_elsewhere();
    let databases = disk.databases.lock().unwrap();
    let database = databases.values().next().unwrap();
    let mut value = Vec::new();
    let mut has = |key: &[u8]| database.get(id, key, &mut value).unwrap();
    assert!(has(b"a"), "it was restored");
    assert!(!has(b"stale"));
}

/// An aggregate may outgrow its changelog: its record fails, and those of other keys go on.
#[test]
fn a_change_that_the_changelog_does_not_take_fails_its_record() {
    let mut spec = stateful(&Disk::default(), 0);
    spec.output_limits = vec![None, Some(300)];
    let mut bench = Bench::of(spec, counting);
    bench.feed(0, &["a", &"long".repeat(100), "b"]);
    bench.assign(&[0]);
    bench.settle();
    bench.assert_done(&["a=1", "b=1"], 3);
    bench.assert_not_called("abort");
}
