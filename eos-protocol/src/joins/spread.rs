//! Rows with one record each.

use super::Side;
use super::keys::PLACE;
use super::row::JoinRowError;
use crate::ids::Timestamp;

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its side.
    pub side: Side,
    /// Its time.
    pub time: Timestamp,
    /// Its value.
    pub value: Vec<u8>,
}

/// The format of rows with one record.
const VERSION: u8 = 1;

/// A record in a row of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpreadEntry {
    /// The record.
    pub stored: Stored,
    pub(super) met: bool,
}

impl SpreadEntry {
    /// Returns whether this is a readable row of a record that has met a partner.
    pub(super) fn has_met(row: &[u8]) -> bool {
        matches!(row, [VERSION, 1, ..])
    }

    /// The time in the rest of a row's key. `None` if it is damaged.
    pub(super) fn time_of(place: &[u8]) -> Option<Timestamp> {
        let time = place.get(1..)?.first_chunk()?;
        Some(Timestamp(i64::from_be_bytes(*time) ^ i64::MIN))
    }

    /// Reads a row with one record. `place` is the rest of its key.
    ///
    /// # Errors
    /// [`JoinRowError`] if the row has a newer format or is damaged.
    pub fn decode(place: &[u8], row: &[u8]) -> Result<Self, JoinRowError> {
        let damaged = JoinRowError::Damaged { len: row.len() };
        let (version, rest) = row.split_first().ok_or(damaged)?;
        if *version > VERSION {
            return Err(JoinRowError::Newer { version: *version });
        }
        let (met, value) = rest.split_first().ok_or(damaged)?;
        let time = Self::time_of(place).ok_or(damaged)?;
        let side = match place.first().ok_or(damaged)? {
            0 => Side::Left,
            1 => Side::Right,
            _ => return Err(damaged),
        };
        if *version != VERSION || *met > 1 || place.len() != PLACE {
            return Err(damaged);
        }
        Ok(Self {
            stored: Stored {
                side,
                time,
                value: value.to_vec(),
            },
            met: *met == 1,
        })
    }

    /// A row with one record, as bytes: version (1), whether it has met a partner (1), value.
    pub(super) fn encode(met: bool, value: &[u8]) -> Vec<u8> {
        let mut row = Vec::with_capacity(2 + value.len());
        row.extend_from_slice(&[VERSION, u8::from(met)]);
        row.extend_from_slice(value);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joins::keys::{entry_key, head_key, key_of_head};
    use proptest::prelude::*;

    #[test]
    fn the_formats_are_pinned() {
        let head = head_key(Timestamp(5), b"k");
        assert_eq!(head, *b"\x80\0\0\0\0\0\0\x05\0\0\0\x01k");
        let key = entry_key(&head, Side::Right, Timestamp(6), 7);
        assert_eq!(
            key[head.len()..],
            *b"\x01\x80\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07"
        );
        assert_eq!(SpreadEntry::encode(true, b"v"), b"\x01\x01v");
        let (own, place) = key_of_head(&key).unwrap();
        assert_eq!(own, b"k");
        let entry = SpreadEntry::decode(place, b"\x01\x01v").unwrap();
        let stored = Stored {
            side: Side::Right,
            time: Timestamp(6),
            value: b"v".to_vec(),
        };
        assert_eq!(entry, SpreadEntry { stored, met: true });
        assert_eq!(
            SpreadEntry::decode(place, b"\x02"),
            Err(JoinRowError::Newer { version: 2 })
        );
        for (place, row) in [
            (place, &b""[..]),
            (place, b"\x01"),
            (place, b"\x01\x02"),
            (place, b"\0\0"),
            (&place[1..], b"\x01\0"),
            (&[2; PLACE], b"\x01\0"),
            (&[], b"\x01\0"),
        ] {
            assert!(SpreadEntry::decode(place, row).is_err());
        }
    }

    proptest! {
        /// The rows of a key are one range, which has no row of another key.
        #[test]
        fn rows_of_keys_do_not_mix(
            a in proptest::collection::vec(0_u8..3, 0..30),
            b in proptest::collection::vec(0_u8..3, 0..30),
            (time, arrival) in (0_i64..9, 0_u64..9),
        ) {
            let (head, other) = (head_key(Timestamp(5), &a), head_key(Timestamp(5), &b));
            let key = entry_key(&other, Side::Left, Timestamp(time), arrival);
            prop_assert_eq!(key.starts_with(&head), a == b);
            prop_assert_eq!(key_of_head(&key).unwrap().0, &b[..]);
        }

        #[test]
        fn records_are_in_the_order_of_side_time_and_arrival(
            a in (any::<bool>(), 0_i64..4, 0_u64..300),
            b in (any::<bool>(), 0_i64..4, 0_u64..300),
        ) {
            let key = |(right, time, arrival): (bool, i64, u64)| {
                let side = if right { Side::Right } else { Side::Left };
                entry_key(b"h", side, Timestamp(time), arrival)
            };
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        }
    }
}
