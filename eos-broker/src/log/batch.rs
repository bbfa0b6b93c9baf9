//! One record batch in a log: checks and broker-set fields.

use std::ops::Deref;

use bytes::Bytes;
use kafka_wire::batch::{self, DELETE_HORIZON, HEADER, Header, LOG_APPEND_TIME, ProducerIdentity};

/// The only leader epoch, because the only node is always the leader.
const LEADER_EPOCH: i32 = 0;

/// The minimum size of an uncompressed record, in bytes: seven fields of one byte.
const SMALLEST_RECORD: usize = 7;

/// A batch, and the log's data about it.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    batch: batch::Batch,
    /// The time from which compaction may drop tombstones. It is a fixed delay after the first compaction that found
    /// them.
    ///
    /// Kafka stores it in the base timestamp and re-encodes all others. No client reads it there.
    pub(crate) delete_horizon: Option<i64>,
}

impl Deref for Batch {
    type Target = batch::Batch;

    fn deref(&self) -> &batch::Batch {
        &self.batch
    }
}

impl From<batch::Batch> for Batch {
    fn from(batch: batch::Batch) -> Batch {
        Batch {
            batch,
            delete_horizon: None,
        }
    }
}

/// The source of the timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampType {
    Create,
    LogAppend,
}

/// The reason why bytes are not a batch that may be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchError {
    #[error(transparent)]
    Format(#[from] batch::BatchError),
    #[error("{0}")]
    Invalid(&'static str),
}

impl Batch {
    /// Removes the batch at the front of `bytes` and returns it.
    ///
    /// Checks only the structure, see [`Batch::check_produced`].
    pub(crate) fn split(bytes: &mut Bytes) -> Result<Batch, BatchError> {
        Ok(batch::Batch::split(bytes)?.into())
    }

    /// Performs Kafka's checks of a batch that a client produces.
    pub(crate) fn check_produced(&self) -> Result<(), BatchError> {
        if !self.is_intact() {
            return Err(batch::BatchError::Checksum.into());
        }
        match self.broken_rule() {
            Some(rule) => Err(BatchError::Invalid(rule)),
            None => Ok(()),
        }
    }

    fn broken_rule(&self) -> Option<&'static str> {
        if self.is_control() {
            return Some("clients may not write control batches");
        }
        if self.base_offset != 0 {
            return Some("the record batch's base offset is not 0");
        }
        let offsets = i64::from(self.last_offset_delta) + 1;
        if self.count <= 0 || i64::from(self.count) != offsets {
            return Some("the record batch's count does not fit its last offset");
        }
        let most = (self.bytes().len() - HEADER) / SMALLEST_RECORD;
        if self.compression() == 0 && most < self.count as usize {
            return Some("the record batch's count does not fit its length");
        }
        if self.compression() > 4 {
            return Some("the compression type is unknown");
        }
        if self.has_producer() && (self.producer_epoch < 0 || self.base_sequence < 0) {
            return Some("a producer id comes with an epoch and a sequence");
        }
        if self.is_transactional() && !self.has_producer() {
            return Some("a transactional batch names no producer id");
        }
        None
    }

    /// Sets the position of the batch in the log.
    pub(crate) fn place(&mut self, base_offset: i64, stamp: TimestampType, now: i64) {
        let mut header = Header {
            base_offset,
            leader_epoch: LEADER_EPOCH,
            ..self.header()
        };
        if stamp == TimestampType::LogAppend {
            header.attributes |= LOG_APPEND_TIME;
            header.max_timestamp = now;
        }
        *self = self.with(header).into();
    }

    /// Returns the marker that ends a transaction, at its position in the log.
    pub(crate) fn end_marker(
        producer: ProducerIdentity,
        commit: bool,
        coordinator_epoch: i32,
        base_offset: i64,
        now: i64,
    ) -> Batch {
        let marker = batch::Batch::end_marker(producer, commit, coordinator_epoch, now);
        let mut marker = Batch::from(marker);
        marker.place(base_offset, TimestampType::Create, now);
        marker
    }

    /// Returns the same batch with other (or no) records, for compaction.
    pub(crate) fn with_records(&self, body: &[u8], count: i32, max_timestamp: i64) -> Batch {
        let header = Header {
            attributes: self.attributes & !DELETE_HORIZON,
            max_timestamp,
            count,
            ..self.header()
        };
        Batch {
            batch: header.batch(body),
            delete_horizon: self.delete_horizon,
        }
    }
}

/// Returns a batch as a client would send it, for unit tests.
#[cfg(test)]
pub(crate) fn produced(
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    records: &[(&str, Option<&str>, i64)],
) -> Bytes {
    let mut batch = batch::BatchBuilder::new(128);
    for (key, value, timestamp) in records {
        let (key, value) = (Some(key.as_bytes()), value.map(str::as_bytes));
        batch.push(*timestamp, key, value, std::iter::empty());
    }
    let (id, epoch, sequence) = producer.unwrap_or((-1, -1, -1));
    let batch = batch.close(ProducerIdentity { id, epoch }, sequence, transactional);
    batch.into_bytes()
}

/// Returns the same as a batch that is marked as compressed, so that the broker cannot read its records.
#[cfg(test)]
pub(crate) fn compressed(records: &[(&str, Option<&str>, i64)]) -> Batch {
    let plain = Batch::read(produced(None, false, records));
    let header = Header {
        attributes: 1,
        ..plain.header()
    };
    plain.with(header).into()
}

#[cfg(test)]
impl Batch {
    /// Returns a whole batch.
    pub(crate) fn read(mut bytes: Bytes) -> Batch {
        Batch::split(&mut bytes).expect("a whole batch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Batch {
        Batch::read(produced(
            Some((7, 1, 3)),
            true,
            &[("a", Some("1"), 10), ("b", None, 12)],
        ))
    }

    #[test]
    fn a_produced_batch_passes() {
        assert_eq!(one().check_produced(), Ok(()));
    }

    #[test]
    fn a_placed_batch_keeps_its_checksum() {
        let mut batch = one();
        batch.place(40, TimestampType::Create, 99);
        assert_eq!((batch.base_offset, batch.last_offset()), (40, 41));
        assert!(batch.is_intact());
        batch.place(41, TimestampType::LogAppend, 99);
        let times: Vec<_> = batch
            .records()
            .map(|it| it.expect("a whole record").timestamp)
            .collect();
        assert_eq!((batch.max_timestamp, times), (99, vec![99, 99]));
        assert!(batch.is_intact());
    }

    /// The checksum does not cover the base offset, and offsets are relative to it.
    #[test]
    fn a_client_does_not_choose_offsets() {
        for base in [1, -1, i64::MIN, i64::MAX] {
            let refused = Batch::from(one().at(base)).check_produced();
            assert!(matches!(refused, Err(BatchError::Invalid(_))), "{base}");
        }
    }

    #[test]
    fn a_corrupt_batch_is_refused() {
        let mut bytes = one().bytes().to_vec();
        bytes[HEADER] ^= 0x10;
        let refused = Batch::read(bytes.into()).check_produced();
        assert_eq!(refused, Err(batch::BatchError::Checksum.into()));
    }

    #[test]
    fn only_brokers_write_markers() {
        let marker = Batch::end_marker(ProducerIdentity { id: 5, epoch: 2 }, true, 3, 100, 50);
        assert_eq!((marker.base_offset, marker.last_offset()), (100, 100));
        assert_eq!(
            marker.check_produced(),
            Err(BatchError::Invalid("clients may not write control batches"))
        );
    }
}
