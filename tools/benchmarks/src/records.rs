//! The input, and what must come out of it: every record is a function of its number.
//!
//! So the check needs no copy of the input, and the check of a value is a comparison of bytes.

use eos_protocol::partition_for;

use crate::work::Work;

/// Partitions of every topic, except where many of them are what is measured.
pub(crate) const PARTITIONS: i32 = 6;

/// Bytes of an input value.
pub(crate) const VALUE_BYTES: usize = 120;

/// How many different keys there are.
pub(crate) const KEYS: u64 = 100_000;

/// One record of the input.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// How many different keys there are.
    keys: u64,
}

impl Default for Input {
    fn default() -> Self {
        Self::with_keys(KEYS)
    }
}

impl Input {
    /// Of this many different keys.
    pub(crate) fn with_keys(keys: u64) -> Self {
        Self {
            key: Vec::new(),
            value: Vec::new(),
            keys,
        }
    }

    /// Becomes the record of this number.
    pub(crate) fn set(&mut self, seq: u64) {
        use std::io::Write;
        let fields = Fields::of(seq, self.keys);
        self.key.clear();
        self.value.clear();
        // Writing to a vector does not fail.
        let _ = write!(self.key, "u{}", fields.user);
        let _ = write!(
            self.value,
            r#"{{"user":"u{}","page":"/p/{}","ms":{},"seq":{seq},"pad":""#,
            fields.user, fields.page, fields.ms
        );
        self.value.resize(VALUE_BYTES - 2, b'x');
        self.value.extend_from_slice(b"\"}");
    }

    /// Where Java's partitioner, eos and librdkafka's `murmur2_random` put it.
    pub(crate) fn partition(&self, partitions: i32) -> i32 {
        partition_for(&self.key, partitions.unsigned_abs()).get()
    }

    /// Turns the input's value into what the work must have made of it; false if it is dropped.
    pub(crate) fn becomes_output(&mut self, seq: u64, work: Work) -> bool {
        if work != Work::Map {
            return true;
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

/// Whether a record comes out at the other end. One in ten does not.
pub(crate) fn is_kept(seq: u64, work: Work) -> bool {
    work != Work::Map || !seq.is_multiple_of(10)
}

/// How many of the first `records` come out.
pub(crate) fn kept(records: u64, work: Work) -> u64 {
    match work {
        Work::Map => records - records.div_ceil(10),
        _ => records,
    }
}

/// The number of an output record, without reading all of its JSON.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let mark = b"\"seq\":";
    let at = value.windows(mark.len()).position(|w| w == mark)?;
    let digits = value.get(at + mark.len()..)?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// The number of a record's key among so many keys.
pub(crate) fn key_number(seq: u64, keys: u64) -> u64 {
    Fields::of(seq, keys).user - FIRST_KEY
}

/// The number of this key among so many keys.
pub(crate) fn number_of_key(key: &[u8], keys: u64) -> Option<u64> {
    let digits = std::str::from_utf8(key.strip_prefix(b"u")?).ok()?;
    let number = digits.parse::<u64>().ok()?.checked_sub(FIRST_KEY)?;
    (number < keys).then_some(number)
}

/// The key of a number.
pub(crate) fn key_of(number: u64) -> Vec<u8> {
    format!("u{}", FIRST_KEY + number).into_bytes()
}

/// The event time of a record in milliseconds since the base: ten records per millisecond, and up to two seconds out of
/// order.
pub(crate) fn event_ms(seq: u64) -> i64 {
    const DISORDER: u64 = 2_000;
    let ms = seq / 10 + mixed(!seq) % DISORDER;
    i64::try_from(ms).unwrap_or(i64::MAX)
}

const FIRST_KEY: u64 = 10_000_000;

struct Fields {
    user: u64,
    page: u64,
    /// Its last digit is that of the number, so that one in ten is a multiple of ten.
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

/// SplitMix64's finaliser: neighbours become strangers.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::View;

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
}
