//! Committed offsets, and positions in a ledger, at which no task may start. The error names each of them, and no
//! record is skipped or doubled.

use crate::common::{Case, PATIENCE, With, ended, on_kafka, says};
use anyhow::{Result, bail, ensure};
use eos_core::errors::{StartError, WorkerError};
use eos_core::run::StopMode;
use eos_core::{Error, Topic};
use eos_testkit::ledger::ModelLedger;
use integration_tests::wait::wait_until;

/// The metadata of a program with other sources.
const FOREIGN: &str = "eos1;91f0a2b3c4d5e6f7;1;42;00000000c0ffee00;-;-;-";

#[test]
fn each_bad_offset_ends_with_a_typed_error_that_names_the_fix() -> Result<()> {
    on_kafka(&[
        ("beyond the end", beyond_the_end),
        ("deleted", deleted),
        ("deleted, with a ledger", deleted_with_a_ledger),
        ("another layout", another_layout),
        ("a newer format", a_newer_format),
        ("text of a user", text_of_a_user),
    ])
}

fn ten(bootstrap: &str, name: &str) -> Result<Case> {
    let case = Case::new(bootstrap, name)?;
    case.send(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"])?;
    Ok(case)
}

fn beyond_the_end(bootstrap: &str) -> Result<()> {
    let mut case = ten(bootstrap, "beyond-the-end")?;
    case.set_offset(1_000, "")?;
    out_of_range(&mut case, (1_000, 0, 10), "shorter than it was")
}

fn deleted(bootstrap: &str) -> Result<()> {
    let mut case = ten(bootstrap, "deleted")?;
    let input = case.input.clone();
    case.client.delete_records(&input, 0, 5)?;
    case.set_offset(2, "")?;
    out_of_range(&mut case, (2, 5, 10), "deleted before they were read")
}

/// The records after the position were deleted while the app was stopped.
fn deleted_with_a_ledger(bootstrap: &str) -> Result<()> {
    let case = ten(bootstrap, "deleted-ledger")?;
    let ledger = ModelLedger::new("shop");
    let app = || {
        let mut app = case.app();
        app.ledger(&ledger);
        app.source(&Topic::<String, String>::plain(&case.input))
            .to_place(ledger.place("bookings"));
        app
    };
    let rows = || ledger.rows::<String, String>("bookings");
    let mut running = app().start_blocking(bootstrap)?;
    wait_until(PATIENCE, "all records are rows", || Ok(rows().len() >= 10))?;
    running.handle().stop(StopMode::Leave);
    ended(&mut running)??;
    case.send(&["10", "11", "12"])?;
    kafka_wire::Client::connect(bootstrap, PATIENCE)?.delete_records(&case.input, 0, 12)?;

    let error = case.failure_of(app())?;
    let Error::Worker(WorkerError::OffsetOutOfRange { wanted, first, .. }) = &error else {
        bail!("{error:?}");
    };
    ensure!((wanted.get(), first.get()) == (10, 12), "{error}");
    let fix = "stop the app and set the position in its ledger";
    says(
        &error,
        &["deleted before they were read", "Nothing was skipped", fix],
    )?;
    ensure!(rows().len() == 10, "something was processed");
    let offsets: Vec<_> = ledger.offsets().into_values().flatten().collect();
    ensure!(offsets == [*wanted], "the position was moved: {offsets:?}");
    Ok(())
}

fn out_of_range(case: &mut Case, expected: (i64, i64, i64), why: &str) -> Result<()> {
    let error = case.failure_of(case.copy())?;
    let Error::Worker(WorkerError::OffsetOutOfRange {
        partition,
        wanted,
        first,
        end,
        ..
    }) = &error
    else {
        bail!("{error:?}");
    };
    ensure!(
        (wanted.get(), first.get(), end.get()) == expected,
        "{error}"
    );
    ensure!(
        partition.to_string() == format!("{}-0", case.input),
        "{error}"
    );
    let reset = format!("kafka-consumer-groups.sh --group {}", case.app);
    says(
        &error,
        &[why, "Nothing was skipped", &reset, "--reset-offsets"],
    )?;
    ensure!(
        case.committed()? == Some(expected.0),
        "the offset was moved"
    );
    ensure!(case.output()?.is_empty(), "something was processed");
    Ok(())
}

fn another_layout(bootstrap: &str) -> Result<()> {
    let mut case = ten(bootstrap, "another-layout")?;
    case.set_offset(4, FOREIGN)?;
    let error = case.failure_of(case.copy())?;
    let Error::Worker(WorkerError::Start(StartError::LayoutChanged { .. })) = &error else {
        bail!("{error:?}");
    };
    says(
        &error,
        &["its sources changed", "EOS_ACCEPT_LAYOUT=91f0a2b3c4d5e6f7 "],
    )?;
    ensure!(case.output()?.is_empty(), "something was processed");

    // The fix that the error names.
    let accepting = case.copy().with("accept.layout", "91f0a2b3c4d5e6f7");
    case.run_to(accepting, 6)?;
    ensure!(
        case.output()? == ["4", "5", "6", "7", "8", "9"],
        "{:?}",
        case.output()?
    );
    ensure!(case.committed()? == Some(10));
    Ok(())
}

fn a_newer_format(bootstrap: &str) -> Result<()> {
    let mut case = ten(bootstrap, "newer-format")?;
    case.set_offset(4, "eos9;who;knows")?;
    let error = case.failure_of(case.copy())?;
    let Error::Worker(WorkerError::Start(StartError::Name { .. })) = &error else {
        bail!("{error:?}");
    };
    says(&error, &["newer format, eos9", "Run the newest version"])?;
    ensure!(case.output()?.is_empty(), "something was processed");
    Ok(())
}

/// An offset that a user set by hand is accepted.
fn text_of_a_user(bootstrap: &str) -> Result<()> {
    let mut case = ten(bootstrap, "text-of-a-user")?;
    case.set_offset(7, "reset by Ada on Friday; see the wiki")?;
    case.run_to(case.copy(), 3)?;
    ensure!(case.output()? == ["7", "8", "9"], "{:?}", case.output()?);
    Ok(())
}
