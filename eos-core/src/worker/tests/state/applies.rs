//! The write of a committed transaction to its database, while the worker goes on.

use super::*;

/// How databases take transactions.
#[derive(Debug, Default)]
pub(super) struct Applies {
    /// Whether a write ends only when the worker waits for it.
    pub(super) are_slow: bool,
    /// The number of writes that the worker waited for.
    pub(super) waited: u32,
}

/// A worker whose database has not taken the last transaction yet.
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
fn records_are_processed_before_the_database_has_the_last_transaction() {
    let (mut bench, disk) = slow();
    bench.take(&["a", "b"]);
    bench.assert_counted();
    assert_eq!(disk.waited(), 1, "before the second commit");
    bench.take(&["a"]);
    bench.assert_counted();
    assert_eq!(disk.waited(), 2);
}

#[test]
fn an_abort_keeps_the_transaction_that_the_database_does_not_have_yet() {
    let (mut bench, disk) = slow();
    bench.next_flush_aborts();
    bench.take(&["b", "a"]);
    bench.assert_called("abort");
    bench.take(&["a"]);
    bench.assert_counted();
    assert!(disk.waited() > 0);
}

#[test]
fn a_database_that_refuses_a_transaction_stops_the_task_before_its_next_commit() {
    let (mut bench, disk) = slow();
    *disk.full.lock().unwrap() = true;
    bench.feed(0, &["b"]);
    let error = bench.end().unwrap_err();
    assert!(matches!(error, WorkerError::Store { .. }), "{error}");
    assert_eq!(bench.visible().last().unwrap(), "a=3");
    *disk.full.lock().unwrap() = false;
    bench.restart(&disk);
    bench.settle();
    bench.assert_counted();
}

#[test]
fn a_revoked_task_leaves_a_database_that_is_exact() {
    let (mut bench, disk) = slow();
    bench.revoke(0, false);
    bench.settle();
    assert_eq!(disk.seq(), 3);
    bench.restart(&disk);
    bench.take(&["a"]);
    bench.assert_counted();
    assert!(!bench.read_changelog());
}

#[test]
fn a_stopped_worker_has_written_its_last_transaction() {
    let (mut bench, disk) = slow();
    bench.worker.stop(StopMode::Restart);
    bench.end().unwrap();
    assert_eq!(disk.waited(), 1);
}
