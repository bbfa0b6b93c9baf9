//! `cargo xtask check`: format, lints and fast tests.
//!
//! It runs every test that needs neither a real Kafka nor C code.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use kafka_launcher::workspace_root;

use super::build::build;
use super::report::Report;
use super::run_tests;
use crate::cargo::{cargo, exit_code};
use crate::{cycles, words};

/// The packages that build with only Rust installed, and their features.
const SELECTION: &str = "--package eos-protocol --package eos-client --package eos-state --package eos-core \
    --package eos-broker --package eos-testkit --package eos-oracle --package eos-sim --package eos-cli --package kafka-launcher --package kafka-wire --package xtask \
    --no-default-features --features eos-core/failpoints,eos-core/prometheus,eos-sim/failpoints,\
    eos-testkit/store-conformance";

/// The number of simulation seeds. CI runs 500.
const SEEDS: &str = "200";

/// Checks format and lints, then runs the tests whose name contains `filter`.
///
/// # Errors
/// When cargo cannot be started. Failed steps only set the exit code.
pub(crate) fn run(filter: &str) -> Result<ExitCode> {
    let mut report = Report::default();
    cargo_step(&mut report, "format", "fmt --all --check")?;
    source(&mut report);
    let clippy = format!("clippy --quiet --all-targets {SELECTION} -- -D warnings");
    cargo_step(&mut report, "lints", &clippy)?;
    let begun = Instant::now();
    let built = build(SELECTION)?;
    report.step("build", built.is_some(), begun.elapsed());
    if let Some(mut built) = built {
        // The tests of these targets start real brokers.
        built.targets.retain(|it| {
            it.name != "all" || !["eos-cli", "kafka-launcher"].contains(&it.package.as_str())
        });
        let environment = [("EOS_SEEDS".to_owned(), SEEDS.to_owned())];
        run_tests("tests", &built, filter, &environment, &mut report)?;
    }
    Ok(exit_code(report.print()))
}

/// Checks the source text: import cycles between the files of each crate, and the words of prose.
pub(super) fn source(report: &mut Report) {
    let checks = [
        ("import cycles", cycles::check as fn(_) -> _),
        ("words", words::check),
    ];
    for (name, check) in checks {
        let begun = Instant::now();
        let result: Result<()> = check(workspace_root());
        if let Err(error) = &result {
            eprintln!("error: {error:#}");
        }
        report.step(name, result.is_ok(), begun.elapsed());
    }
}

fn cargo_step(report: &mut Report, name: &str, arguments: &str) -> Result<()> {
    let begun = Instant::now();
    let status = cargo().args(arguments.split_whitespace()).status();
    let status = status.context("start cargo: is it on the PATH?")?;
    report.step(name, status.success(), begun.elapsed());
    Ok(())
}
