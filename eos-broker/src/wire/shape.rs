//! The shapes of requests, against which their lengths are checked.
//!
//! The codec trusts an array's length and allocates memory for it, so a false length would end the process. Therefore,
//! this module first scans a request along its shape. Every length must fit into the remaining bytes.
//!
//! A shape is a short form of Kafka's schema. `1 2 4 8` are numbers of that many bytes, `U` an id of 16, `S` a string,
//! `B` bytes, `[ .. ]` an array of structs, `< .. >` an array of plain values. `3+:` and `0-2:` are the versions that
//! contain a field. From the version next to the name on, lengths are compact and structs end with tagged fields.

use kafka_protocol::messages::ApiKey;
use kafka_wire::varint;

const SHAPES: [(ApiKey, i16, &str); 33] = [
    (ApiKey::Produce, 9, "S 2 4 [ S [ 4 B ] ]"),
    (
        ApiKey::Fetch,
        12,
        "4 4 4 4 1 7+:4 7+:4 [ S [ 4 9+:4 8 12+:4 5+:8 4 ] ] 7+:[ S < 4 > ] 11+:S",
    ),
    (ApiKey::ListOffsets, 6, "4 2+:1 [ S [ 4 4+:4 8 ] ]"),
    (ApiKey::Metadata, 9, "[ 10+:U S ] 4+:1 8-10:1 8+:1"),
    (
        ApiKey::OffsetCommit,
        8,
        "S 4 S 7+:S 2-4:8 [ S [ 4 8 6+:4 S ] ]",
    ),
    (
        ApiKey::OffsetFetch,
        6,
        "0-7:S 0-7:[ S < 4 > ] 8+:[ S 9+:S 9+:4 [ S < 4 > ] ] 7+:1",
    ),
    (ApiKey::FindCoordinator, 3, "0-3:S 1+:1 4+:< S >"),
    (ApiKey::JoinGroup, 6, "S 4 1+:4 S 5+:S S [ S B ] 8+:S"),
    (ApiKey::Heartbeat, 4, "S 4 S 3+:S"),
    (ApiKey::LeaveGroup, 4, "S 0-2:S 3+:[ S S 5+:S ]"),
    (ApiKey::SyncGroup, 4, "S 4 S 3+:S 5+:S 5+:S [ S B ]"),
    (ApiKey::DescribeGroups, 5, "< S > 3+:1"),
    (ApiKey::ListGroups, 3, "4+:< S > 5+:< S >"),
    (ApiKey::ApiVersions, 3, "3+:S 3+:S"),
    (ApiKey::CreateTopics, 5, "[ S 4 2 [ 4 < 4 > ] [ S S ] ] 4 1"),
    (ApiKey::DeleteTopics, 4, "6+:[ S U ] 0-5:< S > 4"),
    (ApiKey::DeleteRecords, 2, "[ S [ 4 8 ] ] 4"),
    (ApiKey::InitProducerId, 2, "S 4 3+:8 3+:2"),
    (ApiKey::OffsetForLeaderEpoch, 4, "3+:4 [ S [ 4 4 4 ] ]"),
    (ApiKey::AddPartitionsToTxn, 3, "S 8 2 [ S < 4 > ]"),
    (ApiKey::AddOffsetsToTxn, 3, "S 8 2 S"),
    (ApiKey::EndTxn, 3, "S 8 2 1"),
    (
        ApiKey::TxnOffsetCommit,
        3,
        "S S 8 2 3+:4 3+:S 3+:S [ S [ 4 8 2+:4 S ] ]",
    ),
    (ApiKey::DescribeConfigs, 4, "[ 1 S < S > ] 1 3+:1"),
    (ApiKey::AlterConfigs, 2, "[ 1 S [ S S ] ] 1"),
    (ApiKey::CreatePartitions, 2, "[ S 4 [ < 4 > ] ] 4 1"),
    (ApiKey::DeleteGroups, 2, "< S >"),
    (ApiKey::IncrementalAlterConfigs, 1, "[ 1 S [ S 1 S ] ] 1"),
    (ApiKey::OffsetDelete, i16::MAX, "S [ S [ 4 ] ]"),
    (ApiKey::DescribeCluster, 0, "1 1+:1"),
    (ApiKey::DescribeProducers, 0, "[ S < 4 > ]"),
    (ApiKey::DescribeTransactions, 0, "< S >"),
    (ApiKey::ListTransactions, 0, "< S > < 8 > 1+:8"),
];

