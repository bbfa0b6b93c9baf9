//! What goes wrong without a defence. Each of these tests is the control of another one, which shows the defence.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use eos_core::Record;
use eos_core::boundary::{LedgerFailure, Taken};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Apply, Defence, Postgres, Refused, SqlTable};

use crate::support::{Register, Worker, database, partition, rows, wait};

const TABLE: &str = "CREATE TABLE t (n bigint)";

/// A worker of a database without these defences.
fn worker(url: &str, name: &str, removed: &[Defence]) -> (Worker, SqlTable<String, i64>) {
    let shop = Postgres::connect_without(url, removed).unwrap();
    let table = shop.table("t").column("n", |_, n: &i64| *n);
    (Worker::new(&shop, &[table.register()], name), table)
}

/// Writes one row, which stays in the open transaction.
fn write(worker: &mut Worker, table: &SqlTable<String, i64>) -> Taken {
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(table, (0, 0), &"k".into(), Some(&1)).unwrap();
    wait(|slice| worker.session.flush(slice)).unwrap();
    taken
}

/// C2 of the design. See `checks`.
#[test]
fn an_unlogged_table_loses_rows_and_keeps_their_position() {
    let mut cluster = Cluster::temporary(&[]).unwrap();
    let url = cluster.database("unlogged").unwrap();
    run(&url, "CREATE UNLOGGED TABLE t (n bigint)").unwrap();
    let (mut worker, table) = worker(&url, "w", &[Defence::LoggedTables]);
    let taken = write(&mut worker, &table);
    worker.finish(&taken, 1).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t"), "1");
    cluster.kill9().unwrap();
    assert_eq!(rows(&url, "SELECT next_offset FROM eos.positions"), "1");
    assert_eq!(rows(&url, "SELECT n FROM t"), "", "lost");
}

