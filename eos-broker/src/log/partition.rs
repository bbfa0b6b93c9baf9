//! One partition's log: append, read, and limits of readers.
//!
//! ```text
//!   log start          last stable offset          high watermark = log end
//!      │  decided, read_committed  │  a transaction is open  │
//!      ▼───────────────────────────▼─────────────────────────▼
//! ```
//! With one node, an appended record is at once below the high watermark.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use kafka_wire::batch::ProducerIdentity;

use super::batch::{Batch, BatchError, TimestampType};
use super::producers::{Producers, Refused, Verdict};

/// The isolation level of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

/// An aborted transaction in the log's list for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first_offset: i64,
    /// The offset of the marker.
    pub(crate) last_offset: i64,
}

/// The position of a produced batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// The append time, or -1 unless the broker sets the timestamps.
    pub(crate) append_time: i64,
}

/// The configurations of a topic that apply to appends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) stamp: TimestampType,
    pub(crate) max_bytes: usize,
    pub(crate) needs_keys: bool,
    /// The maximum time that a record's own timestamp may be in the future, in milliseconds.
    pub(crate) max_ahead: i64,
}

/// The reason why a batch was not appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AppendError {
    #[error("{0}")]
    Batch(#[from] BatchError),
    #[error("the record batch has {bytes} bytes, above the topic's max.message.bytes={limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("a compacted topic requires records with keys")]
    NoKey,
    #[error("a record's timestamp is further ahead than message.timestamp.after.max.ms={limit}")]
    Timestamp { limit: i64 },
    #[error("the producer's epoch is older than the one this partition has seen")]
    OldEpoch,
    #[error("the sequence does not follow the last one of this producer")]
    OutOfOrder,
    #[error("the producer has a transaction open here, and this batch is not transactional")]
    NotTransactional,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) records: Bytes,
    pub(crate) aborted: Vec<Aborted>,
}

/// The log of one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionLog {
    pub(super) batches: VecDeque<Batch>,
    pub(super) start: i64,
    end: i64,
    bytes: usize,
    pub(crate) producers: Producers,
    pub(super) aborted: Vec<Aborted>,
}

impl PartitionLog {
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// Returns the offset of the first undecided record, or the log end without an open transaction.
    pub(crate) fn last_stable(&self) -> i64 {
        let first = self.producers.first_open();
        // DeleteRecords may have removed the beginning of an open transaction.
        first.map_or(self.end, |first| first.max(self.start))
    }