/// One field of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Fixed(usize),
    Text,
    Bytes,
    Structs(Vec<Field>),
    Values(Vec<Field>),
}

/// The shape of one request in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) fields: Vec<Field>,
    pub(super) compact: bool,
}

/// The error of bytes that are not a request of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a length in the request exceeds the rest of the request")]
pub(super) struct Misshapen;

impl Shape {
    /// Returns the shape of a request, if it is served.
    pub(super) fn of(key: ApiKey, version: i16) -> Option<Shape> {
        let known = SHAPES.iter().find(|(it, _, _)| *it == key)?;
        let (_, compact_from, shape) = *known;
        let fields = parse(&mut shape.split_ascii_whitespace(), version);
        Some(Shape {
            fields,
            compact: version >= compact_from,
        })
    }

    /// Checks every length in `bytes`.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Misshapen> {
        let mut walk = Walk {
            rest: bytes,
            compact: self.compact,
        };
        walk.structure(&self.fields)
    }
}

fn parse<'a>(tokens: &mut impl Iterator<Item = &'a str>, version: i16) -> Vec<Field> {
    let mut fields = Vec::new();
    while let Some(token) = tokens.next() {
        let (there, token) = match token.split_once(':') {
            None => (true, token),
            Some((range, token)) => (contains(range, version), token),
        };
        let field = match token {
            "]" | ">" => return fields,
            "[" => Field::Structs(parse(tokens, version)),
            "<" => Field::Values(parse(tokens, version)),
            "S" => Field::Text,
            "B" => Field::Bytes,
            "U" => Field::Fixed(16),
            number => Field::Fixed(number.parse().unwrap_or(0)),
        };
        if there {
            fields.push(field);
        }
    }
    fields
}

fn contains(range: &str, version: i16) -> bool {
    let number = |text: &str| text.parse::<i16>().unwrap_or(0);
    match range.split_once('-') {
        Some((first, last)) => (number(first)..=number(last)).contains(&version),
        None => version >= number(range.trim_end_matches('+')),
    }
}

struct Walk<'a> {
    rest: &'a [u8],
    compact: bool,
}

