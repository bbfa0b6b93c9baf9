//! Runs one test in a process of its own.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kafka_launcher::{os, run};

use super::build::Target;

/// The time limit of a test. A longer test counts as hung, and is killed.
const LIMIT: Duration = Duration::from_secs(900);

/// One test of a target.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    pub(crate) target: &'a Target,
    pub(crate) name: String,
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}",
            self.target.package, self.target.name, self.name
        )
    }
}

/// The result of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    /// It passed without running its checks, and printed the reason.
    Skipped {
        why: String,
    },
    Failed {
        output: String,
    },
}

/// A finished test.
#[derive(Debug)]
pub(crate) struct Done<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) end: End,
    pub(crate) took: Duration,
}

/// Lists the tests of a target whose name contains `filter`.
pub(crate) fn list<'a>(target: &'a Target, filter: &str) -> Result<Vec<Case<'a>>> {
    let mut command = command(target);
    let text = run::succeed(
        command.args(["--list", "--format", "terse"]),
        Duration::from_secs(60),
    )?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| name.contains(filter));
    let case = |name: &str| Case {
        target,
        name: name.to_owned(),
    };
    Ok(names.map(case).collect())
}

impl<'a> Case<'a> {
    /// Runs the test with these environment variables.
    pub(crate) fn run(self, environment: &[(String, String)]) -> Done<'a> {
        let begun = Instant::now();
        let end = self
            .perform(environment)
            .unwrap_or_else(|error| End::Failed {
                output: format!("{error:#}"),
            });
        Done {
            case: self,
            end,
            took: begun.elapsed(),
        }
    }

    fn perform(&self, environment: &[(String, String)]) -> Result<End> {
        let mut command = command(self.target);
        command.args([&self.name, "--exact", "--nocapture"]);
        // The variable would redirect the apps of every test to another cluster.
        command.env_remove(kafka_launcher::BOOTSTRAP_VAR);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let answer = run::answer(&mut command, LIMIT).with_context(|| self.to_string())?;
        Ok(end(&self.name, answer.status.success(), answer.text))
    }
}

fn end(name: &str, success: bool, output: String) -> End {
    // If the program does not know the test, the test has failed.
    if !success || !output.contains("test result: ok. 1 passed") {
        return End::Failed { output };
    }
    let mark = format!("{} {name}: ", kafka_launcher::SKIPPED);
    let skipped = output.lines().find(|line| line.starts_with(&mark));
    match skipped {
        Some(why) => End::Skipped {
            why: why.to_owned(),
        },
        None => End::Passed,
    }
}

fn command(target: &Target) -> Command {
    let mut command = Command::new(&target.executable);
    // The same directory and environment as under cargo.
    command
        .current_dir(&target.dir)
        .env("CARGO_MANIFEST_DIR", &target.dir)
        // A backtrace would hide the error of a test that returns one: reports keep only the end of long outputs.
        .env("RUST_LIB_BACKTRACE", "0");
    os::die_with_spawning_thread(&mut command);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_ran_has_passed() {
        let passed = "test result: ok. 1 passed; 0 failed; 0 ignored";
        let end = |success, output: String| end("a::b", success, output);
        assert_eq!(end(true, passed.into()), End::Passed);
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored";
        assert!(matches!(end(true, none.into()), End::Failed { .. }));
        assert!(matches!(end(false, passed.into()), End::Failed { .. }));
        let skipped = format!("{} a::b: no Kafka\n{passed}", kafka_launcher::SKIPPED);
        assert!(matches!(end(true, skipped), End::Skipped { .. }));
        let of_another = format!("{} c: no Kafka\n{passed}", kafka_launcher::SKIPPED);
        assert_eq!(end(true, of_another), End::Passed);
    }
}
