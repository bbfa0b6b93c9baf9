//! The evidence of a deduplication, by first records and repetitions.

use std::collections::HashSet;

use super::evidence::{Evidence, Output};
use super::input::{Input, InputError};
use super::records::Row;

/// Splits the evidence of an application that deduplicates into two parts, each of which [`judge`](crate::judge) accepts.
///
/// Records of one event repeat each other. [`Row::value`] is the number of the event. The application writes the first
/// record of each event to the outputs, and all others to `repeats`. The first record is the one with the lowest offset.
///
/// 1. In the first part, the number of a record is the number of its event. So an event that the application passed twice
///    is doubled.
/// 2. The second part has the repetitions and the output `repeats`. A first record in this output is foreign.
///
/// # Errors
/// If the records of an event are in two partitions: [`InputError::Twice`] with the number of the event.
pub fn split(evidence: Evidence, repeats: Output) -> Result<[Evidence; 2], InputError> {
    let (mut seen, mut first, mut repeated) = (HashSet::new(), Vec::new(), Vec::new());
    for nth in evidence.input.in_order() {
        let record = evidence.input.records()[nth];
        let row = Row {
            seq: Some(record.seq),
            key: record.key,
            partition: record.partition,
            offset: record.offset,
            value: record.value,
        };
        match seen.insert((row.partition, row.value)) {
            true => first.push(by_event(row)),
            false => repeated.push(row),
        }
    }
    let (topic, ends) = (&evidence.input.topic, &evidence.input.ends);
    let first = Input::new(topic, first, ends.clone())?;
    let repeated = Input::new(topic, repeated, ends.clone())?;
    let repetitions = Evidence {
        keys: evidence.keys.clone(),
        input: repeated,
        outputs: vec![repeats],
        committed: evidence.committed.clone(),
        open: evidence.open.clone(),
        commits: evidence.commits.clone(),
        hanging_offsets: evidence.hanging_offsets.clone(),
        state: Vec::new(),
    };
    let outputs = evidence.outputs.into_iter().map(|output| Output {
        rows: output.rows.into_iter().map(by_event).collect(),
        ..output
    });
    let firsts = Evidence {
        input: first,
        outputs: outputs.collect(),
        ..evidence
    };
    Ok([firsts, repetitions])
}

/// Returns the row with the number of its event.
fn by_event(row: Row) -> Row {
    Row {
        seq: row.seq.map(|_| row.value.unsigned_abs()),
        ..row
    }
}
