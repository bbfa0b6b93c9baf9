//! `cargo xtask soak`: a table of long runs.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use kafka_launcher::workspace_root;

use super::case::Case;
use super::counted;
use super::report::Report;
use crate::cargo::{cargo, exit_code};
use crate::page;
use crate::setup::{self, Need};

/// One long run.
struct Soak {
    name: &'static str,
    what: &'static str,
    environment: &'static [(&'static str, &'static str)],
    runs: Runs,
    /// The number of runs.
    times: u32,
}

/// The command of a row.
enum Runs {
    /// Tests of a target, from the build of `cargo xtask test`: other features would compile the workspace again.
    Tests {
        target: &'static str,
        filter: &'static str,
    },
    /// Other arguments of cargo.
    Cargo(&'static str),
}

impl Runs {
    fn arguments(&self) -> Vec<&str> {
        match *self {
            Self::Tests { target, filter } => {
                let mut all = vec!["test", "--workspace", "--features", super::FEATURES];
                all.extend(["--test", target]);
                all.extend(Some(filter).filter(|it| !it.is_empty()));
                all.extend(["--", "--nocapture"]);
                all
            }
            Self::Cargo(arguments) => arguments.split_whitespace().collect(),
        }
    }

    /// Whether the output counts tests.
    fn is_test(&self) -> bool {
        self.arguments()[0] == "test"
    }
}

/// The row with a plot.
const HOUR: &str = "hour";

/// The page of the workspace with the results of [`HOUR`], and its plot.
const PAGE: &str = "docs/soak.md";
const PLOT: &str = "docs/soak.svg";

/// The variable that names the directory for the plot and the table.
const REPORT_VAR: &str = "EOS_SOAK_REPORT";

const FULL: &[(&str, &str)] = &[("EOS_FULL", "1")];

/// Tests that `cargo xtask test` leaves to a row of the table. Each entry has the package, the target, a prefix of
/// the test's name, and the row. `cargo xtask test` runs a faster sibling of each.
pub(crate) const LEFT: [(&str, &str, &str, &str); 9] = [
    (
        "integration-tests",
        "exclusive",
        "kill::on_three_nodes",
        "kill",
    ),
    (
        "integration-tests",
        "exclusive",
        "kill::the_control_without_transactions",
        "kill",
    ),
    (
        "integration-tests",
        "exclusive",
        "churn::dynamic_members",
        "churn",
    ),
    (
        "integration-tests",
        "exclusive",
        "wire_producer_delivers_once::while_followers",
        "wire",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::duplicates::each_event_passes_once_on_three_brokers",
        "time",
    ),
    ("integration-tests", "kafka", "kill_time::hopping::", "time"),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::windows_close_once",
        "time",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::a_partition_behind",
        "time",
    ),
    (
        "integration-tests",
        "kafka",
        "kill_time::idle::a_frozen_broker",
        "time",
    ),
];

