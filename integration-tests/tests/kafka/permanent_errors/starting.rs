//! Missing rights at the start of an app. The error names the right to add.

use std::time::Instant;

use anyhow::{Result, ensure};
use eos_core::run::StopMode;
use integration_tests::faults::{Row, record};
use integration_tests::wait::wait_until;
use kafka_wire::{Operation, Resource};

use super::{COMMAND, POINT, Place, copy};
use crate::common::{Case, PATIENCE, ended, says};
use crate::own_topics::counting;

/// A denied operation, and a part of the error's text.
type Missing = (&'static str, Place, Operation, &'static str);

const MISSING: [Missing; 7] = [
    (
        "read-input",
        Place::Input,
        Operation::Read,
        "kafka-acls.sh --add --operation Read|Write --topic",
    ),
    (
        "describe-input",
        Place::Input,
        Operation::Describe,
        "describe its topics",
    ),
    (
        "write-output",
        Place::Output,
        Operation::Write,
        "kafka-acls.sh --add --operation Read|Write --topic",
    ),
    (
        "describe-output",
        Place::Output,
        Operation::Describe,
        "describe its topics",
    ),
    (
        "read-group",
        Place::Group,
        Operation::Read,
        "kafka-acls.sh --add --operation Read --group",
    ),
    (
        "write-transactional-id",
        Place::TransactionalIds,
        Operation::Write,
        "--transactional-id .. --resource-pattern-type prefixed",
    ),
    (
        "describe-transactional-id",
        Place::TransactionalIds,
        Operation::Describe,
        "--transactional-id .. --resource-pattern-type prefixed",
    ),
];

pub(crate) fn all(bootstrap: &str) -> Result<()> {
    let begun = Instant::now();
    let mut wrong = Vec::new();
    for missing @ (name, ..) in MISSING {
        if let Err(error) = one(bootstrap, missing) {
            wrong.push(format!("{name}: {error:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    record(&Row {
        point: POINT.to_owned(),
        case: "a right missing at the start".to_owned(),
        cases: MISSING.len() as u64,
        fired: MISSING.len() as u64,
        verdict: "each error names the right to add".to_owned(),
        seconds: begun.elapsed().as_secs_f64(),
        command: COMMAND.to_owned(),
    })
}

fn one(bootstrap: &str, (name, place, operation, fix): Missing) -> Result<()> {
    let mut case = Case::new(bootstrap, name)?;
    case.send(&["1", "2"])?;
    place.deny(&mut case, operation)?;
    let begun = Instant::now();
    let error = case.failure_of(copy(&case))?;
    eprintln!("{name}: after {:.1?}: {error}", begun.elapsed());
    says(&error, &[fix])
}

/// The app first lacks the right to create its repartition topic, and then gets it.
pub(crate) fn own_topic(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "create-own")?;
    let words = format!("{}-words-repartition", case.app);
    case.client.deny(Resource::Cluster, Operation::Create)?;
    case.client
        .deny(Resource::Topic(&words), Operation::Create)?;
    let error = case.failure_of(counting(&case, &case.input))?;
    says(&error, &[&format!("--operation Create --topic {words};")])?;
    case.client.allow(Resource::Topic(&words))?;
    case.client.allow(Resource::Cluster)?;
    // The right takes a moment to reach every broker.
    let mut running = None;
    wait_until(PATIENCE, "the app starts", || {
        running = counting(&case, &case.input).start_blocking(bootstrap).ok();
        Ok(running.is_some())
    })?;
    let mut running = running.expect("it has started");
    running.handle().stop(StopMode::Leave);
    Ok(ended(&mut running)??)
}
