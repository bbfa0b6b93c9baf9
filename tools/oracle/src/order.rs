//! The order of each key's outputs, compared with its inputs.

use std::collections::HashMap;

use super::keys::Key;
use super::records::{Numbered, Row};

/// The latest row of each key during the pass over an output.
#[derive(Default)]
pub(super) struct LastOfKey {
    /// The output partition and the number of the row.
    places: HashMap<Key, (i32, u64)>,
    /// The input's offset and number, by input partition, because Kafka has no order between partitions.
    inputs: HashMap<(Key, i32), (i64, u64)>,
}

impl LastOfKey {
    /// Checks the next row against its input. Returns the violation of the order, if any.
    ///
    /// A row is compared with the row just before it of the same key. So one record that is too early counts once, not
    /// once for each record after it.
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
