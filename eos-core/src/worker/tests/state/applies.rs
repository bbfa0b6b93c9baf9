//! Database writes that overlap with the next transaction.

use super::*;

/// The settings and the count of database writes.
#[derive(Debug, Default)]
pub(super) struct Applies {
    /// Whether a write ends only when the worker waits for it.
    pub(super) are_slow: bool,
    /// The number of writes that the worker waited for.
    pub(super) waited: u32,
    /// A clock, and the time of the next wait.
    pub(super) stall: Option<(Clock, Duration)>,
}

/// A worker whose database has not applied the last transaction yet.
fn slow() -> (Bench, Disk) {
    let (mut bench, disk) = counted();
    disk.applies.lock().unwrap().are_slow = true;
    bench.take(&["a"]);
    assert_eq!(bench.visible().last().unwrap(), "a=3", "it is committed");
    assert_eq!(disk.waited(), 0);
    (bench, disk)
}

impl Disk {
    fn waited(&self) -> u32 {
        self.applies.lock().unwrap().waited
    }
}

#[test]
fn records_are_processed_while_the_database_applies_the_last_transaction() {
    let (mut bench, disk) = slow();
    bench.take(&["a", "b"]);
    bench.assert_counted();
    assert_eq!(disk.waited(), 1, "before the second commit");
    bench.take(&["a"]);
    bench.assert_counted();
    assert_eq!(disk.waited(), 2);
}

#[test]
fn an_abort_keeps_the_transaction_that_the_database_still_applies() {
    let (mut bench, disk) = slow();
    bench.next_flush_aborts();
    bench.take(&["b", "a"]);
    bench.assert_called("abort");
    bench.take(&["a"]);
    bench.assert_counted();
    assert!(disk.waited() > 0);
}

#[test]
fn a_failed_database_write_stops_the_task_before_its_next_commit() {
    let (mut bench, disk) = slow();
    *disk.full.lock().unwrap() = true;
    bench.feed(0, &["b"]);
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::Store { .. }), "{error}");
    assert_eq!(bench.visible().last().unwrap(), "a=3");
    *disk.full.lock().unwrap() = false;
    disk.applies.lock().unwrap().are_slow = false;
    bench.restart(&disk);
    bench.settle();
    bench.assert_counted();
}

/// The coordinator would abort the open transaction, and fence its producer.
#[test]
fn a_transaction_that_waits_too_long_for_the_database_is_repeated() {
    let (mut bench, disk) = slow();
    let stall = (bench.clock.clone(), Duration::from_secs(25));
    disk.applies.lock().unwrap().stall = Some(stall);
    bench.kafka.calls();
    bench.take(&["a"]);
    assert!(disk.applies.lock().unwrap().stall.is_none());
    bench.assert_called("abort");
    bench.assert_counted();
}

/// Restores all counts on a disk whose writes do not end yet.
fn restoring() -> (Bench, Disk) {
    let (mut bench, disk) = slow();
    bench.restart_on_wiped(&disk);
    bench.feed(0, &["a"]);
    bench.settle_without_commit();
    assert!(bench.read_changelog());
    (bench, disk)
}

#[test]
fn a_task_takes_no_record_while_its_database_writes_the_last_restored_ones() {
    let (mut bench, disk) = restoring();
    let before = bench.visible();
    bench.settle_without_commit();
    assert_eq!(bench.visible(), before);
    disk.applies.lock().unwrap().are_slow = false;
    bench.settle();
    bench.assert_counted();
    assert_eq!(disk.waited(), 0, "the worker does not wait for a restore");
}

#[test]
fn a_failed_write_of_a_restore_stops_the_task() {
    let (mut bench, disk) = restoring();
    *disk.full.lock().unwrap() = true;
    disk.applies.lock().unwrap().are_slow = false;
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::Store { .. }), "{error}");
}

#[test]
fn a_task_that_is_revoked_during_the_last_write_of_its_restore_gives_the_changelog_back() {
    let (mut bench, disk) = restoring();
    bench.revoke(0, false);
    bench.settle();
    bench.assert_called("unassign [in-0, app-in-changelog-0]");
    disk.applies.lock().unwrap().are_slow = false;
    bench.restart(&disk);
    bench.settle();
    bench.assert_counted();
}

/// The worker ends with the first error, and does not wait for a deadline.
#[test]
fn a_failed_database_write_ends_a_worker_whose_record_has_failed() {
    let disk = Disk::default();
    let failing = |app: &mut App| {
        let (counts, out) = counts_and_out(app);
        app.source(&text("in"))
            .with_store(&counts)
            .for_each(move |ctx, record| {
                if record.value == "poison" {
                    return Err("poison".into());
                }
                ctx.store(&counts).put(&record.value, &1)?;
                ctx.emit(&out, record.key, record.value)
            });
    };
    let mut bench = Bench::of(stateful(&disk, 0), failing);
    bench.feed(0, &["a"]);
    bench.assign(&[0]);
    bench.settle();
    disk.applies.lock().unwrap().are_slow = true;
    bench.take(&["b"]);
    *disk.full.lock().unwrap() = true;
    bench.feed(0, &["c", "poison"]);
    let error = bench.end_within(20).unwrap_err();
    assert!(matches!(error, WorkerError::Record { .. }), "{error}");
    assert_eq!(bench.visible(), ["a", "b"]);
}

#[test]
fn a_revoked_task_leaves_an_exact_database() {
    let (mut bench, disk) = slow();
    bench.revoke(0, false);
    bench.settle();
    assert_eq!(disk.waited(), 1);
    assert_eq!(disk.seq(), 3);
    bench.restart(&disk);
    bench.take(&["a"]);
    bench.assert_counted();
    assert!(!bench.read_changelog());
}

/// Otherwise the restart table of the next owner would be the first to detect the failed write.
#[test]
fn a_revocation_and_a_stop_report_the_failed_write_of_the_last_transaction() {
    let ends: [fn(&mut Bench); 2] = [
        |bench| bench.revoke(0, false),
        |bench| bench.worker.stop(StopMode::Restart),
    ];
    for end in ends {
        let (mut bench, disk) = slow();
        *disk.full.lock().unwrap() = true;
        end(&mut bench);
        let error = bench.end().unwrap_err();
        assert!(matches!(error, WorkerError::Store { .. }), "{error}");
    }
}

#[test]
fn a_worker_writes_its_last_transaction_before_it_stops() {
    let (mut bench, disk) = slow();
    bench.worker.stop(StopMode::Restart);
    bench.end().unwrap();
    assert_eq!(disk.waited(), 1);
}

/// The client keeps its own limit of fetched records. So the memory of a restore is one write, and the next one up to
/// its limit and the rest of a batch.
#[test]
fn a_restore_reads_no_further_than_one_write_ahead() {
    let disk = Disk::default();
    let mut bench = bench_on(&disk);
    let words: Vec<String> = (0..3 * 4096).map(|n| format!("w{n}")).collect();
    bench.feed(0, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
    bench.settle();
    bench.assert_counted();
    disk.applies.lock().unwrap().are_slow = true;
    let mut spec = stateful(&disk, 0);
    spec.state.restore_batch = 1000;
    bench.replace(spec, counting);
    disk.wipe();
    bench.assign(&[0]);
    bench.settle();
    let read = |bench: &Bench| bench.worker.restorer.progress(bench.worker.shared.now());
    assert_eq!(read(&bench).first().map(|it| it.records), Some(2 * 4096));
    disk.applies.lock().unwrap().are_slow = false;
    bench.settle();
    assert!(read(&bench).is_empty());
    bench.take(&["w1", "a"]);
    bench.assert_counted();
}
