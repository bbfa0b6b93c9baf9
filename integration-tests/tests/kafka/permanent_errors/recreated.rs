//! A topic that is deleted and made anew under the same name.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use integration_tests::wait::wait_until;

use super::{Feeder, copy};
use crate::common::{Case, KEEP, PATIENCE, ended};

pub(crate) fn all(bootstrap: &str) -> Result<()> {
    while_it_runs(bootstrap)?;
    while_it_is_stopped(bootstrap)
}

fn while_it_runs(bootstrap: &str) -> Result<()> {
    let mut case = Case::with_partitions(bootstrap, "input-anew", 2)?;
    let feeder = Feeder::start(&case);
    let mut running = copy(&case).start(bootstrap)?;
    wait_until(PATIENCE, "it commits, several times", || {
        Ok(running.handle().metrics().totals.commits.total() > 2)
    })?;
    feeder.stop()?;
    case.client.delete_topic(&case.input)?;
    case.client.create_topic(&case.input, 2, 1, &KEEP)?;
    let since = Instant::now();
    let error = ended(&mut running)?.err().context("it ended well")?;
    eprintln!("input anew: after {:.1?}: {error}", since.elapsed());
    case.nothing_is_open()
}

/// The brokers forget a group's offsets of a topic that is deleted: the new one is read from where
/// a first start begins.
fn while_it_is_stopped(bootstrap: &str) -> Result<()> {
    let mut case = Case::new(bootstrap, "anew-stopped")?;
    case.send(&["1", "2", "3"])?;
    case.run_to(copy(&case), 3)?;
    case.client.delete_topic(&case.input)?;
    case.client.create_topic(&case.input, 1, 1, &KEEP)?;
    case.send(&["4", "5", "6", "7", "8"])?;
    case.run_to(copy(&case), 8)?;
    ensure!(case.output()? == ["1", "2", "3", "4", "5", "6", "7", "8"]);
    case.nothing_is_open()
}
