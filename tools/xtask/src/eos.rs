//! Runs `eos-cli` for `cargo xtask kafka` and `cargo xtask demo`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_launcher::{BOOTSTRAP_VAR, PROGRAMS_VAR, external, run};

use crate::cargo::cargo;
use crate::setup::{self, Need};

/// The program of the demo's pipeline.
const PIPELINE: &str = "06-word-count";

/// The timeout of `kafka up --docker`, which may pull an image.
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
    let is = |begin: &str| arguments.iter().any(|it| it.starts_with(begin));
    let given = arguments.iter().map(OsString::from);
    if is("--help") || is("-h") || is("--pipeline") {
        return become_eos("demo", given);
    }
    // The tests have built both programs already.
    let programs = match std::env::var_os(PROGRAMS_VAR) {
        Some(programs) => PathBuf::from(programs),
        None => build_demo(is("--rocksdb"))?,
    };
    let mut pipeline = OsString::from("--pipeline=");
    pipeline.push(programs.join(PIPELINE));
    let mut eos = Command::new(programs.join("eos"));
    eos.arg("demo").args(given).arg(pipeline);
    replace(&mut eos)
}

/// Builds `eos` and the demo's pipeline in one run of cargo, and returns their directory.
fn build_demo(rocksdb: bool) -> Result<PathBuf> {
    let xtask = std::env::current_exe().context("find this program")?;
    let mut cargo = cargo();
    cargo.arg("build");
    if xtask.with_file_name("eos").exists() && xtask.with_file_name(PIPELINE).exists() {
        cargo.arg("--quiet");
    } else {
        let (compiled, takes) = match rocksdb {
            true => ("librdkafka and RocksDB", "ten minutes and more"),
            false => ("librdkafka", "one or two minutes"),
        };
        eprintln!(
            "Building the demo; the first time this compiles {compiled} and takes {takes} ..."
        );
    }
    cargo
        .args(["--package", "eos-cli", "--package", "eos-examples"])
        .args(["--bin", "eos", "--bin", PIPELINE])
        .args(rocksdb.then_some("--features=eos-examples/rocksdb"));
    let status = cargo.status().context("run cargo: is it on the PATH?")?;
    ensure!(
        status.success(),
        "the demo does not build: see cargo's messages above"
    );
    // Cargo puts them beside this program.
    Ok(xtask.with_file_name(""))
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
    replace(program().arg(command).args(arguments))
}

/// Replaces this process by a program that calls itself `cargo xtask`.
fn replace(program: &mut Command) -> Result<ExitCode> {
    let error = program.env("CLI_PROGRAM_NAME", "cargo xtask").exec();
    Err(error).with_context(|| format!("run {}", program.get_program().display()))
}

/// Returns the program that the tests have built, or a command that builds and runs it.
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

/// Returns whether the program was built before. Cargo puts it beside this one.
fn is_built() -> bool {
    std::env::current_exe().is_ok_and(|xtask| xtask.with_file_name("eos").exists())
}
