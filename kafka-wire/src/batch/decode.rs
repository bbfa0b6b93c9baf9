//! Bytes to records.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};

use super::{
    BEFORE_LENGTH_ENDS, CHECKSUMMED_FROM, COMPRESSION, CONTROL, HEADER, LOG_APPEND_TIME,
    TRANSACTIONAL,
};

/// One record as read. Key and value are slices of the response they came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The offset within the partition.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The key, if it has one.
    pub key: Option<Bytes>,
    /// The value; none is a tombstone.
    pub value: Option<Bytes>,
    /// The headers in order, repeated names kept.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Who wrote it, -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// Whether it was written inside a transaction.
    pub transactional: bool,
}

/// Splits what a fetch brought into batches; a batch cut off at the end is left out.
#[derive(Debug)]
pub struct Batches(pub Bytes);

/// One batch: its header decoded, its records not yet.
#[derive(Debug)]
pub struct Batch {
    /// The offset of its first record, as it was written.
    pub base_offset: i64,
    /// The last offset that it takes up, whether or not a record is left there.
    pub last_offset: i64,
    /// Who wrote it, -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// In which epoch.
    pub producer_epoch: i16,
    /// How many records it holds.
    pub count: i32,
    attributes: i16,
    base_timestamp: i64,
    max_timestamp: i64,
    records: Bytes,
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut length = self.0.get(8..BEFORE_LENGTH_ENDS)?;
        let length = usize::try_from(length.get_i32()).unwrap_or(0);
        let end = BEFORE_LENGTH_ENDS + length;
        if self.0.len() < end {
            return None;
        }
        let batch = Batch::decode(self.0.split_to(end));
        if batch.is_err() {
            self.0.clear();
        }
        Some(batch)
    }
}

impl Batch {
    fn decode(mut bytes: Bytes) -> Result<Batch> {
        ensure!(bytes.len() >= HEADER, "batch of {} bytes", bytes.len());
        let checksum = crc32c::crc32c(&bytes[CHECKSUMMED_FROM..]);
        let base_offset = bytes.get_i64();
        bytes.advance(8); // length, leader epoch
        let magic = bytes.get_i8();
        ensure!(
            magic == 2,
            "batch at {base_offset} has format {magic}, only 2 is read"
        );
        let stored = bytes.get_u32();
        ensure!(
            checksum == stored,
            "batch at {base_offset} is corrupt: checksum {checksum:08x}, stored {stored:08x}"
        );
        let attributes = bytes.get_i16();
        let last_offset = base_offset + i64::from(bytes.get_i32());
        let base_timestamp = bytes.get_i64();
        let max_timestamp = bytes.get_i64();
        let producer_id = bytes.get_i64();
        let producer_epoch = bytes.get_i16();
        bytes.advance(4); // base sequence
        Ok(Batch {
            base_offset,
            last_offset,
            producer_id,
            producer_epoch,
            count: bytes.get_i32(),
            attributes,
            base_timestamp,
            max_timestamp,
            records: bytes,
        })
    }

    /// Whether its records belong to a transaction.
    pub fn transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether it is a marker of the broker rather than data.
    pub fn control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether it is the marker that ends an aborted transaction.
    pub fn abort_marker(&self) -> Result<bool> {
        Ok(self.marker()? == Some(false))
    }

    /// Whether the transaction that this marker ends is committed; none for whatever is no such
    /// marker.
    pub fn marker(&self) -> Result<Option<bool>> {
        if !self.control() {
            return Ok(None);
        }
        let mut commits = None;
        self.each(|record| {
            let mut key = record.key.context("control record without key")?;
            ensure!(
                key.len() >= 4,
                "control record with a key of {} bytes",
                key.len()
            );
            let (_version, kind) = (key.get_i16(), key.get_i16());
            commits = match kind {
                0 => Some(false),
                1 => Some(true),
                // Of the brokers' own, such as a change of leader.
                _ => None,
            };
            Ok(())
        })?;
        Ok(commits)
    }

    /// Decodes the records in order.
    pub fn each(&self, mut take: impl FnMut(Record) -> Result<()>) -> Result<()> {
        if self.attributes & COMPRESSION != 0 {
            bail!(
                "batch at {} is compressed (codec {}), which this client does not read: \
                 write the topic with compression.type=none",
                self.base_offset,
                self.attributes & COMPRESSION
            );
        }
        let mut bytes = self.records.clone();
        for nth in 0..self.count {
            let record = self
                .record(&mut bytes)
                .with_context(|| format!("record {nth} of the batch at {}", self.base_offset))?;
            take(record)?;
        }
        Ok(())
    }

    fn record(&self, bytes: &mut Bytes) -> Result<Record> {
        let length = usize::try_from(varint(bytes)?).context("negative record length")?;
        ensure!(
            bytes.len() > length.max(1) - 1,
            "record longer than its batch"
        );
        let mut bytes = bytes.split_to(length);
        let bytes = &mut bytes;
        ensure!(!bytes.is_empty(), "empty record");
        bytes.advance(1); // attributes, unused
        let timestamp = match varint(bytes)? {
            _ if self.attributes & LOG_APPEND_TIME != 0 => self.max_timestamp,
            delta => self.base_timestamp + delta,
        };
        Ok(Record {
            timestamp,
            offset: self.base_offset + varint(bytes)?,
            key: slice(bytes)?,
            value: slice(bytes)?,
            headers: headers(bytes)?,
            producer_id: self.producer_id,
            transactional: self.transactional(),
        })
    }
}

fn headers(bytes: &mut Bytes) -> Result<Vec<(String, Option<Bytes>)>> {
    let count = varint(bytes)?;
    (0..count)
        .map(|_| {
            let name = slice(bytes)?.context("header without name")?;
            Ok((String::from_utf8_lossy(&name).into_owned(), slice(bytes)?))
        })
        .collect()
}

/// A length-prefixed byte string; length -1 is null.
fn slice(bytes: &mut Bytes) -> Result<Option<Bytes>> {
    let length = varint(bytes)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).context("negative length")?;
    ensure!(bytes.len() >= length, "field longer than its record");
    Ok(Some(bytes.split_to(length)))
}

/// A zigzag varint of up to 64 bits.
fn varint(bytes: &mut Bytes) -> Result<i64> {
    let mut value = 0u64;
    for (nth, byte) in bytes.iter().copied().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            bytes.advance(nth + 1);
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    bail!("broken varint")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length() {
        for (encoded, value) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0x80, 0x01], 64),
            (
                &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                i64::MAX,
            ),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                i64::MIN,
            ),
        ] {
            let mut bytes = Bytes::copy_from_slice(encoded);
            assert_eq!(varint(&mut bytes).unwrap(), value);
            assert!(bytes.is_empty());
        }
        assert!(varint(&mut Bytes::from_static(&[0x80])).is_err());
    }

    #[test]
    fn a_batch_cut_off_at_the_end_is_left_out() {
        assert!(Batches(Bytes::from_static(&[0; 5])).next().is_none());
        let mut cut = vec![0; 30];
        cut[11] = 100;
        assert!(Batches(Bytes::from(cut)).next().is_none());
    }
}
