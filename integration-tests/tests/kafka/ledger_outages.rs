//! A database that is not available for a while, to an app that runs: a table is locked, and all connections are taken.
//! No process ends, and each order is booked once.
//!
//! `EOS_FULL=1 cargo test -p integration-tests --test kafka ledger_outages::` locks the table for more than a minute.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::tokio_postgres::error::SqlState;
use eos_postgres::tokio_postgres::{self, Client, NoTls};
use integration_tests::faults::is_full;
use integration_tests::wait::wait_until;
use kafka_launcher::for_tests;
use tokio::runtime::Runtime;

use crate::bookings::{SLICE, Scene, Start, program};
use crate::common::PATIENCE;

/// The connections of the server.
const CONNECTIONS: &str = "30";
/// The orders before, between and after the outages.
const ORDERS: u64 = 60;
/// Orders keep coming during an outage.
const PAUSE: Duration = Duration::from_millis(100);
/// How long all connections are taken.
const OUTAGE: Duration = Duration::from_secs(8);
/// By when no session of the app is left.
const TAKE_LIMIT: Duration = Duration::from_secs(20);
/// The sessions of the app.
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^eos/'";
const END_SESSIONS: &str =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^eos/'";
/// The orders that the app has taken.
const TAKEN_ORDERS: &str = "SELECT sum(next_offset)::int8 FROM eos.positions";

/// How long a table is locked: longer than a statement of the app waits for a lock, and so than a transaction lives.
fn locked() -> Duration {
    Duration::from_secs(if is_full() { 65 } else { 8 })
}

#[test]
fn an_app_outlives_a_locked_table_and_a_server_without_connections() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let program = program()?;
    let server = Cluster::temporary(&[
        ("max_connections", CONNECTIONS),
        ("superuser_reserved_connections", "0"),
    ])?;
    let mut scene = Scene::new("outages", &program, kafka.bootstrap(), &server)?;
    let played = play(&mut scene);
    played.with_context(|| scene.tails())
}

fn play(scene: &mut Scene<'_>) -> Result<()> {
    let start = Start::new(Duration::from_secs(6));
    let both = [scene.start(&start)?, scene.start(&start)?];
    goes_on(scene).context("before")?;

    let dropped = lock(scene).context("a locked table")?;
    goes_on(scene).context("after the lock")?;

    let waiting = take_connections(scene).context("no connections")?;
    goes_on(scene).context("after the lack of connections")?;

    scene.stop(&both)?;
    let verdict = scene.must_be_clean()?;
    eprintln!(
        "{verdict}; {dropped} transactions waited for a lock in vain, {waiting} orders for a connection"
    );
    Ok(())
}

fn goes_on(scene: &mut Scene<'_>) -> Result<()> {
    scene.send(ORDERS)?;
    scene.await_taken()?;
    check(scene)
}

/// No process has ended.
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
    let (before, url) = (scene.logged(DROPPED), scene.url.clone());
    let (time, looker) = (locked(), url.clone());
    let locker = thread::spawn(move || {
        let statements = format!(
            "BEGIN; LOCK TABLE stock IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({}); COMMIT",
            time.as_secs()
        );
        run(&url, &statements).map(drop)
    });
    let locks = |which: &str| {
        let query = "SELECT count(*) FROM pg_locks WHERE relation = 'stock'::regclass";
        value(&looker, &format!("{query} AND {which}"))
    };
    wait_until(PATIENCE, "the table is locked", || {
        Ok(locks("granted AND mode = 'AccessExclusiveLock'")? == "1")
    })?;
    let positions = scene.positions("sum(next_offset)")?;
    scene.send(SLICE)?;
    wait_until(PATIENCE, "the app waits for the table", || {
        Ok(locks("NOT granted")? != "0")
    })?;
    send_for(scene, time - Duration::from_secs(2))?;
    ensure!(
        scene.positions("sum(next_offset)")? == positions,
        "the app wrote to a locked table"
    );
    locker.join().ok().context("the lock panicked")??;
    let dropped = scene.logged(DROPPED) - before;
    ensure!(dropped > 0, "no transaction waited in vain");
    Ok(dropped)
}

/// Takes all connections of the server, those of the app as well. Returns the number of orders that waited.
fn take_connections(scene: &mut Scene<'_>) -> Result<i64> {
    let mut taker = Taker::new(&scene.url)?;
    wait_until(TAKE_LIMIT, "the app has no session", || taker.take())?;
    let taken = taker.number(TAKEN_ORDERS)?;
    send_for(scene, OUTAGE)?;
    ensure!(taker.number(SESSIONS)? == 0, "the app has a session");
    ensure!(
        taker.number(TAKEN_ORDERS)? == taken,
        "the app wrote without a connection"
    );
    let waiting = i64::try_from(scene.sent)? - taken;
    ensure!(waiting > 0, "no order waited");
    Ok(waiting)
}

/// Takes the connections of a server.
struct Taker {
    runtime: Runtime,
    url: String,
    control: Client,
    taken: Vec<Client>,
}

impl Taker {
    fn new(url: &str) -> Result<Taker> {
        let runtime = Runtime::new()?;
        let control = runtime.block_on(connect(url))?;
        Ok(Taker {
            runtime,
            url: url.to_owned(),
            control,
            taken: Vec::new(),
        })
    }

    /// Ends all sessions of the app, and takes all connections that are free. Returns whether the app has none.
    fn take(&mut self) -> Result<bool> {
        self.runtime
            .block_on(self.control.execute(END_SESSIONS, &[]))?;
        loop {
            match self.runtime.block_on(connect(&self.url)) {
                Ok(client) => self.taken.push(client),
                Err(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.number(SESSIONS)? == 0)
    }

    /// The number that a query returns.
    fn number(&self, query: &str) -> Result<i64> {
        let row = self.runtime.block_on(self.control.query_one(query, &[]))?;
        Ok(row.try_get(0)?)
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with its client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}
