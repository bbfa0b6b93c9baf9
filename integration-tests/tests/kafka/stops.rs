//! Stops of an app by each way and at any time. The exit code is 0, all written records are committed, and no
//! transaction is left open.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kafka_launcher::os::Signal;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire::{Client, Isolation};

use crate::common::{Case, PATIENCE, With, ended};
use anyhow::{Result, ensure};
use eos_core::run::StopMode;
use integration_tests::fleet::Fleet;
use integration_tests::judge::{Expectation, Question};
use integration_tests::kill::Load;
use integration_tests::process::{Program, build};
use integration_tests::wait::wait_until;

const OUTPUTS: [&str; 2] = ["cities-enriched", "cities-audit"];
const APP: &str = "enrich-v1";

/// The time for which a process waits for a broker at its start.
const STARTING: Duration = Duration::from_secs(60);

#[test]
fn a_stop_is_clean() -> Result<()> {
    let Some(cluster) = own_for_tests(&ClusterOptions::default())? else {
        return Ok(());
    };
    crate::common::each(
        &[
            ("signals under load", signals_under_load),
            ("a handle, to restart", |kafka| {
                by_handle(kafka, StopMode::Restart, 2)
            }),
            ("a handle, to leave", |kafka| {
                by_handle(kafka, StopMode::Leave, 0)
            }),
            ("while it still waits for a broker", in_start_up),
        ],
        cluster.bootstrap(),
    )
}

fn signals_under_load(bootstrap: &str) -> Result<()> {
    let mut client = Client::connect(bootstrap, PATIENCE)?;
    for topic in OUTPUTS.iter().chain([&"cities"]) {
        client.create_topic(topic, 6, 1, &[])?;
    }
    let dir = tempfile::tempdir()?;
    let mut fleet = fleet(bootstrap, dir.path())?;
    let generator = env!("CARGO_BIN_EXE_generator").as_ref();
    let mut load = Load::start(generator, bootstrap, "cities", 100_000, 10_000)?;
    for signal in [
        Signal::Term,
        Signal::Interrupt,
        Signal::Term,
        Signal::Interrupt,
    ] {
        let before = client.end_offsets(OUTPUTS[0], Isolation::ReadCommitted)?;
        fleet.start()?;
        wait_until(PATIENCE, "output is committed", || {
            fleet.check()?;
            load.keep_going()?;
            let now = client.end_offsets(OUTPUTS[0], Isolation::ReadCommitted)?;
            Ok(now.iter().sum::<i64>() > before.iter().sum())
        })?;
        // Rounds may take longer than the input, so it is continued as long as needed.
        load.keep_going()?;
        let start = Instant::now();
        fleet.stop(0, signal)?;
        eprintln!("{signal:?} took {:.2?}", start.elapsed());
        Question::of_app(bootstrap, APP, "cities", &OUTPUTS.map(str::to_owned))
            .must_be_clean(Expectation::Behind)?;
    }
    // A second signal follows the first one.
    fleet.start()?;
    load.keep_going()?;
    let before = client.end_offsets(OUTPUTS[0], Isolation::ReadCommitted)?;
    wait_until(PATIENCE, "output is committed", || {
        fleet.check()?;
        let now = client.end_offsets(OUTPUTS[0], Isolation::ReadCommitted)?;
        Ok(now.iter().sum::<i64>() > before.iter().sum())
    })?;
    fleet.signal(0, Signal::Term)?;
    fleet.signal(0, Signal::Interrupt)?;
    fleet.stop_silent(0, Signal::Term)?;
    load.finish()
}

/// A static member stays for its restart. A member that leaves is gone at once.
fn by_handle(bootstrap: &str, mode: StopMode, members: usize) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, &format!("{mode:?}"), 4)?;
    case.send(&["1", "2", "3"])?;
    let mut running = case
        .copy()
        .with("num.stream.threads", 2)
        .start_blocking(bootstrap)?;
    wait_until(
        PATIENCE,
        "the output is there and both workers are members",
        || {
            let group = case.app.clone();
            Ok(case.output()?.len() == 3 && case.client.group_members(&group)?.members.len() == 2)
        },
    )?;
    running.handle().stop(mode);
    ended(&mut running)??;
    ensure!(case.committed()? == Some(3));
    case.nothing_is_open()?;
    let group = case.app.clone();
    wait_until(
        PATIENCE,
        "the member that left is gone, and no other",
        || Ok(case.client.group_members(&group)?.members.len() == members),
    )
}

fn in_start_up(_: &str) -> Result<()> {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let dir = tempfile::tempdir()?;
    let mut fleet = fleet(&silent.local_addr()?.to_string(), dir.path())?;
    fleet.start()?;
    // The app connects, so its start is in progress. It handles signals from before this moment.
    silent.accept()?;
    let start = Instant::now();
    fleet.stop_silent(0, Signal::Term)?;
    // Long before the app's own time limit for the broker.
    let took = start.elapsed();
    ensure!(took < STARTING / 2, "{took:?}");
    Ok(())
}

fn fleet(bootstrap: &str, dir: &std::path::Path) -> Result<Fleet> {
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", bootstrap.to_owned()),
        ("EOS_STATE_DIR", dir.join("state").display().to_string()),
        ("WORKERS", "2".to_owned()),
        ("EOS_START_DEADLINE_MS", STARTING.as_millis().to_string()),
    ];
    let enrich = build("eos-examples", Program::Bin("02-enrich"), &[])?;
    Fleet::new(&enrich, environment, &dir.join("logs"))
}