/// C2 of the design, for a closure. See `closures`.
#[test]
fn an_unlogged_table_of_a_closure_loses_rows_and_keeps_their_position() {
    let mut cluster = Cluster::temporary(&[]).unwrap();
    let url = cluster.database("unlogged_closure").unwrap();
    run(&url, "CREATE UNLOGGED TABLE t (n bigint)").unwrap();
    let shop = Postgres::connect_without(&url, &[Defence::LoggedTables]).unwrap();
    let insert: Apply<String, Option<i64>> =
        shop.apply("insert", async |tx, record: Record<String, Option<i64>>| {
            tx.execute("INSERT INTO t VALUES ($1)", &[&record.value])
                .await?;
            Ok(())
        });
    let mut worker = Worker::new(&shop, &[insert.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&insert, (0, 0), &"k".into(), Some(&1)).unwrap();
    worker.finish(&taken, 1).unwrap();
    assert_eq!(rows(&url, "SELECT n FROM t"), "1");
    cluster.kill9().unwrap();
    assert_eq!(rows(&url, "SELECT next_offset FROM eos.positions"), "1");
    assert_eq!(rows(&url, "SELECT n FROM t"), "", "lost");
}

/// C4 (a) of the design: the second COMMIT of a failed transaction succeeds, and commits nothing.
#[test]
fn a_repeated_commit_reports_lost_rows_as_committed() {
    let full = "CREATE TABLE t (n bigint); \
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
          $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$; \
        CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED \
          FOR EACH ROW EXECUTE FUNCTION full_disk()";
    let url = database("repeated", full);
    let late = Defence::EarlyConstraints;
    // The fault fires: COMMIT fails.
    let (mut one, table) = worker(&url, "one", &[late]);
    let taken = write(&mut one, &table);
    let error = one.finish(&taken, 1).unwrap_err();
    assert!(error.text.contains("COMMIT failed: no space"), "{error}");
    drop(one);

    let (mut two, table) = worker(&url, "two", &[late, Defence::OneCommit]);
    let taken = write(&mut two, &table);
    let after = two.finish(&taken, 1).unwrap();
    assert_eq!(after.offset.unwrap().get(), 1);
    assert_eq!(rows(&url, "SELECT n FROM t"), "", "lost");
    assert_eq!(two.take(0).offset, None);
}

/// L5 of the design. See `protocol`: after a failed statement, COMMIT rolls back without an error.
#[test]
fn an_unchecked_answer_reports_lost_rows_as_committed() {
    let url = database("unchecked", "CREATE TABLE t (n bigint CHECK (n < 1))");
    // The fault fires: the row is refused.
    let (mut one, table) = worker(&url, "one", &[]);
    let taken = one.take(0);
    one.begin(&taken);
    one.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    let error = one.finish(&taken, 1).unwrap_err();
    assert!(error.text.contains("23514"), "{error}");

    let (mut two, table) = worker(&url, "two", &[Defence::CheckedAnswers]);
    let taken = two.take(0);
    two.begin(&taken);
    two.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
    let after = two.finish(&taken, 1).unwrap();
    assert_eq!(after.offset.unwrap().get(), 1);
    assert_eq!(rows(&url, "SELECT n FROM t"), "", "lost");
    assert_eq!(two.take(0).offset, None);
}

/// H1 of the design. See `take_over`.
#[test]
fn a_frozen_worker_is_not_found_among_blocking_sessions() {
    let url = database("blocking", TABLE);
    let (mut zombie, table) = worker(&url, "zombie", &[]);
    write(&mut zombie, &table);
    let (mut owner, _) = worker(&url, "owner", &[Defence::HolderOfRow]);
    let start = Instant::now();
    // With the defence, it takes about a second.
    while start.elapsed() < Duration::from_secs(4) {
        let slice = Duration::from_millis(100);
        let taken = owner.positions.take_over(&[partition(0)], slice);
        assert!(taken.is_pending(), "{taken:?}");
    }
    assert!(!zombie.session.is_spoiled());
}

/// H2 (a) of the design. See `sessions`.
#[test]
fn a_session_of_another_database_is_ended() {
    let (one, two) = (database("one", TABLE), database("two", TABLE));
    let (mut first, table) = worker(&one, "w", &[]);
    let taken = write(&mut first, &table);
    let (mut second, _) = worker(&two, "w", &[Defence::OneDatabase]);
    // The second one has a higher epoch now.
    second.renew().unwrap();
    assert!(first.finish(&taken, 1).is_err());
    assert_eq!(value(&one, "SELECT count(*) FROM t").unwrap(), "0");
}

/// H2 (b) of the design. See `sessions`.
#[test]
fn two_processes_with_one_identity_end_each_other() {
    let url = database("forever", TABLE);
    let removed = [Defence::NewestSession];
    let (mut one, _) = worker(&url, "w", &removed);
    let (mut other, _) = worker(&url, "w", &removed);
    for _ in 0..5 {
        one.renew().unwrap();
        other.renew().unwrap();
    }
}

/// H3 of the design. See `shapes`.
#[test]
fn chunks_that_are_sorted_one_by_one_deadlock() {
    assert_eq!(cross(&[]), [None, None]);
    let found = cross(&[Defence::SortedTransaction]);
    assert!(found.contains(&Some(LedgerFailure::Contended)), "{found:?}");
}

/// Two workers write the same two keys in opposite orders, in two chunks. Returns what failed.
fn cross(removed: &[Defence]) -> [Option<LedgerFailure>; 2] {
    let url = database("cross", "CREATE TABLE t (k text PRIMARY KEY, n bigint)");
    let first_chunk = Barrier::new(2);
    let run = |number: i32, keys: [&str; 2]| {
        let shop = Postgres::connect_without(&url, removed).unwrap();
        let table: SqlTable<String, i64> = shop.table("t");
        let table = table
            .key("k", |key: &String, _| key.clone())
            .column("n", |_, n: &i64| *n);
        let mut worker = Worker::new(&shop, &[table.register()], &format!("w{number}"));
        let taken = worker.take(number);
        worker.begin(&taken);
        for (at, key) in keys.into_iter().enumerate() {
            let at = (number, i64::try_from(at).unwrap());
            worker.put(&table, at, &key.to_owned(), Some(&1)).unwrap();
            let sent = wait(|slice| worker.session.flush(slice));
            if at.1 == 0 {
                sent.unwrap();
                first_chunk.wait();
            }
        }
        worker.finish(&taken, 2).err().map(|error| error.failure)
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| run(0, ["a", "b"]));
        let other = scope.spawn(|| run(1, ["b", "a"]));
        [one.join().unwrap(), other.join().unwrap()]
    })
}

