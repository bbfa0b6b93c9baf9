//! `cargo xtask faults`: the fault-injection tests on a real Kafka.
//!
//! ```text
//! tests ──► rows (lines of JSON) ──► table ──► docs/faults.md
//! ```
//!
//! The tests decide whether a fault passes. The table lists the number of injected faults, and the command that repeats
//! each row.

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

/// The modules of tests. The apps in these modules are compiled with failpoints. The programs that they start have no
/// failpoints, unless a test arms one.
const TESTS: [&str; 14] = [
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
    "ledger_controls",
    "counts",
    "broken_state",
];

/// The options of `cargo xtask faults`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only these modules [default: all]
    tests: Vec<String>,
    /// Run the full size, which takes an hour
    #[arg(long)]
    full: bool,
    /// Write the table into docs/faults.md
    #[arg(long)]
    write: bool,
}

/// Runs the tests and prints the table.
///
/// # Errors
/// When a module is unknown, a tool is missing and cannot be installed, or the table cannot be written. Failed tests
/// only set the exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let chosen = chosen(&options.tests)?;
    setup::ensure(Need::BUILD)?;
    setup::ensure(Need::KAFKA)?;
    setup::ensure(Need::DATABASES)?;
    if kafka_launcher::is_skipped() {
        bail!(
            "these tests need a real Kafka ({}=1 disables it): unset the variable",
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
            bail!("docs/faults.md is not written: a test failed");
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
        found.with_context(|| {
            format!(
                "there is no module {name}: choose from {}",
                TESTS.join(", ")
            )
        })
    };
    names.iter().map(find).collect()
}

/// Returns the arguments of cargo.
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
    fn the_error_of_an_unknown_module_lists_the_known_ones() {
        let error = chosen(&["broker".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("broker: choose from brokers, "), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), TESTS.len());
    }
}
