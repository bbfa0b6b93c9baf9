//! What makes a log shorter: DeleteRecords, retention, compaction.
//!
//! Nothing at or behind the last stable offset is touched: whether it counts is not decided yet.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::batch::Batch;
use super::partition::PartitionLog;
use super::records::Records;

impl PartitionLog {
    /// Moves the start of the log up; records below are gone for readers.
    pub(crate) fn delete_before(&mut self, offset: i64) {
        self.start = self.start.max(offset.min(self.end()));
        let start = self.start;
        let gone = self.batches.partition_point(|it| it.last_offset < start);
        self.drop_front(gone);
        self.aborted.retain(|it| it.last_offset >= start);
    }

    /// Deletes whole batches from the front that are older or more than allowed.
    pub(crate) fn retain(&mut self, older_than: Option<i64>, max_bytes: Option<usize>) {
        let stable = self.last_stable();
        let mut bytes = self.bytes();
        let mut start = self.start;
        for batch in &self.batches {
            let too_old = older_than.is_some_and(|limit| batch.max_timestamp < limit);
            // As Kafka's segments: what remains is never less than the limit.
            let size = batch.bytes.len();
            let too_many = max_bytes.is_some_and(|limit| bytes >= limit + size);
            if batch.last_offset >= stable || !(too_old || too_many) {
                break;
            }
            bytes -= size;
            start = batch.last_offset + 1;
        }
        self.delete_before(start);
    }

    /// Keeps the last record of each key; forgets aborted records, and tombstones older than given.
    ///
    /// Offsets stay as they are: readers find holes. Compressed batches stay whole.
    pub(crate) fn compact(&mut self, tombstones_before: i64) {
        let stable = self.last_stable();
        let last = self.last_offsets(stable);
        let batches = std::mem::take(&mut self.batches);
        let count = batches.len();
        for (index, batch) in batches.into_iter().enumerate() {
            let is_last = index + 1 == count;
            if batch.last_offset >= stable || batch.is_control() || batch.compression() != 0 {
                self.batches.push_back(batch);
                continue;
            }
            let (kept, body, newest) = self.keep(&batch, &last, tombstones_before);
            if kept == batch.count {
                self.batches.push_back(batch);
            } else if kept > 0 || is_last || self.producers.is_last_of(&batch) {
                // An empty batch keeps the log's end, and its producer's sequence.
                self.batches
                    .push_back(batch.with_records(&body, kept, newest));
            }
        }
        self.recount();
    }

    /// What remains of a batch: count, bytes, largest timestamp.
    fn keep(
        &self,
        batch: &Batch,
        last: &HashMap<Bytes, i64>,
        tombstones_before: i64,
    ) -> (i32, BytesMut, i64) {
        let mut body = BytesMut::new();
        let (mut kept, mut newest) = (0, -1);
        let aborted = self.is_aborted(batch);
        for record in Records::of(batch).flatten() {
            let key = record.key.as_ref();
            let is_last = key.is_none_or(|key| last.get(key) == Some(&record.offset));
            let expired = !record.has_value && record.timestamp < tombstones_before;
            if is_last && !expired && !aborted {
                kept += 1;
                newest = newest.max(record.timestamp);
                body.extend_from_slice(&record.bytes);
            }
        }
        (kept, body, newest)
    }

    fn last_offsets(&self, stable: i64) -> HashMap<Bytes, i64> {
        let mut last = HashMap::new();
        for batch in &self.batches {
            let decided = batch.last_offset < stable && !batch.is_control();
            if !decided || self.is_aborted(batch) {
                continue;
            }
            for record in Records::of(batch).flatten() {
                if let Some(key) = record.key {
                    last.insert(key, record.offset);
                }
            }
        }
        last
    }

