//! Whether the outputs of each key come in the order of its inputs.

use super::evidence::Row;
use super::input::Numbered;

/// The latest row of each key while an output is walked.
pub(super) struct LastOfKey(Vec<Option<Last>>);

#[derive(Clone, Copy)]
struct Last {
    output_partition: i32,
    input_partition: i32,
    input_offset: i64,
    seq: u64,
}

impl LastOfKey {
    /// Nothing walked yet.
    pub(super) fn new(keys: usize) -> Self {
        LastOfKey(vec![None; keys])
    }

    /// Takes the next row and its input; says what is wrong with its place, if anything.
    ///
    /// Compared with the row just before it of the same key, so one record that jumped ahead
    /// counts once, not once for each record it passed.
    pub(super) fn step(&mut self, row: &Row, input: &Numbered) -> Option<String> {
        let slot = self.0.get_mut(row.key.index())?;
        let last = slot.replace(Last {
            output_partition: row.partition,
            input_partition: input.partition,
            input_offset: input.offset,
            seq: input.seq,
        })?;
        if last.output_partition != row.partition {
            return Some(format!(
                "its key is in partition {} too (seq {})",
                last.output_partition, last.seq
            ));
        }
        // Between input partitions Kafka knows no order.
        let same = last.input_partition == input.partition;
        (same && last.input_offset > input.offset)
            .then(|| format!("it comes after seq {} of the same key", last.seq))
    }
}
