//! Rows on their way from the worker's thread to the thread of the connection.

use std::ops::Range;

use eos_client::Headers;
use eos_core::boundary::Effect;
use eos_protocol::{Offset, Timestamp, TopicPartition};

/// The most rows of a statement.
pub(super) const MAX_ROWS: usize = 5000;
/// The most bytes of a statement, except for a single row.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Rows in the order of their records.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    partitions: Vec<TopicPartition>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    place: usize,
    partition: usize,
    offset: Offset,
    key: Option<Range<usize>>,
    row: Option<Range<usize>>,
    timestamp: Option<Timestamp>,
    headers: Headers,
}

/// A row of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowRef<'a> {
    pub(super) place: usize,
    pub(super) partition: &'a TopicPartition,
    pub(super) offset: Offset,
    pub(super) key: Option<&'a [u8]>,
    pub(super) row: Option<&'a [u8]>,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) headers: &'a Headers,
}

impl Chunk {
    pub(super) fn push(&mut self, effect: &Effect<'_>) {
        let partition = self.partition(effect.origin.partition);
        let key = effect.key.map(|bytes| self.copy(bytes));
        let row = effect.row.map(|bytes| self.copy(bytes));
        self.entries.push(Entry {
            place: effect.place,
            partition,
            offset: effect.origin.offset,
            key,
            row,
            timestamp: effect.timestamp,
            headers: effect.headers.clone(),
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Returns the index of a partition. Rows of a partition come in runs, so the newest partition
    /// is searched first.
    fn partition(&mut self, partition: &TopicPartition) -> usize {
        let known = self.partitions.iter().rposition(|known| known == partition);
        known.unwrap_or_else(|| {
            self.partitions.push(partition.clone());
            self.partitions.len() - 1
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ROWS || self.bytes.len() >= MAX_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes in memory, approximately.
    pub(super) fn weight(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        (0..self.entries.len()).filter_map(|index| self.row(index))
    }

    pub(super) fn row(&self, index: usize) -> Option<RowRef<'_>> {
        let entry = self.entries.get(index)?;
        let bytes = |range: &Option<Range<usize>>| {
            let range = range.clone()?;
            self.bytes.get(range)
        };
        Some(RowRef {
            place: entry.place,
            partition: self.partitions.get(entry.partition)?,
            offset: entry.offset,
            key: bytes(&entry.key),
            row: bytes(&entry.row),
            timestamp: entry.timestamp,
            headers: &entry.headers,
        })
    }
}
