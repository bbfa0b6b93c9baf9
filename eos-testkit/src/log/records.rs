//! The records inside a batch, for what needs to look at them: compaction and timestamps.
//!
//! Compressed batches are opaque here: decompressing takes C code or a codec each, and nothing but
//! compaction and the exact offset of a timestamp would be gained.

use bytes::Bytes;

use super::batch::{Batch, HEADER};

/// One record, and its bytes including its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) has_value: bool,
    pub(crate) bytes: Bytes,
}

/// Bytes that are not the records that the header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of the batch is cut short or malformed")]
pub(crate) struct Malformed;

/// The records of an uncompressed batch, in order.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    batch: &'a Batch,
    rest: Bytes,
    left: i32,
}

impl<'a> Records<'a> {
    /// Of a compressed batch there are none.
    pub(crate) fn of(batch: &'a Batch) -> Records<'a> {
        let left = if batch.compression() == 0 {
            batch.count
        } else {
            0
        };
        let rest = batch.bytes.slice(HEADER.min(batch.bytes.len())..);
        Records { batch, rest, left }
    }

    fn take(&mut self) -> Result<Record, Malformed> {
        let whole = self.rest.clone();
        let mut at = 0;
        let length = usize::try_from(varint(&whole, &mut at)?).map_err(|_| Malformed)?;
        let end = at.checked_add(length).filter(|end| *end <= whole.len());
        let end = end.ok_or(Malformed)?;
        let record = whole.slice(..end);
        self.rest = whole.slice(end..);
        at += 1; // attributes
        let timestamp = varint(&record, &mut at)?;
        let offset = varint(&record, &mut at)?;
        let key = match usize::try_from(varint(&record, &mut at)?) {
            Ok(length) => {
                let end = at.checked_add(length).filter(|end| *end <= record.len());
                let end = end.ok_or(Malformed)?;
                let key = record.slice(at..end);
                at = end;
                Some(key)
            }
            Err(_) => None,
        };
        let value = varint(&record, &mut at)?;
        if value > (record.len() - at.min(record.len())) as i64 {
            return Err(Malformed);
        }
        Ok(Record {
            offset: self.batch.base_offset.saturating_add(offset),
            timestamp: self.batch.timestamp_of(timestamp),
            key,
            has_value: value >= 0,
            bytes: record,
        })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let record = self.take();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<i64, Malformed> {
    let mut value: u64 = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(Malformed)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::batch::produced;
    use super::*;

    #[test]
    fn records_come_back_with_offsets_times_and_keys() {
        let mut batch = Batch::read(produced(
            None,
            false,
            &[("a", Some("1"), 1_000), ("b", None, 900)],
        ));
        batch.place(5, super::super::TimestampType::Create, 0);
        let records: Vec<_> = Records::of(&batch).map(|r| r.expect("whole")).collect();
        let seen: Vec<_> = records
            .iter()
            .map(|r| (r.offset, r.timestamp, r.key.clone(), r.has_value))
            .collect();
        let key = |k: &'static str| Some(Bytes::from_static(k.as_bytes()));
        assert_eq!(
            seen,
            [(5, 1_000, key("a"), true), (6, 900, key("b"), false)]
        );
    }

    #[test]
    fn a_cut_record_ends_the_iteration() {
        let whole = produced(None, false, &[("key", Some("value"), 0)]);
        for length in HEADER..whole.len() {
            let batch = Batch::read(whole.slice(..length));
            let records: Vec<_> = Records::of(&batch).collect();
            assert_eq!(records, [Err(Malformed)], "{length}");
        }
    }
}
