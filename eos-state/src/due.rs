//! The format of due stores, and of the index over them.
//!
//! ```text
//! key                                                 value
//! store id (4) · 0                                    version (1) · clock (1) · round (8) · key: the mark
//! store id (4) · 1 · key                              due (8) · listed (8) · value
//! store id (4) · 2 · key                              a row without a moment
//! 00000000 · 1 · clock (1) · round (8) · store id (4) · key     empty: the index
//! ```
//!
//! Numbers are big-endian. `due` is a moment in milliseconds; `listed` and all rounds are numbers of a
//! [`Round`](eos_protocol::Round). The sign bit of rounds in keys is flipped, so that their bytes are in order. The mark has
//! no round and key until the first item of the store is handled. The index is in the database only. A restore derives
//! it from `listed` of each row.

use eos_protocol::state::{Family, StoreId};
use eos_protocol::{Clock, Place, Round, Timestamp};

use crate::KeyRange;

/// The format of marks that this version writes, and the newest that it reads.
const MARK: u8 = 1;
/// The first byte of index keys. The engine's own keys under the reserved id begin with letters.
const INDEX: u8 = 1;
const SIGN: u64 = 1 << 63;

/// The id of the index.
pub(crate) const INDEX_ID: StoreId = StoreId::commit_record(Family::Plain);
/// The key of a store's mark.
pub(crate) const MARK_KEY: &[u8] = &[0];
/// The first byte of the keys of rows.
const ROW: u8 = 1;
/// The first byte of the keys of rows without a moment.
const UNDATED: u8 = 2;

/// Replaces the content of `full` with the key of a row.
pub(crate) fn row_key(full: &mut Vec<u8>, key: &[u8]) {
    full.clear();
    full.push(ROW);
    full.extend_from_slice(key);
}

/// Replaces the content of `full` with the key of a row without a moment.
pub(crate) fn undated_key(full: &mut Vec<u8>, key: &[u8]) {
    full.clear();
    full.push(UNDATED);
    full.extend_from_slice(key);
}

/// Returns the item's key from the key of a row. `None` for the mark.
pub(crate) fn key_of_row(full: &[u8]) -> Option<&[u8]> {
    full.strip_prefix(&[ROW])
}

/// The numbers at the beginning of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moments {
    /// The moment at which the item is due.
    pub(crate) due: Timestamp,
    /// The point of its entry in the index.
    pub(crate) listed: Round,
}

impl Moments {
    /// The length of both numbers, in bytes.
    pub(crate) const LEN: usize = 16;

    /// Replaces the content of `row` with these numbers and a value.
    pub(crate) fn encode(self, row: &mut Vec<u8>, value: &[u8]) {
        row.clear();
        row.extend_from_slice(&self.due.0.to_be_bytes());
        row.extend_from_slice(&self.listed.number().to_be_bytes());
        row.extend_from_slice(value);
    }

    /// Returns the numbers of a row, or `None` if the row is too short.
    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        let (due, rest) = row.split_first_chunk()?;
        Some(Self {
            due: Timestamp(i64::from_be_bytes(*due)),
            listed: Round::from_number(i64::from_be_bytes(*rest.first_chunk()?)),
        })
    }
}

/// Reads a row of a due store, from its key and value in a database or a changelog: the item's key, its moment and its
/// value. `None` for the mark of the store and for a damaged row.
#[must_use]
pub fn due_row<'r>(key: &'r [u8], row: &'r [u8]) -> Option<(&'r [u8], Timestamp, &'r [u8])> {
    let moments = Moments::decode(row)?;
    Some((key_of_row(key)?, moments.due, row.get(Moments::LEN..)?))
}

/// Returns the range of a due store's rows that have these keys.
#[must_use]
pub fn due_range(keys: &KeyRange) -> KeyRange {
    keys.behind(&[ROW])
}

/// Returns the value of a store's mark: its clock, and the last handled place of the store.
pub(crate) fn encode_mark(clock: Clock, handled: Option<(Round, &[u8])>) -> Vec<u8> {
    let mut mark = vec![MARK, clock.number()];
    if let Some((round, key)) = handled {
        mark.extend_from_slice(&round.number().to_be_bytes());
        mark.extend_from_slice(key);
    }
    mark
}

/// Reads a store's mark.
///
/// # Errors
/// A description of the mark if it can't be read.
pub(crate) fn decode_mark(
    store: StoreId,
    mark: &[u8],
) -> Result<(Clock, Option<Place>), &'static str> {
    let (version, rest) = mark.split_first().ok_or("its mark is empty")?;
    match *version {
        MARK => {}
        0 => return Err("its mark has format 0"),
        _ => return Err("its mark has a newer format"),
    }
    let (clock, rest) = rest.split_first().ok_or("its mark has no clock")?;
    let clock = Clock::from_number(*clock).ok_or("its mark has an unknown clock")?;
    if rest.is_empty() {
        return Ok((clock, None));
    }
    let (round, key) = rest.split_first_chunk().ok_or("its mark is cut short")?;
    let place = Place {
        round: Round::from_number(i64::from_be_bytes(*round)),
        store,
        key: key.to_vec(),
    };
    Ok((clock, Some(place)))
}

