//! The removal of records: DeleteRecords, retention, compaction.
//!
//! Records at or after the last stable offset are never removed, because their transactions are undecided.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::batch::Batch;
use super::partition::PartitionLog;

/// The rest of a batch after compaction.
struct Kept {
    count: i32,
    body: BytesMut,
    /// The largest timestamp.
    newest: i64,
    tombstones: bool,
}

impl PartitionLog {
    /// Advances the start of the log. Readers no longer receive the records below it.
    pub(crate) fn delete_before(&mut self, offset: i64) {
        self.start = self.start.max(offset.min(self.end()));
        let start = self.start;
        let gone = self.batches.partition_point(|it| it.last_offset() < start);
        self.drop_front(gone);
        self.aborted.retain(|it| it.last_offset >= start);
    }

    /// Deletes whole batches from the front that exceed the age or the size limit.
    pub(crate) fn retain(&mut self, older_than: Option<i64>, max_bytes: Option<usize>) {
        let stable = self.last_stable();
        let mut bytes = self.bytes();
        let mut start = self.start;
        for batch in &self.batches {
            let too_old = older_than.is_some_and(|limit| batch.max_timestamp < limit);
            // As with Kafka's segments, the remaining size is never below the limit.
            let size = batch.bytes().len();
            let too_many = max_bytes.is_some_and(|limit| bytes >= limit + size);
            if batch.last_offset() >= stable || !(too_old || too_many) {
                break;
            }
            bytes -= size;
            start = batch.last_offset() + 1;
        }
        self.delete_before(start);
    }

    /// Keeps the last record of each key. Removes aborted records, and tombstones after the given delay since the first
    /// compaction that found them.
    ///
    /// Offsets do not change, so readers find gaps. Compressed batches stay whole, and every tombstone after one stays,
    /// because it may delete a record in that batch.
    pub(crate) fn compact(&mut self, now: i64, delete_retention_ms: i64) {
        let stable = self.last_stable();
        let last = self.last_offsets(stable);
        let batches = std::mem::take(&mut self.batches);
        let count = batches.len();
        let mut behind_hidden = false;
        for (index, mut batch) in batches.into_iter().enumerate() {
            let is_last = index + 1 == count;
            let hidden = batch.compression() != 0;
            behind_hidden |= hidden;
            if batch.last_offset() >= stable || batch.is_control() || hidden {
                self.batches.push_back(batch);
                continue;
            }
            let over = batch.delete_horizon.is_some_and(|horizon| horizon <= now);
            let expired = over && !behind_hidden;
            let kept = self.keep(&batch, &last, expired);
            if kept.tombstones {
                let horizon = now.saturating_add(delete_retention_ms);
                batch.delete_horizon.get_or_insert(horizon);
            }
            if kept.count == batch.count {
                self.batches.push_back(batch);
            } else if kept.count > 0 || is_last || self.producers.is_last_of(&batch) {
                // An empty batch keeps the log's end and the sequence of its producer.
                let rest = batch.with_records(&kept.body, kept.count, kept.newest);
                self.batches.push_back(rest);
            }
        }
        self.recount();
    }

    fn keep(&self, batch: &Batch, last: &HashMap<Bytes, i64>, expired: bool) -> Kept {
        let mut kept = Kept {
            count: 0,
            body: BytesMut::new(),
            newest: -1,
            tombstones: false,
        };
        let aborted = self.is_aborted(batch);
        let mut records = batch.records();
        while let Some(Ok((record, bytes))) = records.next_with_bytes() {
            let key = record.key.as_ref();
            let is_last = key.is_none_or(|key| last.get(key) == Some(&record.offset));
            let is_tombstone = record.value.is_none();
            if is_last && !(is_tombstone && expired) && !aborted {
                kept.count += 1;
                kept.newest = kept.newest.max(record.timestamp);
                kept.tombstones |= is_tombstone;
                kept.body.extend_from_slice(&bytes);
            }
        }
        kept
    }