    /// Returns the end offset for a reader.
    pub(crate) fn end_for(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::ReadUncommitted => self.end,
            Isolation::ReadCommitted => self.last_stable(),
        }
    }

    /// Returns the size of the log, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks a client's batch. Returns its position if it is a duplicate. Changes nothing.
    pub(crate) fn judge(
        &self,
        batch: &Batch,
        place: Place,
        now: i64,
    ) -> Result<Option<Appended>, AppendError> {
        batch.check_produced()?;
        if batch.bytes().len() > place.max_bytes {
            return Err(AppendError::TooLarge {
                bytes: batch.bytes().len(),
                limit: place.max_bytes,
            });
        }
        if place.needs_keys && batch.compression() == 0 {
            for record in batch.records() {
                let record = record.map_err(BatchError::from)?;
                if record.key.is_none() {
                    return Err(AppendError::NoKey);
                }
            }
        }
        let ahead = batch.max_timestamp.saturating_sub(now);
        if place.stamp == TimestampType::Create && ahead > place.max_ahead {
            return Err(AppendError::Timestamp {
                limit: place.max_ahead,
            });
        }
        if batch.has_producer() {
            match self.producers.judge(batch) {
                Ok(Verdict::Append) => {}
                Ok(Verdict::Duplicate {
                    base_offset,
                    timestamp,
                }) => {
                    let append_time = match place.stamp {
                        TimestampType::Create => -1,
                        TimestampType::LogAppend => timestamp,
                    };
                    return Ok(Some(Appended {
                        base_offset,
                        append_time,
                    }));
                }
                Err(Refused::OldEpoch) => return Err(AppendError::OldEpoch),
                Err(Refused::OutOfOrder) => return Err(AppendError::OutOfOrder),
                Err(Refused::NotTransactional) => return Err(AppendError::NotTransactional),
            }
        }
        Ok(None)
    }

    /// Appends a checked batch.
    pub(crate) fn append(&mut self, mut batch: Batch, place: Place, now: i64) -> Appended {
        let base_offset = self.end;
        batch.place(base_offset, place.stamp, now);
        if batch.has_producer() {
            self.producers.appended(&batch);
        }
        self.push(batch);
        Appended {
            base_offset,
            append_time: match place.stamp {
                TimestampType::Create => -1,
                TimestampType::LogAppend => now,
            },
        }
    }

    /// Checks and appends a batch.
    #[cfg(test)]
    pub(crate) fn produce(
        &mut self,
        batch: Batch,
        place: Place,
        now: i64,
    ) -> Result<Appended, AppendError> {
        match self.judge(&batch, place, now)? {
            Some(there) => Ok(there),
            None => Ok(self.append(batch, place, now)),
        }
    }

    /// Appends the marker that ends a producer's transaction. Appends nothing if the log has a newer epoch.
    pub(crate) fn mark(
        &mut self,
        producer_id: i64,
        epoch: i16,
        commit: bool,
        coordinator_epoch: i32,
        now: i64,
    ) -> bool {
        if self.producers.is_fenced(producer_id, epoch) {
            return false;
        }
        let offset = self.end;
        let producers = &mut self.producers;
        let first = producers.ended(producer_id, epoch, coordinator_epoch, now);
        if let (Some(first_offset), false) = (first, commit) {
            self.aborted.push(Aborted {
                producer_id,
                first_offset,
                last_offset: offset,
            });
        }
        let producer = ProducerIdentity {
            id: producer_id,
            epoch,
        };
        let marker = Batch::end_marker(producer, commit, coordinator_epoch, offset, now);
        self.push(marker);
        true
    }

    fn push(&mut self, batch: Batch) {
        self.end = batch.last_offset() + 1;
        self.bytes += batch.bytes().len();
        self.batches.push_back(batch);
    }

    /// Returns the index of the first batch that ends at or after an offset.
    fn index_of(&self, offset: i64) -> usize {
        self.batches
            .partition_point(|batch| batch.last_offset() < offset)
    }

    /// Returns the number of bytes that a read would return, counted up to `enough`.
    pub(crate) fn available(&self, offset: i64, isolation: Isolation, enough: usize) -> usize {
        let end = self.end_for(isolation);
        let mut bytes = 0;
        for batch in self.batches.range(self.index_of(offset)..) {
            if batch.base_offset >= end || bytes >= enough {
                break;
            }
            bytes += batch.bytes().len();
        }
        bytes
    }

    /// Returns whole batches from the batch that contains `offset` on, at most `max_bytes`. With `at_least_one`,
    /// returns the first batch even if it is larger.
    pub(crate) fn read(
        &self,
        offset: i64,
        isolation: Isolation,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Found {
        let end = self.end_for(isolation);
        let from = self.index_of(offset);
        let mut bytes = 0;
        let mut count = 0;
        let mut reached = offset;
        for batch in self.batches.range(from..) {
            let size = batch.bytes().len();
            let fits = bytes + size <= max_bytes || (count == 0 && at_least_one);
            if batch.base_offset >= end || !fits {
                break;
            }
            bytes += size;
            count += 1;
            reached = batch.last_offset() + 1;
        }
        let records = match count {
            0 => Bytes::new(),
            1 => self.batches[from].bytes().clone(),
            _ => {
                let mut all = BytesMut::with_capacity(bytes);
                for batch in self.batches.range(from..from + count) {
                    all.extend_from_slice(batch.bytes());
                }
                all.freeze()
            }
        };
        let aborted = match isolation {
            Isolation::ReadUncommitted => Vec::new(),
            Isolation::ReadCommitted => self.aborted_between(offset, reached),
        };
        Found { records, aborted }
    }

    fn aborted_between(&self, from: i64, to: i64) -> Vec<Aborted> {
        // The list is in the order of the markers, so the first relevant entry is found by bisection.
        let first = self.aborted.partition_point(|it| it.last_offset < from);
        let later = self.aborted[first..].iter();
        later.filter(|it| it.first_offset < to).copied().collect()
    }

    /// Returns the first record at or after a timestamp, as (offset, timestamp).
    pub(crate) fn at_timestamp(&self, timestamp: i64, isolation: Isolation) -> Option<(i64, i64)> {
        let end = self.end_for(isolation);
        let recent = |batch: &&Batch| batch.max_timestamp >= timestamp && !batch.is_control();
        for batch in self.batches.iter().filter(recent) {
            if batch.base_offset >= end {
                return None;
            }
            if batch.compression() != 0 {
                let offset = batch.base_offset.max(self.start);
                return Some((offset, batch.max_timestamp));
            }
            let found = batch
                .records()
                .flatten()
                .find(|it| it.timestamp >= timestamp && it.offset >= self.start);
            if let Some(record) = found {
                return Some((record.offset, record.timestamp));
            }
        }
        None
    }

    /// Returns the record with the largest timestamp, as (offset, timestamp).
    pub(crate) fn max_timestamp(&self) -> Option<(i64, i64)> {
        let data = self.batches.iter().filter(|batch| !batch.is_control());
        // The first of equal timestamps.
        let best = data.reduce(|best, batch| {
            if batch.max_timestamp > best.max_timestamp {
                batch
            } else {
                best
            }
        })?;
        let offset = best
            .records()
            .flatten()
            .find(|it| it.timestamp == best.max_timestamp)
            .map_or(best.last_offset(), |record| record.offset);
        Some((offset, best.max_timestamp))
    }

    /// Removes batches from the front, and the data about them.
    pub(super) fn drop_front(&mut self, count: usize) {
        for batch in self.batches.drain(..count) {
            self.bytes -= batch.bytes().len();
        }
    }

    pub(super) fn recount(&mut self) {
        self.bytes = self.batches.iter().map(|batch| batch.bytes().len()).sum();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::batch::produced;
    use super::*;

    pub(in crate::log) const PLACE: Place = Place {
        stamp: TimestampType::Create,
        max_bytes: 1_000_000,
        needs_keys: false,
        max_ahead: i64::MAX,
    };

    pub(in crate::log) fn append(
        log: &mut PartitionLog,
        producer: Option<(i64, i16, i32)>,
        transactional: bool,
        records: &[(&str, Option<&str>, i64)],
    ) -> i64 {
        let batch = Batch::read(produced(producer, transactional, records));
        log.produce(batch, PLACE, 0).expect("appended").base_offset
    }

    fn offsets(records: &Bytes) -> Vec<(i64, i64)> {
        let mut rest = records.clone();
        let mut all = Vec::new();
        while !rest.is_empty() {
            let batch = Batch::split(&mut rest).expect("whole batches");
            all.push((batch.base_offset, batch.last_offset()));
        }
        all
    }

    #[test]
    fn readers_of_committed_records_stop_at_the_first_open_transaction() {
        let mut log = PartitionLog::default();
        append(&mut log, None, false, &[("a", None, 0)]);
        append(
            &mut log,
            Some((1, 0, 0)),
            true,
            &[("b", None, 0), ("c", None, 0)],
        );
        append(&mut log, None, false, &[("d", None, 0)]);
        assert_eq!((log.end(), log.last_stable()), (4, 1));
        let all = log.read(0, Isolation::ReadUncommitted, 10_000, true);
        assert_eq!(offsets(&all.records), [(0, 0), (1, 2), (3, 3)]);
        let stable = log.read(0, Isolation::ReadCommitted, 10_000, true);
        assert_eq!(offsets(&stable.records), [(0, 0)]);
        assert_eq!(log.available(1, Isolation::ReadCommitted, 1), 0);
        assert!(log.mark(1, 0, false, 0, 0));
        assert_eq!((log.end(), log.last_stable()), (5, 5));
        let stable = log.read(1, Isolation::ReadCommitted, 10_000, true);
        assert_eq!(offsets(&stable.records), [(1, 2), (3, 3), (4, 4)]);
        let aborted = Aborted {
            producer_id: 1,
            first_offset: 1,
            last_offset: 4,
        };
        assert_eq!(stable.aborted, [aborted]);
        let behind = log.read(5, Isolation::ReadCommitted, 10_000, true);
        assert_eq!((behind.records.len(), behind.aborted), (0, vec![]));
        let before = log.read(0, Isolation::ReadCommitted, 80, true);
        assert_eq!(offsets(&before.records), [(0, 0)]);
        assert_eq!(before.aborted, [], "it begins behind what was read");
    }

    #[test]
    fn a_committed_transaction_is_not_listed_as_aborted() {
        let mut log = PartitionLog::default();
        append(&mut log, Some((1, 0, 0)), true, &[("b", None, 0)]);
        assert!(log.mark(1, 0, true, 0, 0));
        let stable = log.read(0, Isolation::ReadCommitted, 10_000, true);
        assert_eq!(offsets(&stable.records), [(0, 0), (1, 1)]);
        assert_eq!(stable.aborted, []);
    }

    #[test]
    fn the_last_stable_offset_moves_to_the_next_open_transaction() {
        let mut log = PartitionLog::default();
        append(&mut log, Some((1, 0, 0)), true, &[("a", None, 0)]);
        append(&mut log, Some((2, 0, 0)), true, &[("b", None, 0)]);
        log.mark(1, 0, true, 0, 0);
        assert_eq!(log.last_stable(), 1);
        log.mark(2, 0, true, 0, 0);
        assert_eq!(log.last_stable(), 4);
    }

    #[test]
    fn a_duplicate_is_acknowledged_where_it_was_written_first() {
        let mut log = PartitionLog::default();
        assert_eq!(
            append(&mut log, Some((1, 0, 0)), false, &[("a", None, 0)]),
            0
        );
        assert_eq!(
            append(&mut log, Some((1, 0, 1)), false, &[("b", None, 0)]),
            1
        );
        assert_eq!(
            append(&mut log, Some((1, 0, 0)), false, &[("a", None, 0)]),
            0
        );
        assert_eq!(log.end(), 2);
    }

    #[test]
    fn reads_keep_to_their_limit_but_for_the_first_batch() {
        let mut log = PartitionLog::default();
        for _ in 0..3 {
            append(&mut log, None, false, &[("k", Some("v"), 0)]);
        }
        let one = log.batches[0].bytes().len();
        let read = |max, first| {
            log.read(0, Isolation::ReadUncommitted, max, first)
                .records
                .len()
        };
        assert_eq!(read(2 * one, true), 2 * one);
        assert_eq!(read(2 * one - 1, true), one);
        assert_eq!(read(1, true), one);
        assert_eq!(read(1, false), 0);
    }

    #[test]
    fn offsets_are_found_by_time() {
        let mut log = PartitionLog::default();
        append(&mut log, None, false, &[("a", None, 10), ("b", None, 30)]);
        append(&mut log, None, false, &[("c", None, 20), ("d", None, 40)]);
        let at = |time| log.at_timestamp(time, Isolation::ReadUncommitted);
        assert_eq!(at(0), Some((0, 10)));
        assert_eq!(at(11), Some((1, 30)));
        assert_eq!(at(31), Some((3, 40)));
        assert_eq!(at(41), None);
        assert_eq!(log.max_timestamp(), Some((3, 40)));
    }

    #[test]
    fn limits_are_named() {
        let mut log = PartitionLog::default();
        let batch = || Batch::read(produced(None, false, &[("", Some("long"), 100)]));
        let small = Place {
            max_bytes: 60,
            ..PLACE
        };
        let error = log.produce(batch(), small, 0).expect_err("too large");
        assert!(
            error.to_string().contains("max.message.bytes=60"),
            "{error}"
        );
        let soon = Place {
            max_ahead: 10,
            ..PLACE
        };
        let error = log.produce(batch(), soon, 50).expect_err("too far ahead");
        assert_eq!(error, AppendError::Timestamp { limit: 10 });
        assert_eq!(log.end(), 0);
    }
}
