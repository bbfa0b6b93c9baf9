//! `cargo xtask test`: every test of the workspace in one command, quickest proof first.
//!
//! ```text
//! protocol ──► crates ──► docs ──► real Kafka      each one `cargo test`; all run, whatever fails
//! ```
//!
//! Without Java and Docker the tests on a real Kafka skip themselves, and this says so at the end,
//! where it is read. With `CI=true` that is a failure.

mod count;
mod steps;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::setup::{self, Need};
use crate::{kafka, paths};
use count::Count;
use steps::Step;

/// Runs the tests; `arguments` go to each `cargo test`.
///
/// # Errors
/// When what the build needs is missing, or cargo cannot be started. Failed tests are no error
/// but the exit code.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    setup::ensure(Need::BUILD)?;
    let kafka = Kafka::find()?;
    let steps = steps::plan(arguments);
    let mut done = Vec::new();
    for step in &steps {
        eprintln!("\n=== {} : cargo {}", step.name, step.arguments.join(" "));
        done.push(perform(step, &kafka)?);
    }
    let total = report(&steps, &done, &kafka);
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What the tests on a real Kafka will find.
enum Kafka {
    /// They start brokers, or use the cluster that the user named.
    Here,
    /// No Java, but containers: one cluster for all, which none may kill.
    InDocker { bootstrap: String },
    /// They skip themselves.
    Missing { why: String },
}

impl Kafka {
    fn find() -> Result<Kafka> {
        if kafka::external().is_some() {
            return Ok(Kafka::Here);
        }
        let why = match setup::ensure(Need::KAFKA) {
            // Also `EOS_SKIP_KAFKA=1`, which the user may have set.
            Ok(()) => kafka::missing(),
            Err(error) => Some(format!("{error:#}")),
        };
        match why {
            None => kafka::prepare().map(|_| Kafka::Here),
            Some(why) if kafka::is_ci() => {
                bail!("CI must not skip the tests on a real Kafka.\n{why}")
            }
            Some(_) if !kafka::is_skipped() && kafka::docker_usable() => {
                let up = kafka::Up {
                    nodes: None,
                    port: None,
                    docker: true,
                    embedded: false,
                    fresh: false,
                };
                // Another one may be up, which nobody asked to take down.
                Ok(match kafka::up(&up) {
                    Ok(bootstrap) => Kafka::InDocker { bootstrap },
                    Err(error) => Kafka::Missing {
                        why: format!("{error:#}"),
                    },
                })
            }
            Some(why) => Ok(Kafka::Missing { why }),
        }
    }

    fn tell(&self, cargo: &mut Command) {
        match self {
            Kafka::Here => {}
            Kafka::InDocker { bootstrap } => {
                cargo.env(kafka::BOOTSTRAP_VAR, bootstrap);
            }
            Kafka::Missing { .. } => {
                cargo.env(kafka::SKIP_VAR, "1");
            }
        }
    }
}

struct Done {
    count: Count,
    took: Duration,
}

/// Runs one `cargo test`, lets its output through, and counts.
fn perform(step: &Step, kafka: &Kafka) -> Result<Done> {
    let begun = Instant::now();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(paths::workspace_root())
        .args(&step.arguments);
    // Its output goes through a pipe, so cargo cannot see the terminal behind it.
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        cargo.env("CARGO_TERM_COLOR", "always");
    }
    kafka.tell(&mut cargo);
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
        // It did not build, or a test took its process down: a failure that no result line names.
        count.failed = 1;
        count.broken = true;
    }
    Ok(Done {
        count,
        took: begun.elapsed(),
    })
}

fn report(steps: &[Step], done: &[Done], kafka: &Kafka) -> Count {
    let mut total = Count::default();
    println!("\n=== Summary");
    for (step, done) in steps.iter().zip(done) {
        let Count {
            passed,
            failed,
            ignored,
            broken,
        } = done.count;
        let note = if broken {
            "  did not build or broke off"
        } else {
            ""
        };
        let seconds = done.took.as_secs_f64();
        println!(
            "{:<12} {passed:>5} passed {failed:>3} failed {ignored:>3} ignored {seconds:>7.1} s{note}",
            step.name
        );
        total.add(done.count);
    }
    match kafka {
        Kafka::Here => {}
        Kafka::InDocker { bootstrap } => println!(
            "SKIPPED: tests that kill brokers. Kafka ran in Docker at {bootstrap}; they need Java: `cargo xtask setup`"
        ),
        Kafka::Missing { why } => println!(
            "SKIPPED: every test that needs a real Kafka, although it counts as passed.\n{why}"
        ),
    }
    // Alone on the last line, for whoever reads it with a program.
    println!("{} passed, {} failed", total.passed, total.failed);
    total
}
