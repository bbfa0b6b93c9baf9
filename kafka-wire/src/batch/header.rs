//! The header of a batch, and the iterator over batches.

use std::ops::Deref;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::BatchError;

/// The bytes before the first record, from the base offset to the record count.
pub const HEADER: usize = 61;
/// The bytes that the length field does not count: the base offset and the length itself.
const BEFORE_LENGTH_ENDS: usize = 12;
/// The position of the magic byte, in every message format.
const MAGIC_AT: usize = 16;
/// The position of the checksum.
const CHECKSUM_AT: usize = 17;
/// The start of the checksummed part, which follows the length, leader epoch, magic and checksum.
const CHECKSUMMED_FROM: usize = 21;
/// The format version of all batches in this module.
const MAGIC: u8 = 2;

/// Attribute bits: the codec.
const COMPRESSION: i16 = 0b111;
/// Attribute bit: the broker sets the timestamps.
pub const LOG_APPEND_TIME: i16 = 1 << 3;
/// Attribute bit: the records belong to a transaction.
pub const TRANSACTIONAL: i16 = 1 << 4;
/// Attribute bit: the record is a marker that the broker wrote.
pub const CONTROL: i16 = 1 << 5;
/// Attribute bit: the base timestamp is the time at which compaction may begin to drop tombstones (KIP-534).
pub const DELETE_HORIZON: i16 = 1 << 6;

/// The header of a batch without its length and checksum, which follow from the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The offset of the first record when it was written. Not checksummed, because the leader sets it.
    pub base_offset: i64,
    /// The epoch of the leader that appended the batch, or -1 before the append. Not checksummed.
    pub leader_epoch: i32,
    /// The codec and the flags.
    pub attributes: i16,
    /// The last offset of the batch minus the base offset. Compaction may have removed the record at that offset.
    pub last_offset_delta: i32,
    /// The time that the timestamps of the records are relative to, in milliseconds since the epoch.
    pub base_timestamp: i64,
    /// The largest timestamp of a record. With broker timestamps, the timestamp of all records.
    pub max_timestamp: i64,
    /// The producer id, or -1 if the producer is not idempotent.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The sequence number of the first record.
    pub base_sequence: i32,
    /// The number of records in the batch.
    pub count: i32,
}

impl Header {
    fn read(mut bytes: &[u8]) -> Header {
        let base_offset = bytes.get_i64();
        bytes.advance(4); // length
        let leader_epoch = bytes.get_i32();
        bytes.advance(5); // magic, checksum
        Header {
            base_offset,
            leader_epoch,
            attributes: bytes.get_i16(),
            last_offset_delta: bytes.get_i32(),
            base_timestamp: bytes.get_i64(),
            max_timestamp: bytes.get_i64(),
            producer_id: bytes.get_i64(),
            producer_epoch: bytes.get_i16(),
            base_sequence: bytes.get_i32(),
            count: bytes.get_i32(),
        }
    }

    /// Writes the header into the first bytes of a batch that already holds its records.
    pub(super) fn write(&self, batch: &mut [u8]) {
        let mut to = &mut batch[CHECKSUMMED_FROM..HEADER];
        to.put_i16(self.attributes);
        to.put_i32(self.last_offset_delta);
        to.put_i64(self.base_timestamp);
        to.put_i64(self.max_timestamp);
        to.put_i64(self.producer_id);
        to.put_i16(self.producer_epoch);
        to.put_i32(self.base_sequence);
        to.put_i32(self.count);
        let length = batch.len() - BEFORE_LENGTH_ENDS;
        let mut to = &mut batch[..CHECKSUMMED_FROM];
        to.put_i64(self.base_offset);
        to.put_i32(length as i32);
        to.put_i32(self.leader_epoch);
        to.put_u8(MAGIC);
        seal(batch);
    }

    /// Returns the batch with this header and these encoded records.
    pub fn batch(self, records: &[u8]) -> Batch {
        let mut bytes = BytesMut::with_capacity(HEADER + records.len());
        bytes.put_bytes(0, HEADER);
        bytes.put_slice(records);
        self.write(&mut bytes);
        Batch::new(self, bytes.freeze())
    }

    /// Returns the last offset of the batch, even if compaction removed the record at that offset.
    pub fn last_offset(&self) -> i64 {
        let delta = i64::from(self.last_offset_delta);
        self.base_offset.saturating_add(delta)
    }

    /// Returns the sequence number of the last record. Sequence numbers wrap to 0 after the largest `i32`.
    pub fn last_sequence(&self) -> i32 {
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// Returns the codec of the records, or 0 for none.
    pub fn compression(&self) -> i16 {
        self.attributes & COMPRESSION
    }

    /// Returns whether the records belong to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Returns whether the batch is a marker of the broker and not data.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Returns whether an idempotent producer wrote the batch.
    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// Returns the timestamp of a record. With broker timestamps, it is the timestamp of the batch.
    pub(super) fn timestamp_of(&self, delta: i64) -> i64 {
        if self.attributes & LOG_APPEND_TIME != 0 {
            self.max_timestamp
        } else {
            self.base_timestamp.saturating_add(delta)
        }
    }
}

/// Writes the checksum into a whole batch: the CRC-32C of all bytes after the checksum.
pub fn seal(batch: &mut [u8]) {
    let checksum = crc32c::crc32c(&batch[CHECKSUMMED_FROM..]);
    (&mut batch[CHECKSUM_AT..]).put_u32(checksum);
}

/// A batch with a decoded header and encoded records.
#[derive(Debug, Clone)]
pub struct Batch {
    header: Header,
    bytes: Bytes,
}

impl Deref for Batch {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

impl Batch {
    pub(super) fn new(header: Header, bytes: Bytes) -> Batch {
        Batch { header, bytes }
    }