const TABLE: [Soak; 34] = [
    Soak {
        name: "simulation",
        what: "100,000 seeds of the whole runtime",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --coverage"),
        times: 1,
    },
    Soak {
        name: "shape-dedup",
        what: "100,000 seeds of duplicates of every kind of id",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape dedup"),
        times: 1,
    },
    Soak {
        name: "shape-async",
        what: "100,000 seeds of asynchronous calls",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape async"),
        times: 1,
    },
    Soak {
        name: "shape-parked",
        what: "100,000 seeds of dead letters in sequence",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape parked"),
        times: 1,
    },
    Soak {
        name: "shape-joins",
        what: "100,000 seeds of joins of two streams",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape joins"),
        times: 1,
    },
    Soak {
        name: "shape-tables",
        what: "100,000 seeds of joins and groups of tables",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape tables"),
        times: 1,
    },
    Soak {
        name: "shape-foreign",
        what: "100,000 seeds of foreign-key joins",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape foreign"),
        times: 1,
    },
    Soak {
        name: "shape-cogroup",
        what: "100,000 seeds of cogrouped streams, chained joins and a global table",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape cogroup"),
        times: 1,
    },
    Soak {
        name: "shape-ledger",
        what: "100,000 seeds of apps that commit in a ledger",
        environment: &[],
        runs: Runs::Cargo("xtask sim --seeds 100000 --shape ledger"),
        times: 1,
    },
    Soak {
        name: "scale",
        what: "200 processes on 2,000 partitions: rolling restart, loss of a tenth, doubling (docs/scale.md)",
        environment: &[],
        runs: Runs::Cargo("xtask sim --scale"),
        times: 1,
    },
    Soak {
        name: "scale-dynamic",
        what: "200 processes on 2,000 partitions, with dynamic members of the group",
        environment: &[],
        runs: Runs::Cargo("xtask sim --scale --dynamic"),
        times: 1,
    },
    Soak {
        name: "rocksdb",
        what: "5,000 seeds with the state in RocksDB, and every planted bug",
        environment: &[("EOS_ROCKSDB_SEEDS", "5000"), ("EOS_FULL", "1")],
        runs: Runs::Tests {
            target: "simulation",
            filter: "",
        },
        times: 1,
    },
    Soak {
        name: "fuzz",
        what: "ten minutes of malformed requests to the embedded broker",
        environment: &[("EOS_FUZZ_SECONDS", "600")],
        runs: Runs::Cargo("test -p eos-broker --lib fuzz -- --nocapture"),
        times: 1,
    },
    Soak {
        name: "kill",
        what: "a million records and more than 25 SIGKILLs, on one node, on three, and embedded",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "kill::",
        },
        times: 1,
    },
    Soak {
        name: "brokers",
        what: "brokers of each role killed, frozen and restarted, then too few replicas, ten times",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "brokers::",
        },
        times: 1,
    },
    Soak {
        name: "wire",
        what: "the wire producer while followers are frozen",
        environment: &[],
        runs: Runs::Tests {
            target: "exclusive",
            filter: "wire_producer_delivers_once::",
        },
        times: 1,
    },
    Soak {
        name: "churn",
        what: "five minutes of members that join and leave, for each group protocol",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "churn::",
        },
        times: 1,
    },
    Soak {
        name: "windows",
        what: "a million views in windows, 25 kills",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "windowed_counts::",
        },
        times: 1,
    },
    Soak {
        name: "time",
        what: "sessions, windows that close at once or while idle, timers, a deduplication, joins, and rows in PostgreSQL: 26 kills and a zombie each",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "kill_time::",
        },
        times: 1,
    },
    Soak {
        name: "calls",
        what: "asynchronous calls at 0.9 of the throughput of their service, then 25 kills and a zombie",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "calls::",
        },
        times: 1,
    },
    Soak {
        name: "guarantees",
        what: "at least once and at most once, 30 kills each",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "guarantees::",
        },
        times: 1,
    },
    Soak {
        name: "ledger-sweep",
        what: "every fault at every step of a commit into PostgreSQL",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "ledger_sweep::",
        },
        times: 1,
    },
    Soak {
        name: "ledger-outages",
        what: "a table of an app that is locked for more than a minute",
        environment: FULL,
        runs: Runs::Tests {
            target: "kafka",
            filter: "ledger_outages::",
        },
        times: 1,
    },
    Soak {
        name: "ids",
        what: "deduplication of a million ids and of ten million sequence numbers",
        environment: FULL,
        runs: Runs::Tests {
            target: "driver",
            filter: "store_has_",
        },
        times: 1,
    },
    Soak {
        name: "orders",
        what: "a customer with a million orders, in a join by foreign key",
        environment: FULL,
        runs: Runs::Tests {
            target: "driver",
            filter: "an_update_of_a_customer",
        },
        times: 1,
    },
    Soak {
        name: "ids-rocksdb",
        what: "the size of stores of ids, and look-ups after a year of a million ids per day",
        environment: FULL,
        runs: Runs::Cargo("test -p eos-state --lib seen_ids -- --nocapture"),
        times: 1,
    },
    Soak {
        name: "faults",
        what: "every fault-injection test at full size",
        environment: &[],
        runs: Runs::Cargo("xtask faults --full"),
        times: 1,
    },
    Soak {
        name: "readme",
        what: "every command of the README, including its crate of your own",
        environment: FULL,
        runs: Runs::Tests {
            target: "exclusive",
            filter: "readme::",
        },
        times: 1,
    },
    Soak {
        name: "demo",
        what: "the demo as a user builds it, without RocksDB",
        environment: &[],
        runs: Runs::Cargo("xtask demo"),
        times: 1,
    },
    Soak {
        name: "surface",
        what: "the documentation in each feature set, and breaking changes of the public API",
        environment: &[],
        runs: Runs::Cargo("xtask surface"),
        times: 1,
    },
    Soak {
        name: "shipped",
        what: "the tests of the libraries with the features that users compile, without failpoints",
        environment: &[],
        runs: Runs::Cargo(
            "test -p eos-core -p eos-kafka -p eos-state -p eos-examples -p conformance",
        ),
        times: 1,
    },
    // No short version runs with `cargo xtask test`: it takes two minutes, and its planted leak two more.
    Soak {
        name: HOUR,
        what: "an hour of kills beside a process whose memory, files and threads stay flat, and a planted leak",
        environment: FULL,
        runs: Runs::Tests {
            target: "soak",
            filter: "hour::",
        },
        times: 1,
    },
    Soak {
        name: "unarmed",
        what: "a program built without failpoints contains none",
        environment: &[],
        runs: Runs::Tests {
            target: "soak",
            filter: "unarmed::",
        },
        times: 1,
    },
    Soak {
        name: "repeat",
        what: "the tests on a real Kafka, five times each",
        environment: &[],
        runs: Runs::Tests {
            target: "kafka",
            filter: "",
        },
        times: 5,
    },
];

/// The row of the table that runs a test instead of `cargo xtask test`.
pub(crate) fn row_of(case: &Case<'_>) -> Option<&'static str> {
    let left = LEFT.iter().find(|(package, target, begins, _)| {
        case.target.package == *package
            && case.target.name == *target
            && case.name.starts_with(begins)
    });
    left.map(|(.., row)| *row)
}

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

/// The command as a line for a shell.
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
