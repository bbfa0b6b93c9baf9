//! The verdict as a pure function of the evidence.

use super::evidence::{Evidence, Output, Row};
use super::order::LastOfKey;
use super::verdict::{Example, Verdict};
use super::{aborted, offsets, open, running, state};

/// How far the run was to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// Every input is processed and committed.
    Finished,
    /// The run was stopped on its way: exactly what lies below the committed offsets is processed.
    Behind,
}

/// How often each input is in one output, in the order of the input's numbers.
pub(super) type Presence = Vec<u32>;

/// Decides whether the evidence shows each input processed exactly once.
pub fn judge(evidence: &Evidence, expectation: Expectation) -> Verdict {
    let mut verdict = Verdict::default();
    let outputs = evidence.outputs.iter();
    let presences: Vec<Presence> = outputs
        .map(|output| walk(evidence, output, &mut verdict))
        .collect();
    lost(evidence, expectation, &presences, &mut verdict);
    torn(evidence, &presences, &mut verdict);
    aborted::find(evidence, &mut verdict.aborted);
    offsets::compare(evidence, expectation, &presences, &mut verdict.offsets);
    open::find(evidence, &mut verdict);
    state::find(evidence, &mut verdict);
    running::find(evidence, &mut verdict.stale);
    verdict
}

/// Walks an output in its order: what is doubled, reordered, foreign or under the wrong key.
fn walk(evidence: &Evidence, output: &Output, verdict: &mut Verdict) -> Presence {
    let mut presence = vec![0; evidence.input.records().len()];
    let mut last = LastOfKey::default();
    for row in &output.rows {
        let example = |note: String| found(evidence, output, row, note);
        let Some(nth) = row.seq.and_then(|seq| evidence.input.find(seq)) else {
            verdict
                .foreign
                .add(|| example("no input has it".to_owned()));
            continue;
        };
        presence[nth] += 1;
        if presence[nth] > 1 {
            verdict.doubled.add(|| example(beside(output, row)));
            continue;
        }
        let input = &evidence.input.records()[nth];
        if input.key != row.key {
            let key = evidence.keys.name(input.key);
            verdict
                .rekeyed
                .add(|| example(format!("its input has key {key}")));
        }
        if let Some(note) = last.step(row, input) {
            verdict.reordered.add(|| example(note));
        }
    }
    presence
}

fn lost(
    evidence: &Evidence,
    expectation: Expectation,
    presences: &[Presence],
    verdict: &mut Verdict,
) {
    for (output, presence) in evidence.outputs.iter().zip(presences) {
        let missing = presence
            .iter()
            .enumerate()
            .filter(|(_, count)| **count == 0);
        for (nth, _) in missing {
            let input = &evidence.input.records()[nth];
            let due = match expectation {
                Expectation::Finished => true,
                Expectation::Behind => input.offset < offsets::committed(evidence, input.partition),
            };
            if due {
                let note = || format!("it is not in {}", output.topic);
                verdict.lost.add(|| of_input(evidence, nth, note()));
            }
        }
    }
}

fn torn(evidence: &Evidence, presences: &[Presence], verdict: &mut Verdict) {
    let topic = |output: usize| &evidence.outputs[output].topic;
    for nth in 0..evidence.input.records().len() {
        let with = presences.iter().position(|presence| presence[nth] > 0);
        let without = presences.iter().position(|presence| presence[nth] == 0);
        if let (Some(with), Some(without)) = (with, without) {
            let note = || format!("it is in {} and not in {}", topic(with), topic(without));
            verdict.torn.add(|| of_input(evidence, nth, note()));
        }
    }
}

/// Where the first row with the same number is.
fn beside(output: &Output, row: &Row) -> String {
    let first = output.rows.iter().find(|other| other.seq == row.seq);
    first.map_or_else(String::new, |first| {
        let (partition, offset) = (first.partition, first.offset);
        format!(
            "it is also at {}-{partition}, offset {offset}",
            output.topic
        )
    })
}

/// A violation that shows at a row of an output.
pub(super) fn found(evidence: &Evidence, output: &Output, row: &Row, note: String) -> Example {
    Example {
        seq: row.seq,
        key: Some(evidence.keys.name(row.key)),
        topic: Some(output.topic.clone()),
        partition: Some(row.partition),
        offset: Some(row.offset),
        note,
    }
}

/// A violation that shows at an input.
fn of_input(evidence: &Evidence, nth: usize, note: String) -> Example {
    let input = &evidence.input.records()[nth];
    Example {
        seq: Some(input.seq),
        key: Some(evidence.keys.name(input.key)),
        topic: Some(evidence.input.topic.clone()),
        partition: Some(input.partition),
        offset: Some(input.offset),
        note,
    }
}