    /// Removes the batch at the front of `bytes` and returns it. Checks only the structure.
    ///
    /// # Errors
    /// If the bytes end before the batch, or if it has another format.
    pub fn split(bytes: &mut Bytes) -> Result<Batch, BatchError> {
        match bytes.get(MAGIC_AT) {
            None => return Err(BatchError::Length),
            Some(&MAGIC) => {}
            Some(&other) => return Err(BatchError::Magic(other)),
        }
        let whole = length(bytes).ok_or(BatchError::Length)?;
        if whole < HEADER || whole > bytes.len() {
            return Err(BatchError::Length);
        }
        let bytes = bytes.split_to(whole);
        Ok(Batch::new(Header::read(&bytes), bytes))
    }

    /// Returns whether the checksum is correct. It does not cover the base offset and the leader epoch.
    pub fn is_intact(&self) -> bool {
        let mut stored = &self.bytes[CHECKSUM_AT..];
        crc32c::crc32c(&self.bytes[CHECKSUMMED_FROM..]) == stored.get_u32()
    }

    /// Returns the header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the bytes of the whole batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes of the whole batch.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Returns the encoded records.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(HEADER..)
    }

    /// Returns the same batch at another offset.
    #[must_use]
    pub fn at(&self, base_offset: i64) -> Batch {
        self.with(Header {
            base_offset,
            ..self.header
        })
    }

    /// Returns the same records under another header.
    #[must_use]
    pub fn with(&self, header: Header) -> Batch {
        header.batch(&self.bytes[HEADER..])
    }
}

/// Returns the length of the batch at the front, from its length field.
fn length(bytes: &[u8]) -> Option<usize> {
    let mut length = bytes.get(8..BEFORE_LENGTH_ENDS)?;
    let length = usize::try_from(length.get_i32()).ok()?;
    Some(BEFORE_LENGTH_ENDS + length)
}

/// Splits fetched bytes into batches and verifies their checksums. Ignores an incomplete batch at the end.
#[derive(Debug)]
pub struct Batches(pub Bytes);

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_cut = length(&self.0).is_some_and(|whole| whole > self.0.len());
        if is_cut || self.0.len() < BEFORE_LENGTH_ENDS {
            return None;
        }
        let batch = Batch::split(&mut self.0);
        let batch = batch.and_then(|it| it.is_intact().then_some(it).ok_or(BatchError::Checksum));
        if batch.is_err() {
            self.0.clear();
        }
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, ProducerIdentity};
    use super::*;

    fn one() -> Batch {
        let mut batch = BatchBuilder::new(100);
        batch.push(10, Some(b"a"), Some(b"1"), std::iter::empty());
        batch.push(12, Some(b"b"), None, std::iter::empty());
        batch.close(ProducerIdentity { id: 7, epoch: 1 }, 3, true)
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let mut bytes = one().bytes().clone();
        let batch = Batch::split(&mut bytes).expect("a batch");
        assert!(bytes.is_empty() && batch.is_intact());
        let header = Header {
            base_offset: 0,
            leader_epoch: -1,
            attributes: TRANSACTIONAL,
            last_offset_delta: 1,
            base_timestamp: 10,
            max_timestamp: 12,
            producer_id: 7,
            producer_epoch: 1,
            base_sequence: 3,
            count: 2,
        };
        assert_eq!(batch.header, header);
        assert_eq!((batch.last_offset(), batch.last_sequence()), (1, 4));
    }

    #[test]
    fn a_moved_batch_keeps_its_records_and_has_its_checksum() {
        let moved = one().at(40);
        assert!(moved.is_intact());
        assert_eq!((moved.base_offset, moved.last_offset()), (40, 41));
        // The offset is not checksummed.
        assert_eq!(moved.bytes()[17..], one().bytes()[17..]);
    }

    #[test]
    fn any_flipped_byte_behind_the_checksum_is_found() {
        for at in CHECKSUMMED_FROM..one().bytes().len() {
            let mut bytes = one().bytes().to_vec();
            bytes[at] ^= 0x10;
            let batch = Batches(bytes.into()).next().expect("a batch");
            assert_eq!(batch.err(), Some(BatchError::Checksum), "{at}");
        }
    }

    #[test]
    fn a_batch_cut_anywhere_is_refused_and_left_out_at_the_end() {
        for length in 0..one().bytes().len() {
            let mut cut = one().bytes().slice(..length);
            assert!(Batches(cut.clone()).next().is_none());
            assert_eq!(Batch::split(&mut cut).err(), Some(BatchError::Length));
        }
    }

    #[test]
    fn another_format_and_a_length_without_room_are_refused() {
        let mut bytes = one().bytes().to_vec();
        bytes[MAGIC_AT] = 1;
        let batch = Batches(bytes.into()).next().expect("a batch");
        assert_eq!(batch.err(), Some(BatchError::Magic(1)));
        let mut bytes = one().bytes().to_vec();
        bytes[8..12].copy_from_slice(&(-1i32).to_be_bytes());
        let batch = Batches(bytes.into()).next().expect("a batch");
        assert_eq!(batch.err(), Some(BatchError::Length));
    }

    #[test]
    fn sequences_wrap_behind_the_largest() {
        let header = Header {
            base_sequence: i32::MAX,
            ..one().header
        };
        assert_eq!(header.last_sequence(), 0);
    }
}
