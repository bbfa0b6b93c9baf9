//! The input, with a unique number in each record.

use super::keys::Keys;
use super::records::{InputRecord, Numbered, Row};

/// The input topic, in the order of the numbers. The default has no partitions.
#[derive(Debug, Default, Clone)]
pub struct Input {
    /// The topic.
    pub topic: String,
    /// The end offset of each partition.
    pub ends: Vec<i64>,
    records: Vec<Numbered>,
}

/// The reason why an input cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A record has no number.
    #[error("input {topic}-{partition} has a record without `seq` at offset {offset}")]
    Unnumbered {
        /// The input.
        topic: String,
        /// The partition.
        partition: i32,
        /// The offset in the partition.
        offset: i64,
    },
    /// Two records have the same number.
    #[error(
        "input {topic} has seq {seq} twice ({topic}-{} and {topic}-{})",
        place(*.first),
        place(*.second)
    )]
    Twice {
        /// The input.
        topic: String,
        /// The number.
        seq: u64,
        /// The partition and offset of the first record.
        first: (i32, i64),
        /// The partition and offset of the second record.
        second: (i32, i64),
    },
    /// A record is in a partition without an end offset.
    #[error("input {topic} has a record in partition {partition}, and ends of {partitions} only")]
    NoSuchPartition {
        /// The input.
        topic: String,
        /// The partition.
        partition: i32,
        /// The number of partitions with an end offset.
        partitions: usize,
    },
}

impl Input {
    /// Returns the input, if the numbers of its records are unique.
    ///
    /// # Errors
    /// If a record has no number, two records have the same number, or a record is in a partition without an end. Such
    /// an input cannot be judged.
    pub fn new(topic: &str, rows: Vec<Row>, ends: Vec<i64>) -> Result<Input, InputError> {
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            records.push(numbered(topic, &row, ends.len())?);
        }
        records.sort_unstable_by_key(|record: &Numbered| (record.seq, record.partition));
        for pair in records.windows(2) {
            if pair[0].seq == pair[1].seq {
                return Err(InputError::Twice {
                    topic: topic.to_owned(),
                    seq: pair[0].seq,
                    first: (pair[0].partition, pair[0].offset),
                    second: (pair[1].partition, pair[1].offset),
                });
            }
        }
        Ok(Input {
            topic: topic.to_owned(),
            ends,
            records,
        })
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether the input has no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the records, in the order of their numbers.
    pub(super) fn records(&self) -> &[Numbered] {
        &self.records
    }

    /// Returns the index of a number in [`Input::records`].
    pub(super) fn find(&self, seq: u64) -> Option<usize> {
        // The numbers of one run have no gaps, so the first guess is mostly right.
        let first = self.records.first()?.seq;
        let guess = usize::try_from(seq.checked_sub(first)?).ok()?;
        if self.records.get(guess).is_some_and(|r| r.seq == seq) {
            return Some(guess);
        }
        self.records.binary_search_by_key(&seq, |r| r.seq).ok()
    }

    /// Returns the indexes of the records in [`Input::records`], partition by partition in offset order.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        order.sort_unstable_by_key(|nth| (self.records[*nth].partition, self.records[*nth].offset));
        order
    }

    /// Returns the records of a partition, in offset order.
    pub(super) fn of_partition<'k>(&self, partition: i32, keys: &'k Keys) -> Vec<InputRecord<'k>> {
        let its = self.records.iter().filter(|r| r.partition == partition);
        let mut records: Vec<_> = its.map(|record| record.with_key(keys)).collect();
        records.sort_unstable_by_key(|record| record.offset);
        records
    }
}

fn numbered(topic: &str, row: &Row, partitions: usize) -> Result<Numbered, InputError> {
    let (partition, offset) = (row.partition, row.offset);
    let topic = || topic.to_owned();
    if usize::try_from(partition).map_or(true, |nth| nth >= partitions) {
        return Err(InputError::NoSuchPartition {
            topic: topic(),
            partition,
            partitions,
        });
    }
    let Some(seq) = row.seq else {
        return Err(InputError::Unnumbered {
            topic: topic(),
            partition,
            offset,
        });
    };
    Ok(Numbered {
        seq,
        key: row.key,
        partition,
        offset,
        value: row.value,
    })
}

fn place((partition, offset): (i32, i64)) -> String {
    format!("{partition}, offset {offset}")
}
