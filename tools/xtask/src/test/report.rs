//! The report of a test run.

use std::time::Duration;

use super::case::{Done, End};
use super::count::Count;

/// The number of slowest tests to print.
const SLOWEST: usize = 10;
/// Tests that take longer are printed individually.
const NOTABLE: Duration = Duration::from_secs(2);

/// Finished steps and the results of their tests.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<(String, Count, Duration)>,
    slowest: Vec<(Duration, String)>,
    skipped: Vec<String>,
    left: Vec<String>,
    failed: Vec<String>,
}

/// Prints a finished test, unless it passed quickly.
pub(crate) fn print(done: &Done<'_>) {
    let seconds = done.took.as_secs_f64();
    match &done.end {
        End::Passed if done.took < NOTABLE => {}
        End::Passed => println!("passed {seconds:>7.1} s  {}", done.case),
        End::Skipped { .. } => println!("skipped {seconds:>6.1} s  {}", done.case),
        End::Failed { output } => {
            println!(
                "FAILED {seconds:>7.1} s  {}\n{}",
                done.case,
                output.trim_end()
            );
        }
    }
}

impl Report {
    /// Adds a test that did not run, with the command that runs it.
    pub(crate) fn left(&mut self, test: String) {
        self.left.push(test);
    }

    /// Adds a step without tests.
    pub(crate) fn step(&mut self, name: &str, succeeded: bool, took: Duration) {
        let count = Count {
            failed: u64::from(!succeeded),
            broken: !succeeded,
            ..Count::default()
        };
        self.counted(name, count, took);
    }

    /// Adds a step whose tests were counted elsewhere.
    pub(crate) fn counted(&mut self, name: &str, count: Count, took: Duration) {
        if count.broken {
            self.failed.push(name.to_owned());
        }
        self.steps.push((name.to_owned(), count, took));
    }

    /// Adds a step with individual test results.
    pub(crate) fn tests(&mut self, name: &str, done: &[Done<'_>], took: Duration) {
        let mut count = Count::default();
        for one in done {
            match &one.end {
                End::Passed => count.passed += 1,
                End::Skipped { why } => {
                    count.ignored += 1;
                    self.skipped.push(why.clone());
                }
                End::Failed { .. } => {
                    count.failed += 1;
                    self.failed.push(one.case.to_string());
                }
            }
            self.slowest.push((one.took, one.case.to_string()));
        }
        self.steps.push((name.to_owned(), count, took));
    }

    /// Prints the report and returns whether everything passed. The last line holds only the counts, for programs
    /// that parse it.
    pub(crate) fn print(mut self) -> bool {
        self.slowest.sort_by(|a, b| b.cmp(a));
        if !self.slowest.is_empty() {
            println!("\n=== Slowest tests");
        }
        for (took, test) in self.slowest.iter().take(SLOWEST) {
            println!("{:>7.1} s  {test}", took.as_secs_f64());
        }
        println!("\n=== Steps");
        let mut total = Count::default();
        for (name, count, took) in &self.steps {
            let Count {
                passed,
                failed,
                ignored,
                broken,
            } = *count;
            let seconds = took.as_secs_f64();
            let note = if broken { "  FAILED" } else { "" };
            println!(
                "{name:<14} {passed:>5} passed {failed:>3} failed {ignored:>3} skipped {seconds:>7.1} s{note}"
            );
            total.add(*count);
        }
        for test in &self.left {
            println!("left out  {test}");
        }
        for line in &self.skipped {
            println!("{line}");
        }
        for test in &self.failed {
            println!("FAILED  {test}");
        }
        println!("{} passed, {} failed", total.passed, total.failed);
        total.failed == 0
    }
}
