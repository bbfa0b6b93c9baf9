//! Failures of servers, connections and locks.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use eos_core::boundary::{Ledger, LedgerFailure};
use eos_postgres::testing::{Cluster, run};
use eos_postgres::{Postgres, SqlTable};

use crate::support::{Register, Worker, database, plan, rows, wait};

const STOCK: &str = "CREATE TABLE stock (sku text PRIMARY KEY, units bigint)";

fn stock(shop: &Postgres) -> SqlTable<String, i64> {
    shop.table("stock")
        .record_key("sku", |sku: &String| sku.clone())
        .column("units", |_, units| *units)
}

#[test]
fn a_restarted_server_keeps_rows_and_positions_together() {
    let mut cluster = Cluster::temporary(&[]).unwrap();
    let url = cluster.database("restart").unwrap();
    run(&url, STOCK).unwrap();
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop);
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let mut taken = worker.take(0);
    for round in 0..2 {
        worker.begin(&taken);
        worker
            .put(&table, (0, round), &format!("{round}"), Some(&1))
            .unwrap();
        taken = worker.finish(&taken, round + 1).unwrap();
        worker.begin(&taken);
        worker
            .put(&table, (0, round + 1), &"lost".into(), Some(&1))
            .unwrap();
        wait(|slice| worker.session.flush(slice)).unwrap();
        if round == 0 {
            cluster.restart_immediate().unwrap();
        } else {
            cluster.kill9().unwrap();
        }
        assert!(worker.set(&taken, 9, "x").is_err());
        assert!(worker.session.is_spoiled());
        worker.abort().unwrap();
        worker.renew().unwrap();
        // The first answer may be that the connection is gone.
        let again = worker.try_take(0).or_else(|_| worker.try_take(0)).unwrap();
        assert_eq!((again.offset, &again.name), (taken.offset, &taken.name));
        taken = again;
    }
    assert_eq!(rows(&url, "SELECT sku FROM stock ORDER BY sku"), "0 1");
}

