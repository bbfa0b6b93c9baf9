//! Missing rights to the topic of a global table: at the start, and while the app runs.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use eos_core::errors::GlobalError;
use eos_core::run::StopMode;
use eos_core::{App, Error, Topic};
use integration_tests::faults::{Row, record};
use integration_tests::judge::Expectation;
use integration_tests::wait::wait_until;
use kafka_wire::{Operation, Resource};

use super::{COMMAND, POINT};
use crate::common::{Case, PATIENCE, commits_go_on, ended, says};

/// Returns the name of the table's topic.
fn rates(case: &Case) -> String {
    format!("{}-rates", case.app)
}

/// Returns an app that joins its input with a global table.
fn joining(case: &Case) -> App {
    let mut app = case.app();
    let topic = Topic::<String, Option<String>>::plain(&rates(case));
    let rates = app.global_table(&topic, "rates");
    app.source(&Topic::<String, String>::plain(&case.input))
        .left_join_global(&rates, |_, value| value.clone(), |value, _| value.clone())
        .to(&Topic::plain(&case.output));
    app
}

/// Returns the command that adds a right to a topic.
fn command(operation: Operation) -> String {
    format!("kafka-acls.sh --add --operation {operation:?} --topic ..")
}

fn case_of(bootstrap: &str, name: &str) -> Result<Case> {
    // The feeder writes to two partitions.
    let mut case = Case::with_partitions(bootstrap, name, 2)?;
    let compacted = [("cleanup.policy", "compact")];
    case.client.create_topic(&rates(&case), 1, 1, &compacted)?;
    Ok(case)
}

pub(crate) fn all(bootstrap: &str) -> Result<()> {
    let begun = Instant::now();
    at_the_start(bootstrap, Operation::Read)?;
    at_the_start(bootstrap, Operation::Describe)?;
    while_it_runs(bootstrap)?;
    record(&Row {
        point: POINT.to_owned(),
        case: "a missing right to the topic of a global table".to_owned(),
        cases: 3,
        fired: 3,
        verdict: "each error contains the kafka-acls.sh command; a denied start succeeds once the app has the right"
            .to_owned(),
        seconds: begun.elapsed().as_secs_f64(),
        command: COMMAND.to_owned(),
    })
}

/// Retries the start until it succeeds, because a restored right takes a moment to reach every broker. Waits for this
/// many records in the output, and stops the app.
fn start_again(case: &mut Case, copied: usize) -> Result<()> {
    let mut running = None;
    wait_until(PATIENCE, "the app starts", || {
        running = joining(case).start_blocking(&case.bootstrap).ok();
        Ok(running.is_some())
    })?;
    let mut running = running.context("the app did not start")?;
    wait_until(PATIENCE, "the output has the records", || {
        Ok(case.output()?.len() >= copied)
    })?;
    running.handle().stop(StopMode::Leave);
    Ok(ended(&mut running)??)
}

fn at_the_start(bootstrap: &str, operation: Operation) -> Result<()> {
    let name = format!("global-{operation:?}");
    let mut case = case_of(bootstrap, &name)?;
    case.send(&["1", "2"])?;
    let topic = rates(&case);
    case.client.deny(Resource::Topic(&topic), operation)?;
    let begun = Instant::now();
    let error = case.failure_of(joining(&case))?;
    eprintln!("{name}: after {:.1?}: {error}", begun.elapsed());
    says(&error, &[&topic, &command(operation)])?;
    ensure!(
        case.output()?.is_empty(),
        "the app wrote records without the right"
    );
    case.client.allow(Resource::Topic(&topic))?;
    start_again(&mut case, 2)
}

fn while_it_runs(bootstrap: &str) -> Result<()> {
    let mut case = case_of(bootstrap, "global-running")?;
    let feeder = super::Feeder::start(&case);
    let mut running = joining(&case).start_blocking(bootstrap)?;
    commits_go_on(&running)?;
    let topic = rates(&case);
    case.client.deny(Resource::Topic(&topic), Operation::Read)?;
    let begun = Instant::now();
    let end = ended(&mut running);
    let took = begun.elapsed();
    let _sent = feeder.stop();
    case.client.allow(Resource::Topic(&topic))?;
    let error = end?.err().context("the app ended without an error")?;
    eprintln!("global-running: after {took:.1?}: {error}");
    ensure!(
        matches!(&error, Error::Global(it) if matches!(**it, GlobalError::Client { .. })),
        "{error:?}"
    );
    says(&error, &[&topic, &command(Operation::Read)])?;
    case.nothing_is_open()?;
    case.must_be_clean(Expectation::Behind)
}
