//! A server that loses its last commits, as a failover to an asynchronous standby may do: rows and positions go back
//! together.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eos_core::boundary::Place;
use eos_postgres::Postgres;
use eos_postgres::testing::{Cluster, run, value};
use eos_testkit::TestDriver;
use eos_testkit::conformance::{self, EncodeRow, Subject};

use crate::apps::{TABLES, app, orders};
use crate::support::{Register, rows};

/// A server that confirms commits before they are on disk.
struct Forgetful {
    cluster: Cluster,
    /// The process that writes commits to disk, while it is stopped.
    stopped: Option<String>,
}

impl Forgetful {
    fn start() -> Self {
        let settings = [
            ("synchronous_commit", "off"),
            ("wal_writer_delay", "10s"),
            // No other process writes to disk either.
            ("bgwriter_lru_maxpages", "0"),
            ("autovacuum", "off"),
            ("checkpoint_timeout", "1h"),
        ];
        Self {
            cluster: Cluster::temporary(&settings).unwrap(),
            stopped: None,
        }
    }

    /// Writes all commits to disk. The server keeps later ones in memory, unless they wait for the disk themselves.
    fn keep(&mut self, url: &str) {
        run(url, "CHECKPOINT").unwrap();
        let writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
        let writer = value(url, writer).unwrap();
        assert!(signal("-STOP", &writer), "kill -STOP {writer}");
        self.stopped = Some(writer);
    }

    /// Loses what is in memory only.
    fn lose(&mut self) {
        // It is killed, too.
        self.stopped = None;
        self.cluster.kill9().unwrap();
    }
}

impl Drop for Forgetful {
    fn drop(&mut self) {
        // Otherwise the server waits for it before it ends.
        if let Some(writer) = &self.stopped {
            let _ = signal("-CONT", writer);
        }
    }
}

/// Returns whether the process was there.
fn signal(signal: &str, process: &str) -> bool {
    let status = Command::new("kill").args([signal, process]).status();
    status.is_ok_and(|status| status.success())
}

/// The suite that every ledger passes. The commit of row 1 waits for the disk, and no other one does.
#[test]
fn the_obligations_of_a_ledger() {
    let server = Arc::new(Mutex::new(Forgetful::start()));
    conformance::ledger(&mut || {
        let mut locked = server.lock().unwrap_or_else(PoisonError::into_inner);
        let url = locked.cluster.database("conformance").unwrap();
        run(
            &url,
            "CREATE TABLE t (n bigint); \
             CREATE FUNCTION durable() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN PERFORM set_config('synchronous_commit', 'on', true); RETURN NEW; END $$; \
             CREATE TRIGGER durable BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.n = 1) EXECUTE FUNCTION durable()",
        )
        .unwrap();
        locked.keep(&url);
        let server = Arc::clone(&server);
        subject(&url, move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.lose();
        })
    });
}

fn subject(url: &str, lose_last_commit: impl Fn() + 'static) -> Subject {
    let shop = Postgres::connect(url).unwrap();
    let table = shop.table::<u64, i64>("t").column("n", |_, n| *n);
    let place = table.register();
    let encode: EncodeRow = Box::new(move |number| {
        let mut row = eos_core::boundary::Row::default();
        let number = i64::try_from(number).unwrap();
        Place::<u64, i64>::encode(&table, &0, &number, &mut row).unwrap();
        (row.key, row.row)
    });
    let url = url.to_owned();
    Subject {
        ledger: Arc::new(shop),
        place,
        row: encode,
        rows: Box::new(move || {
            let found = rows(&url, "SELECT n FROM t");
            let numbers = found.split_whitespace();
            numbers.map(|n| n.parse().unwrap()).collect()
        }),
        lose_last_commit: Some(Box::new(lose_last_commit)),
    }
}

/// C3 of the design: the worker of an idle app finds out that a commit is lost, and reads its record again.
#[test]
fn a_commit_that_the_server_lost_is_written_again() {
    let mut server = Forgetful::start();
    let url = server.cluster.database("lost").unwrap();
    run(&url, TABLES).unwrap();
    let mut driver = TestDriver::new(app(&url));
    driver.pipe(&orders(), "a", 7_i64);
    server.keep(&url);
    driver.pipe(&orders(), "a", 70_i64);
    let state = "SELECT count(*), sum(b.units), (SELECT units FROM stock), (SELECT next_offset FROM eos.positions) \
                 FROM bookings AS b";
    assert_eq!(rows(&url, state), "2|77|923|2");
    server.lose();
    assert_eq!(rows(&url, state), "1|7|993|1", "nothing was lost");
    // No record follows.
    let begin = Instant::now();
    while rows(&url, state) != "2|77|923|2" && begin.elapsed() < Duration::from_secs(20) {
        driver.advance_wall_clock(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(rows(&url, state), "2|77|923|2");
    driver.pipe(&orders(), "a", 8_i64);
    assert_eq!(rows(&url, state), "3|85|915|3");
}
