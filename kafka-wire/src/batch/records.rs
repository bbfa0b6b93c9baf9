//! The decoder of records.

use bytes::{Buf, Bytes};

use super::{Batch, BatchError};
use crate::varint;

/// A decoded record. Its key and value are slices of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The offset within the partition.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The key, or `None` for a record without a key.
    pub key: Option<Bytes>,
    /// The value, or `None` for a tombstone.
    pub value: Option<Bytes>,
    /// The headers in order. Repeated names are kept.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// The id of the producer, or -1 if it is not idempotent.
    pub producer_id: i64,
    /// Whether the record belongs to a transaction.
    pub transactional: bool,
}

/// The records of a batch in order, up to the first that is malformed.
#[derive(Debug)]
pub struct Records<'a> {
    batch: &'a Batch,
    rest: Bytes,
    left: i32,
}

impl Batch {
    /// Returns the records in order. For a compressed batch, it returns only an error.
    pub fn records(&self) -> Records<'_> {
        Records {
            batch: self,
            rest: self.body(),
            left: self.count,
        }
    }

    /// Returns whether the transaction that this marker ends is committed, or `None` if the batch is no such marker.
    ///
    /// # Errors
    /// If the batch is a control batch with a malformed record.
    pub fn marker(&self) -> Result<Option<bool>, BatchError> {
        if !self.is_control() {
            return Ok(None);
        }
        let mut kind = None;
        for record in self.records() {
            // A version, then a type (KIP-98).
            let mut key = record?.key.filter(|key| key.len() >= 4);
            let key = key.as_mut().ok_or(BatchError::Record)?;
            key.advance(2);
            kind = Some(key.get_i16());
        }
        Ok(match kind {
            Some(0) => Some(false),
            Some(1) => Some(true),
            // Another control record of the broker, such as a leader change.
            _ => None,
        })
    }

    /// Returns whether the batch is the marker that ends an aborted transaction.
    ///
    /// # Errors
    /// See [`Batch::marker`].
    pub fn is_abort_marker(&self) -> Result<bool, BatchError> {
        Ok(self.marker()? == Some(false))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_with_bytes()?.map(|(record, _)| record))
    }
}

impl Records<'_> {
    /// Returns the next record, and its bytes including the length.
    pub fn next_with_bytes(&mut self) -> Option<Result<(Record, Bytes), BatchError>> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let record = match self.batch.compression() {
            0 => self.take().ok_or(BatchError::Record),
            codec => Err(BatchError::Compressed(codec)),
        };
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }

    /// Returns `None` if the record is incomplete or malformed.
    fn take(&mut self) -> Option<(Record, Bytes)> {
        let whole = self.rest.clone();
        let length = varint::take_signed(&mut self.rest)?;
        let mut bytes = split(&mut self.rest, length)?;
        let record = self.decode(&mut bytes)?;
        Some((record, whole.slice(..whole.len() - self.rest.len())))
    }

    fn decode(&self, bytes: &mut Bytes) -> Option<Record> {
        split(bytes, 1)?; // attributes, unused
        let timestamp = varint::take_signed(bytes)?;
        let offset = varint::take_signed(bytes)?;
        Some(Record {
            timestamp: self.batch.timestamp_of(timestamp),
            offset: self.batch.base_offset.saturating_add(offset),
            key: slice(bytes)?,
            value: slice(bytes)?,
            headers: headers(bytes)?,
            producer_id: self.batch.producer_id,
            transactional: self.batch.is_transactional(),
        })
    }
}

/// Removes and returns `length` bytes, or `None` if there are fewer.
fn split(bytes: &mut Bytes, length: i64) -> Option<Bytes> {
    let length = usize::try_from(length).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// Removes and returns bytes that follow their length. A length of -1 is null.
fn slice(bytes: &mut Bytes) -> Option<Option<Bytes>> {
    match varint::take_signed(bytes)? {
        -1 => Some(None),
        length => split(bytes, length).map(Some),
    }
}

fn headers(bytes: &mut Bytes) -> Option<Vec<(String, Option<Bytes>)>> {
    let count = varint::take_signed(bytes)?;
    let header = |_| {
        let name = slice(bytes)??;
        Some((String::from_utf8_lossy(&name).into_owned(), slice(bytes)?))
    };
    (0..count).map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, Header, LOG_APPEND_TIME, ProducerIdentity};
    use super::*;

    fn batch(offset: i64) -> Batch {
        let mut batch = BatchBuilder::new(100);
        batch.push(1_000, Some(b"a"), Some(b"1"), std::iter::empty());
        batch.push(900, None, None, std::iter::empty());
        let producer = ProducerIdentity { id: 7, epoch: 0 };
        batch.close(producer, 0, false).at(offset)
    }

    fn seen(batch: &Batch) -> Vec<(i64, i64)> {
        let records = batch.records().map(|it| it.expect("whole"));
        records.map(|it| (it.offset, it.timestamp)).collect()
    }

    #[test]
    fn offsets_and_times_count_from_the_header() {
        let batch = batch(5);
        assert_eq!(seen(&batch), [(5, 1_000), (6, 900)]);
        let stamped = batch.with(Header {
            attributes: LOG_APPEND_TIME,
            max_timestamp: 99,
            ..batch.header()
        });
        assert_eq!(seen(&stamped), [(5, 99), (6, 99)]);
    }

    #[test]
    fn a_record_cut_anywhere_ends_the_iteration() {
        let (whole, body) = (batch(0), batch(0).body());
        let mut records = whole.records();
        let (_, first) = records.next_with_bytes().expect("one").expect("whole");
        let (_, second) = records.next_with_bytes().expect("two").expect("whole");
        assert_eq!([&first[..], &second[..]].concat(), body);
        for length in 0..body.len() {
            let cut = whole.header().batch(&body[..length]);
            let read: Vec<_> = cut.records().collect();
            assert_eq!(read.len(), 1 + usize::from(length >= first.len()));
            assert_eq!(read.last(), Some(&Err(BatchError::Record)), "{length}");
        }
    }

    #[test]
    fn a_compressed_batch_is_an_error() {
        let batch = batch(0);
        let zipped = batch.with(Header {
            attributes: 1,
            ..batch.header()
        });
        let records: Vec<_> = zipped.records().collect();
        assert_eq!(records, [Err(BatchError::Compressed(1))]);
    }
}
