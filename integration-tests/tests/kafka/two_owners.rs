//! A copied state directory. Two live processes have one transactional id, or one identity in a ledger. One of them
//! ends with the fix in its error, the other continues, and no record is lost or doubled.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kafka_launcher::for_tests;

use crate::bookings::{self, Scene};
use crate::common::{Case, PATIENCE, Scenario, With, commits_go_on, each, ended, says};
use anyhow::{Context, Result, ensure};
use eos_core::errors::WorkerError;
use eos_core::run::{Running, StopMode};
use eos_core::{App, Error, Topic};
use eos_postgres::testing::Cluster;
use integration_tests::judge::Expectation;
use integration_tests::wait::wait_until;
use tokio::runtime::Runtime;

const PARTITIONS: i32 = 3;
const RATE: u64 = 10_000;

#[test]
fn one_of_two_owners_ends_and_the_other_goes_on() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let scenarios: [Scenario; 3] = [
        ("static members", |kafka| {
            one_ends(kafka, "static-twins", 50_000, true)
        }),
        // The second member gets its partitions only after the first one has learned of two rebalances.
        ("dynamic members", |kafka| {
            one_ends(kafka, "twins", 150_000, false)
        }),
        ("sessions of a ledger", one_session_ends),
    ];
    each(&scenarios, kafka.bootstrap())
}

fn one_ends(bootstrap: &str, name: &str, records: u64, static_member: bool) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, name, PARTITIONS)?;
    let (original, copy) = (
        case.state.path().join("original"),
        case.state.path().join("copy"),
    );
    let app = |dir: &Path| -> App {
        let mut app = case
            .app()
            .with("static.membership", static_member)
            .with("state.dir", dir.display());
        app.source(&Topic::<String, serde_json::Value>::json(&case.input))
            .to(&Topic::json(&case.output));
        app
    };
    let mut generator = Command::new(env!("CARGO_BIN_EXE_generator"));
    generator.args(["--bootstrap", bootstrap, "--topic", &case.input]);
    generator.args([
        "--records",
        &records.to_string(),
        "--rate",
        &RATE.to_string(),
    ]);
    let mut generator = integration_tests::process::ChildGuard::spawn(generator)?;

    let first = app(&original).start_blocking(bootstrap)?;
    commits_go_on(&first).context("the first owner")?;
    copy_instance(&case.app, &original, &copy)?;
    let start = Instant::now();
    let second = app(&copy).start_blocking(bootstrap)?;

    let (error, survivor) = first_to_end(first, second)?;
    eprintln!("after {:.1?}: {error}", start.elapsed());
    ensure!(
        matches!(error, Error::Worker(WorkerError::TwoOwners { .. })),
        "{error:?}"
    );
    says(
        &error,
        &["delete the file `instance` in the copy", &case.app],
    )?;

    ensure!(generator.wait(PATIENCE)?.success(), "the generator failed");
    wait_until(PATIENCE, "the other owner has processed everything", || {
        case.is_through()
    })?;
    let mut survivor = survivor;
    survivor.handle().stop(StopMode::Leave);
    ended(&mut survivor)?.context("the other owner")?;
    case.must_be_clean(Expectation::Finished)
}

/// In a ledger, the newer session of an identity ends the older one.
fn one_session_ends(bootstrap: &str) -> Result<()> {
    let (program, server) = (bookings::program()?, Cluster::temporary(&[])?);
    let mut scene = Scene::new("ledger-twins", &program, bootstrap, &server)?;
    let played = one_session_goes_on(&mut scene);
    played.with_context(|| scene.tails())
}

fn one_session_goes_on(scene: &mut Scene<'_>) -> Result<()> {
    let on = |host| bookings::Start {
        host,
        // With static membership, the group would fence one of the processes first.
        settings: vec![("EOS_STATIC_MEMBERSHIP", "false")],
        ..bookings::Start::new(Duration::from_secs(6))
    };
    let first = scene.start(&on("original"))?;
    scene.send(bookings::SLICE)?;
    scene.await_taken()?;
    copy_instance(&scene.app, &scene.state("original"), &scene.state("copy"))?;
    let start = Instant::now();
    let second = scene.start(&on("copy"))?;
    let mut end = None;
    wait_until(PATIENCE, "one of them ends", || {
        scene.send(bookings::SLICE)?;
        let mut both = [first, second].into_iter();
        end = both.find(|nth| scene.members[*nth].check().is_err());
        Ok(end.is_some())
    })?;
    let ended = end.context("one of them")?;
    let log = scene.members[ended].log();
    eprintln!("after {:.1?}: process {ended} ended", start.elapsed());
    ensure!(
        !scene.members[ended].await_any_end(PATIENCE)?,
        "it ended without an error"
    );
    let fenced = "times within a minute, last: ";
    says(&log, &["another live process uses the id", fenced])?;
    says(&log, &["a newer session of ", "delete the file `instance`"])?;

    scene.await_taken()?;
    scene.stop(&[first + second - ended])?;
    scene.must_be_clean().map(drop)
}

/// Gives a second state directory the identity of the first one.
fn copy_instance(app: &str, original: &Path, copy: &Path) -> Result<()> {
    let slot = |root: &Path| root.join(app).join("0");
    fs::create_dir_all(slot(copy))?;
    fs::copy(slot(original).join("instance"), slot(copy).join("instance"))?;
    Ok(())
}

/// Returns the error of the process that ends first, and the other process.
fn first_to_end(mut first: Running, mut second: Running) -> Result<(Error, Running)> {
    let runtime = Runtime::new()?;
    let (end, survivor) = runtime
        .block_on(async {
            let race = async {
                tokio::select! {
                    end = first.ended() => (end, second),
                    end = second.ended() => (end, first),
                }
            };
            tokio::time::timeout(PATIENCE, race).await
        })
        .context("both go on")?;
    Ok((end.err().context("one ended without an error")?, survivor))
}
