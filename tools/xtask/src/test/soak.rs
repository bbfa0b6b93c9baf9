//! `cargo xtask soak`: a table of long runs.

mod table;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use kafka_launcher::workspace_root;

pub(crate) use self::table::row_of;
use self::table::{HOUR, Soak, TABLE};
use super::counted;
use super::report::Report;
use crate::cargo::{cargo, exit_code};
use crate::page;
use crate::setup::{self, Need};

/// The page of the workspace with the results of [`HOUR`], and its plot.
const PAGE: &str = "docs/soak.md";
const PLOT: &str = "docs/soak.svg";

/// The variable that names the directory for the plot and the table.
const REPORT_VAR: &str = "EOS_SOAK_REPORT";

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these rows [default: all]
    names: Vec<String>,
    /// Prints the names and commands without running them
    #[arg(long)]
    list: bool,
    /// Writes the results and the plot of the row `hour` into docs/soak.md and docs/soak.svg
    #[arg(long)]
    write: bool,
}

/// Runs the chosen commands one after the other, and continues after a failure.
///
/// # Errors
/// When a name is not in the table, a tool is missing and cannot be installed, or cargo cannot be started. Failed
/// commands only set the exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let chosen = chosen(&options.names)?;
    if options.list {
        for soak in chosen {
            println!(
                "{:<13} {}\n              {}",
                soak.name,
                soak.what,
                line(soak)
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    setup::ensure(Need::BUILD)?;
    setup::ensure(Need::KAFKA)?;
    let mut report = Report::default();
    for soak in chosen {
        println!("\n=== {}: {}\n{}", soak.name, soak.what, line(soak));
        for _ in 0..soak.times {
            match soak.name == HOUR && options.write {
                true => run_and_write(soak, &mut report)?,
                false => run_once(soak, &[], &mut report).map(drop)?,
            }
        }
    }
    Ok(exit_code(report.print()))
}

/// Runs the row with a plot, and writes its page if the row passes.
fn run_and_write(soak: &Soak, report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir()?;
    // Taken before the run, because a commit made during the run is not the one that ran.
    let origin = page::origin(&format!("cargo xtask soak {HOUR} --write"), &[]);
    let variable = (REPORT_VAR, dir.path().display().to_string());
    if !run_once(soak, &[variable], report)? {
        return Ok(());
    }
    let table = fs::read_to_string(dir.path().join("soak.md")).context("read the table")?;
    let plot = workspace_root().join(PLOT);
    fs::copy(dir.path().join("soak.svg"), &plot)
        .with_context(|| format!("write {}", plot.display()))?;
    page::write(PAGE, &format!("{origin}\n\n{table}"))
}

/// Runs the command of a row, and returns whether it passed. A row that runs no test has failed, because the names of
/// its tests have changed.
fn run_once(soak: &Soak, variables: &[(&str, String)], report: &mut Report) -> Result<bool> {
    let begun = Instant::now();
    let mut command = cargo();
    command
        .args(soak.runs.arguments())
        .env_remove(kafka_launcher::BOOTSTRAP_VAR)
        // A row whose tests skip themselves would count as passed.
        .env_remove(kafka_launcher::SKIP_VAR)
        .envs(soak.environment.iter().copied())
        .envs(variables.iter().map(|(name, value)| (name, value)));
    if !soak.runs.is_test() {
        let status = command.status().context("start cargo")?;
        report.step(soak.name, status.success(), begun.elapsed());
        return Ok(status.success());
    }
    let mut count = counted(command)?;
    if count.passed == 0 {
        eprintln!(
            "error: the row {} ran no test (correct the names in its command)",
            soak.name
        );
        count.broken = true;
    }
    let passed = !count.broken && count.failed == 0;
    report.counted(soak.name, count, begun.elapsed());
    Ok(passed)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Soak>> {
    if names.is_empty() {
        return Ok(TABLE.iter().collect());
    }
    let find = |name: &String| match TABLE.iter().find(|soak| soak.name == name) {
        Some(soak) => Ok(soak),
        None => {
            let all: Vec<_> = TABLE.iter().map(|soak| soak.name).collect();
            bail!(
                "there is no soak run {name}: choose from {}",
                all.join(", ")
            )
        }
    };
    names.iter().map(find).collect()
}

/// Returns the command as a line for a shell.
fn line(soak: &Soak) -> String {
    let variables = soak.environment.iter();
    let mut words: Vec<_> = variables
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.push("cargo".to_owned());
    words.extend(soak.runs.arguments().into_iter().map(str::to_owned));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::table::LEFT;
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = chosen(&["kil".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("kil: choose from simulation, "), "{error}");
        assert_eq!(chosen(&[]).unwrap().len(), TABLE.len());
    }

    #[test]
    fn each_row_runs_the_tests_that_are_left_to_it() {
        for (package, target, begins, row) in LEFT {
            // Of the workspace, only this package has a target with this name.
            assert_eq!(package, "integration-tests");
            let row = chosen(&[row.to_owned()]).unwrap()[0];
            let module = format!("{}::", begins.split_once("::").unwrap().0);
            let runs = row.runs.arguments();
            assert!(
                runs.windows(3).any(|it| it == ["--test", target, &module]),
                "{package} {begins}"
            );
        }
    }

    #[test]
    fn the_page_of_the_hour_has_a_place_for_its_results() {
        assert!(page::has_place(PAGE));
        assert_eq!(chosen(&[HOUR.to_owned()]).unwrap().len(), 1);
    }

    #[test]
    fn a_command_can_be_pasted() {
        let churn = chosen(&["churn".to_owned()]).unwrap();
        let features = super::super::FEATURES;
        assert_eq!(
            line(churn[0]),
            format!(
                "EOS_FULL=1 cargo test --workspace --features {features} --test exclusive churn:: -- --nocapture"
            )
        );
    }
}
