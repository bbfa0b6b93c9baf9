//! The database of a running app is not available for a while: a session locks a table, another program takes all
//! connections, and the server becomes read-only. No process ends, and the app books each order once.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka ledger_outages::` locks the table for more than a minute.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_postgres::testing::Cluster;
use eos_postgres::tokio_postgres::error::SqlState;
use eos_postgres::tokio_postgres::{self, Client, NoTls};
use integration_tests::faults::is_full;
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use tokio::runtime::Runtime;

use crate::bookings::{SLICE, Scene, Start, program};
use crate::common::PATIENCE;

/// The connections of the server.
const CONNECTIONS: usize = 30;
/// The orders before, between and after the outages.
const ORDERS: u64 = 60;
/// The pause between two sends during an outage.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for which the server has no free connection, and for which it is read-only.
const OUTAGE: Duration = Duration::from_secs(8);
/// The time limit until no session of the app is left.
const TAKE_LIMIT: Duration = Duration::from_secs(20);
/// A query of the number of sessions of the app.
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^eos/'";
const END_SESSIONS: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^eos/'";
/// A query of the number of sessions that wait for the locked table.
const WAITING: &str =
    "SELECT count(*) FROM pg_locks WHERE relation = 'stock'::regclass AND NOT granted";
/// A query of the number of orders that the app has taken.
const TAKEN_ORDERS: &str = "SELECT sum(next_offset)::int8 FROM eos.positions";

/// Returns the time for which a table is locked. It is longer than a statement of the app waits for a lock, so the
/// transaction fails.
fn locked() -> Duration {
    Duration::from_secs(if is_full() { 65 } else { 8 })
}

#[test]
fn an_app_survives_a_locked_table_no_connections_and_a_read_only_server() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = program()?;
    let mut server = Cluster::temporary(&[
        ("max_connections", &CONNECTIONS.to_string()),
        ("superuser_reserved_connections", "0"),
    ])?;
    let mut scene = Scene::new("outages", &program, kafka.bootstrap(), &server)?;
    let played = play(&mut scene, &mut server);
    played.with_context(|| scene.tails())
}

fn play(scene: &mut Scene<'_>, server: &mut Cluster) -> Result<()> {
    let start = Start::new(Duration::from_secs(6));
    let both = [scene.start(&start)?, scene.start(&start)?];
    goes_on(scene).context("before")?;

    let dropped = lock(scene).context("a locked table")?;
    goes_on(scene).context("after the lock")?;

    let waiting = take_connections(scene).context("no connections")?;
    goes_on(scene).context("after the lack of connections")?;

    let unwritten = demote(scene, server).context("a read-only server")?;
    goes_on(scene).context("after the promotion")?;

    scene.stop(&both)?;
    let verdict = scene.must_be_clean()?;
    eprintln!(
        "{verdict}; {dropped} transactions waited for a lock in vain, {waiting} orders for a connection, \
         {unwritten} for a writable server"
    );
    Ok(())
}

fn goes_on(scene: &mut Scene<'_>) -> Result<()> {
    scene.send(ORDERS)?;
    scene.await_taken()?;
    check(scene)
}

/// Checks that no process has ended.
fn check(scene: &mut Scene<'_>) -> Result<()> {
    scene.members.iter_mut().try_for_each(|it| it.check())
}

/// Sends orders for a while.
fn send_for(scene: &mut Scene<'_>, time: Duration) -> Result<()> {
    let since = Instant::now();
    while since.elapsed() < time {
        scene.send(SLICE)?;
        thread::sleep(PAUSE);
        check(scene)?;
    }
    Ok(())
}

