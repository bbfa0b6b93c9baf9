//! Whether the outputs of each key come in the order of its inputs.

use std::collections::HashMap;

use super::keys::Key;
use super::records::{Numbered, Row};

/// The latest row of each key while an output is walked.
#[derive(Default)]
pub(super) struct LastOfKey {
    /// The partition of the output it is in, and its number.
    places: HashMap<Key, (i32, u64)>,
    /// By input partition, since between those Kafka knows no order: the input's offset and number.
    inputs: HashMap<(Key, i32), (i64, u64)>,
}

impl LastOfKey {
    /// Takes the next row and its input; says what is wrong with its place, if anything.
    ///
    /// Compared with the row just before it of the same key, so one record that jumped ahead
    /// counts once, not once for each record it passed.
    pub(super) fn step(&mut self, row: &Row, input: &Numbered) -> Option<String> {
        let place = self.places.insert(row.key, (row.partition, input.seq));
        let from = (row.key, input.partition);
        let before = self.inputs.insert(from, (input.offset, input.seq));
        if let Some((partition, seq)) = place
            && partition != row.partition
        {
            return Some(format!(
                "its key is in partition {partition} too (seq {seq})"
            ));
        }
        let (offset, seq) = before?;
        (offset > input.offset).then(|| format!("it comes after seq {seq} of the same key"))
    }
}