/// An idle session notices that its connection is gone before the next transaction.
#[test]
fn an_ended_session_is_spoiled() {
    let url = database("ended", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let mut worker = Worker::new(&shop, &[], "w");
    rows(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%/s'",
    );
    for _ in 0..100 {
        if worker.session.is_spoiled() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(worker.session.is_spoiled());
    assert!(worker.session.begin().is_err());
    worker.renew().unwrap();
    assert!(!worker.session.is_spoiled());
}

#[test]
fn a_locked_table_aborts_and_is_not_blamed_on_a_record() {
    let url = database("locked", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let table = stock(&shop);
    let mut plan = plan(&[table.register()]);
    plan.transaction_timeout = Duration::from_secs(4);
    let mut worker = Worker::of(&shop, plan, "w");
    let taken = worker.take(0);
    let lock = {
        let url = url.clone();
        std::thread::spawn(move || {
            run(
                &url,
                "BEGIN; LOCK TABLE stock; SELECT pg_sleep(2.5); COMMIT",
            )
        })
    };
    std::thread::sleep(Duration::from_millis(300));
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"a".into(), Some(&1)).unwrap();
    let error = worker.finish(&taken, 1).unwrap_err();
    assert_eq!(error.failure, LedgerFailure::Contended);
    assert!(!error.blames_a_record);
    assert!(error.text.contains("55P03"), "{error}");
    lock.join().unwrap().unwrap();
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"a".into(), Some(&1)).unwrap();
    worker.finish(&taken, 1).unwrap();
}

#[test]
fn a_server_that_becomes_read_only_aborts() {
    let url = database("read_only", STOCK);
    let shop = Postgres::connect(&url).unwrap();
    let statement = shop.statement::<String, i64>(
        "full",
        "DO $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END $$",
    );
    let read_only = shop.statement::<String, i64>(
        "ro",
        "DO $$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$",
    );
    let mut worker = Worker::new(&shop, &[statement.register(), read_only.register()], "w");
    let taken = worker.take(0);
    for (place, code) in [(&statement, "53100"), (&read_only, "25006")] {
        worker.begin(&taken);
        worker.put(place, (0, 0), &"a".into(), Some(&1)).unwrap();
        let error = worker.finish(&taken, 1).unwrap_err();
        assert_eq!(error.failure, LedgerFailure::Contended, "{error}");
        assert!(
            error.text.contains(code) && !error.blames_a_record,
            "{error}"
        );
    }
    assert_eq!(worker.take(0).offset, None);
}

/// Three writers, each with several chunks of shared keys in random order.
#[test]
fn shared_keys_in_several_chunks_do_not_deadlock() {
    let url = database("deadlocks", STOCK);
    assert_eq!(write_shared_keys(&url, 0), 0);
}

/// Rows that appear or vanish between two statements can still meet in another order. Such a transaction is aborted, and
/// runs again.
#[test]
fn a_deadlock_of_deletions_is_aborted_and_runs_again() {
    let url = database("deletions", STOCK);
    let aborted = write_shared_keys(&url, 2);
    assert!(aborted < 20, "{aborted} of 120 transactions were aborted");
    assert_eq!(
        rows(&url, "SELECT sum(next_offset) FROM eos.positions"),
        "120"
    );
}

/// Writes 40 transactions in each of three workers, and returns the number of aborted ones. Every `deletions`-th record
/// deletes its key.
fn write_shared_keys(url: &str, deletions: u64) -> u32 {
    let writers: Vec<_> = (0..3_i32)
        .map(|number| {
            let url = url.to_owned();
            std::thread::spawn(move || writer(&url, number, deletions))
        })
        .collect();
    let aborted = writers.into_iter().map(|writer| writer.join().unwrap());
    aborted.sum()
}

fn writer(url: &str, number: i32, deletions: u64) -> u32 {
    let shop = Postgres::connect(url).unwrap();
    let table = stock(&shop);
    let mut worker = Worker::new(&shop, &[table.register()], &format!("w{number}"));
    let mut taken = worker.take(number);
    let mut seed = 88_172_645_463_325_252_u64 + u64::from(number.unsigned_abs());
    let (mut round, mut aborted) = (0, 0);
    while round < 40 {
        worker.begin(&taken);
        for _ in 0..40 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let key = format!("k{}", seed % 60);
            let is_deletion = deletions > 0 && seed.is_multiple_of(deletions);
            let value = (!is_deletion).then_some(round);
            worker
                .put(&table, (number, round), &key, value.as_ref())
                .unwrap();
            if seed.is_multiple_of(10) {
                // The rest is another chunk.
                wait(|slice| worker.session.flush(slice)).unwrap();
            }
        }
        match worker.finish(&taken, round + 1) {
            Ok(after) => {
                taken = after;
                round += 1;
            }
            Err(error) => {
                assert!(error.text.contains("40P01"), "{error}");
                assert_eq!(error.failure, LedgerFailure::Contended);
                aborted += 1;
            }
        }
    }
    aborted
}

const OWNER: &str = "EOS_TEST_OWNS_A_SERVER";

