//! `cargo xtask faults`: the fault-injection tests on a real Kafka, and the table of what they found.
//!
//! ```text
//! tests ──► rows (lines of JSON) ──► table ──► docs/faults.md
//! ```
//!
//! The tests decide what passes. The table says how much they did, and each of its lines how to
//! repeat it.

mod page;
mod row;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{cargo, exit_code};
use crate::setup::{self, Need};

/// The file to which the tests append their rows.
const REPORT_VAR: &str = "EOS_FAULTS_REPORT";

/// The modules of tests. Their apps are compiled with failpoints; the programs that they start are not, unless a
/// test arms one.
const TESTS: [&str; 13] = [
    "brokers",
    "permanent_errors",
    "kip890_gap",
    "in_doubt",
    "zombies",
    "revocations",
    "hanging_call",
    "crash_sweep",
    "state_sweep",
    "restart_table",
    "state_controls",
    "counts",
    "broken_state",
];

/// What to run and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these modules [default: all of them]
    tests: Vec<String>,
    /// The full size, an hour, instead of the one for each change
    #[arg(long)]
    full: bool,
    /// Write the table into docs/faults.md
    #[arg(long)]
    write: bool,
}

/// Runs the tests and prints what they found.
///
/// # Errors
/// When a test has another name, something is missing that cannot be installed, or the table cannot
/// be written. Failed tests are no error but the exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let chosen = chosen(&options.tests)?;
    setup::ensure(Need::BUILD)?;
    setup::ensure(Need::KAFKA)?;
    if kafka_launcher::is_skipped() {
        bail!(
            "{}=1: these tests need a real Kafka; unset it",
            kafka_launcher::SKIP_VAR
        );
    }
    let dir = tempfile::tempdir()?;
    let report = dir.path().join("rows");
    let begun = Instant::now();
    let mut cargo = cargo();
    cargo.args(arguments(&chosen)).env(REPORT_VAR, &report);
    if options.full {
        cargo.env("EOS_FULL", "1");
    }
    let status = cargo.status().context("run cargo: is it on the PATH?")?;
    let passed = status.success();
    let rows = row::read(&report)?;
    let table = table::render(&rows);
    println!("\n{table}");
    if options.write {
        if !passed {
            bail!("a test failed: docs/faults.md stays as it was");
        }
        page::write(&table, options.full, begun.elapsed())?;
    }
    Ok(exit_code(passed))
}

fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    if names.is_empty() {
        return Ok(TESTS.to_vec());
    }
    let find = |name: &String| {
        let found = TESTS.iter().find(|test| *test == name).copied();
        found.with_context(|| format!("there is no test {name}: choose from {}", TESTS.join(", ")))
    };
    names.iter().map(find).collect()
}

/// Of cargo.
fn arguments(names: &[&str]) -> Vec<String> {
    let all = "test --no-fail-fast --package integration-tests --features failpoints,stored --test kafka --test \
               exclusive -- --nocapture";
    let modules = names.iter().map(|name| format!("{name}::"));
    all.split_whitespace()
        .map(str::to_owned)
        .chain(modules)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_told_with_those_there_are() {
        let error = chosen(&["broker".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("broker: choose from brokers, "), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), TESTS.len());
    }
}
