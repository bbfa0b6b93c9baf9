//! The encoder of record batches.

use bytes::{BufMut, BytesMut};

use super::{Batch, CONTROL, HEADER, Header, TRANSACTIONAL};
use crate::varint;

/// The producer id and epoch that a batch carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// The producer id.
    pub id: i64,
    /// The epoch.
    pub epoch: i16,
}

/// A batch under construction. It encodes each record at once, and the header when it is closed.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: BytesMut,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    body: Vec<u8>,
}

impl BatchBuilder {
    /// Returns an empty batch with room for about `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(capacity);
        bytes.put_bytes(0, HEADER);
        BatchBuilder {
            bytes,
            count: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            body: Vec::new(),
        }
    }

    /// Returns the number of records in the batch.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Returns the size of the batch on the wire, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a record. A header value of `None` is Kafka's null.
    pub fn push<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = (&'h str, Option<&'h [u8]>)>,
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.body.clear();
        self.body.push(0); // attributes, unused
        varint::put_signed(&mut self.body, timestamp - self.base_timestamp);
        varint::put_signed(&mut self.body, i64::from(self.count));
        put_slice(&mut self.body, key);
        put_slice(&mut self.body, value);
        varint::put_signed(&mut self.body, headers.len() as i64);
        for (name, value) in headers {
            put_slice(&mut self.body, Some(name.as_bytes()));
            put_slice(&mut self.body, value);
        }
        varint::put_signed(&mut self.bytes, self.body.len() as i64);
        self.bytes.put_slice(&self.body);
        self.count += 1;
    }

    /// Writes the header, with the producer and the first sequence number.
    pub fn close(
        self,
        producer: ProducerIdentity,
        base_sequence: i32,
        transactional: bool,
    ) -> Batch {
        let attributes = if transactional { TRANSACTIONAL } else { 0 };
        self.finish(producer, base_sequence, attributes)
    }

    fn finish(mut self, producer: ProducerIdentity, base_sequence: i32, attributes: i16) -> Batch {
        let header = Header {
            base_offset: 0,
            leader_epoch: -1,
            attributes,
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence,
            count: self.count,
        };
        header.write(&mut self.bytes);
        Batch::new(header, self.bytes.freeze())
    }
}

impl Batch {
    /// Returns the marker that ends a transaction (KIP-98, "Control messages"). Its key is a version and a type. Its
    /// value is a version and the coordinator's epoch.
    pub fn end_marker(
        producer: ProducerIdentity,
        commits: bool,
        coordinator_epoch: i32,
        timestamp: i64,
    ) -> Batch {
        let key = [0, 0, 0, u8::from(commits)];
        let mut value = [0; 6];
        value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
        let mut marker = BatchBuilder::new(128);
        marker.push(timestamp, Some(&key), Some(&value), std::iter::empty());
        marker.finish(producer, -1, TRANSACTIONAL | CONTROL)
    }
}

fn put_slice(to: &mut impl BufMut, slice: Option<&[u8]>) {
    match slice {
        None => varint::put_signed(to, -1),
        Some(slice) => {
            varint::put_signed(to, slice.len() as i64);
            to.put_slice(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use bytes::Bytes;
    use kafka_protocol::records::RecordBatchDecoder;

    use super::super::Record;
    use super::*;

    const WRITER: ProducerIdentity = ProducerIdentity { id: 77, epoch: 3 };

    fn batch() -> Batch {
        let mut batch = BatchBuilder::new(100);
        batch.push(
            1_000,
            Some(b"k"),
            Some(&[7; 300]),
            [("a", Some(&b"1"[..])), ("a", Some(b"2")), ("n", None)].into_iter(),
        );
        batch.push(900, None, None, empty());
        batch.push(1_002, Some(b""), Some(b""), empty());
        batch.close(WRITER, 41, true)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let record =
            |offset, timestamp, key: Option<&'static [u8]>, value: Option<Vec<u8>>| Record {
                offset,
                timestamp,
                key: key.map(Bytes::from_static),
                value: value.map(Bytes::from),
                headers: Vec::new(),
                producer_id: 77,
                transactional: true,
            };
        let header = |value: &'static [u8]| ("a".to_owned(), Some(Bytes::from_static(value)));
        let mut first = record(0, 1_000, Some(b"k"), Some(vec![7; 300]));
        first.headers = vec![header(b"1"), header(b"2"), ("n".to_owned(), None)];
        let rest = [
            record(1, 900, None, None),
            record(2, 1_002, Some(b""), Some(vec![])),
        ];
        let records: Result<Vec<_>, _> = batch().records().collect();
        assert_eq!(records, Ok([vec![first], rest.to_vec()].concat()));
    }

    #[test]
    fn another_implementation_reads_it_alike() {
        let set = RecordBatchDecoder::decode(&mut batch().bytes().clone()).unwrap();
        let seen: Vec<_> = set
            .records
            .iter()
            .map(|r| {
                (
                    r.offset,
                    r.timestamp,
                    r.sequence,
                    r.producer_id,
                    r.producer_epoch,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0, 1_000, 41, 77, 3),
                (1, 900, 42, 77, 3),
                (2, 1_002, 43, 77, 3)
            ]
        );
        assert_eq!(set.records[0].value.as_deref(), Some(&[7; 300][..]));
        assert!(set.records[1].key.is_none() && set.records[1].value.is_none());
    }

    #[test]
    fn markers_say_how_they_end() {
        for commits in [true, false] {
            let marker = Batch::end_marker(WRITER, commits, 3, 50);
            assert_eq!(marker.marker(), Ok(Some(commits)));
            assert!(marker.is_control() && marker.is_transactional());
            assert_eq!(marker.bytes().len(), 78, "as long as Kafka's");
        }
    }
}
