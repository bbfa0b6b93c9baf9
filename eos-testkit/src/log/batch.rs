//! One record batch (format version 2): its header, checks on it, and what a broker writes into it.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before the first record.
pub(crate) const HEADER: usize = 61;
/// Bytes in front of what the length field counts.
const BEFORE_LENGTH_ENDS: usize = 12;
/// Where the checksummed part begins: behind length, leader epoch, magic and the checksum.
const CHECKSUMMED_FROM: usize = 21;

const COMPRESSION: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// The only leader epoch there is: one node, which never hands over.
const LEADER_EPOCH: i32 = 0;

/// A batch and what its header says.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) bytes: Bytes,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) attributes: i16,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) count: i32,
    /// From when on compaction may drop tombstones: so long after the first one that met them here.
    ///
    /// Kafka keeps it in the base timestamp and writes all others anew; no client looks at it there.
    pub(crate) delete_horizon: Option<i64>,
}

/// Whose clock the timestamps are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampType {
    Create,
    LogAppend,
}

/// Why bytes are not a batch that may be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchError {
    #[error("the record batch is cut short or its length is wrong")]
    Length,
    #[error("record batches of magic {0} are not supported: only 2")]
    Magic(u8),
    #[error("the record batch's checksum does not match")]
    Checksum,
    #[error("{0}")]
    Invalid(&'static str),
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(slice) = bytes.get(at..at + N) {
        out.copy_from_slice(slice);
    }
    out
}

impl Batch {
    /// Takes the batch at the front of `bytes`; what follows it stays.
    ///
    /// Checks structure only, see [`Batch::check_produced`].
    pub(crate) fn split(bytes: &mut Bytes) -> Result<Batch, BatchError> {
        if bytes.len() < BEFORE_LENGTH_ENDS + 5 {
            return Err(BatchError::Length);
        }
        // Of every message format the magic byte is at this place.
        let magic = bytes[16];
        if magic != 2 {
            return Err(BatchError::Magic(magic));
        }
        let length = usize::try_from(i32::from_be_bytes(be(bytes, 8)));
        let whole = length.map_err(|_| BatchError::Length)? + BEFORE_LENGTH_ENDS;
        if whole < HEADER || whole > bytes.len() {
            return Err(BatchError::Length);
        }
        Ok(Batch::read(bytes.split_to(whole)))
    }

    /// Reads the header of a whole batch.
    pub(crate) fn read(bytes: Bytes) -> Batch {
        let base_offset = i64::from_be_bytes(be(&bytes, 0));
        let delta = i32::from_be_bytes(be(&bytes, 23));
        Batch {
            base_offset,
            last_offset: base_offset.saturating_add(i64::from(delta)),
            attributes: i16::from_be_bytes(be(&bytes, 21)),
            base_timestamp: i64::from_be_bytes(be(&bytes, 27)),
            max_timestamp: i64::from_be_bytes(be(&bytes, 35)),
            producer_id: i64::from_be_bytes(be(&bytes, 43)),
            producer_epoch: i16::from_be_bytes(be(&bytes, 51)),
            base_sequence: i32::from_be_bytes(be(&bytes, 53)),
            count: i32::from_be_bytes(be(&bytes, 57)),
            delete_horizon: None,
            bytes,
        }
    }

    /// Whether the checksum is right. It says nothing of what comes before it: the base offset among others.
    fn has_its_checksum(&self) -> bool {
        crc32c::crc32c(&self.bytes[CHECKSUMMED_FROM..]) == u32::from_be_bytes(be(&self.bytes, 17))
    }

    /// What Kafka checks of a batch that a client produces.
    pub(crate) fn check_produced(&self) -> Result<(), BatchError> {
        if !self.has_its_checksum() {
            return Err(BatchError::Checksum);
        }
        if self.is_control() {
            return Err(BatchError::Invalid("clients may not write control batches"));
        }
        if self.base_offset != 0 {
            return Err(BatchError::Invalid(
                "the record batch's base offset is not 0",
            ));
        }
        let delta = self.last_offset - self.base_offset;
        if self.count <= 0 || i64::from(self.count) != delta + 1 {
            return Err(BatchError::Invalid(
                "the record batch's count does not fit its last offset",
            ));
        }
        // Each record takes at least seven bytes, unless they are compressed.
        if self.compression() == 0 && (self.bytes.len() - HEADER) / 7 < self.count as usize {
            return Err(BatchError::Invalid(
                "the record batch's count does not fit its length",
            ));
        }
        if self.compression() > 4 {
            return Err(BatchError::Invalid("the compression type is unknown"));
        }
        if self.has_producer() && (self.producer_epoch < 0 || self.base_sequence < 0) {
            return Err(BatchError::Invalid(
                "a producer id comes with an epoch and a sequence",
            ));
        }
        if self.is_transactional() && !self.has_producer() {
            return Err(BatchError::Invalid(
                "a transactional batch names no producer id",
            ));
        }
        Ok(())
    }