/// H5 (e) of the design. See `refused`.
#[test]
fn a_claimed_id_of_a_refused_record_loses_its_repetition() {
    let found = refused_then_repeated(&[]);
    assert_eq!(found, "7");
    let found = refused_then_repeated(&[Defence::UnclaimedIds]);
    assert_eq!(found, "", "lost");
}

/// A record with an id is refused and skipped, its table is corrected, and the record comes again. Returns the rows.
fn refused_then_repeated(removed: &[Defence]) -> String {
    let url = database("claimed", "CREATE TABLE t (n bigint CHECK (n < 5))");
    let shop = Postgres::connect_without(&url, removed).unwrap();
    let table: SqlTable<String, i64> = shop.table("t");
    let table = table
        .column("n", |_, n: &i64| *n)
        .once_by(&shop.inbox("billing"), |_, n| *n)
        .refused(Refused::Skip);
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let mut taken = worker.take(0);
    for to in 1..=2 {
        worker.begin(&taken);
        let at = (0, to - 1);
        worker.put(&table, at, &"k".to_owned(), Some(&7)).unwrap();
        taken = worker.finish(&taken, to).unwrap();
        run(&url, "ALTER TABLE t DROP CONSTRAINT IF EXISTS t_n_check").unwrap();
    }
    rows(&url, "SELECT n FROM t")
}

/// H8 of the design. See `protocol`.
#[test]
fn a_commit_inside_of_a_transaction_doubles_rows() {
    let url = database("inside", TABLE);
    // The settings of the begin are gone after a COMMIT, too.
    let removed = [Defence::OneTransaction, Defence::SameSettings];
    let shop = Postgres::connect_without(&url, &removed).unwrap();
    let table: SqlTable<String, i64> = shop.table("t");
    let table = table.column("n", |_, n: &i64| *n);
    let sneaky = shop.statement::<String, i64>("sneaky", "COMMIT");
    let sneaky = sneaky.unchecked();
    let mut worker = Worker::new(&shop, &[table.register(), sneaky.register()], "w");
    let taken = worker.take(0);
    for is_last in [false, true] {
        worker.begin(&taken);
        worker.put(&table, (0, 0), &"k".into(), Some(&1)).unwrap();
        worker.put(&sneaky, (0, 1), &"k".into(), Some(&1)).unwrap();
        wait(|slice| worker.session.flush(slice)).unwrap();
        if is_last {
            worker.finish(&taken, 2).unwrap();
        } else {
            worker.abort().unwrap();
        }
    }
    assert_eq!(rows(&url, "SELECT n FROM t"), "1 1", "doubled");
}

/// H8 of the design. See `closures`.
#[test]
fn a_changed_search_path_leads_later_rows_to_another_table() {
    let tables =
        "CREATE TABLE u (n bigint); CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.u (n bigint)";
    let url = database("led_away", tables);
    let shop = Postgres::connect_without(&url, &[Defence::SameSettings]).unwrap();
    let insert: Apply<String, Option<i64>> =
        shop.apply("insert", async |tx, record: Record<String, Option<i64>>| {
            tx.execute("INSERT INTO u VALUES ($1)", &[&record.value])
                .await?;
            let path = "SELECT set_config('search_path', 'elsewhere', false)";
            tx.execute(path, &[]).await?;
            Ok(())
        });
    let mut worker = Worker::new(&shop, &[insert.register()], "w");
    let mut taken = worker.take(0);
    for n in [1, 2] {
        worker.begin(&taken);
        let at = (0, n - 1);
        worker.put(&insert, at, &"k".into(), Some(&n)).unwrap();
        taken = worker.finish(&taken, n).unwrap();
    }
    assert_eq!(rows(&url, "SELECT n FROM u"), "1");
    assert_eq!(rows(&url, "SELECT n FROM elsewhere.u"), "2", "led away");
}
