//! State: the changes of a transaction are in the changelog, in the database and nowhere else.

mod applies;
mod restores;
mod views;

use std::sync::Mutex;
use std::task::Poll;

use eos_protocol::Partition;
use eos_protocol::state::{Position, RestartError, Standing, StoreId};
use eos_state::{
    Batch, Cursor, Direction, InFlight, KeyRange, MemoryBackend, StoreBackend, StoreError,
};

use super::*;
use crate::{KeyValueStore, Output, Store};

type Databases = Arc<Mutex<BTreeMap<TaskHome, MemoryBackend>>>;

/// A disk: databases outlive workers.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) databases: Databases,
    /// Whether every write to a database fails.
    full: Arc<Mutex<bool>>,
    /// Whether another reader locks the next database to discard.
    looked_at: Arc<Mutex<bool>>,
    /// Whether every read of a database fails.
    broken: Arc<Mutex<bool>>,
    applies: Arc<Mutex<applies::Applies>>,
}

/// A database that is open; it goes back to the disk when it is closed.
#[derive(Debug)]
struct Open {
    task: TaskHome,
    disk: Disk,
    inner: Option<MemoryBackend>,
    /// A transaction that is written when the worker waits for it, or when the database is closed.
    pending: Option<Arc<InFlight>>,
}

impl Home for Disk {
    fn open(&self, task: &TaskHome) -> Result<Option<Box<dyn StoreBackend>>, HomeError> {
        let found = self.databases.lock().unwrap().remove(task);
        Ok(Some(Box::new(Open {
            task: task.clone(),
            disk: self.clone(),
            inner: Some(found.unwrap_or_default()),
            pending: None,
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

    fn begin_apply(&mut self, in_flight: &Arc<InFlight>) -> Result<(), StoreError> {
        if !self.disk.applies.lock().unwrap().are_slow {
            return self.apply(&in_flight.batch(), in_flight.position());
        }
        assert!(self.pending.is_none(), "one at a time");
        self.pending = Some(Arc::clone(in_flight));
        Ok(())
    }

    fn end_apply(&mut self, wait: bool) -> Poll<Result<(), StoreError>> {
        let ends = wait || !self.disk.applies.lock().unwrap().are_slow;
        let Some(in_flight) = self.pending.take_if(|_| ends) else {
            return match self.pending {
                Some(_) => Poll::Pending,
                None => Poll::Ready(Ok(())),
            };
        };
        let mut applies = self.disk.applies.lock().unwrap();
        applies.waited += u32::from(wait);
        if let Some((clock, time)) = applies.stall.take_if(|_| wait) {
            clock.pass(time);
        }
        drop(applies);
        Poll::Ready(self.apply(&in_flight.batch(), in_flight.position()))
    }

    fn position(&self) -> Option<&Position> {
        self.inner().position()
    }

    fn reader(&self) -> Option<eos_state::StateReader> {
        self.inner().reader()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(in_flight) = self.pending.take() {
            let _ = self.apply(&in_flight.batch(), in_flight.position());
        }
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

    /// Checks that the counts of each word rise by one, and that the changelog has the last ones.
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
        // The state of a reader at the end of the whole changelog.
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
fn at_least_once_no_change_is_sent_before_the_outputs_are_acknowledged() {
    let spec = WorkerSpec {
        guarantee: Guarantee::AtLeastOnce,
        ..stateful(&Disk::default(), 0)
    };
    let mut bench = Bench::of(spec, counting);
    bench.feed(0, &["a", "b", "a"]);
    bench.assign(&[0]);
    bench.settle();
    let calls = bench.kafka.calls();
    let first = calls.iter().position(|call| call == "send").unwrap();
    let mut order = calls[first..].to_vec();
    order.dedup();
    assert_eq!(order[..4], ["send", "flush", "log", "flush"], "{calls:?}");
    // If the outputs are not acknowledged, the attempt leaves no change.
    bench.fails(CallSite::Flush, abortable(-192));
    bench.feed(0, &["c"]);
    bench.settle();
    let calls = bench.kafka.calls();
    let sends = calls.iter().filter(|call| call.starts_with("send"));
    let changes = calls.iter().filter(|call| call.starts_with("log"));
    let (sends, changes) = (sends.count(), changes.count());
    // The second attempt sends the output again, and the change of `c` with its commit record for the first time.
    assert_eq!((sends, changes), (2, 2), "{calls:?}");
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

/// A closure may ignore the error of its store.
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
    /// Restarts on a wiped disk, and steps until the worker reads the changelog.
    fn restart_reading(&mut self, disk: &Disk) {
        self.restart_on_wiped(disk);
        self.steps_until(Self::read_changelog);
    }

    /// Makes the client report the changelog as out of range. The client has then stopped to read it.
    fn changelog_is_out_of_range(&self) {
        self.receives(out_of_range(changelog(), 0));
    }
}

impl Bench {
    /// Returns the number of restores of each kind (exact, replayed, rebuilt, first), and the number of records that
    /// they read.
    fn restores(&self) -> ([u64; 4], u64) {
        let totals = self.totals();
        let mut kinds = totals.restores.iter().map(|(_, n)| n);
        (
            std::array::from_fn(|_| kinds.next().unwrap()),
            totals.restored_records,
        )
    }
}

/// An aggregate may outgrow its changelog: its record fails, and the records of other keys continue.
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
