//! `cargo xtask test`, `check` and `soak`: the workspace's tests.
//!
//! ```text
//! check   format, lints, tests without real Kafka and C code
//! test    one build ──► each test in its own process, several at a time ──► documentation tests
//! soak    full sizes, repeats and long sweeps, as a table of commands
//! ```

mod build;
mod case;
mod check;
mod count;
mod pool;
mod report;
mod soak;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kafka_launcher::PROGRAMS_VAR;

use crate::cargo::{cargo, exit_code};
use crate::eos;
use crate::setup::{self, Need};
use build::{Built, build_with_programs};
use count::Count;
use report::Report;

pub(crate) use check::run as check;
pub(crate) use soak::{Options as SoakOptions, run as soak};

/// The features of the one build: those of tests and of the programs that tests start.
/// Cargo unifies the features of dependent packages (`kafka`, `rocksdb`, `prometheus`, `failpoints`).
pub(crate) const FEATURES: &str = "eos-examples/postgres,eos-examples/prometheus,eos-examples/rocksdb,eos-core/prometheus,eos-core/failpoints,eos-sim/failpoints,\
    eos-postgres/testing,eos-postgres/tls,eos-testkit/store-conformance,integration-tests/failpoints,integration-tests/stored";

/// Runs the tests. A single word filters them by name; other arguments go to `cargo test`.
///
/// # Errors
/// When a tool of the build is missing, or cargo cannot be started. Failed tests are not an error. They set the exit
/// code.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    setup::ensure(Need::DATABASES)?;
    let kafka = Kafka::find()?;
    let mut report = Report::default();
    match arguments {
        [] => everything("", &kafka, &mut report)?,
        [word] if !word.starts_with('-') => everything(word, &kafka, &mut report)?,
        _ => report_of_cargo("chosen", arguments, &kafka, &mut report)?,
    }
    kafka.explain();
    Ok(exit_code(report.print()))
}

fn everything(filter: &str, kafka: &Kafka, report: &mut Report) -> Result<()> {
    if filter.is_empty() {
        check::source(report);
    }
    let begun = Instant::now();
    println!("=== Build");
    let built = build_with_programs(&format!("--workspace --features {FEATURES}"))?;
    report.step("build", built.is_some(), begun.elapsed());
    let Some(built) = built else {
        return Ok(());
    };
    let shared = kafka.shared_broker()?;
    let mut environment = kafka.environment(shared.as_ref());
    let programs = built.keep_programs()?;
    environment.push((PROGRAMS_VAR.into(), programs.path().display().to_string()));
    run_tests("tests", &built, filter, &environment, report)?;
    drop(shared);
    if filter.is_empty() {
        let doc: Vec<String> = format!("--workspace --doc --features {FEATURES}")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        report_of_cargo("documentation", &doc, kafka, report)?;
    }
    Ok(())
}

/// Runs the built tests, each in its own process.
fn run_tests(
    name: &str,
    built: &Built,
    filter: &str,
    environment: &[(String, String)],
    report: &mut Report,
) -> Result<()> {
    println!("\n=== Tests");
    let begun = Instant::now();
    let mut cases = Vec::new();
    for target in &built.targets {
        cases.extend(case::list(target, filter)?);
    }
    if filter.is_empty() {
        cases.retain(|case| match soak::row_of(case) {
            Some(row) => {
                report.left(format!("{case}  (cargo xtask soak {row})"));
                false
            }
            None => true,
        });
    }
    let done = pool::run(cases, environment, report::print);
    report.tests(name, &done, begun.elapsed());
    Ok(())
}

/// The Kafka that the tests use.
enum Kafka {
    /// The tests start brokers, or use the cluster of `EOS_BOOTSTRAP_SERVERS`.
    Here,
    /// Java is missing, but Docker is there: one cluster for all tests, which no test may kill.
    InDocker { bootstrap: String },
    /// The tests skip themselves.
    Missing { why: String },
}

