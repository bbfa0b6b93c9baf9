//! A record that cannot be processed stops the app. Earlier records are committed, later ones are not, and a restart
//! begins with the failed record.

use crate::common::{Case, on_kafka, says};
use anyhow::{Result, bail, ensure};
use eos_core::errors::WorkerError;
use eos_core::{App, Error, Failure, Topic};

const RECORDS: [&str; 7] = ["1", "2", "3", "4", "poison", "6", "7"];
const POISON: i64 = 4;

#[test]
fn a_bad_record_stops_the_app_and_nothing_else() -> Result<()> {
    on_kafka(&[
        ("bytes that are no number", undecodable),
        ("a closure that fails", failing),
        ("a closure that panics", panicking),
    ])
}

/// The values are JSON numbers, except `poison`.
fn undecodable(bootstrap: &str) -> Result<()> {
    let declare = |app: &mut App, case: &Case| {
        app.source(&Topic::<String, u64>::json(&case.input))
            .map(|n| n.to_string())
            .to(&Topic::plain(&case.output));
    };
    stops_at_the_poison(bootstrap, "undecodable", declare, "expected value")
}

fn failing(bootstrap: &str) -> Result<()> {
    let declare = |app: &mut App, case: &Case| {
        app.source(&Topic::<String, String>::plain(&case.input))
            .try_map(|text| match &text[..] {
                "poison" => Err(Failure::from("not today")),
                _ => Ok(text),
            })
            .to(&Topic::plain(&case.output));
    };
    stops_at_the_poison(bootstrap, "failing", declare, "not today")
}

fn panicking(bootstrap: &str) -> Result<()> {
    let declare = |app: &mut App, case: &Case| {
        app.source(&Topic::<String, String>::plain(&case.input))
            .map(|text| {
                assert!(text != "poison", "at the disco");
                text
            })
            .to(&Topic::plain(&case.output));
    };
    stops_at_the_poison(bootstrap, "panicking", declare, "at the disco")
}

fn stops_at_the_poison(
    bootstrap: &str,
    name: &str,
    declare: impl Fn(&mut App, &Case),
    why: &str,
) -> Result<()> {
    let mut case = Case::new(bootstrap, name)?;
    case.send(&RECORDS)?;
    // A restart reads the same record and changes nothing.
    for _ in 0..2 {
        let mut app = case.app();
        declare(&mut app, &case);
        let error = case.failure_of(app)?;
        let Error::Worker(WorkerError::Record {
            partition, offset, ..
        }) = &error
        else {
            bail!("{error:?}");
        };
        ensure!(
            partition.to_string() == format!("{}-0", case.input),
            "{error}"
        );
        ensure!(offset.get() == POISON, "{error}");
        says(&error, &[why, "Everything before it is committed"])?;
        case.nothing_is_open()?;
        ensure!(
            case.output()? == ["1", "2", "3", "4"],
            "{:?}",
            case.output()?
        );
        ensure!(case.committed()? == Some(POISON), "{:?}", case.committed()?);
    }
    Ok(())
}
