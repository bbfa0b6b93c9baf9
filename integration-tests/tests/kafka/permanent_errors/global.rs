//! The topic of a global table that the app may not read: at the start, and while it runs.

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

/// The name of the table's topic.
fn rates(case: &Case) -> String {
    format!("{}-rates", case.app)
}

/// An app that joins its input with a global table.
fn joining(case: &Case) -> App {
    let mut app = case.app();
    let topic = Topic::<String, Option<String>>::plain(&rates(case));
    let rates = app.global_table(&topic, "rates");
    app.source(&Topic::<String, String>::plain(&case.input))
        .left_join_global(&rates, |_, value| value.clone(), |value, _| value.clone())
        .to(&Topic::plain(&case.output));
    app
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
    at_the_start(bootstrap, Operation::Read, "global-read")?;
    at_the_start(bootstrap, Operation::Describe, "global-describe")?;
    while_it_runs(bootstrap)?;
    record(&Row {
        point: POINT.to_owned(),
        case: "the topic of a global table denied".to_owned(),
        cases: 3,
        fired: 3,
        verdict: "each error names the right to add; the app goes on once it has the right"
            .to_owned(),
        seconds: begun.elapsed().as_secs_f64(),
        command: COMMAND.to_owned(),
    })
}

/// Starts the app until it has started. A right is back everywhere in a moment.
fn starts(case: &mut Case, copied: usize) -> Result<()> {
    let mut running = None;
    wait_until(PATIENCE, "the app starts", || {
        running = joining(case).start_blocking(&case.bootstrap).ok();
        Ok(running.is_some())
    })?;
    let mut running = running.context("it has started")?;
    wait_until(PATIENCE, "it copies the records", || {
        Ok(case.output()?.len() >= copied)
    })?;
    running.handle().stop(StopMode::Leave);
    Ok(ended(&mut running)??)
}

fn at_the_start(bootstrap: &str, operation: Operation, name: &str) -> Result<()> {
    let mut case = case_of(bootstrap, name)?;
    case.send(&["1", "2"])?;
    let topic = rates(&case);
    case.client.deny(Resource::Topic(&topic), operation)?;
    let begun = Instant::now();
    let error = case.failure_of(joining(&case))?;
    eprintln!("{name}: after {:.1?}: {error}", begun.elapsed());
    says(&error, &[&topic, "kafka-acls.sh --add --operation"])?;
    ensure!(case.output()?.is_empty(), "it has processed records");
    case.client.allow(Resource::Topic(&topic))?;
    starts(&mut case, 2)
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
    let error = end?.err().context("it ended without an error")?;
    eprintln!("global-running: after {took:.1?}: {error}");
    ensure!(
        matches!(&error, Error::Global(it) if matches!(**it, GlobalError::Client { .. })),
        "{error:?}"
    );
    says(&error, &[&topic, "kafka-acls.sh --add --operation Read"])?;
    case.nothing_is_open()?;
    case.must_be_clean(Expectation::Behind)
}