/// A second process of this test program owns a server. The test kills the process, so that no destructor runs.
#[test]
fn a_killed_process_leaves_no_server_and_no_directory() {
    if std::env::var_os(OWNER).is_some() {
        let cluster = Cluster::temporary(&[]).unwrap();
        println!("\n{OWNER}={}", cluster.url("postgres"));
        loop {
            std::thread::park();
        }
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "failures::a_killed_process_leaves_no_server_and_no_directory",
        ])
        .arg("--nocapture")
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let url = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix(OWNER)?.strip_prefix('=')?.to_owned()));
    let answer = url.as_deref().map(|url| run(url, "SELECT 1"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let url = url.expect("the URL of the server");
    answer.unwrap().unwrap();
    let directory = url.split(['@', '?']).nth(1).unwrap();
    let directory = directory
        .strip_suffix("/postgres")
        .unwrap()
        .replace("%2F", "/");
    let killed = Instant::now();
    while Path::new(&directory).exists() {
        assert!(killed.elapsed() < Duration::from_secs(30), "{directory}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(run(&url, "SELECT 1").is_err());
}

/// A booking holds the key of its stock row. A stronger lock of the row waits for all other bookings of it.
#[test]
fn rows_that_reference_summed_rows_do_not_deadlock() {
    let url = database(
        "references",
        "CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL);
         INSERT INTO stock VALUES ('a', 0), ('b', 0);
         CREATE TABLE bookings (sku text REFERENCES stock, units bigint)",
    );
    let all_have_booked = Arc::new(Barrier::new(2));
    let writers: Vec<_> = (0..2)
        .map(|number| {
            let (url, all_have_booked) = (url.clone(), Arc::clone(&all_have_booked));
            std::thread::spawn(move || {
                let shop = Postgres::connect(&url).unwrap();
                let bookings = shop
                    .table::<String, i64>("bookings")
                    .column("sku", |sku, _| sku.clone())
                    .column("units", |_, units| *units);
                let stock = shop
                    .table::<String, i64>("stock")
                    .record_key("sku", |sku: &String| sku.clone())
                    .add("units", |_, units| -*units);
                let places = [bookings.register(), stock.register()];
                let mut worker = Worker::new(&shop, &places, &format!("w{number}"));
                let taken = worker.take(number);
                worker.begin(&taken);
                for (at, sku) in ["a", "b"].into_iter().enumerate() {
                    let at = (number, i64::try_from(at).unwrap());
                    worker.put(&bookings, at, &sku.into(), Some(&1)).unwrap();
                    worker.put(&stock, at, &sku.into(), Some(&1)).unwrap();
                }
                wait(|slice| worker.session.flush(slice)).unwrap();
                all_have_booked.wait();
                worker.finish(&taken, 2).map(drop)
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
    let units = "SELECT units FROM stock ORDER BY sku";
    assert_eq!(rows(&url, units), "-2 -2");
}

/// Two apps and another program add to the rows of one table. Each app has positions of its own.
#[test]
fn two_apps_add_to_the_rows_of_one_table() {
    const ROUNDS: i64 = 30;
    let url = database(
        "shared_table",
        "CREATE TABLE stock (sku text PRIMARY KEY, units bigint NOT NULL);
         INSERT INTO stock VALUES ('a', 0), ('b', 0), ('c', 0)",
    );
    let begin = Barrier::new(3);
    std::thread::scope(|scope| {
        for app in ["sales-v1", "returns-v1"] {
            let (url, begin) = (&url, &begin);
            scope.spawn(move || add(url, app, ROUNDS, begin));
        }
        begin.wait();
        for _ in 0..ROUNDS {
            run(&url, "UPDATE stock SET units = units + 1").unwrap();
        }
    });
    let sums = "SELECT sku, units FROM stock ORDER BY sku";
    // Each app adds 1, 2 and 3 in each round.
    assert_eq!(rows(&url, sums), "a|90 b|150 c|210");
    let positions = "SELECT app, next_offset FROM eos.positions ORDER BY app";
    assert_eq!(rows(&url, positions), "returns-v1|90 sales-v1|90");
}

/// An app that adds to three rows in each transaction.
fn add(url: &str, app: &str, rounds: i64, begin: &Barrier) {
    let shop = Postgres::connect(url).unwrap();
    let table = shop
        .table::<String, i64>("stock")
        .record_key("sku", |sku: &String| sku.clone())
        .add("units", |_, units| *units);
    let mut plan = plan(&[table.register()]);
    plan.app = app.into();
    let mut worker = Worker::of(&shop, plan, "w");
    let mut taken = worker.take(0);
    begin.wait();
    let mut round = 0;
    while round < rounds {
        worker.begin(&taken);
        for (sku, units) in [("c", 3), ("a", 1), ("b", 2)] {
            let at = (0, round * 3 + units - 1);
            worker.put(&table, at, &sku.into(), Some(&units)).unwrap();
        }
        match worker.finish(&taken, round * 3 + 3) {
            Ok(after) => {
                taken = after;
                round += 1;
            }
            Err(error) => assert_eq!(error.failure, LedgerFailure::Contended, "{error}"),
        }
    }
}

/// A frozen server, or one whose disk hangs. Its kernel accepts connections.
#[cfg(unix)]
#[test]
fn a_first_host_that_never_answers_does_not_hide_the_second() {
    let url = database("hosts", STOCK);
    let directory = tempfile::tempdir().unwrap();
    let _silent =
        std::os::unix::net::UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
    let first = directory.path().display().to_string().replace('/', "%2F");
    let (user, rest) = url.split_once('@').unwrap();
    let shop = Postgres::connect(&format!("{user}@{first},{rest}")).unwrap();
    let table = stock(&shop);
    let within = Duration::from_secs(8);
    shop.check(&plan(&[table.register()]), within).unwrap();
    let mut worker = Worker::new(&shop, &[table.register()], "w");
    let taken = worker.take(0);
    worker.begin(&taken);
    worker.put(&table, (0, 0), &"a".into(), Some(&1)).unwrap();
    worker.finish(&taken, 1).unwrap();
}