    pub(crate) fn compression(&self) -> i16 {
        self.attributes & COMPRESSION
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub(crate) fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence of the last record; sequences wrap to 0 behind the largest.
    pub(crate) fn last_sequence(&self) -> i32 {
        let delta = self.last_offset - self.base_offset;
        let last = i64::from(self.base_sequence) + delta;
        if last > i64::from(i32::MAX) {
            (last - i64::from(i32::MAX) - 1) as i32
        } else {
            last as i32
        }
    }

    /// Gives the batch its place in the log.
    ///
    /// Offset and leader epoch are outside the checksum; a broker's timestamps are inside.
    pub(crate) fn place(&mut self, base_offset: i64, stamp: TimestampType, now: i64) {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&LEADER_EPOCH.to_be_bytes());
        if stamp == TimestampType::LogAppend {
            let attributes = self.attributes | LOG_APPEND_TIME;
            bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
            bytes[35..43].copy_from_slice(&now.to_be_bytes());
            seal(&mut bytes);
        }
        *self = Batch::read(bytes.freeze());
    }

    /// The timestamp of a record: its own, or for broker timestamps the batch's.
    pub(crate) fn timestamp_of(&self, delta: i64) -> i64 {
        if self.attributes & LOG_APPEND_TIME != 0 {
            self.max_timestamp
        } else {
            self.base_timestamp.saturating_add(delta)
        }
    }

    /// The marker that ends a transaction, at its place in the log.
    pub(crate) fn marker(
        producer_id: i64,
        producer_epoch: i16,
        commit: bool,
        coordinator_epoch: i32,
        base_offset: i64,
        now: i64,
    ) -> Batch {
        let mut record = BytesMut::new();
        record.put_u8(0); // attributes
        record.put_u8(0); // timestamp delta
        record.put_u8(0); // offset delta
        record.put_u8(8); // key length 4
        record.put_i16(0);
        record.put_i16(i16::from(commit));
        record.put_u8(12); // value length 6
        record.put_i16(0);
        record.put_i32(coordinator_epoch);
        record.put_u8(0); // headers
        let mut body = BytesMut::new();
        put_varint(&mut body, record.len() as i64);
        body.put_slice(&record);
        let header = Header {
            base_offset,
            last_offset_delta: 0,
            attributes: TRANSACTIONAL | CONTROL,
            base_timestamp: now,
            max_timestamp: now,
            producer_id,
            producer_epoch,
            base_sequence: -1,
            count: 1,
        };
        header.with(&body)
    }

    /// The same batch with other (or no) records, as compaction leaves it.
    pub(crate) fn with_records(&self, body: &[u8], count: i32, max_timestamp: i64) -> Batch {
        let header = Header {
            base_offset: self.base_offset,
            last_offset_delta: (self.last_offset - self.base_offset) as i32,
            attributes: self.attributes & !DELETE_HORIZON,
            base_timestamp: self.base_timestamp,
            max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            count,
        };
        Batch {
            delete_horizon: self.delete_horizon,
            ..header.with(body)
        }
    }
}

/// What stands in front of the records.
struct Header {
    base_offset: i64,
    last_offset_delta: i32,
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    count: i32,
}

impl Header {
    fn with(&self, body: &[u8]) -> Batch {
        let mut bytes = BytesMut::with_capacity(HEADER + body.len());
        bytes.put_i64(self.base_offset);
        bytes.put_i32((HEADER - BEFORE_LENGTH_ENDS + body.len()) as i32);
        bytes.put_i32(LEADER_EPOCH);
        bytes.put_u8(2);
        bytes.put_u32(0);
        bytes.put_i16(self.attributes);
        bytes.put_i32(self.last_offset_delta);
        bytes.put_i64(self.base_timestamp);
        bytes.put_i64(self.max_timestamp);
        bytes.put_i64(self.producer_id);
        bytes.put_i16(self.producer_epoch);
        bytes.put_i32(self.base_sequence);
        bytes.put_i32(self.count);
        bytes.put_slice(body);
        seal(&mut bytes);
        Batch::read(bytes.freeze())
    }
}

fn seal(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[CHECKSUMMED_FROM..]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
}

