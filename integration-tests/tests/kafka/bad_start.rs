//! An error at the start is reported at once, with the fix. The app never waits without a limit.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{Case, With, ended, on_kafka, says};
use anyhow::{Result, bail, ensure};
use eos_core::errors::{PreflightError, SlotError};
use eos_core::{App, Error, Topic};
use integration_tests::fleet::Fleet;
use integration_tests::process::{Program, build};

#[test]
fn each_bad_start_ends_with_a_typed_error_that_names_the_fix() -> Result<()> {
    on_kafka(&[
        ("no process listens", no_process_listens),
        ("who listens is no Kafka", who_listens_is_no_kafka),
        ("topics are missing", topics_are_missing),
        ("the slot is taken", the_slot_is_taken),
        (
            "the state directory is a file",
            the_state_directory_is_a_file,
        ),
        (
            "the transaction time-out is above the brokers' limit",
            too_long_transactions,
        ),
        (
            "the session time-out is below the brokers' limit",
            too_short_sessions,
        ),
    ])
}

/// Runs the example as a user does, so that the test checks its log, too.
fn no_process_listens(_: &str) -> Result<()> {
    // Bound and released, so that the port is free.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let dir = tempfile::tempdir()?;
    let environment = [
        ("EOS_BOOTSTRAP_SERVERS", port.to_string()),
        ("EOS_STATE_DIR", dir.path().display().to_string()),
        // The test counts the lines below, and a backtrace would add 40.
        ("RUST_BACKTRACE", "0".into()),
    ];
    let hello = build("eos-examples", Program::Bin("01-hello"), &[])?;
    let mut fleet = Fleet::new(&hello, environment, &dir.path().join("logs"))?;
    let start = Instant::now();
    fleet.start()?;
    let (code, log) = fleet.await_own_end(0, Duration::from_secs(40))?;
    let took = start.elapsed();
    ensure!(code == 1, "exit code {code}:\n{log}");
    says(
        &log,
        &[
            "Connection refused. Tried 127.0.0.1:",
            "(environment variable EOS_BOOTSTRAP_SERVERS) for 15 s",
            "Is it running",
        ],
    )?;
    ensure!(
        took < Duration::from_secs(25),
        "the deadline is 15 s, it took {took:?}"
    );
    let lines = log.lines().filter(|line| !line.trim().is_empty()).count();
    ensure!(lines <= 30, "{lines} lines:\n{log}");
    Ok(())
}

fn who_listens_is_no_kafka(_: &str) -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let dir = tempfile::tempdir()?;
    let mut app = App::new("a")
        .with("state.dir", dir.path().display())
        .with("start.deadline.ms", Duration::from_secs(3).as_millis());
    app.source(&Topic::<String, String>::plain("in"))
        .to(&Topic::plain("out"));
    let start = Instant::now();
    let error = app.start_blocking(&silent.local_addr()?.to_string()).err();
    let Some(Error::Preflight(error @ PreflightError::Unreachable { waited_s: 3, .. })) = error
    else {
        bail!("{error:?}");
    };
    says(&error, &["for 3 s", "are host and port right?"])?;
    let took = start.elapsed();
    ensure!(took < Duration::from_secs(8), "{took:?}");
    Ok(())
}

fn topics_are_missing(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "missing-topics")?;
    let mut app = case.app();
    let slip = case.input.replace("-in", "-inn");
    app.source(&Topic::<String, String>::plain(&slip))
        .to(&Topic::plain("no-such-output"));
    let error = case.failure_of(app)?;
    let Error::Preflight(PreflightError::MissingTopics { topics, .. }) = &error else {
        bail!("{error:?}");
    };
    ensure!(topics.len() == 2, "{topics:?}");
    says(
        &error,
        &[
            &format!("the input topic {slip} (did you mean {}?)", case.input),
            "the output topic no-such-output",
            "kafka-topics.sh --create",
            "--topic no-such-output --partitions",
        ],
    )
}

fn the_slot_is_taken(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "slot-taken")?;
    let mut first = case.copy().with("slot", 0).start_blocking(bootstrap)?;
    let error = case.failure_of(case.copy().with("slot", 0))?;
    ensure!(
        matches!(error, Error::Slot(SlotError::Taken { slot: 0, .. })),
        "{error:?}"
    );
    says(
        &error,
        &["slot 0", "another live process", "leave the slot unset"],
    )?;
    first.handle().stop(eos_core::run::StopMode::Leave);
    ended(&mut first)??;
    Ok(())
}

fn the_state_directory_is_a_file(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "no-dir")?;
    let file = case.state.path().join("file");
    std::fs::write(&file, "")?;
    let error = case.failure_of(case.copy().with("state.dir", file.display()))?;
    ensure!(
        matches!(error, Error::Slot(SlotError::Unusable { .. })),
        "{error:?}"
    );
    says(&error, &["can't be used", "EOS_STATE_DIR"])
}

/// The brokers of the tests allow sessions of 1 s or more.
fn too_short_sessions(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "short-sessions")?;
    let app = case
        .copy()
        .with("session.timeout.ms", Duration::from_millis(500).as_millis());
    let error = case.failure_of(app)?;
    ensure!(
        matches!(error, Error::Preflight(PreflightError::Limit { .. })),
        "{error:?}"
    );
    says(&error, &["500", "group.min.session.timeout.ms = 1000"])
}

/// The brokers allow 15 minutes, which is the default of `transaction.max.timeout.ms`.
fn too_long_transactions(bootstrap: &str) -> Result<()> {
    let case = Case::new(bootstrap, "long-transactions")?;
    let app = case.copy().with(
        "transaction.timeout.ms",
        Duration::from_secs(20 * 60).as_millis(),
    );
    let error = case.failure_of(app)?;
    ensure!(
        matches!(error, Error::Preflight(PreflightError::Limit { .. })),
        "{error:?}"
    );
    says(
        &error,
        &[
            "transaction.timeout.ms = 1200000",
            "transaction.max.timeout.ms = 900000",
        ],
    )
}
