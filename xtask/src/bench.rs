//! `cargo xtask bench`: sets up and runs the benchmark programs.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::kafka;
use crate::setup::{self, Need};
use crate::workspace_root;

/// Runs the pass-through benchmark: eos beside the bare loop, alternating, both verified.
///
/// # Errors
/// When something is missing that cannot be installed, or cargo cannot be run.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    if kafka::external().is_none() {
        setup::ensure(Need::KAFKA)?;
    }
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace_root())
        .args([
            "bench",
            "--package",
            "eos-core",
            "--bench",
            "pass_through",
            "--",
        ])
        .args(arguments)
        .status()
        .context("run cargo: is it on the PATH?")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