/// A zigzag varint, as records spell their numbers.
pub(crate) fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest as u8 & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// A batch as a client would send it, for unit tests.
#[cfg(test)]
pub(crate) fn produced(
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    records: &[(&str, Option<&str>, i64)],
) -> Bytes {
    let base_timestamp = records.first().map_or(0, |record| record.2);
    let mut body = BytesMut::new();
    for (delta, (key, value, timestamp)) in records.iter().enumerate() {
        let mut record = BytesMut::new();
        record.put_u8(0);
        put_varint(&mut record, timestamp - base_timestamp);
        put_varint(&mut record, delta as i64);
        put_varint(&mut record, key.len() as i64);
        record.put_slice(key.as_bytes());
        match value {
            Some(value) => {
                put_varint(&mut record, value.len() as i64);
                record.put_slice(value.as_bytes());
            }
            None => put_varint(&mut record, -1),
        }
        put_varint(&mut record, 0);
        put_varint(&mut body, record.len() as i64);
        body.put_slice(&record);
    }
    let (producer_id, producer_epoch, base_sequence) = producer.unwrap_or((-1, -1, -1));
    let header = Header {
        base_offset: 0,
        last_offset_delta: records.len() as i32 - 1,
        attributes: if transactional { TRANSACTIONAL } else { 0 },
        base_timestamp,
        max_timestamp: records.iter().map(|record| record.2).max().unwrap_or(0),
        producer_id,
        producer_epoch,
        base_sequence,
        count: records.len() as i32,
    };
    header.with(&body).bytes
}

/// The same as a batch that claims to be compressed: what is in it stays hidden from the broker.
#[cfg(test)]
pub(crate) fn compressed(records: &[(&str, Option<&str>, i64)]) -> Bytes {
    let mut bytes = BytesMut::from(&produced(None, false, records)[..]);
    bytes[22] |= 1;
    seal(&mut bytes);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Bytes {
        produced(
            Some((7, 1, 3)),
            true,
            &[("a", Some("1"), 10), ("b", None, 12)],
        )
    }

    #[test]
    fn a_produced_batch_is_read_as_it_was_written() {
        let mut bytes = one();
        let batch = Batch::split(&mut bytes).expect("a batch");
        assert!(bytes.is_empty());
        assert_eq!(batch.check_produced(), Ok(()));
        assert_eq!((batch.base_offset, batch.last_offset), (0, 1));
        assert_eq!((batch.base_timestamp, batch.max_timestamp), (10, 12));
        assert_eq!((batch.producer_id, batch.producer_epoch), (7, 1));
        assert_eq!((batch.base_sequence, batch.last_sequence()), (3, 4));
        assert!(batch.is_transactional() && !batch.is_control());
    }

    #[test]
    fn a_placed_batch_keeps_its_checksum() {
        let mut batch = Batch::read(one());
        batch.place(40, TimestampType::Create, 99);
        assert_eq!((batch.base_offset, batch.last_offset), (40, 41));
        assert!(batch.has_its_checksum());
        batch.place(41, TimestampType::LogAppend, 99);
        assert_eq!((batch.max_timestamp, batch.timestamp_of(0)), (99, 99));
        assert!(batch.has_its_checksum());
    }

    /// The checksum does not cover it, and offsets are counted from it.
    #[test]
    fn a_client_does_not_choose_offsets() {
        for base in [1, -1, i64::MIN, i64::MAX] {
            let mut bytes = BytesMut::from(&one()[..]);
            bytes[..8].copy_from_slice(&base.to_be_bytes());
            let refused = Batch::read(bytes.freeze()).check_produced();
            assert!(matches!(refused, Err(BatchError::Invalid(_))), "{base}");
        }
    }

    #[test]
    fn any_flipped_byte_behind_the_checksum_is_found() {
        let whole = one();
        for at in CHECKSUMMED_FROM..whole.len() {
            let mut bytes = BytesMut::from(&whole[..]);
            bytes[at] ^= 0x10;
            let batch = Batch::read(bytes.freeze());
            assert_eq!(batch.check_produced(), Err(BatchError::Checksum), "{at}");
        }
    }

    #[test]
    fn a_batch_cut_anywhere_is_refused() {
        let whole = one();
        for length in 0..whole.len() {
            let mut cut = whole.slice(..length);
            assert_eq!(Batch::split(&mut cut).err(), Some(BatchError::Length));
        }
    }

    /// Whether a marker commits: its key is a version and a type.
    fn commits(marker: &Batch) -> bool {
        let mut records = super::super::records::Records::of(marker);
        let record = records.next().expect("one record").expect("whole");
        record.key.expect("a key")[2..] == 1i16.to_be_bytes()
    }

    #[test]
    fn markers_say_how_they_end() {
        for commit in [true, false] {
            let marker = Batch::marker(5, 2, commit, 3, 100, 50);
            assert_eq!(commits(&marker), commit);
            assert!(marker.is_control() && marker.is_transactional());
            assert_eq!((marker.base_offset, marker.last_offset), (100, 100));
            assert_eq!(marker.bytes.len(), 78, "as long as Kafka's");
            assert_eq!(
                marker.check_produced(),
                Err(BatchError::Invalid("clients may not write control batches"))
            );
        }
    }

    #[test]
    fn sequences_wrap_behind_the_largest() {
        let bytes = produced(
            Some((7, 1, i32::MAX)),
            false,
            &[("a", None, 0), ("b", None, 0)],
        );
        assert_eq!(Batch::read(bytes).last_sequence(), 0);
    }
}
