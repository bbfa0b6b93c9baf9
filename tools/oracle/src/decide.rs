//! The judge, a pure function of the evidence.

use super::evidence::{Evidence, Expectation};
use super::verdict::Verdict;
use super::{aborted, offsets, open, outputs, running, state};

/// Decides whether each input was processed exactly once.
pub fn judge(evidence: &Evidence, expectation: Expectation) -> Verdict {
    let mut verdict = Verdict::default();
    let presences = outputs::find(evidence, expectation, &mut verdict);
    aborted::find(evidence, &mut verdict.aborted);
    offsets::compare(evidence, expectation, &presences, &mut verdict.offsets);
    open::find(evidence, &mut verdict);
    state::find(evidence, &mut verdict);
    running::find(evidence, &mut verdict.stale);
    verdict
}