/// Replaces the content of `full` with the index's key for an item.
pub(crate) fn index_key(
    full: &mut Vec<u8>,
    clock: Clock,
    round: Round,
    store: StoreId,
    key: &[u8],
) {
    full.clear();
    full.extend_from_slice(&[INDEX, clock.number()]);
    full.extend_from_slice(&(round.number().cast_unsigned() ^ SIGN).to_be_bytes());
    full.extend_from_slice(&store.to_be_bytes());
    full.extend_from_slice(key);
}

/// Returns whether an index key belongs to a clock.
pub(crate) fn is_of(full: &[u8], clock: Clock) -> bool {
    full.starts_with(&[INDEX, clock.number()])
}

/// Returns the place of an index key.
pub(crate) fn place_of(full: &[u8]) -> Option<Place> {
    let (round, rest) = full.get(2..)?.split_first_chunk()?;
    let (store, key) = rest.split_first_chunk()?;
    Some(Place {
        round: Round::from_number((u64::from_be_bytes(*round) ^ SIGN).cast_signed()),
        store: StoreId::from_be_bytes(*store),
        key: key.to_vec(),
    })
}

/// Returns the index keys of a clock from a place on.
pub(crate) fn from(clock: Clock, place: &Place) -> KeyRange {
    let mut first = Vec::new();
    index_key(&mut first, clock, place.round, place.store, &place.key);
    match KeyRange::prefix(&[INDEX, clock.number()]).to() {
        Some(to) => KeyRange::between(&first[..]..to),
        None => KeyRange::between(&first[..]..),
    }
}

/// Returns the index keys of a clock that are behind a place.
pub(crate) fn behind(clock: Clock, mark: Option<&Place>) -> KeyRange {
    let all = KeyRange::prefix(&[INDEX, clock.number()]);
    let Some(Place { round, store, key }) = mark else {
        return all;
    };
    let mut from = Vec::new();
    index_key(&mut from, clock, *round, *store, key);
    // The first key above this one.
    from.push(0);
    match all.to() {
        Some(to) => KeyRange::between(&from[..]..to),
        None => KeyRange::between(&from[..]..),
    }
}

/// Returns the index keys of a clock up to a place, which is included.
pub(crate) fn up_to(clock: Clock, mark: &Place) -> KeyRange {
    let mut to = Vec::new();
    index_key(&mut to, clock, mark.round, mark.store, &mark.key);
    KeyRange::between(&[INDEX, clock.number()][..]..=&to[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn formats_are_pinned() {
        let store = StoreId::from_be_bytes([0, 0, 0, 7]);
        let mut key = Vec::new();
        index_key(&mut key, Clock::Wall, Round::from_number(5), store, b"k");
        assert_eq!(key, *b"\x01\x01\x80\0\0\0\0\0\0\x05\0\0\0\x07k");
        row_key(&mut key, b"k");
        assert_eq!(key, *b"\x01k");
        let mark = encode_mark(Clock::Stream, Some((Round::from_number(-1), b"k")));
        assert_eq!(mark, *b"\x01\0\xff\xff\xff\xff\xff\xff\xff\xffk");
        assert_eq!(encode_mark(Clock::Wall, None), [1, 1]);
        let mut row = Vec::new();
        let (due, listed) = (Timestamp(2), Round::from_number(1));
        Moments { due, listed }.encode(&mut row, b"v");
        assert_eq!(row, *b"\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01v");
    }

    #[test]
    fn an_unreadable_mark_is_an_error() {
        let store = StoreId::plain("s");
        for mark in [
            &b""[..],
            b"\0\0",
            b"\x02\0",
            b"\x01",
            b"\x01\x03",
            b"\x01\0\0\0",
        ] {
            assert!(decode_mark(store, mark).is_err(), "{mark:?}");
        }
    }

    proptest! {
        #[test]
        fn index_keys_are_in_the_order_of_places(
            a in (any::<i64>(), 1_u8..4, proptest::collection::vec(any::<u8>(), 0..3)),
            b in (-2_i64..2, 1_u8..4, proptest::collection::vec(0_u8..2, 0..3)),
            near in any::<bool>(),
        ) {
            let a = if near { (b.0, a.1, a.2) } else { a };
            let place = |(round, store, key): (i64, u8, Vec<u8>)| Place {
                round: Round::from_number(round),
                store: StoreId::from_be_bytes([0, 0, 0, store]),
                key,
            };
            let (a, b) = (place(a), place(b));
            let key = |place: &Place| {
                let mut full = Vec::new();
                index_key(&mut full, Clock::Stream, place.round, place.store, &place.key);
                full
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            let read = place_of(&key(&a));
            prop_assert_eq!(read.as_ref(), Some(&a));
            prop_assert_eq!(behind(Clock::Stream, Some(&a)).contains(&key(&b)), b > a);
            prop_assert_eq!(up_to(Clock::Stream, &a).contains(&key(&b)), b <= a);
            prop_assert!(behind(Clock::Stream, None).contains(&key(&b)));
            prop_assert!(!behind(Clock::Wall, None).contains(&key(&b)));
            let mark = encode_mark(Clock::Wall, Some((a.round, &a.key)));
            prop_assert_eq!(decode_mark(a.store, &mark), Ok((Clock::Wall, Some(a))));
        }
    }
}
