//! Temporary errors, after which the app continues by itself.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use eos_core::run::{Running, StopMode};
use integration_tests::faults::{Row, record};
use integration_tests::judge::Expectation;
use integration_tests::wait::wait_until;

use super::{COMMAND, Feeder, POINT, copy};
use crate::common::{Case, PATIENCE, commits_go_on, ended};

pub(crate) fn all(bootstrap: &str) -> Result<()> {
    idle_connections_are_cut(bootstrap)?;
    a_quota_slows_everybody(bootstrap)
}

/// Brokers close connections that are idle for five seconds, as a proxy between the app and its brokers may do.
fn idle_connections_are_cut(bootstrap: &str) -> Result<()> {
    let begun = Instant::now();
    let mut case = Case::with_partitions(bootstrap, "idle-connections", 2)?;
    let running = copy(&case).start_blocking(bootstrap)?;
    const SILENCES: u64 = 3;
    let mut next = 0;
    for nth in 1..=SILENCES {
        let feeder = Feeder::from(&case, next);
        commits_go_on(&running)?;
        next = feeder.stop()?;
        ensure!(!case.output()?.is_empty(), "silence {nth}: no output");
        thread::sleep(Duration::from_secs(7));
    }
    stop(running)?;
    case.must_be_clean(Expectation::Behind)?;
    told("silent connections cut by the brokers", SILENCES, begun)
}

/// Brokers delay every response until a client is within its quota.
fn a_quota_slows_everybody(bootstrap: &str) -> Result<()> {
    let begun = Instant::now();
    let mut case = Case::with_partitions(bootstrap, "quota", 2)?;
    let feeder = Feeder::start(&case);
    let running = copy(&case).start_blocking(bootstrap)?;
    commits_go_on(&running)?;
    for key in ["producer_byte_rate", "consumer_byte_rate"] {
        case.client.set_quota(key, Some(4_000.0))?;
    }
    let slow = Instant::now();
    wait_until(PATIENCE, "the quota has held for a while", || {
        Ok(slow.elapsed() > Duration::from_secs(15))
    })?;
    for key in ["producer_byte_rate", "consumer_byte_rate"] {
        case.client.set_quota(key, None)?;
    }
    commits_go_on(&running)?;
    feeder.stop()?;
    stop(running)?;
    case.must_be_clean(Expectation::Behind)?;
    told("every client held to 4 kB/s for 15 s", 1, begun)
}

fn stop(mut running: Running) -> Result<()> {
    running.handle().stop(StopMode::Leave);
    Ok(ended(&mut running)??)
}

fn told(case: &str, cases: u64, begun: Instant) -> Result<()> {
    record(&Row {
        point: POINT.to_owned(),
        case: format!("passes by itself: {case}"),
        cases,
        fired: cases,
        verdict: "not stopped; lost 0, doubled 0, torn 0".to_owned(),
        seconds: begun.elapsed().as_secs_f64(),
        command: COMMAND.to_owned(),
    })
}
