//! `cargo xtask faults`: the fault-injection tests on a real Kafka, and the table of what they found.
//!
//! ```text
//! tests as shipped ──► tests with failpoints ──► rows (lines of JSON) ──► table ──► docs/faults.md
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

/// A module of tests and what the library has to be compiled with for it.
struct Test {
    name: &'static str,
    /// Failpoints and switches that take a defence away; never in a build that is shipped.
    failpoints: bool,
}

const TESTS: [Test; 13] = [
    shipped("brokers"),
    shipped("permanent_errors"),
    instrumented("kip890_gap"),
    instrumented("in_doubt"),
    instrumented("zombies"),
    instrumented("revocations"),
    instrumented("hanging_call"),
    instrumented("crash_sweep"),
    instrumented("state_sweep"),
    instrumented("restart_table"),
    instrumented("state_controls"),
    instrumented("counts"),
    instrumented("broken_state"),
];

const fn shipped(name: &'static str) -> Test {
    let failpoints = false;
    Test { name, failpoints }
}

const fn instrumented(name: &'static str) -> Test {
    let failpoints = true;
    Test { name, failpoints }
}

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
    let mut passed = true;
    for failpoints in [false, true] {
        let names = chosen.iter().filter(|test| test.failpoints == failpoints);
        let names: Vec<_> = names.map(|test| test.name).collect();
        if names.is_empty() {
            continue;
        }
        let mut cargo = cargo();
        cargo.args(arguments(&names, failpoints));
        cargo.env(REPORT_VAR, &report);
        if options.full {
            cargo.env("EOS_FULL", "1");
        }
        let status = cargo.status().context("run cargo: is it on the PATH?")?;
        passed &= status.success();
    }
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

fn chosen(names: &[String]) -> Result<Vec<&'static Test>> {
    if names.is_empty() {
        return Ok(TESTS.iter().collect());
    }
    let find = |name: &String| {
        let found = TESTS.iter().find(|test| test.name == name);
        found.with_context(|| {
            let all: Vec<_> = TESTS.iter().map(|test| test.name).collect();
            format!("there is no test {name}: choose from {}", all.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Of cargo.
fn arguments(names: &[&str], failpoints: bool) -> Vec<String> {
    let mut all = vec!["test", "--no-fail-fast", "--package", "integration-tests"];
    if failpoints {
        all.extend(["--features", "eos-core/failpoints"]);
    }
    all.extend([
        "--test",
        "kafka",
        "--test",
        "exclusive",
        "--",
        "--nocapture",
    ]);
    let modules = names.iter().map(|name| format!("{name}::"));
    all.into_iter().map(str::to_owned).chain(modules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_failpoints_is_compiled_with_them() {
        let shipped = arguments(&["brokers"], false).join(" ");
        assert_eq!(
            shipped,
            "test --no-fail-fast --package integration-tests --test kafka --test exclusive -- --nocapture brokers::"
        );
        let instrumented = arguments(&["zombies", "in_doubt"], true).join(" ");
        assert!(
            instrumented.contains("--features eos-core/failpoints"),
            "{instrumented}"
        );
        assert!(
            instrumented.ends_with("zombies:: in_doubt::"),
            "{instrumented}"
        );
    }

    #[test]
    fn a_name_that_is_none_is_told_with_those_there_are() {
        let error = chosen(&["broker".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("broker: choose from brokers, "), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), TESTS.len());
    }
}
