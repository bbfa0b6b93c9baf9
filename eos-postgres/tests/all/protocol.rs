//! Rows and positions commit together, under a fence.

use std::task::Poll;
use std::time::Duration;

use eos_core::boundary::{LedgerFailure, Plan};
use eos_postgres::testing::{run, value};
use eos_postgres::{Postgres, SqlTable};

use crate::support::{Register, Worker, database, expected, partition, rows, wait};

const TABLE: &str = "CREATE TABLE t (n bigint)";

fn table(shop: &Postgres) -> SqlTable<String, i64> {
    shop.table("t").column("n", |_, n: &i64| *n)
}

fn worker(url: &str, name: &str) -> (Worker, SqlTable<String, i64>) {
    let shop = Postgres::connect(url).unwrap();
    let table = table(&shop);
    (Worker::new(&shop, &[table.register()], name), table)
}

#[test]
fn nothing_is_visible_before_the_commit() {
    let url = database("visible", TABLE);
    let (mut worker, table) = worker(&url, "w");
    let taken = worker.take(0);
    assert_eq!((taken.offset, taken.name.as_str()), (None, ""));
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    worker.set(&taken, 1, "first").unwrap();
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    worker.commit().unwrap();
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "1");
    let looked = crate::support::wait(|slice| worker.positions.look(&[partition(0)], slice));
    let looked = looked.unwrap();
    assert_eq!(looked[0].name, "first");
    assert_eq!(looked[0].offset.unwrap().get(), 1);
}

