//! A topic that is deleted and created again under the same name.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use eos_core::errors::{TopicChange, WorkerError};
use eos_core::run::StopMode;
use eos_core::{App, Error, Topic};
use eos_postgres::testing::{Cluster, run, value};
use eos_postgres::{Postgres, PostgresStream};
use integration_tests::wait::wait_until;
use kafka_wire::Isolation;

use super::{Feeder, copy};
use crate::common::{Case, KEEP, PATIENCE, commits_go_on, ended, says};

/// The value of the records in the new topic only.
const NEW: &str = "-1";

pub(crate) fn all(bootstrap: &str) -> Result<()> {
    while_it_runs(bootstrap)?;
    while_it_is_stopped(bootstrap)?;
    while_its_positions_are_in_a_ledger(bootstrap)
}

fn while_it_runs(bootstrap: &str) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, "input-recreated", 2)?;
    let feeder = Feeder::start(&case);
    let mut running = copy(&case).start_blocking(bootstrap)?;
    commits_go_on(&running)?;
    let old = feeder.stop()?;
    case.client.delete_topic(&case.input)?;
    case.client.create_topic(&case.input, 2, 1, &KEEP)?;
    // The new log reaches beyond the app's offsets in the old one, so no offset is out of range.
    let new = vec![NEW; usize::try_from(old)? + 100];
    case.send(&new)?;
    let since = Instant::now();
    let error = ended(&mut running)?
        .err()
        .context("the app ended without an error")?;
    eprintln!(
        "input created again: after {:.1?}: {error}",
        since.elapsed()
    );
    // While the topic is missing, the client may report it first.
    match &error {
        Error::Worker(WorkerError::TopicChanged(changed)) => {
            ensure!(changed.topic.as_str() == case.input, "{error}");
            let found = matches!(
                changed.change,
                TopicChange::Recreated { .. } | TopicChange::Deleted { .. }
            );
            ensure!(found, "{error}");
        }
        Error::Worker(WorkerError::Client(_)) => says(&error, &["A topic was deleted"])?,
        _ => anyhow::bail!("the app stopped for another cause: {error:?}"),
    }
    let mut of_the_new = 0;
    case.client
        .read_all(&case.output, Isolation::ReadCommitted, |_, record| {
            of_the_new += u32::from(record.value.as_deref() == Some(NEW.as_bytes()));
        })?;
    ensure!(
        of_the_new == 0,
        "{of_the_new} records of the new topic were read"
    );
    case.nothing_is_open()
}

/// The brokers delete a group's offsets with the topic, so the app reads the new topic as in a first start.
fn while_it_is_stopped(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "recreated-stopped")?;
    case.send(&["1", "2", "3"])?;
    case.run_to(copy(&case), 3)?;
    case.client.delete_topic(&case.input)?;
    case.client.create_topic(&case.input, 1, 1, &KEEP)?;
    case.send(&["4", "5", "6", "7", "8"])?;
    case.run_to(copy(&case), 8)?;
    ensure!(case.output()? == ["1", "2", "3", "4", "5", "6", "7", "8"]);
    case.nothing_is_open()
}

/// A ledger keeps its positions, whose offsets belong to records of the deleted topic.
fn while_its_positions_are_in_a_ledger(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "recreated-ledger")?;
    let server = Cluster::start()?;
    let url = server.database("recreated")?;
    run(&url, "CREATE TABLE rows (value text)")?;
    let app = |case: &Case| -> Result<App> {
        let shop = Postgres::connect(&url)?;
        let rows = shop.table::<String, String>("rows");
        let mut app = case.app();
        app.ledger(&shop);
        app.source(&Topic::<String, String>::plain(&case.input))
            .to_rows(&rows.column("value", |_, value| value.clone()));
        Ok(app)
    };
    let written = || {
        value(
            &url,
            "SELECT string_agg(value, ' ' ORDER BY value) FROM rows",
        )
    };
    let run_to = |case: &Case, expected: &str| -> Result<()> {
        let mut running = app(case)?.start_blocking(bootstrap)?;
        wait_until(PATIENCE, "all records are rows", || {
            Ok(written()? == expected)
        })?;
        running.handle().stop(StopMode::Leave);
        Ok(ended(&mut running)??)
    };
    case.send(&["1", "2", "3"])?;
    run_to(&case, "1 2 3")?;
    let old = value(&url, "SELECT topic_id FROM eos.positions")?;
    ensure!(!old.is_empty(), "the position has no topic id");
    case.client.delete_topic(&case.input)?;
    case.client.create_topic(&case.input, 1, 1, &KEEP)?;
    case.send(&["4", "5", "6", "7", "8"])?;

    let error = case.failure_of(app(&case)?)?;
    let stored = format!("belongs to the topic with id {old}, and this one has id ");
    let fix = format!(
        "delete the positions of app `{}` and topic `{}`",
        case.app, case.input
    );
    says(&error, &[&stored, &fix])?;
    ensure!(written()? == "1 2 3", "something of the new topic was read");

    // The fix that the error names.
    run(&url, "DELETE FROM eos.positions")?;
    run_to(&case, "1 2 3 4 5 6 7 8")
}
