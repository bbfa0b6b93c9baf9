//! A copied state directory: two live processes under one transactional id. One of them ends with
//! the fix in its error, the other goes on, and nothing is lost or doubled.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use kafka_launcher::for_tests;

use crate::common::{Case, PATIENCE, Scenario, With, commits_go_on, each, ended, says};
use anyhow::{Context, Result, ensure};
use eos_core::errors::WorkerError;
use eos_core::run::{Running, StopMode};
use eos_core::{App, Error, Topic};
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
    let scenarios: [Scenario; 2] = [
        ("static members", |kafka| {
            one_ends(kafka, "static-twins", 50_000, true)
        }),
        // The second one waits for its partitions until the first has heard of it, twice.
        ("dynamic members", |kafka| {
            one_ends(kafka, "twins", 150_000, false)
        }),
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
    let slot = |root: &Path| root.join(&case.app).join("0");
    fs::create_dir_all(slot(&copy))?;
    fs::copy(
        slot(&original).join("instance"),
        slot(&copy).join("instance"),
    )?;
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

/// The error of the one that ends, and the other.
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