    fn is_aborted(&self, batch: &Batch) -> bool {
        let offset = batch.base_offset;
        batch.is_transactional()
            && self.aborted.iter().any(|it| {
                it.producer_id == batch.producer_id
                    && (it.first_offset..it.last_offset).contains(&offset)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::partition::tests::append;
    use super::*;

    fn keys(log: &PartitionLog) -> Vec<(i64, String)> {
        let data = log.batches.iter().filter(|batch| !batch.is_control());
        data.flat_map(|batch| Records::of(batch).flatten().collect::<Vec<_>>())
            .map(|record| {
                let key = record.key.unwrap_or_default();
                (record.offset, String::from_utf8_lossy(&key).into_owned())
            })
            .collect()
    }

    fn expect(log: &PartitionLog, expected: &[(i64, &str)]) {
        let expected = expected.iter().map(|(at, key)| (*at, (*key).to_owned()));
        assert_eq!(keys(log), expected.collect::<Vec<_>>());
    }

    #[test]
    fn compaction_keeps_the_last_of_each_key_and_its_offset() {
        let mut log = PartitionLog::default();
        append(
            &mut log,
            None,
            false,
            &[("a", Some("1"), 0), ("b", Some("1"), 0)],
        );
        append(&mut log, None, false, &[("a", Some("2"), 0)]);
        append(&mut log, None, false, &[("c", Some("1"), 0)]);
        log.compact(0);
        expect(&log, &[(1, "b"), (2, "a"), (3, "c")]);
        assert_eq!((log.start(), log.end()), (0, 4));
        let bytes: usize = log.batches.iter().map(|it| it.bytes.len()).sum();
        assert_eq!(log.bytes(), bytes);
    }

    #[test]
    fn compaction_forgets_aborted_records_and_leaves_undecided_ones() {
        let mut log = PartitionLog::default();
        append(&mut log, None, false, &[("a", Some("kept"), 0)]);
        append(
            &mut log,
            Some((1, 0, 0)),
            true,
            &[("a", Some("aborted"), 0)],
        );
        log.mark(1, 0, false, 0, 0);
        append(&mut log, Some((2, 0, 0)), true, &[("a", Some("open"), 0)]);
        append(&mut log, None, false, &[("a", Some("behind"), 0)]);
        log.compact(0);
        expect(&log, &[(0, "a"), (3, "a"), (4, "a")]);
        log.mark(2, 0, true, 0, 0);
        log.compact(0);
        expect(&log, &[(4, "a")]);
    }

    #[test]
    fn tombstones_go_when_they_are_old() {
        let mut log = PartitionLog::default();
        append(
            &mut log,
            None,
            false,
            &[("a", Some("1"), 5), ("b", Some("1"), 5)],
        );
        append(&mut log, None, false, &[("a", None, 10)]);
        append(&mut log, None, false, &[("c", Some("1"), 10)]);
        log.compact(10);
        expect(&log, &[(1, "b"), (2, "a"), (3, "c")]);
        log.compact(11);
        expect(&log, &[(1, "b"), (3, "c")]);
    }

    #[test]
    fn retention_deletes_from_the_front_and_stops_at_open_transactions() {
        let mut log = PartitionLog::default();
        append(&mut log, None, false, &[("a", None, 10)]);
        append(&mut log, Some((1, 0, 0)), true, &[("b", None, 10)]);
        append(&mut log, None, false, &[("c", None, 30)]);
        log.retain(Some(20), None);
        assert_eq!(log.start(), 1);
        log.mark(1, 0, true, 0, 40);
        log.retain(Some(20), None);
        assert_eq!(log.start(), 2);
        log.retain(None, Some(1));
        assert_eq!(log.start(), 3, "the last batch stays: it holds the limit");
    }

    #[test]
    fn deleted_records_are_gone_even_within_a_batch() {
        let mut log = PartitionLog::default();
        append(&mut log, None, false, &[("a", None, 1), ("b", None, 2)]);
        append(&mut log, None, false, &[("c", None, 3)]);
        log.delete_before(1);
        assert_eq!((log.start(), log.batches.len()), (1, 2));
        log.delete_before(2);
        assert_eq!((log.start(), log.batches.len()), (2, 1));
        log.delete_before(100);
        assert_eq!((log.start(), log.end(), log.batches.len()), (3, 3, 0));
        log.delete_before(1);
        assert_eq!(log.start(), 3);
        assert_eq!(append(&mut log, None, false, &[("d", None, 4)]), 3);
    }
}
