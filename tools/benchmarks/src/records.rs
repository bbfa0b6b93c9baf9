//! The input and the expected output: every record is a function of its number.
//!
//! So the check needs no copy of the input, and it compares values byte by byte.

use eos_protocol::partition_for;

use crate::joined_records;
pub(crate) use crate::numbers::{event_ms, mixed};
use crate::work::Work;

/// The number of partitions of every topic, unless a benchmark measures many partitions.
pub(crate) const PARTITIONS: i32 = 6;

/// The size of an input value, in bytes.
pub(crate) const VALUE_BYTES: usize = 120;

/// The number of different keys.
pub(crate) const KEYS: u64 = 100_000;

/// One record of the input.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    work: Work,
    /// The number of different keys.
    keys: u64,
}

impl Default for Input {
    fn default() -> Self {
        Self::of(Work::Pass, KEYS)
    }
}

impl Input {
    /// Creates a record for this work, with this number of different keys.
    pub(crate) fn of(work: Work, keys: u64) -> Self {
        Self {
            key: Vec::new(),
            value: Vec::new(),
            work,
            keys,
        }
    }

    /// Becomes the record of this number.
    pub(crate) fn set(&mut self, seq: u64) {
        use std::io::Write;
        let has_id = self.work == Work::Dedup;
        let seq = if has_id { original(seq) } else { seq };
        let mut fields = Fields::of(seq, self.keys);
        if let Some(row) = joined_records::number_of_row(seq, self.work) {
            fields.user = FIRST_KEY + row;
        }
        self.key.clear();
        self.value.clear();
        // Writing to a vector does not fail.
        let _ = write!(self.key, "u{}", fields.user);
        self.value.push(b'{');
        if has_id {
            // SplitMix64 has another result for each number.
            let _ = write!(self.value, r#""id":"{:016x}","#, mixed(seq));
        }
        let _ = write!(
            self.value,
            r#""user":"u{}","page":"/p/{}","ms":{},"seq":{seq},"pad":""#,
            fields.user, fields.page, fields.ms
        );
        self.value.resize(VALUE_BYTES - 2, b'x');
        self.value.extend_from_slice(b"\"}");
        if joined_records::is_right(seq, self.work) {
            joined_records::change_right_key(&mut self.key, seq, self.work);
        }
    }

    /// Returns the partition that Java's partitioner, eos and librdkafka's `murmur2_random` choose.
    pub(crate) fn partition(&self, partitions: i32) -> i32 {
        partition_for(&self.key, partitions.unsigned_abs()).get()
    }

    /// Turns the input's value into the expected output of the work. Returns whether the work keeps the record.
    pub(crate) fn becomes_output(&mut self, seq: u64, work: Work) -> bool {
        if work != Work::Map {
            return is_kept(seq, work);
        }
        let fields = Fields::of(seq, self.keys);
        self.value.pop();
        let slow: &[u8] = if fields.ms > 500 { b"true" } else { b"false" };
        self.value.extend_from_slice(b",\"slow\":");
        self.value.extend_from_slice(slow);
        self.value.push(b'}');
        is_kept(seq, work)
    }
}

/// Returns whether the work keeps a record. A map and a deduplication drop one record in ten.
pub(crate) fn is_kept(seq: u64, work: Work) -> bool {
    match work {
        Work::Map => !seq.is_multiple_of(10),
        Work::Dedup => original(seq) == seq,
        _ => true,
    }
}

/// Returns the number of the earlier record that this one repeats, or its own number. A repetition follows within 25
/// seconds of event time, so both times are within a window despite the disorder.
fn original(seq: u64) -> u64 {
    const FARTHEST: u64 = 250_000;
    if seq % 10 != 9 {
        return seq;
    }
    let earlier = seq - 1 - mixed(seq) % seq.min(FARTHEST);
    // The repeated record must not be a repetition itself.
    earlier - u64::from(earlier % 10 == 9)
}

/// Returns the number of the first `records` that the work keeps.
pub(crate) fn kept(records: u64, work: Work) -> u64 {
    match work {
        Work::Map => records - records.div_ceil(10),
        Work::Dedup => records - records / 10,
        _ => records,
    }
}

/// Returns the number of an output record, without reading all of its JSON.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let mark = b"\"seq\":";
    let at = value.windows(mark.len()).position(|w| w == mark)?;
    let digits = value.get(at + mark.len()..)?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// Returns the number of a record's key, for this number of keys.
pub(crate) fn key_number(seq: u64, keys: u64) -> u64 {
    Fields::of(seq, keys).user - FIRST_KEY
}

/// Returns the number of a key, for this number of keys.
pub(crate) fn number_of_key(key: &[u8], keys: u64) -> Option<u64> {
    let digits = std::str::from_utf8(key.strip_prefix(b"u")?).ok()?;
    let number = digits.parse::<u64>().ok()?.checked_sub(FIRST_KEY)?;
    (number < keys).then_some(number)
}

/// Returns the key with a number.
pub(crate) fn key_of(number: u64) -> Vec<u8> {
    format!("u{}", FIRST_KEY + number).into_bytes()
}

const FIRST_KEY: u64 = 10_000_000;

struct Fields {
    user: u64,
    page: u64,
    /// The last digit is that of the record's number, so that one in ten is a multiple of ten.
    ms: u64,
}

impl Fields {
    fn of(seq: u64, keys: u64) -> Self {
        let bits = mixed(seq);
        Self {
            user: FIRST_KEY + bits % keys,
            page: (bits >> 20) % 10_000,
            ms: (bits >> 40) % 100 * 10 + seq % 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::dedup::ID;
    use crate::work::{View, WINDOW};

    #[test]
    fn what_is_expected_is_what_the_work_makes_of_the_input() {
        let (mut input, mut count) = (Input::default(), 0);
        for seq in 0..2_000 {
            input.set(seq);
            assert_eq!(input.value.len(), VALUE_BYTES);
            assert_eq!(number(&input.value), Some(seq));
            let view: View = serde_json::from_slice(&input.value).unwrap();
            assert_eq!(view.user.as_bytes(), input.key);
            let view = view.with_slow();
            assert_eq!(view.is_kept(), is_kept(seq, Work::Map));
            assert_eq!(view.is_kept(), input.becomes_output(seq, Work::Map));
            assert_eq!(serde_json::to_vec(&view).unwrap(), input.value);
            count += u64::from(view.is_kept());
        }
        assert_eq!(kept(2_000, Work::Map), count);
        assert_eq!(kept(2_000, Work::Pass), 2_000);
    }

    #[test]
    fn one_record_in_ten_repeats_an_earlier_one_within_the_window() {
        const RECORDS: u64 = 600_000;
        let (mut input, mut first) = (Input::of(Work::Dedup, KEYS), HashMap::new());
        for seq in 0..RECORDS {
            input.set(seq);
            assert_eq!(input.value.len(), VALUE_BYTES);
            serde_json::from_slice::<View>(&input.value).unwrap();
            let id = input.value.get(ID).unwrap().to_vec();
            let number = number(&input.value).unwrap();
            assert_eq!(is_kept(seq, Work::Dedup), number == seq);
            assert_eq!(*first.entry(id).or_insert(seq), number);
            let apart = event_ms(seq).abs_diff(event_ms(number));
            assert!(u128::from(apart) < WINDOW.as_millis(), "{seq}: {apart} ms");
        }
        assert_eq!(first.len() as u64, kept(RECORDS, Work::Dedup));
    }
}
