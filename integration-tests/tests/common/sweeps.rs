//! Shared parts of the tests that sweep over failpoints.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use integration_tests::faults::is_full;
use integration_tests::process::{Program, build};
use integration_tests::sweep::{Act, At, Case, Done, POINTS, Report};

/// Builds the app with failpoints.
pub(crate) fn build_app() -> Result<PathBuf> {
    let app = Program::Example("two_outputs");
    build("integration-tests", app, &["--features", "failpoints"])
}

const TIMES: [At; 3] = [At::First, At::Middle, At::Last];

/// Returns a case for each point and each of these acts, at one record, or at all three records in a full run.
pub(crate) fn cases(acts: &[Act]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, point) in POINTS.into_iter().enumerate() {
        for (m, act) in acts.iter().enumerate() {
            for (k, at) in TIMES.into_iter().enumerate() {
                if is_full() || (n + m) % TIMES.len() == k {
                    cases.push(Case {
                        point,
                        act: *act,
                        at,
                        undefended: "",
                    });
                }
            }
        }
    }
    cases.retain(wanted);
    repeated(cases)
}

/// Returns whether `EOS_CASE` selects this case, or is not set.
fn wanted(case: &Case) -> bool {
    env::var("EOS_CASE").map_or(true, |part| case.to_string().contains(&part))
}

/// Repeats the cases `EOS_TIMES` times, to find rare failures.
fn repeated(cases: Vec<Case>) -> Vec<Case> {
    let times = env::var("EOS_TIMES").ok().and_then(|n| n.parse().ok());
    cases.repeat(times.unwrap_or(1))
}

/// The sum of the outcomes of all cases.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) fired: u64,
    counts: [u64; 8],
    failed: Vec<String>,
}

/// Prints a line for each case, and adds them up.
pub(crate) fn print(cases: &[Case], done: &[Done<Report>]) -> Sum {
    let mut sum = Sum::default();
    for (case, one) in cases.iter().zip(done) {
        let word = match &one.answer {
            Ok(report) => {
                sum.fired += report.fired as u64;
                for (count, (_, finding)) in sum.counts.iter_mut().zip(report.verdict.findings()) {
                    *count += finding.count;
                }
                let rejoined = report.rejoined;
                let word = match report.verdict.is_clean() {
                    true => "clean".to_owned(),
                    false => {
                        sum.failed.push(format!("{case}: {}", report.told));
                        "VIOLATED".to_owned()
                    }
                };
                rejoined.map_or(word.clone(), |took| {
                    format!("{word}, works again after {took:.1?}")
                })
            }
            Err(error) => {
                sum.failed.push(format!("{error:?}"));
                "FAILED".to_owned()
            }
        };
        eprintln!("{case} ... {word} ({:.1?})", one.took);
    }
    sum
}

impl Sum {
    /// Returns the judge's counts as text. If all counts are 0, adds the number of failed cases.
    pub(crate) fn verdict(&self) -> String {
        let [lost, doubled, _, _, _, torn, ..] = self.counts;
        let other = self.counts.iter().sum::<u64>() - lost - doubled - torn;
        let mut verdict = format!("lost {lost}, doubled {doubled}, torn {torn}");
        if other > 0 {
            verdict += &format!(", other {other}");
        }
        if !self.failed.is_empty() && self.counts == [0; 8] {
            verdict += &format!("; {} cases failed", self.failed.len());
        }
        verdict
    }

    pub(crate) fn doubled(&self) -> u64 {
        self.counts[1]
    }

    pub(crate) fn ensure_clean(&self) -> Result<()> {
        ensure!(self.failed.is_empty(), "{}", self.failed.join("\n\n"));
        Ok(())
    }
}
