//! The comparison of each output with the inputs.

use super::evidence::{Evidence, Expectation, Output};
use super::examples::{of_input, of_row};
use super::order::LastOfKey;
use super::records::Row;
use super::verdict::Verdict;

/// The number of records of each input in one output, in the order of the input's numbers.
pub(super) type Presence = Vec<u32>;

/// Compares every output with the input.
pub(super) fn find(
    evidence: &Evidence,
    expectation: Expectation,
    verdict: &mut Verdict,
) -> Vec<Presence> {
    let outputs = evidence.outputs.iter();
    let presences: Vec<Presence> = outputs
        .map(|output| walk(evidence, output, verdict))
        .collect();
    lost(evidence, expectation, &presences, verdict);
    torn(evidence, &presences, verdict);
    presences
}

/// Scans an output in its order. Counts rows that are doubled, reordered, foreign or under the wrong key.
fn walk(evidence: &Evidence, output: &Output, verdict: &mut Verdict) -> Presence {
    let mut presence = vec![0; evidence.input.records().len()];
    let mut last = LastOfKey::default();
    for row in &output.rows {
        let example = |note: String| of_row(evidence, output, row, note);
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
                Expectation::Behind => input.offset < evidence.committed_at(input.partition),
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

/// Describes the position of the first row with the same number.
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
