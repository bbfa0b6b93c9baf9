//! The key under which an id is stored.

use sha2::{Digest, Sha256};

use super::TimedId;

/// The longest id that is stored unhashed, in bytes. With a short scope, key and value fit into one cache entry.
pub const LONGEST_RAW_ID: usize = 28;

const RAW: u8 = 1;
const UUID: u8 = 2;
const SHA: u8 = 3;
const TIMED: u8 = 4;

/// An id with everything that makes it unique.
///
/// ```text
/// kind (1 byte) · generation (varint) · length of the scope (varint) · scope · id
/// ```
///
/// The length separates the scope from the id. Without the length, the scope `a` with the id `bc` would be the scope
/// `ab` with the id `c`. The kind separates the forms of an id, because a sender may choose 16 bytes that are the
/// packed form of another sender's UUID. Only the canonical text of a UUID is packed, with lower-case digits. Ids of
/// more than 28 bytes are stored as the first 16 bytes of their SHA-256 (FIPS 180-4). With a fast hash, an attacker
/// could make an id that collides with another one. So equal keys mean equal ids, except for collisions of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdKey<'a> {
    /// The replay generation.
    pub generation: u64,
    /// The part of the stream in which the id is unique.
    pub scope: &'a [u8],
    /// The id.
    pub id: Id<'a>,
}

/// An id without its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id<'a> {
    /// Any bytes.
    Bytes(&'a [u8]),
    /// An id with a time.
    Timed(TimedId),
}

impl IdKey<'_> {
    /// Appends the key.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let (uuid, digest);
        let (kind, id): (u8, &[u8]) = match &self.id {
            Id::Timed(id) => (TIMED, &id.bytes),
            Id::Bytes(id) => match packed_uuid(id) {
                Some(packed) => {
                    uuid = packed;
                    (UUID, &uuid)
                }
                None if id.len() <= LONGEST_RAW_ID => (RAW, id),
                None => {
                    digest = Sha256::digest(id);
                    (SHA, &digest[..16])
                }
            },
        };
        into.push(kind);
        varint(self.generation, into);
        varint(self.scope.len() as u64, into);
        into.extend_from_slice(self.scope);
        into.extend_from_slice(id);
    }
}

/// The bytes of a UUID in its canonical text form (RFC 9562, section 4), with lower-case digits.
fn packed_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    let (mut bytes, mut digits) = ([0; 16], 0);
    for (place, character) in text.iter().enumerate() {
        if matches!(place, 8 | 13 | 18 | 23) {
            if *character != b'-' {
                return None;
            }
            continue;
        }
        let digit = match character {
            b'0'..=b'9' => character - b'0',
            b'a'..=b'f' => character - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] |= digit << (4 * (1 - digits % 2));
        digits += 1;
    }
    Some(bytes)
}

/// An unsigned LEB128 number: seven bits per byte, the lowest ones first.
fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(generation: u64, scope: &[u8], id: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let key = IdKey {
            generation,
            scope,
            id: Id::Bytes(id),
        };
        key.encode(&mut bytes);
        bytes
    }

    const UUID_TEXT: &[u8] = b"0190a5b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b";

    #[test]
    fn a_canonical_uuid_is_packed_and_others_are_not() {
        let packed = key(0, b"k", UUID_TEXT);
        assert_eq!(packed.len(), 1 + 1 + 1 + 1 + 16);
        assert_eq!(packed[4..8], [0x01, 0x90, 0xa5, 0xb2]);
        let raw = key(0, b"k", &packed[4..]);
        assert_ne!(packed, raw, "16 bytes that look like the packed form");
        let upper = UUID_TEXT.to_ascii_uppercase();
        assert_eq!(key(0, b"k", &upper)[0], SHA);
        assert_eq!(key(0, b"k", &UUID_TEXT[1..])[0], SHA, "35 bytes");
        let mut without_hyphen = UUID_TEXT.to_vec();
        without_hyphen[8] = b'0';
        assert_eq!(key(0, b"k", &without_hyphen)[0], SHA);
    }

    #[test]
    fn a_long_id_has_the_bytes_of_its_sha_256() {
        let million = vec![b'a'; 1_000_000];
        // FIPS 180-4, the test vector of a million letters.
        let digest = [
            0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92, 0x81, 0xa1, 0xc7, 0xe2, 0x84, 0xd7,
            0x3e, 0x67,
        ];
        assert_eq!(key(0, b"", &million), [&[SHA, 0, 0][..], &digest].concat());
        assert_eq!(key(0, b"", &million[..28])[0], RAW);
        assert_eq!(key(0, b"", &million[..29])[0], SHA);
    }

    #[test]
    fn an_id_with_a_time_is_no_packed_uuid() {
        let format = crate::identity::TimedIdFormat::UuidV7;
        let timed = TimedId::parse(format, UUID_TEXT).unwrap();
        let mut bytes = Vec::new();
        let key = IdKey {
            generation: 0,
            scope: b"k",
            id: Id::Timed(timed),
        };
        key.encode(&mut bytes);
        assert_eq!(bytes[..4], [TIMED, 0, 1, b'k']);
        assert_eq!(bytes[4..], timed.bytes);
    }

    #[test]
    fn scope_and_generation_are_apart_from_the_id() {
        assert_ne!(key(0, b"a", b"bc"), key(0, b"ab", b"c"));
        assert_ne!(key(0, b"", b"c"), key(1, b"", b"c"));
        assert_ne!(key(300, b"", b""), key(44, &[2], b""));
    }

    proptest! {
        #[test]
        fn equal_keys_are_equal_ids(
            all in proptest::collection::vec(
                (
                    prop_oneof![Just(0), Just(1), any::<u64>()],
                    proptest::collection::vec(0u8..3, 0..4),
                    prop_oneof![
                        proptest::collection::vec(0u8..3, 0..4),
                        proptest::collection::vec(0u8..2, 27..31),
                        "[0-9a-f]{8}-0000-0000-0000-000000000000".prop_map(String::into_bytes),
                        "[0-1A]{8}-0000-0000-0000-000000000000".prop_map(String::into_bytes),
                    ],
                ),
                1..200,
            ),
        ) {
            let mut keys = HashMap::new();
            for (generation, scope, id) in all {
                let former = keys.insert(
                    key(generation, &scope, &id),
                    (generation, scope.clone(), id.clone()),
                );
                if let Some(former) = former {
                    prop_assert_eq!(former, (generation, scope, id));
                }
            }
        }
    }
}
