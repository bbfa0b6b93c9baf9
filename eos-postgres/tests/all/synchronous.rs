//! A successor does not end a session that waits for a synchronous standby. Otherwise, its rows would be visible before the
//! standby has them, and a failover would remove them again.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eos_core::boundary::{Answer, Taken};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Defence, Postgres};

use crate::support::{Worker, partition, rows};

/// A server whose standby never comes. Only the commit of row 1 waits for it.
struct Lonely {
    _cluster: Cluster,
    url: String,
}

impl Lonely {
    fn start() -> Self {
        let mut cluster = Cluster::temporary(&[("synchronous_commit", "local")]).unwrap();
        let url = cluster.database("lonely").unwrap();
        run(
            &url,
            "CREATE TABLE t (n bigint); \
             CREATE FUNCTION replicated() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN PERFORM set_config('synchronous_commit', 'on', true); RETURN NEW; END $$; \
             CREATE TRIGGER replicated BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.n = 1) EXECUTE FUNCTION replicated()",
        )
        .unwrap();
        run(&url, "ALTER SYSTEM SET synchronous_standby_names = 'none'").unwrap();
        // All processes know the setting after this.
        cluster.restart_immediate().unwrap();
        Self {
            _cluster: cluster,
            url,
        }
    }

    /// Ends the wait of a commit, whose session must still wait and must not show its row.
    fn release_commit(&self, waiting: &str, commit: JoinHandle<Answer>) {
        assert_eq!(self.waiting(), waiting, "the session was ended");
        assert_eq!(self.rows(), "", "a row is visible, and not on the standby");
        run(&self.url, "ALTER SYSTEM RESET synchronous_standby_names").unwrap();
        run(&self.url, "SELECT pg_reload_conf()").unwrap();
        commit.join().unwrap().unwrap();
    }

    /// The process that waits for the standby, if there is one.
    fn waiting(&self) -> String {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        value(&self.url, waiting).unwrap()
    }

    fn database(&self, removed: &[Defence]) -> Postgres {
        Postgres::connect_without(&self.url, removed).unwrap()
    }

    /// A worker "w" whose commit of row 1 waits. The second result is the position before it.
    fn committing(&self) -> (JoinHandle<Answer>, Taken) {
        let shop = self.database(&[]);
        let table = shop.table::<String, i64>("t").column("n", |_, n| *n);
        let (mut worker, taken) = Worker::writing(&shop, &table);
        worker.set(&taken, 1, "first").unwrap();
        let commit = std::thread::spawn(move || worker.commit());
        let begin = Instant::now();
        while self.waiting().is_empty() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "no commit waits for a standby"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        (commit, taken)
    }

    fn rows(&self) -> String {
        rows(&self.url, "SELECT n FROM t")
    }
}

/// The time in which a session without the defence is ended.
const WAIT: Duration = Duration::from_secs(3);

/// Tries a take-over for a while, and returns what it found.
fn try_to_take(worker: &mut Worker) -> Option<Taken> {
    let begin = Instant::now();
    while begin.elapsed() < WAIT {
        let slice = Duration::from_millis(100);
        let taken = worker.positions.take_over(&[partition(0)], slice);
        if let std::task::Poll::Ready(taken) = taken {
            return taken.unwrap().pop();
        }
    }
    None
}

#[test]
fn a_take_over_waits_for_a_commit_that_waits_for_a_standby() {
    let server = Lonely::start();
    let (commit, before) = server.committing();
    let waiting = server.waiting();
    let shop = server.database(&[]);
    let mut owner = Worker::new(&shop, &[], "owner");
    assert_eq!(try_to_take(&mut owner), None);
    server.release_commit(&waiting, commit);
    let after = owner.take(0);
    assert_eq!(
        (after.offset.unwrap().get(), after.name.as_str()),
        (1, "first")
    );
    assert!(after.epoch > before.epoch);
    assert_eq!(server.rows(), "1");
}

/// The control of the test above.
#[test]
fn an_ended_holder_shows_rows_that_no_standby_has() {
    let server = Lonely::start();
    let (commit, _) = server.committing();
    let shop = server.database(&[Defence::SyncRep]);
    let mut owner = Worker::new(&shop, &[], "owner");
    let taken = try_to_take(&mut owner).expect("the position");
    assert_eq!(taken.name, "first");
    assert_eq!(server.rows(), "1", "visible, and not on the standby");
    assert!(commit.join().unwrap().is_err());
}

#[test]
fn a_new_session_waits_for_a_commit_that_waits_for_a_standby() {
    let server = Lonely::start();
    let (commit, _) = server.committing();
    let waiting = server.waiting();
    let shop = server.database(&[]);
    let start = std::thread::spawn(move || Worker::new(&shop, &[], "w").take(0));
    while value(&server.url, "SELECT max(epoch) FROM eos.sessions").unwrap() != "2" {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(WAIT);
    assert!(!start.is_finished(), "it does not wait");
    server.release_commit(&waiting, commit);
    assert_eq!(start.join().unwrap().name, "first");
    assert_eq!(server.rows(), "1");
}

/// The control of the test above.
#[test]
fn an_ended_older_session_shows_rows_that_no_standby_has() {
    let server = Lonely::start();
    let (commit, _) = server.committing();
    let shop = server.database(&[Defence::SyncRep]);
    let mut worker = Worker::new(&shop, &[], "w");
    assert_eq!(worker.take(0).name, "first");
    assert_eq!(server.rows(), "1", "visible, and not on the standby");
    assert!(commit.join().unwrap().is_err());
}