impl Kafka {
    fn find() -> Result<Kafka> {
        if kafka_launcher::external().is_some() {
            return Ok(Kafka::Here);
        }
        let why = match setup::ensure(Need::KAFKA) {
            // Also `EOS_SKIP_KAFKA=1`, which the user may have set.
            Ok(()) => kafka_launcher::missing(),
            Err(error) => Some(format!("{error:#}")),
        };
        match why {
            None => kafka_launcher::download().map(|()| Kafka::Here),
            Some(why) if kafka_launcher::is_ci() => {
                bail!("CI must not skip the tests on a real Kafka.\n{why}")
            }
            Some(_) if !kafka_launcher::is_skipped() && kafka_launcher::docker::usable() => {
                // A running cluster is not replaced.
                Ok(match eos::up_in_docker() {
                    Ok(bootstrap) => Kafka::InDocker { bootstrap },
                    Err(error) => Kafka::Missing {
                        why: format!("{error:#}"),
                    },
                })
            }
            Some(why) => Ok(Kafka::Missing { why }),
        }
    }

    /// Starts one broker for all tests that only need *a* broker.
    fn shared_broker(&self) -> Result<Option<kafka_launcher::Cluster>> {
        match self {
            Kafka::Here if kafka_launcher::external().is_none() => {
                kafka_launcher::Cluster::start(&kafka_launcher::ClusterOptions::default()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn environment(&self, shared: Option<&kafka_launcher::Cluster>) -> Vec<(String, String)> {
        let (name, value) = match (self, shared) {
            (_, Some(shared)) => (kafka_launcher::SHARED_VAR, shared.bootstrap()),
            (Kafka::Here, None) => match kafka_launcher::external() {
                Some(theirs) => return vec![(kafka_launcher::SHARED_VAR.to_owned(), theirs)],
                None => return Vec::new(),
            },
            (Kafka::InDocker { bootstrap }, None) => {
                (kafka_launcher::SHARED_VAR, bootstrap.as_str())
            }
            (Kafka::Missing { .. }, None) => (kafka_launcher::SKIP_VAR, "1"),
        };
        vec![(name.to_owned(), value.to_owned())]
    }

    /// Prints which tests are skipped, and the cause.
    fn explain(&self) {
        match self {
            Kafka::Here => {}
            Kafka::InDocker { bootstrap } => println!(
                "\nKafka runs in Docker at {bootstrap}. Tests that kill brokers need Java: `cargo xtask setup`"
            ),
            Kafka::Missing { why } => {
                println!("\nThe tests that need a real Kafka are skipped.\n{why}");
            }
        }
    }
}

/// Runs `cargo test` with these arguments, prints its output, and counts the results.
fn report_of_cargo(
    name: &str,
    arguments: &[String],
    kafka: &Kafka,
    report: &mut Report,
) -> Result<()> {
    println!("\n=== {name}: cargo test {}", arguments.join(" "));
    let begun = Instant::now();
    let mut command = cargo();
    command
        .args(["test", "--no-fail-fast"])
        .args(arguments)
        .env_remove(kafka_launcher::BOOTSTRAP_VAR)
        .envs(kafka.environment(None));
    let count = counted(command)?;
    report.counted(name, count, begun.elapsed());
    Ok(())
}

fn counted(mut cargo: Command) -> Result<Count> {
    // Its output goes through a pipe, so cargo cannot detect the terminal.
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        cargo.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("start cargo")?;
    let output = child.stdout.take().context("cargo's output")?;
    let mut count = Count::default();
    let mut here = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("read cargo's output")?;
        count.see(&String::from_utf8_lossy(&line));
        here.write_all(&line)?;
        here.write_all(b"\n")?;
    }
    let status = child.wait().context("wait for cargo")?;
    if !status.success() && count.failed == 0 {
        // The build failed, or a test killed its process, so no result line has this failure.
        count.failed = 1;
        count.broken = true;
    }
    Ok(count)
}
