//! The cargo that runs this program.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use kafka_launcher::workspace_root;

/// Returns a command that runs cargo in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace_root());
    cargo
}

/// Runs cargo to its end. A failure of cargo is not an error. It sets the exit code.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn run(cargo: &mut Command) -> Result<ExitCode> {
    let status = cargo.status().context("run cargo: is it on the PATH?")?;
    Ok(exit_code(status.success()))
}

pub(crate) fn exit_code(success: bool) -> ExitCode {
    if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
