//! The comparison of each running value with its inputs.
//!
//! The last value of a key may be right although an earlier update was made from old state. A reader may already have
//! used that update. So every value is compared with the value of its own input. An output that is out of order or
//! doubled is not stale for that reason.

use std::collections::HashMap;
use std::mem;

use super::evidence::{Evidence, Output};
use super::examples;
use super::fold::{Contents, Fold};
use super::verdict::Finding;

/// The latest row of a key, if its inputs come from one partition.
#[derive(Clone, Copy)]
struct Before {
    seq: u64,
    value: i64,
    right: bool,
}

/// Counts the rows of each key at which its value becomes wrong.
pub(super) fn find(evidence: &Evidence, finding: &mut Finding) {
    for output in &evidence.outputs {
        if let Some(fold) = &output.running {
            walk(evidence, output, &due(evidence, fold), finding);
        }
    }
}

/// Returns the expected value of each input, in the order of the numbers.
fn due(evidence: &Evidence, fold: &Fold) -> Vec<i64> {
    let records = evidence.input.records();
    let mut due = vec![0; records.len()];
    let (mut contents, mut partition) = (Contents::new(), None);
    for nth in evidence.input.in_order() {
        let record = records[nth].with_key(&evidence.keys);
        if partition.replace(record.partition) != Some(record.partition) {
            contents.clear();
        }
        due[nth] = fold.step(&mut contents, &record);
    }
    due
}

fn walk(evidence: &Evidence, output: &Output, due: &[i64], finding: &mut Finding) {
    let mut seen = vec![false; due.len()];
    let mut keys = HashMap::new();
    for row in &output.rows {
        let Some(nth) = row.seq.and_then(|seq| evidence.input.find(seq)) else {
            continue;
        };
        if mem::replace(&mut seen[nth], true) {
            continue;
        }
        let input = &evidence.input.records()[nth];
        let right = row.value == due[nth];
        let now = Before {
            seq: input.seq,
            value: row.value,
            right,
        };
        let before = keys.insert((input.partition, input.key), now);
        // A value that follows from a wrong value is not counted again.
        if !right && before.is_none_or(|before| before.right) {
            finding
                .add(|| examples::of_row(evidence, output, row, note(row.value, due[nth], before)));
        }
    }
}

fn note(value: i64, due: i64, before: Option<Before>) -> String {
    let before = before.map_or_else(String::new, |before| {
        format!("; seq {} of its key carries {}", before.seq, before.value)
    });
    format!("it carries {value}, and the inputs up to its own make {due}{before}")
}
