//! The row of a key in one stretch of time.

use std::borrow::Cow;

use super::keys::key_of_head;
use super::{JoinKind, JoinTerms, Side};
use crate::ids::Timestamp;

/// The format of rows without a moment, or with the moment of an item.
const PLAIN: u8 = 1;
/// The format of rows with a moment of their own.
const DATED: u8 = 2;
/// The length of a row without entries, in bytes.
const HEAD: usize = 34;
/// The length of an entry without its value, in bytes.
const ENTRY: usize = 13;
/// The flag of a row whose entries are rows of their own.
const SPREAD: u8 = 1;
/// The flag of an entry of the right side.
const RIGHT: u8 = 1;
/// The flag of an entry that has met a partner.
const MET: u8 = 2;
/// No moment.
const NEVER: i64 = i64::MAX;

/// The reason why bytes are not a valid row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinRowError {
    /// Written by a newer version of this library.
    #[error(
        "a row of the join has format {version}, this version reads up to {DATED}: run the newest version that ever used \
         this state"
    )]
    Newer {
        /// The format's number.
        version: u8,
    },
    /// The bytes are damaged.
    #[error(
        "a row of the join is damaged ({len} bytes): another program wrote to the changelog. Start under another app name"
    )]
    Damaged {
        /// The number of bytes.
        len: usize,
    },
}

/// A record in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) side: Side,
    pub(super) time: Timestamp,
    /// Whether it has met a partner, or its result alone is decided. Unknown for sides without results alone.
    pub(super) met: bool,
    pub(super) value: Cow<'a, [u8]>,
}

/// The records of one key in one stretch of time, as a store keeps them.
///
/// ```text
/// version (1 byte) · flags (1) · arrivals (8) · left handled to (8) · right handled to (8) · due (8)
///   · for each record: flags (1) · time (8) · length of the value (4) · value
/// ```
///
/// Numbers are big-endian, times in milliseconds. The records are in the order of side, time and arrival. *Handled to* is the
/// time of the last record whose result alone was decided. *Due* is the moment at which the row wants to be visited next. If
/// the row is spread, its records are in rows of their own, and *arrivals* is their number.
///
/// In version 1, the moment is that of an item in another store. In version 2, the row is its own item. Its last visit
/// does not write it, so it keeps the moment of this visit. After that visit, all its records are decided, regardless
/// of *handled to*. A row without a moment has version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRow<'a> {
    pub(super) is_spread: bool,
    pub(super) arrivals: u64,
    pub(super) handled: [Timestamp; 2],
    pub(super) due: Option<Timestamp>,
    /// Whether the moment is that of an item in another store.
    pub(super) has_item: bool,
    pub(super) entries: Vec<Entry<'a>>,
}

impl Default for JoinRow<'_> {
    fn default() -> Self {
        Self {
            is_spread: false,
            arrivals: 0,
            handled: [Timestamp(i64::MIN); 2],
            due: None,
            has_item: false,
            entries: Vec::new(),
        }
    }
}

