//! Runs `eos-cli` for `cargo xtask kafka` and `cargo xtask demo`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_launcher::{BOOTSTRAP_VAR, PROGRAMS_VAR, external, run};

use crate::cargo::cargo;
use crate::setup::{self, Need};

/// The time-out of `kafka up --docker`, which may pull an image.
const UP_LIMIT: Duration = Duration::from_secs(1_200);

/// Replaces this process by `eos kafka`.
///
/// # Errors
/// When a tool is missing and cannot be installed, or cargo cannot be run.
pub(crate) fn kafka(arguments: &[String]) -> Result<ExitCode> {
    let is = |word: &str| arguments.iter().any(|it| it == word);
    if is("up") && !is("--docker") && !is("--embedded") && !is("--help") && external().is_none() {
        setup::ensure(Need::KAFKA)?;
    }
    become_eos("kafka", arguments.iter().map(OsString::from))
}

/// Replaces this process by `eos demo`.
///
/// # Errors
/// As [`kafka`].
pub(crate) fn demo(arguments: &[String]) -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    if arguments.iter().any(|it| it == "--kafka") && external().is_none() {
        setup::ensure(Need::KAFKA)?;
    }
    // The tests have built the pipeline already.
    let built = std::env::var_os(PROGRAMS_VAR).map(|programs| {
        let mut pipeline = OsString::from("--pipeline=");
        pipeline.push(PathBuf::from(programs).join("06-word-count"));
        pipeline
    });
    let arguments = arguments.iter().map(OsString::from);
    become_eos("demo", arguments.chain(built))
}

/// Starts the cluster of `docker-compose.yml` unless it is up. Returns its addresses.
pub(crate) fn up_in_docker() -> Result<String> {
    let printed = run::succeed(program().args(["kafka", "up", "--docker"]), UP_LIMIT)?;
    let mut lines = printed.lines();
    let found = lines.find_map(|line| line.strip_prefix(BOOTSTRAP_VAR)?.strip_prefix('='));
    let found = found.context("`eos kafka up` printed no address")?;
    Ok(found.to_owned())
}

fn become_eos(command: &str, arguments: impl Iterator<Item = OsString>) -> Result<ExitCode> {
    let mut program = program();
    program.env("CLI_PROGRAM_NAME", "cargo xtask");
    let error = program.arg(command).args(arguments).exec();
    Err(error).context("run cargo: is it on the PATH?")
}

/// The program, built by cargo unless the tests have built it.
fn program() -> Command {
    if let Some(programs) = std::env::var_os(PROGRAMS_VAR) {
        return Command::new(PathBuf::from(programs).join("eos"));
    }
    let mut cargo = cargo();
    cargo.arg("run");
    // The first build takes minutes, so its progress is shown. Later ones take seconds.
    if is_built() {
        cargo.arg("--quiet");
    }
    cargo.args(["--package", "eos-cli", "--"]);
    cargo
}

/// Whether the program was built before. Cargo puts it beside this one.
fn is_built() -> bool {
    std::env::current_exe().is_ok_and(|xtask| xtask.with_file_name("eos").exists())
}
