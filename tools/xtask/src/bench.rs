//! `cargo xtask bench`: sets up and runs the benchmark program.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo;
use crate::setup::{self, Need};

/// Runs `eos-benchmarks` in the release profile: throughput, latency, memory, pass-through.
///
/// # Errors
/// When something is missing that cannot be installed, or cargo cannot be run.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    // Kafka Streams needs Java and Maven, also on the user's own broker.
    setup::ensure(Need::KAFKA)?;
    let names = |what: &str| arguments.first().is_some_and(|first| first == what);
    if names("postgres") || names("all") || arguments.first().is_none_or(|it| it.starts_with('-')) {
        setup::ensure(Need::DATABASES)?;
    }
    if kafka_launcher::external().is_some() {
        eprintln!(
            "Using the Kafka at {}: its CPU time cannot be measured.",
            kafka_launcher::BOOTSTRAP_VAR
        );
    }
    cargo::run(
        cargo::cargo()
            .args(["run", "--release"])
            .args(["--package", "eos-benchmarks"])
            .args(features(arguments))
            .arg("--")
            .args(arguments),
    )
}

/// Returns cargo's arguments for the features of a benchmark. Only the benchmark of the quarantine needs the feature that
/// disables it. The others measure the library that users get.
fn features(arguments: &[String]) -> &'static [&'static str] {
    match arguments.first().map(String::as_str) {
        Some("quarantine") => &["--features", "failpoints"],
        _ => &[],
    }
}
