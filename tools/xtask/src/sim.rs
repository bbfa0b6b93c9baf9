//! `cargo xtask sim`: the simulation of the whole runtime.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo;

/// Builds the simulation in the release profile, without C code, and runs it.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    cargo::run(
        cargo::cargo()
            .args(["run", "--release", "--package", "eos-sim"])
            .args(["--features", "failpoints", "--bin", "eos-sim", "--"])
            .args(arguments),
    )
}
