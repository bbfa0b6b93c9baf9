//! A waiting record as bytes.

use crate::fields::{put, put_nullable, take, take_nullable};
use crate::ids::Timestamp;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u8 = 1;

/// A record that waits, and its origin.
///
/// ```text
/// format (1 byte) · time (8) · offset (8) · topic · key · value · headers: name and value, to the end
/// topic, name: length (varint) · bytes
/// key, value: 0 for null, else length + 1 (varint) · bytes
/// ```
///
/// Numbers are big-endian. The time of a record without one is the lowest number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held<'a> {
    /// The time of the record.
    pub time: Option<Timestamp>,
    /// The input topic.
    pub topic: &'a [u8],
    /// The offset in the input topic.
    pub offset: i64,
    /// The encoded key.
    pub key: Option<&'a [u8]>,
    /// The encoded value.
    pub value: Option<&'a [u8]>,
    /// Names and values of the headers.
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// A waiting record can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeldError {
    /// Another version of eos wrote it.
    #[error(
        "a waiting record has format {0}, but this version reads format {FORMAT}: run the newest version that ever used this state"
    )]
    Format(u8),
    /// Bytes are missing.
    #[error(
        "a waiting record is cut short: another program wrote to the changelog. Start under another app name"
    )]
    Short,
}

impl<'a> Held<'a> {
    /// Appends the record.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(FORMAT);
        let time = self.time.map_or(i64::MIN, |time| time.0);
        into.extend_from_slice(&time.to_be_bytes());
        into.extend_from_slice(&self.offset.to_be_bytes());
        put(self.topic, into);
        put_nullable(self.key, into);
        put_nullable(self.value, into);
        for (name, value) in &self.headers {
            put(name, into);
            put_nullable(*value, into);
        }
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`HeldError`] for a newer format, or if bytes are missing.
    pub fn decode(row: &'a [u8]) -> Result<Self, HeldError> {
        let (format, rest) = row.split_first().ok_or(HeldError::Short)?;
        if *format != FORMAT {
            return Err(HeldError::Format(*format));
        }
        read(rest).ok_or(HeldError::Short)
    }
}

fn read(rest: &[u8]) -> Option<Held<'_>> {
    let (time, rest) = rest.split_first_chunk()?;
    let (offset, mut rest) = rest.split_first_chunk()?;
    let time = i64::from_be_bytes(*time);
    let mut held = Held {
        time: (time != i64::MIN).then_some(Timestamp(time)),
        offset: i64::from_be_bytes(*offset),
        topic: take(&mut rest)?,
        key: take_nullable(&mut rest)?,
        value: take_nullable(&mut rest)?,
        headers: Vec::new(),
    };
    while !rest.is_empty() {
        let name = take(&mut rest)?;
        held.headers.push((name, take_nullable(&mut rest)?));
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::take_varint;

    #[test]
    fn the_format_is_pinned() {
        let held = Held {
            time: Some(Timestamp(2)),
            topic: b"t",
            offset: 3,
            key: None,
            value: Some(b""),
            headers: vec![(b"h", Some(b"v"))],
        };
        let mut row = Vec::new();
        held.encode(&mut row);
        assert_eq!(
            row,
            *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\x01t\0\x01\x01h\x02v"
        );
    }

    #[test]
    fn damaged_records_are_errors() {
        let mut row = Vec::new();
        let headers = vec![(&b"h"[..], None)];
        let held = Held {
            key: Some(b"key"),
            headers,
            ..Held::default()
        };
        held.encode(&mut row);
        for len in 0..row.len() {
            // Without its header, the record is whole.
            let is_whole = Held::decode(&row[..len]).is_ok();
            assert_eq!(is_whole, len == row.len() - 3, "{len}");
        }
        row[0] = 2;
        assert_eq!(Held::decode(&row), Err(HeldError::Format(2)));
        assert_eq!(take_varint(&mut &[0xff_u8; 12][..]), None);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..4),
            proptest::collection::vec(any::<u8>(), 126..130),
        ]
    }

    proptest! {
        #[test]
        fn records_are_read_back(
            time in proptest::option::of(-2_i64..2_000_000_000_000),
            topic in bytes(),
            offset in any::<i64>(),
            key in proptest::option::of(bytes()),
            value in proptest::option::of(bytes()),
            headers in proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..4),
        ) {
            let headers: Vec<_> = headers.iter().map(|(n, v)| (&n[..], v.as_deref())).collect();
            let (key, value) = (key.as_deref(), value.as_deref());
            let held = Held { time: time.map(Timestamp), topic: &topic, offset, key, value, headers };
            let mut row = Vec::new();
            held.encode(&mut row);
            prop_assert_eq!(Held::decode(&row), Ok(held));
        }
    }
}