impl<'a> JoinRow<'a> {
    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`JoinRowError`] if the bytes have a newer format or are damaged.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, JoinRowError> {
        Self::version(bytes)?;
        Self::parse(bytes).ok_or(JoinRowError::Damaged { len: bytes.len() })
    }

    /// Returns the own moment of a row from its key and its bytes. `None` if the row has none, if the moment is that of an item,
    /// and for the row of a single record.
    ///
    /// # Errors
    /// [`JoinRowError`] if the bytes have a newer format or are cut short.
    pub fn moment(key: &[u8], bytes: &[u8]) -> Result<Option<Timestamp>, JoinRowError> {
        if !matches!(key_of_head(key), Some((_, []))) {
            return Ok(None);
        }
        let damaged = JoinRowError::Damaged { len: bytes.len() };
        match Self::version(bytes)? {
            PLAIN => Ok(None),
            _ => {
                let due = bytes.get(HEAD - 8..).and_then(|due| due.first_chunk());
                let due = i64::from_be_bytes(*due.ok_or(damaged)?);
                Ok(Some(Timestamp(due)))
            }
        }
    }

    fn version(bytes: &[u8]) -> Result<u8, JoinRowError> {
        match bytes.first() {
            Some(&version @ (PLAIN | DATED)) => Ok(version),
            Some(&version) if version > DATED => Err(JoinRowError::Newer { version }),
            _ => Err(JoinRowError::Damaged { len: bytes.len() }),
        }
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(HEAD)?;
        let flags = *head.get(1)?;
        let mut numbers = head.get(2..)?.as_chunks::<8>().0.iter();
        let mut number = || numbers.next().map(|bytes| i64::from_be_bytes(*bytes));
        let mut row = Self {
            is_spread: flags == SPREAD,
            arrivals: number()?.cast_unsigned(),
            handled: [Timestamp(number()?), Timestamp(number()?)],
            due: Some(number()?).filter(|due| *due != NEVER).map(Timestamp),
            has_item: false,
            entries: Vec::new(),
        };
        row.has_item = row.due.is_some() && head.first() == Some(&PLAIN);
        if flags > SPREAD || row.is_spread && !rest.is_empty() {
            return None;
        }
        while let Some((flags, after)) = rest.split_first() {
            let (time, after) = after.split_first_chunk()?;
            let (len, after) = after.split_first_chunk()?;
            let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
            let (value, after) = after.split_at_checked(len)?;
            if *flags > RIGHT | MET {
                return None;
            }
            row.entries.push(Entry {
                side: if flags & RIGHT != 0 {
                    Side::Right
                } else {
                    Side::Left
                },
                time: Timestamp(i64::from_be_bytes(*time)),
                met: flags & MET != 0,
                value: Cow::Borrowed(value),
            });
            rest = after;
        }
        Some(row)
    }

    /// The row as bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        let version = match self.due {
            Some(_) if !self.has_item => DATED,
            _ => PLAIN,
        };
        into.extend_from_slice(&[version, if self.is_spread { SPREAD } else { 0 }]);
        into.extend_from_slice(&self.arrivals.to_be_bytes());
        for time in self.handled {
            into.extend_from_slice(&time.0.to_be_bytes());
        }
        let due = self.due.map_or(NEVER, |due| due.0);
        into.extend_from_slice(&due.to_be_bytes());
        for entry in &self.entries {
            let side = if entry.side == Side::Right { RIGHT } else { 0 };
            into.push(side | if entry.met { MET } else { 0 });
            into.extend_from_slice(&entry.time.0.to_be_bytes());
            let len = u32::try_from(entry.value.len()).unwrap_or(u32::MAX);
            into.extend_from_slice(&len.to_be_bytes());
            into.extend_from_slice(&entry.value);
        }
    }

    /// The length of the bytes of [`encode`](Self::encode).
    pub(super) fn encoded_len(&self) -> usize {
        let values = self.entries.iter().map(|entry| ENTRY + entry.value.len());
        HEAD + values.sum::<usize>()
    }

    /// Adds a record behind those of its side and time.
    pub(super) fn insert(&mut self, entry: Entry<'a>) {
        let place = (entry.side, entry.time);
        let at = self
            .entries
            .partition_point(|it| (it.side, it.time) <= place);
        self.entries.insert(at, entry);
    }

    /// Returns whether the records are in rows of their own.
    #[must_use]
    pub fn is_spread(&self) -> bool {
        self.is_spread
    }

    /// The records of a row that is not spread: the side, time and value of each.
    pub fn records(&self) -> impl Iterator<Item = (Side, Timestamp, &[u8])> {
        let entries = self.entries.iter();
        entries.map(|entry| (entry.side, entry.time, &*entry.value))
    }

    /// The number of this side in `handled`.
    pub(super) fn handled(&self, side: Side) -> Timestamp {
        let [left, right] = self.handled;
        match side {
            Side::Left => left,
            Side::Right => right,
        }
    }

    pub(super) fn handle_to(&mut self, side: Side, time: Timestamp) {
        let [left, right] = &mut self.handled;
        let handled = match side {
            Side::Left => left,
            Side::Right => right,
        };
        *handled = (*handled).max(time);
    }

    /// Marks all records of the row as decided, so none of them goes out alone. This does not depend on a grace.
    pub(super) fn decide_all(&mut self, kind: JoinKind) {
        for entry in &mut self.entries {
            entry.met |= kind.emits_alone(entry.side);
        }
    }

    /// The earliest moment at which a record of the row may go out alone, if the row is not spread.
    pub(super) fn next_alone(&self, terms: &JoinTerms) -> Option<Timestamp> {
        let waiting = self.entries.iter().filter(|entry| {
            terms.kind().emits_alone(entry.side)
                && !entry.met
                && entry.time > self.handled(entry.side)
        });
        waiting
            .map(|entry| terms.within().closes_at(entry.side, entry.time))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joins::head_key;

    fn entry(side: Side, time: i64, met: bool, value: &'static [u8]) -> Entry<'static> {
        Entry {
            side,
            time: Timestamp(time),
            met,
            value: Cow::Borrowed(value),
        }
    }

    fn encoded(row: &JoinRow<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        assert_eq!(bytes.len(), row.encoded_len());
        bytes
    }

    #[test]
    fn the_format_is_pinned() {
        let mut row = JoinRow {
            arrivals: 7,
            handled: [Timestamp(1), Timestamp(2)],
            due: Some(Timestamp(3)),
            ..JoinRow::default()
        };
        row.insert(entry(Side::Right, 4, false, b"r"));
        row.insert(entry(Side::Left, 5, true, b""));
        let mut bytes = encoded(&row);
        let expected =
            b"\x02\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\
            \x02\0\0\0\0\0\0\0\x05\0\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\x01r";
        assert_eq!(bytes, expected);
        assert_eq!(JoinRow::decode(&bytes), Ok(row.clone()));
        let key = head_key(Timestamp(0), b"k");
        assert_eq!(JoinRow::moment(&key, &bytes), Ok(Some(Timestamp(3))));
        assert_eq!(
            JoinRow::moment(&[&key[..], b"place"].concat(), &bytes),
            Ok(None)
        );
        bytes[0] = 1;
        assert_eq!(JoinRow::moment(&key, &bytes), Ok(None));
        row.has_item = true;
        assert_eq!(JoinRow::decode(&bytes), Ok(row.clone()));
        row.due = None;
        assert_eq!(encoded(&row)[0], 1);
        let spread = JoinRow {
            is_spread: true,
            ..JoinRow::default()
        };
        assert_eq!(JoinRow::decode(&encoded(&spread)), Ok(spread));
        bytes[0] = 2;
        assert!(JoinRow::moment(&key, &bytes[..HEAD - 1]).is_err());
        bytes[0] = 3;
        let newer = JoinRowError::Newer { version: 3 };
        assert_eq!(JoinRow::decode(&bytes), Err(newer));
        assert_eq!(JoinRow::moment(&key, &bytes), Err(newer));
        bytes[0] = 0;
        assert!(JoinRow::decode(&bytes).is_err());
    }

    #[test]
    fn damaged_rows_are_refused() {
        let mut row = JoinRow::default();
        row.insert(entry(Side::Left, 1, false, b"ab"));
        let bytes = encoded(&row);
        for len in 0..bytes.len() {
            // The row without its entry is one, too.
            assert_eq!(JoinRow::decode(&bytes[..len]).is_ok(), len == HEAD, "{len}");
        }
        for (at, value) in [(1, 2), (1, SPREAD), (HEAD, 4), (HEAD + 12, 9)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(JoinRow::decode(&wrong).is_err(), "{at}");
        }
    }

    #[test]
    fn records_are_in_the_order_of_side_time_and_arrival() {
        let mut row = JoinRow::default();
        let all = [
            entry(Side::Right, 1, false, b"a"),
            entry(Side::Left, 2, false, b"b"),
            entry(Side::Left, 1, false, b"c"),
            entry(Side::Left, 2, false, b"d"),
            entry(Side::Right, 1, false, b"e"),
        ];
        all.into_iter().for_each(|it| row.insert(it));
        let order: Vec<u8> = row
            .entries
            .iter()
            .flat_map(|it| it.value.to_vec())
            .collect();
        assert_eq!(order, b"cbdae");
    }
}
