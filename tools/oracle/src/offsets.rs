//! The comparison of the committed offsets with the outputs.

use super::evidence::{Evidence, Expectation};
use super::outputs::Presence;
use super::verdict::{Example, Finding};

/// The progress of one input partition.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    /// The number of records below the committed offset without an output.
    missing_below: u64,
    /// The number of records from the committed offset on with an output.
    present_above: u64,
    /// The offset after the last record.
    after_last: i64,
}

/// Compares every input partition. A violation is counted once per partition.
pub(super) fn compare(
    evidence: &Evidence,
    expectation: Expectation,
    presences: &[Presence],
    finding: &mut Finding,
) {
    if evidence.committed.is_none() {
        return;
    }
    let progress = progress(evidence, presences);
    for (partition, progress) in (0..).zip(progress) {
        if let Some(note) = progress.complaint(evidence, expectation, partition) {
            finding.add(|| Example {
                topic: Some(evidence.input.topic.clone()),
                partition: Some(partition),
                offset: Some(evidence.committed_at(partition)),
                note,
                ..Example::default()
            });
        }
    }
}

fn progress(evidence: &Evidence, presences: &[Presence]) -> Vec<Progress> {
    let partitions = 0..evidence.input.ends.len() as i32;
    let committed: Vec<_> = partitions.map(|p| evidence.committed_at(p)).collect();
    let mut progress = vec![Progress::default(); committed.len()];
    for (nth, record) in evidence.input.records().iter().enumerate() {
        let partition = record.partition as usize;
        let state = &mut progress[partition];
        state.after_last = state.after_last.max(record.offset + 1);
        let mut present = presences.iter().map(|presence| presence[nth] > 0);
        if record.offset < committed[partition] {
            state.missing_below += u64::from(!present.all(|present| present));
        } else {
            state.present_above += u64::from(present.any(|present| present));
        }
    }
    progress
}

impl Progress {
    fn complaint(
        self,
        evidence: &Evidence,
        expectation: Expectation,
        partition: i32,
    ) -> Option<String> {
        let committed = evidence.committed_at(partition);
        let end = evidence.input.ends[partition as usize];
        let (missing, present) = (self.missing_below, self.present_above);
        if missing > 0 {
            return Some(format!(
                "committed {committed} is ahead: {missing} records below it lack an output"
            ));
        }
        if present > 0 {
            return Some(format!(
                "committed {committed} is behind: {present} records from it on have outputs and \
                 would be processed again"
            ));
        }
        if committed > end {
            return Some(format!("committed {committed} is beyond the end {end}"));
        }
        let finished = expectation == Expectation::Finished;
        // Markers of the input's own producers may be between the last record and the end.
        (finished && committed < self.after_last)
            .then(|| format!("committed {committed} is not at the end {end}"))
    }
}