#[test]
fn an_abort_and_a_dropped_session_leave_nothing() {
    let url = database("nothing", TABLE);
    let (mut worker, table) = worker(&url, "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    worker.abort().unwrap();
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    worker.set(&taken, 1, "first").unwrap();
    worker.renew().unwrap();
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    assert_eq!(worker.take(0).offset, None);
}

#[test]
fn a_former_owner_is_fenced_in_set_and_in_hold() {
    let url = database("fenced", TABLE);
    let (mut old, table) = worker(&url, "old");
    let (mut new, _) = worker(&url, "new");
    let before = old.take(0);
    old.session.begin().unwrap();
    old.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    let after = new.take(0);
    assert!(after.epoch > before.epoch);
    let error = old.finish(&before, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Moved(vec![partition(0)]));
    old.begin(&before);
    let error = old.finish(&before, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Moved(vec![partition(0)]));
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    // The new owner goes on.
    new.begin(&after);
    new.finish(&after, 1).unwrap();
}

#[test]
fn every_position_is_compared() {
    let url = database("compared", TABLE);
    let (mut worker, _) = worker(&url, "w");
    let (good, bad) = (worker.take(0), worker.take(1));
    rows(
        &url,
        "UPDATE eos.positions SET next_offset = 9 WHERE partition = 1",
    );
    worker.session.begin().unwrap();
    let one = |taken: &eos_core::boundary::Taken| eos_core::boundary::Move {
        expected: expected(taken),
        to: crate::support::offset(1),
        name: "x".into(),
    };
    let moves = [one(&good), one(&bad)];
    let answer = crate::support::wait(|slice| worker.session.set(&moves, slice));
    assert_eq!(
        answer.unwrap_err().failure,
        LedgerFailure::Moved(vec![partition(1)])
    );
    // What failed never commits, also if the worker tries.
    assert!(worker.commit().is_err());
    assert_eq!(
        rows(
            &url,
            "SELECT next_offset FROM eos.positions WHERE partition = 0"
        ),
        "NULL"
    );
}

/// After a failover that loses take-overs, other workers receive the same epochs. The owner distinguishes them.
#[test]
fn the_owner_of_an_epoch_is_compared_in_set_and_in_hold() {
    let url = database("owners", TABLE);
    let (mut worker, table) = worker(&url, "w");
    let taken = worker.take(0);
    run(&url, "UPDATE eos.positions SET owner = owner + 1").unwrap();
    for holds in [false, true] {
        worker.session.begin().unwrap();
        if holds {
            worker.session.hold(&[expected(&taken)]).unwrap();
        }
        worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
        if holds {
            let error = wait(|slice| worker.session.flush(slice)).unwrap_err();
            assert_eq!(error.failure, LedgerFailure::Moved(vec![partition(0)]));
            worker.abort().unwrap();
        } else {
            let error = worker.finish(&taken, 1).unwrap_err();
            assert_eq!(error.failure, LedgerFailure::Moved(vec![partition(0)]));
        }
    }
    assert_eq!(value(&url, "SELECT count(*) FROM t").unwrap(), "0");
    let epoch = "SELECT epoch FROM eos.positions";
    assert_eq!(rows(&url, epoch), taken.epoch.0.to_string());
}

/// M7 of the design. The server ends a statement or a session whose client is gone, and not one whose closure is slow.
#[test]
fn the_limits_of_a_session_follow_the_time_of_a_transaction() {
    let url = database("limits", "CREATE TABLE t (name text, value text)");
    let shop = Postgres::connect(&url).unwrap();
    let read = shop.statement::<String, i64>(
        "read",
        "INSERT INTO t SELECT name, current_setting(name) FROM (VALUES ('statement_timeout'), ('lock_timeout'), \
           ('idle_in_transaction_session_timeout'), ('client_connection_check_interval')) AS x(name)",
    );
    let plan = |seconds: u64| Plan {
        transaction_timeout: Duration::from_secs(seconds),
        ..crate::support::plan(&[read.register()])
    };
    for (seconds, limits) in [
        (2, "2s|1s|4s|5s"),
        (12, "12s|3s|24s|5s"),
        (50, "50s|4s|100s|5s"),
    ] {
        let mut worker = Worker::of(&shop, plan(seconds), "w");
        let taken = worker.take(0);
        worker.begin(&taken);
        worker.put(&read, (0, 0), &"k".into(), Some(&1)).unwrap();
        let to = taken.offset.map_or(0, |offset| offset.get()) + 1;
        worker.finish(&taken, to).unwrap();
        let found = "SELECT max(value) FILTER (WHERE name = 'statement_timeout'), \
               max(value) FILTER (WHERE name = 'lock_timeout'), \
               max(value) FILTER (WHERE name LIKE 'idle%'), max(value) FILTER (WHERE name LIKE 'client%') FROM t";
        assert_eq!(rows(&url, found), limits);
        run(&url, "DELETE FROM t").unwrap();
    }
}

/// If a statement hides a COMMIT from the check, rows before and after it are durable, and the position can still be
/// moved: only the id of the transaction tells.
#[test]
fn a_commit_inside_of_a_statement_is_found() {
    let url = database("inner_commit", TABLE);
    let shop = Postgres::connect(&url).unwrap();
    let table = table(&shop);
    let sneaky = (shop.statement::<String, i64>("sneaky", "COMMIT")).unchecked();
    let places = [table.register(), sneaky.register()];
    let mut worker = Worker::new(&shop, &places, "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    worker.put(&sneaky, (0, 1), &"k".into(), Some(&1)).unwrap();
    let error = worker.finish(&taken, 2).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Fatal, "{error}");
    assert!(error.text.contains("has ended the transaction"), "{error}");
    assert_eq!(worker.take(0).offset, None);
}

/// A COMMIT in sight is refused at the start.
#[test]
fn a_statement_that_commits_is_refused() {
    let url = database("commits", TABLE);
    let shop = Postgres::connect(&url).unwrap();
    let commit = shop.statement::<String, i64>("c", "/* */ COMMIT");
    let plan = crate::support::plan(&[commit.register()]);
    let limit = Duration::from_secs(10);
    let error = eos_core::boundary::Ledger::check(&shop, &plan, limit).unwrap_err();
    assert!(error.text.contains("begins with COMMIT"), "{error}");
}

/// After a statement has failed, COMMIT answers without an error, and commits nothing.
#[test]
fn a_failed_transaction_never_reports_a_commit() {
    let url = database("failed", "CREATE TABLE t (n bigint CHECK (n < 10))");
    let (mut worker, table) = worker(&url, "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"k".into(), Some(&10)).unwrap();
    let error = worker.set(&taken, 1, "first").unwrap_err();
    assert!(error.blames_a_record);
    assert!(error.text.contains("23514"), "{error}");
    assert!(worker.commit().is_err());
    assert!(worker.session.is_spoiled());
    assert_eq!(worker.take(0).offset, None);
}

/// What a successor concludes from a commit without an answer, at random moments: the truth. A weaker reader or a
/// weaker commit is wrong in some of the same trials.
#[test]
fn a_commit_without_an_answer_is_resolved() {
    let url = database("doubt", TABLE);
    let (mut committed, mut rolled_back) = (0, 0);
    let (mut successor, _) = worker(&url, "successor");
    for trial in 0..60_u64 {
        let (mut owner, table) = worker(&url, &format!("owner-{trial}"));
        let taken = owner.take(0);
        let from = taken.offset.map_or(0, |offset| offset.get());
        owner.begin(&taken);
        owner
            .put(&table, (0, from), &"k".into(), Some(&from))
            .unwrap();
        let name = format!("mine-{trial}");
        owner.set(&taken, from + 1, &name).unwrap();
        let patience = Duration::from_micros(trial % 12 * 60);
        let answer = owner.session.commit(patience);
        let known = matches!(answer, Poll::Ready(Ok(())));
        assert!(known || owner.session.is_spoiled());
        // The worker drops the session, and its successor acts at once.
        drop(owner);
        let after = successor.take(0);
        let is_mine = after.name == name;
        assert!(is_mine || !known, "an answered commit is lost");
        let count = value(&url, &format!("SELECT count(*) FROM t WHERE n = {from}")).unwrap();
        assert_eq!(count, if is_mine { "1" } else { "0" }, "trial {trial}");
        // What was rolled back stays so.
        if is_mine {
            committed += 1;
        } else {
            rolled_back += 1;
        }
    }
    assert!(committed > 0, "no commit was under way: {rolled_back}");
    let total = value(&url, "SELECT count(*) FROM t").unwrap();
    assert_eq!(total, committed.to_string());
}
