//! Brokers that accept no connections for a while (`max.connections.per.ip`). If a running app loses its connections
//! meanwhile, it continues later and loses no record. A starting app waits until its deadline, and then returns an
//! error with the cause.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use kafka_launcher::{Cluster, ClusterOptions};
use kafka_wire::Client;

use crate::common::{Case, PATIENCE, With, commits_go_on, ended, says};
use crate::permanent_errors::feeder::Feeder;
use anyhow::{Context, Result, bail, ensure};
use eos_core::errors::PreflightError;
use eos_core::run::{Running, StopMode};
use eos_core::{App, Error, Topic};
use integration_tests::judge::Expectation;
use integration_tests::proxy::{Act, Cut, Proxy, Rule, behind};
use integration_tests::wait::wait_until;
use tokio::runtime::Runtime;

const LIMIT: &str = "max.connections.per.ip";
/// The log line of the broker for each connection that it rejects.
const REJECTED: &str = "Rejected connection from";

#[test]
fn an_app_waits_for_brokers_that_take_no_more_connections() -> Result<()> {
    let Some((proxy, cluster)) = behind(&ClusterOptions::default())? else {
        return Ok(());
    };
    // This client connects before the limit is set, and keeps its connection.
    let mut admin = Client::connect(&cluster.listeners().join(","), PATIENCE)?;
    running(&proxy, &cluster, &mut admin).context("while it runs")?;
    starting(&cluster, &mut admin).context("at the start")
}

fn running(proxy: &Proxy, cluster: &Cluster, admin: &mut Client) -> Result<()> {
    let mut case = Case::with_partitions(cluster.bootstrap(), "limited", 2)?;
    let feeder = Feeder::start(&case);
    let mut running = copy(&case).start_blocking(cluster.bootstrap())?;
    commits_go_on(&running)?;

    let rejected = rejections(cluster.dir())?;
    full(cluster, admin)?;
    let clients = format!("{}-", case.app);
    let every_one = Rule::on_any([]).of(&clients);
    let cut = proxy.add(every_one.then(Act::Cut(Cut::Before)));
    let since = Instant::now();
    let mut refused = 0;
    wait_until(PATIENCE, "connections are refused for ten seconds", || {
        refused = rejections(cluster.dir())? - rejected;
        Ok(since.elapsed() > Duration::from_secs(10) && refused > 10)
    })?;
    proxy.end(cut);
    ensure!(proxy.fired(cut) > 0, "no connection was cut");
    ensure!(is_alive(&mut running)?, "it ended by itself");
    // The app can't reconnect before the limit is lifted.
    wait_until(PATIENCE, "further connections are refused", || {
        Ok(rejections(cluster.dir())? - rejected > refused)
    })?;
    admin.configure_brokers(LIMIT, "1000")?;

    commits_go_on(&running)?;
    let sent = feeder.stop()?;
    wait_until(PATIENCE, "the input is read to its end", || {
        case.is_through()
    })?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    eprintln!("{refused} connections refused, {sent} records");
    case.must_be_clean(Expectation::Finished)
}

fn starting(cluster: &Cluster, admin: &mut Client) -> Result<()> {
    let bootstrap = cluster.listeners().join(",");
    let case = Case::new(&bootstrap, "limited-start")?;
    full(cluster, admin)?;
    let begun = Instant::now();
    let deadline = Duration::from_secs(4);
    let error = copy(&case)
        .with("start.deadline.ms", deadline.as_millis())
        .start_blocking(&bootstrap)
        .err();
    let took = begun.elapsed();
    let Some(Error::Preflight(error @ PreflightError::Unreachable { .. })) = error else {
        bail!("{error:?}");
    };
    eprintln!("after {took:.1?}: {error}");
    says(
        &error,
        &[
            &bootstrap,
            "for 4 s",
            "accepted the connection and closed it",
            LIMIT,
        ],
    )?;
    ensure!(took >= deadline && took < PATIENCE / 2, "{took:?}");

    // The limit is lifted within the deadline.
    thread::scope(|scope| {
        let lifted = scope.spawn(|| {
            thread::sleep(Duration::from_secs(3));
            admin.configure_brokers(LIMIT, "1000")
        });
        let started = copy(&case)
            .with("start.deadline.ms", PATIENCE.as_millis())
            .start_blocking(&bootstrap);
        lifted
            .join()
            .map_err(|_| anyhow::anyhow!("it panicked"))??;
        let mut running = started?;
        running.handle().stop(StopMode::Leave);
        Ok(ended(&mut running)??)
    })
}

/// Makes the brokers reject new connections. The connection of the test already reaches the limit.
fn full(cluster: &Cluster, admin: &mut Client) -> Result<()> {
    admin.configure_brokers(LIMIT, "1")?;
    let address = cluster.listeners().join(",");
    wait_until(PATIENCE, "the limit holds", || {
        // A slow broker responds within this time. Then the loop tries again.
        Ok(Client::connect(&address, Duration::from_secs(5)).is_err())
    })
}

fn copy(case: &Case) -> App {
    let mut app = case.app();
    app.source(&Topic::<String, serde_json::Value>::json(&case.input))
        .to(&Topic::json(&case.output));
    app
}

fn is_alive(running: &mut Running) -> Result<bool> {
    let soon = Duration::from_millis(10);
    let ended = async { tokio::time::timeout(soon, running.ended()).await };
    match Runtime::new()?.block_on(ended) {
        Err(_not_yet) => Ok(true),
        Ok(end) => {
            eprintln!("{end:?}");
            Ok(false)
        }
    }
}

fn rejections(dir: &Path) -> Result<usize> {
    let log = std::fs::read_to_string(dir.join("node-1").join("broker.log"))?;
    Ok(log.matches(REJECTED).count())
}