/// Locks a table of the app. Returns the number of transactions that waited for it in vain.
fn lock(scene: &mut Scene<'_>) -> Result<usize> {
    const DROPPED: &str = ": transaction dropped; rewinding to the last commit";
    let before = scene.logged(DROPPED);
    // The lock ends at the latest with this session.
    let locker = Session::new(&scene.url)?;
    locker.run("BEGIN; LOCK TABLE stock IN ACCESS EXCLUSIVE MODE")?;
    let taken = locker.number(TAKEN_ORDERS)?;
    scene.send(SLICE)?;
    wait_until(PATIENCE, "the app waits for the table", || {
        Ok(locker.number(WAITING)? > 0)
    })?;
    send_for(scene, locked())?;
    ensure!(
        locker.number(TAKEN_ORDERS)? == taken,
        "the app wrote to a locked table"
    );
    locker.run("COMMIT")?;
    let dropped = scene.logged(DROPPED) - before;
    ensure!(dropped > 0, "no transaction waited in vain");
    Ok(dropped)
}

/// Takes all connections of the server, those of the app as well. Returns the number of orders that waited.
fn take_connections(scene: &mut Scene<'_>) -> Result<i64> {
    const FAILING: &str = "a call keeps failing; retrying";
    let before = scene.logged(FAILING);
    let mut taker = Taker::new(&scene.url)?;
    wait_until(TAKE_LIMIT, "the app has no session", || taker.take())?;
    let session = &taker.session;
    let taken = session.number(TAKEN_ORDERS)?;
    send_for(scene, OUTAGE)?;
    ensure!(session.number(SESSIONS)? == 0, "the app has a session");
    ensure!(
        session.number(TAKEN_ORDERS)? == taken,
        "the app wrote without a connection"
    );
    let waiting = i64::try_from(scene.sent)? - taken;
    ensure!(waiting > 0, "no order waited");
    ensure!(
        scene.logged(FAILING) > before,
        "the log has no warning about the failing call"
    );
    Ok(waiting)
}

/// Makes the server read-only for a while. Returns the number of orders that waited.
fn demote(scene: &mut Scene<'_>, server: &mut Cluster) -> Result<i64> {
    /// The code in the error of a new session.
    const READ_ONLY: &str = "SQLSTATE 25006";
    let before = scene.logged(READ_ONLY);
    server.demote()?;
    let taken = scene.positions("sum(next_offset)")?;
    send_for(scene, OUTAGE)?;
    ensure!(
        scene.positions("sum(next_offset)")? == taken,
        "the app wrote to a read-only server"
    );
    wait_until(PATIENCE, "the log names the read-only server", || {
        Ok(scene.logged(READ_ONLY) > before)
    })?;
    let waiting = i64::try_from(scene.sent)? - taken.parse::<i64>()?;
    ensure!(waiting > 0, "no order waited");
    server.promote()?;
    Ok(waiting)
}

/// A session of the test.
struct Session {
    client: Client,
    runtime: Runtime,
}

impl Session {
    fn new(url: &str) -> Result<Session> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(connect(url))?;
        Ok(Session { client, runtime })
    }

    fn run(&self, statements: &str) -> Result<()> {
        Ok(self
            .runtime
            .block_on(self.client.batch_execute(statements))?)
    }

    /// Returns the number that a query returns.
    fn number(&self, query: &str) -> Result<i64> {
        let row = self.runtime.block_on(self.client.query_one(query, &[]))?;
        Ok(row.try_get(0)?)
    }
}

/// The connections of a server that the test holds.
struct Taker {
    url: String,
    taken: Vec<Client>,
    session: Session,
}

impl Taker {
    fn new(url: &str) -> Result<Taker> {
        Ok(Taker {
            url: url.to_owned(),
            taken: Vec::new(),
            session: Session::new(url)?,
        })
    }

    /// Ends all sessions of the app, and takes all connections that are free. Returns whether the test has all of them.
    fn take(&mut self) -> Result<bool> {
        self.session.run(END_SESSIONS)?;
        loop {
            match self.session.runtime.block_on(connect(&self.url)) {
                Ok(client) => self.taken.push(client),
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // A session that logs in has a connection, but `SESSIONS` does not count it.
        let has_all = self.taken.len() + 1 == CONNECTIONS;
        Ok(has_all && self.session.number(SESSIONS)? == 0)
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // The task ends with its client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}
