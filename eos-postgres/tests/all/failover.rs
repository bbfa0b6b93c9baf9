//! A standby is promoted.

use std::task::Poll;
use std::time::{Duration, Instant};

use eos_core::boundary::{LedgerError, LedgerFailure, Taken};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Postgres, SqlTable};

use crate::support::{Register, Worker, partition, rows};

/// A primary and its standby.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    /// The database on each of them.
    old: String,
    new: String,
}

impl Pair {
    fn start() -> Self {
        let settings = [("wal_retrieve_retry_interval", "100ms")];
        let primary = Cluster::temporary(&settings).unwrap();
        let old = primary.database("failover").unwrap();
        run(&old, "CREATE TABLE t (n bigint)").unwrap();
        let standby = primary.standby().unwrap();
        let (_, name) = old.rsplit_once('/').unwrap();
        let new = standby.url(name);
        assert_eq!(value(&new, "SELECT pg_is_in_recovery()").unwrap(), "t");
        Self {
            primary,
            standby,
            old,
            new,
        }
    }

    /// A URL with both hosts, the primary first.
    fn both(&self) -> String {
        let (first, database) = self.old.rsplit_once('/').unwrap();
        let (_, second) = self.new.split_once('@').unwrap();
        let (second, _) = second.rsplit_once('/').unwrap();
        format!("{first},{second}/{database}")
    }

    /// The standby receives nothing any more.
    fn cut(&self) {
        for statement in [
            "ALTER SYSTEM SET primary_conninfo = ''",
            "SELECT pg_reload_conf()",
        ] {
            run(&self.new, statement).unwrap();
        }
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        until("the standby is cut off", || {
            value(&self.new, receivers).unwrap() == "0"
        });
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const ROWS: &str = "SELECT n FROM t ORDER BY n";
/// The offset of a position is the number of rows.
const STATE: &str =
    "SELECT count(*), (SELECT p.next_offset FROM eos.positions AS p WHERE p.partition = 0) FROM t";

struct Writer {
    worker: Worker,
    table: SqlTable<String, i64>,
}

impl Writer {
    fn new(url: &str, name: &str) -> Self {
        let shop = Postgres::connect(url).unwrap();
        let table = shop.table("t").column("n", |_, n: &i64| *n);
        let worker = Worker::new(&shop, &[table.register()], name);
        Self { worker, table }
    }

    fn put(&mut self, taken: &Taken, n: i64) {
        self.worker.begin(taken);
        let at = (taken.partition.partition.get(), n - 1);
        self.worker
            .put(&self.table, at, &"k".into(), Some(&n))
            .unwrap();
    }

    /// Commits row `n`, and the position behind it.
    fn write(&mut self, taken: &Taken, n: i64) -> Result<Taken, LedgerError> {
        self.put(taken, n);
        self.worker.finish(taken, n)
    }

    fn take(&mut self, number: i32) -> Taken {
        // The first answer may be that the connection is gone.
        let taken = self.worker.try_take(number);
        taken.or_else(|_| self.worker.try_take(number)).unwrap()
    }
}

/// What a client was told is on the standby. A commit that has no answer is not.
#[test]
fn a_synchronous_standby_has_every_confirmed_commit() {
    let mut pair = Pair::start();
    let names = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    run(&pair.old, names).unwrap();
    // All processes know the setting after this.
    pair.primary.restart_immediate().unwrap();
    let mut writer = Writer::new(&pair.both(), "w");
    let mut taken = writer.take(0);
    for n in 1..=3 {
        taken = writer.write(&taken, n).unwrap();
    }
    pair.cut();
    writer.put(&taken, 4);
    writer.worker.set(&taken, 4, "t4").unwrap();
    let answer = writer.worker.session.commit(Duration::from_secs(1));
    assert!(matches!(answer, Poll::Ready(Err(_))), "{answer:?}");
    assert!(writer.worker.session.is_spoiled());
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    assert_eq!(value(&pair.old, waiting).unwrap(), "1");
    assert_eq!(rows(&pair.old, ROWS), "1 2 3");

    drop(pair.primary);
    pair.standby.promote().unwrap();
    writer.worker.renew().unwrap();
    let after = writer.take(0);
    assert_eq!((after.offset, &after.name), (taken.offset, &taken.name));
    assert_eq!(rows(&pair.new, ROWS), "1 2 3");
    let after = writer.write(&after, 4).unwrap();
    assert_eq!(after.offset.unwrap().get(), 4);
    assert_eq!(rows(&pair.new, ROWS), "1 2 3 4");
}

/// Rows and positions go back together. Nothing that a session of the old primary knows moves a position of the new one.
#[test]
fn an_asynchronous_standby_loses_rows_with_their_positions() {
    let mut pair = Pair::start();
    let mut owner = Writer::new(&pair.both(), "owner");
    let taken = owner.take(0);
    let kept = owner.write(&taken, 1).unwrap();
    until("row 1 is on the standby", || {
        rows(&pair.new, STATE) == "1|1"
    });
    pair.cut();
    let mut ahead = owner.write(&kept, 2).unwrap();
    ahead = owner.write(&ahead, 3).unwrap();
    assert_eq!(rows(&pair.old, STATE), "3|3");
    // Another one has an open transaction with a partition that had no owner before.
    let mut zombie = Writer::new(&pair.both(), "zombie");
    let held = zombie.take(1);
    zombie.put(&held, 9);

    pair.standby.promote().unwrap();
    assert_eq!(rows(&pair.new, STATE), "1|1", "together");
    let mut successor = Writer::new(&pair.new, "successor");
    let mut taken = successor.take(0);
    assert_eq!((taken.offset, &taken.name), (kept.offset, &kept.name));
    let other = successor.take(1);
    // The old primary is still there. A commit to it is in no history that counts.
    zombie.worker.finish(&held, 9).unwrap();
    assert_eq!(rows(&pair.old, ROWS), "1 2 3 9");
    assert_eq!(rows(&pair.new, ROWS), "1");

    drop(pair.primary);
    let is_moved = |answer: Result<Taken, LedgerError>, number| {
        let failure = answer.unwrap_err().failure;
        assert_eq!(failure, LedgerFailure::Moved(vec![partition(number)]));
    };
    owner.worker.renew().unwrap();
    is_moved(owner.write(&ahead, 4), 0);
    // Epoch and offset are those that the zombie expects, and the owner is another one.
    assert_eq!((other.epoch, other.offset), (held.epoch, held.offset));
    zombie.worker.renew().unwrap();
    is_moved(zombie.write(&held, 9), 1);
    for n in 2..=3 {
        taken = successor.write(&taken, n).unwrap();
    }
    assert_eq!(rows(&pair.new, STATE), "3|3");
    assert_eq!(rows(&pair.new, ROWS), "1 2 3");
}

#[test]
fn only_a_standby_can_be_promoted() {
    let error = Cluster::temporary(&[]).unwrap().promote().unwrap_err();
    assert!(
        error.to_string().contains("recovery is not in progress"),
        "{error}"
    );
}
