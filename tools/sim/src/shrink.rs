//! The reduction of a run's faults to the necessary ones.

use super::run::{Outcome, Run};

/// Removes faults, one at a time, as long as the run still has violations.
#[must_use]
pub fn shrink(outcome: &Outcome) -> Outcome {
    let mut best = outcome.clone();
    let mut at = 0;
    while at < best.fired.len() {
        let mut fewer = best.fired.clone();
        fewer.remove(at);
        let run = Run {
            plan: Some(fewer),
            ..best.run.clone()
        };
        let tried = run.run();
        if tried.violations.is_empty() {
            at += 1;
        } else {
            best = tried;
        }
    }
    best
}
