//! Examples of violations.

use super::evidence::{Evidence, Output};
use super::records::Row;
use super::verdict::Example;

/// Returns a violation at a row of an output.
pub(super) fn of_row(evidence: &Evidence, output: &Output, row: &Row, note: String) -> Example {
    Example {
        seq: row.seq,
        key: Some(evidence.keys.name(row.key)),
        topic: Some(output.topic.clone()),
        partition: Some(row.partition),
        offset: Some(row.offset),
        note,
    }
}

/// Returns a violation at an input.
pub(super) fn of_input(evidence: &Evidence, nth: usize, note: String) -> Example {
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
