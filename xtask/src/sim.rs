//! `cargo xtask sim`: the simulation of the whole runtime.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use kafka_launcher::workspace_root;

/// Builds the simulation in the release profile, without C code, and runs it.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace_root())
        .args(["run", "--quiet", "--release", "--package", "eos-testkit"])
        .args(["--features", "failpoints", "--bin", "eos-sim", "--"])
        .args(arguments)
        .status()
        .context("run cargo: is it on the PATH?")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