    fn last_offsets(&self, stable: i64) -> HashMap<Bytes, i64> {
        let mut last = HashMap::new();
        for batch in &self.batches {
            let decided = batch.last_offset() < stable && !batch.is_control();
            if !decided || self.is_aborted(batch) {
                continue;
            }
            for record in batch.records().flatten() {
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
    use super::super::batch::compressed;
    use super::super::partition::tests::{PLACE, append};
    use super::*;

    fn keys(log: &PartitionLog) -> Vec<(i64, String)> {
        let data = log.batches.iter().filter(|batch| !batch.is_control());
        data.flat_map(|batch| batch.records().flatten().collect::<Vec<_>>())
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
        log.compact(0, 100);
        expect(&log, &[(1, "b"), (2, "a"), (3, "c")]);
        assert_eq!((log.start(), log.end()), (0, 4));
        let bytes: usize = log.batches.iter().map(|it| it.bytes().len()).sum();
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
        log.compact(0, 100);
        expect(&log, &[(0, "a"), (3, "a"), (4, "a")]);
        log.mark(2, 0, true, 0, 0);
        log.compact(0, 100);
        expect(&log, &[(4, "a")]);
    }

    /// As in Kafka's batches of version 2: slow readers have the same time to read a tombstone, even if it was old at
    /// the first compaction.
    #[test]
    fn tombstones_stay_for_a_while_after_their_first_compaction() {
        let mut log = PartitionLog::default();
        append(
            &mut log,
            None,
            false,
            &[("a", Some("1"), 5), ("b", Some("1"), 5)],
        );
        append(&mut log, None, false, &[("a", None, 10)]);
        append(&mut log, None, false, &[("c", Some("1"), 10)]);
        log.compact(1_000, 10);
        expect(&log, &[(1, "b"), (2, "a"), (3, "c")]);
        append(&mut log, None, false, &[("b", None, 10)]);
        append(&mut log, Some((1, 0, 0)), true, &[("c", None, 10)]);
        // The horizon does not change, although the configuration may be another one meanwhile.
        log.compact(1_009, 20);
        expect(&log, &[(2, "a"), (3, "c"), (4, "b"), (5, "c")]);
        log.compact(1_010, 20);
        expect(&log, &[(3, "c"), (4, "b"), (5, "c")]);
        log.compact(1_029, 20);
        expect(&log, &[(3, "c"), (5, "c")]);
        // Undecided records were not compacted either.
        log.mark(1, 0, true, 0, 0);
        log.compact(1_030, 20);
        expect(&log, &[(5, "c")]);
        log.compact(1_049, 20);
        expect(&log, &[(5, "c")]);
        log.compact(1_050, 20);
        expect(&log, &[]);
        assert_eq!((log.start(), log.end()), (0, 7));
    }

    /// The compressed batch may contain the value that the tombstone deletes, and the value would reappear.
    #[test]
    fn a_tombstone_stays_while_a_compressed_batch_is_before_it() {
        let mut log = PartitionLog::default();
        let hidden = compressed(&[("a", Some("1"), 0)]);
        append(&mut log, None, false, &[("b", Some("1"), 0)]);
        append(&mut log, None, false, &[("b", None, 0)]);
        log.produce(hidden.clone(), PLACE, 0).expect("appended");
        append(&mut log, None, false, &[("a", None, 0)]);
        log.produce(hidden, PLACE, 0).expect("appended");
        append(&mut log, None, false, &[("c", Some("1"), 0)]);
        for now in [1_000, 1_010, 2_000] {
            log.compact(now, 10);
            let tombstones = if now == 1_000 { 2 } else { 1 };
            let all = [(1, "b"), (3, "a"), (5, "c")];
            expect(&log, &all[2 - tombstones..]);
            let stays = log.batches.iter().filter(|it| it.compression() != 0);
            assert_eq!(stays.count(), 2);
        }
        log.delete_before(3);
        log.compact(2_001, 10);
        expect(&log, &[(5, "c")]);
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