impl Walk<'_> {
    fn structure(&mut self, fields: &[Field]) -> Result<(), Misshapen> {
        for field in fields {
            self.field(field)?;
        }
        if self.compact {
            for _ in 0..self.varint()? {
                self.varint()?;
                let length = self.varint()?;
                self.skip(length)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &Field) -> Result<(), Misshapen> {
        match field {
            Field::Fixed(length) => self.skip(*length),
            Field::Text => {
                let length = self.length(2)?;
                self.skip(length)
            }
            Field::Bytes => {
                let length = self.length(4)?;
                self.skip(length)
            }
            Field::Structs(inner) => self.many(|walk| walk.structure(inner)),
            Field::Values(inner) => {
                self.many(|walk| inner.iter().try_for_each(|it| walk.field(it)))
            }
        }
    }

    fn many(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<(), Misshapen>,
    ) -> Result<(), Misshapen> {
        let count = self.length(4)?;
        // Every element takes at least one byte.
        if count > self.rest.len() {
            return Err(Misshapen);
        }
        (0..count).try_for_each(|_| one(self))
    }

    /// Returns a length. Null counts as 0.
    fn length(&mut self, width: usize) -> Result<usize, Misshapen> {
        if self.compact {
            return Ok(self.varint()?.saturating_sub(1));
        }
        let bytes = self.take(width)?;
        let number = bytes
            .iter()
            .fold(0i64, |sum, byte| sum << 8 | i64::from(*byte));
        let sign = 1i64 << (8 * width - 1);
        let number = (number ^ sign) - sign;
        match number {
            -1 => Ok(0),
            _ => usize::try_from(number).map_err(|_| Misshapen),
        }
    }

    fn varint(&mut self) -> Result<usize, Misshapen> {
        let value = varint::take(&mut self.rest, varint::BYTES_OF_32).ok_or(Misshapen)?;
        usize::try_from(value).map_err(|_| Misshapen)
    }

    fn skip(&mut self, length: usize) -> Result<(), Misshapen> {
        self.take(length).map(|_| ())
    }

    fn take(&mut self, length: usize) -> Result<&[u8], Misshapen> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Misshapen)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use kafka_protocol::messages::RequestKind;

    use super::*;
    use crate::broker::SERVED;

    /// A small random generator, whose only state is the seed.
    pub(in crate::wire) struct Seeded(pub(in crate::wire) u64);

    impl Seeded {
        pub(in crate::wire) fn next(&mut self) -> u64 {
            // splitmix64
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut it = self.0;
            it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            it ^ (it >> 31)
        }

        pub(in crate::wire) fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }
    }

    /// Returns random bytes of a shape.
    pub(in crate::wire) fn write(shape: &Shape, random: &mut Seeded) -> BytesMut {
        let mut out = BytesMut::new();
        structure(&shape.fields, shape.compact, random, &mut out);
        out
    }

    fn length(count: usize, width: usize, compact: bool, out: &mut BytesMut) {
        match (compact, width) {
            (true, _) => varint::put(out, count as u64 + 1),
            (false, 2) => out.put_i16(count as i16),
            (false, _) => out.put_i32(count as i32),
        }
    }

    fn structure(fields: &[Field], compact: bool, random: &mut Seeded, out: &mut BytesMut) {
        for it in fields {
            field(it, compact, random, out);
        }
        if compact {
            out.put_u8(0);
        }
    }

    fn field(it: &Field, compact: bool, random: &mut Seeded, out: &mut BytesMut) {
        match it {
            // Small numbers reach more of the checks than large ones.
            Field::Fixed(width) => {
                let small = random.below(4) > 0;
                let value = if small {
                    random.below(4)
                } else {
                    random.next()
                };
                let bytes = (u128::from(value)).to_be_bytes();
                out.put_slice(&bytes[16 - width..]);
            }
            Field::Text | Field::Bytes => {
                let width = if *it == Field::Text { 2 } else { 4 };
                let text = ["", "t", "g", "x", "retention.ms", "1"][random.below(6) as usize];
                length(text.len(), width, compact, out);
                out.put_slice(text.as_bytes());
            }
            Field::Structs(inner) => {
                let count = random.below(3) as usize;
                length(count, 4, compact, out);
                for _ in 0..count {
                    structure(inner, compact, random, out);
                }
            }
            Field::Values(inner) => {
                let count = random.below(3) as usize;
                length(count, 4, compact, out);
                for _ in 0..count {
                    inner.iter().for_each(|it| field(it, compact, random, out));
                }
            }
        }
    }

    #[test]
    fn the_codec_reads_every_shape_to_its_last_byte() {
        let mut random = Seeded(7);
        for api in SERVED {
            for version in api.min..=api.max {
                let shape = Shape::of(api.key, version).expect("every api has a shape");
                for _ in 0..50 {
                    let bytes = write(&shape, &mut random).freeze();
                    assert_eq!(shape.check(&bytes), Ok(()), "{:?} {version}", api.key);
                    let mut rest = bytes.clone();
                    let read = RequestKind::decode(api.key, &mut rest, version);
                    let what = format!("{:?} {version} {bytes:?}", api.key);
                    assert!(read.is_ok(), "{what}: {read:?}");
                    assert!(rest.is_empty(), "{what}: {} left", rest.len());
                }
            }
        }
    }

    #[test]
    fn a_length_that_lies_is_found_before_anything_is_allocated_for_it() {
        let shape = Shape::of(ApiKey::DescribeGroups, 0).expect("a shape");
        let liar = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 1, b'g']);
        assert_eq!(shape.check(&liar), Err(Misshapen));
        let negative = Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(shape.check(&negative), Err(Misshapen));
        let compact = Shape::of(ApiKey::DescribeGroups, 5).expect("a shape");
        let liar = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 2, b'g', 0, 0]);
        assert_eq!(compact.check(&liar), Err(Misshapen));
    }
}
