//! Records to bytes.

use bytes::{BufMut, Bytes, BytesMut};

use super::{BEFORE_LENGTH_ENDS, CHECKSUMMED_FROM, HEADER, TRANSACTIONAL};

/// Who writes, as the broker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// The producer id.
    pub id: i64,
    /// The epoch.
    pub epoch: i16,
}

/// A batch under construction: records are encoded as they come, the header when it is closed.
#[derive(Debug)]
pub struct BatchBuilder {
    bytes: BytesMut,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    body: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch with room for about `capacity` bytes.
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

    /// How many records it holds.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// How many bytes it takes on the wire.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a record. A header without a value is Kafka's null.
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
        put_varint(&mut self.body, timestamp - self.base_timestamp);
        put_varint(&mut self.body, i64::from(self.count));
        put_slice(&mut self.body, key);
        put_slice(&mut self.body, value);
        put_varint(&mut self.body, headers.len() as i64);
        for (name, value) in headers {
            put_slice(&mut self.body, Some(name.as_bytes()));
            put_slice(&mut self.body, value);
        }
        put_varint(&mut self.bytes, self.body.len() as i64);
        self.bytes.put_slice(&self.body);
        self.count += 1;
    }

    /// Writes the header: who wrote it and with which sequence number it begins.
    pub fn close(
        mut self,
        producer: ProducerIdentity,
        base_sequence: i32,
        transactional: bool,
    ) -> Bytes {
        let length = self.bytes.len() - BEFORE_LENGTH_ENDS;
        let mut checksummed = Vec::with_capacity(HEADER - CHECKSUMMED_FROM);
        checksummed.put_i16(if transactional { TRANSACTIONAL } else { 0 });
        checksummed.put_i32(self.count - 1);
        checksummed.put_i64(self.base_timestamp);
        checksummed.put_i64(self.max_timestamp);
        checksummed.put_i64(producer.id);
        checksummed.put_i16(producer.epoch);
        checksummed.put_i32(base_sequence);
        checksummed.put_i32(self.count);
        self.bytes[CHECKSUMMED_FROM..HEADER].copy_from_slice(&checksummed);
        let checksum = crc32c::crc32c(&self.bytes[CHECKSUMMED_FROM..]);
        let mut start = &mut self.bytes[..CHECKSUMMED_FROM];
        start.put_i64(0); // base offset, given by the leader
        start.put_i32(length as i32);
        start.put_i32(-1); // leader epoch
        start.put_i8(2); // format
        start.put_u32(checksum);
        self.bytes.freeze()
    }
}

fn put_slice(to: &mut impl BufMut, slice: Option<&[u8]>) {
    match slice {
        None => put_varint(to, -1),
        Some(slice) => {
            put_varint(to, slice.len() as i64);
            to.put_slice(slice);
        }
    }
}

/// A zigzag varint.
fn put_varint(to: &mut impl BufMut, value: i64) {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        to.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use kafka_protocol::records::RecordBatchDecoder;

    use super::super::{Batches, Record};
    use super::*;

    const WRITER: ProducerIdentity = ProducerIdentity { id: 77, epoch: 3 };

    fn batch() -> Bytes {
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
        let batches: Vec<_> = Batches(batch()).collect();
        let [Ok(batch)] = &batches[..] else {
            panic!("{batches:?}")
        };
        let mut records = Vec::new();
        batch
            .each(|record| {
                records.push(record);
                Ok(())
            })
            .unwrap();
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
        assert_eq!(records, [vec![first], rest.to_vec()].concat());
        assert_eq!((batch.base_offset, batch.last_offset), (0, 2));
    }

    #[test]
    fn another_implementation_reads_it_alike() {
        let set = RecordBatchDecoder::decode(&mut batch()).unwrap();
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
    fn a_flipped_bit_is_noticed() {
        let mut bytes = batch().to_vec();
        bytes[70] ^= 1;
        let error = Batches(bytes.into()).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("corrupt"), "{error}");
    }
}
