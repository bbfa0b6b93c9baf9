//! The rows of the right side: the subscribers of each foreign key, and how far an update has reached them.

use super::{Fields, ForeignError, VERSION, push_bytes, push_time};
use crate::{Partition, Timestamp};

const WHAT: &str = "a subscriber of a foreign-key join";

/// A left row that subscribes to a right row.
///
/// ```text
/// length (4 bytes) · foreign key · left key        version (1) · token (8) · left partition (4)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    /// The token of its subscription.
    pub token: u64,
    /// The partition of its task.
    pub partition: Partition,
}

impl Subscriber {
    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION];
        row.extend_from_slice(&self.token.to_be_bytes());
        row.extend_from_slice(&self.partition.get().to_be_bytes());
        row
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(row: &[u8]) -> Result<Self, ForeignError> {
        let mut fields = Fields::of(WHAT, row)?;
        let token = fields.token()?;
        let partition = Partition::new(i32::from_be_bytes(fields.array()?));
        let partition = partition.map_err(|_| fields.damaged())?;
        fields.end()?;
        Ok(Self { token, partition })
    }
}

/// Returns the beginning of the keys of a foreign key's subscribers. The length keeps `a` apart from `ab`.
#[must_use]
pub fn subscriber_prefix(foreign: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + foreign.len());
    push_bytes(&mut key, foreign);
    key
}

/// Returns the key of a subscriber.
#[must_use]
pub fn subscriber_key(foreign: &[u8], left: &[u8]) -> Vec<u8> {
    let mut key = subscriber_prefix(foreign);
    key.extend_from_slice(left);
    key
}

/// Returns the foreign key and the left key of a subscriber's key.
///
/// # Errors
/// If the bytes are damaged.
pub fn subscriber_of_key(key: &[u8]) -> Result<(&[u8], &[u8]), ForeignError> {
    let mut fields = Fields::of_key(WHAT, key);
    let foreign = fields.bytes()?;
    Ok((foreign, fields.rest()))
}

/// How far an update of a right row has reached its subscribers. The rest is background work.
///
/// An answer always has the right row as it is then. So an update that comes meanwhile only sets the place back: those that
/// have the earlier value need the later one.
///
/// ```text
/// version (1 byte) · time of the update (8) · key of the last subscriber with an answer
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOut {
    /// The time of the update. A deleted row has no time of its own.
    pub time: Option<Timestamp>,
    /// The left key of the last subscriber with an answer; `None` before the first one.
    pub after: Option<Vec<u8>>,
}

impl FanOut {
    /// An update of a right row begins at its first subscriber, even if an earlier one is on its way.
    #[must_use]
    pub const fn begin(time: Option<Timestamp>) -> Self {
        Self { time, after: None }
    }

    /// The next place, after answers up to `last`. `None` if all subscribers have one: there were fewer than the limit.
    #[must_use]
    pub fn next(&self, last: Option<Vec<u8>>, has_more: bool) -> Option<Self> {
        has_more.then(|| Self {
            time: self.time,
            after: last.or_else(|| self.after.clone()),
        })
    }

    /// The bytes of the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION, u8::from(self.after.is_some())];
        push_time(&mut row, self.time);
        row.extend_from_slice(self.after.as_deref().unwrap_or_default());
        row
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the bytes are damaged or newer.
    pub fn decode(row: &[u8]) -> Result<Self, ForeignError> {
        let mut fields = Fields::of("the cursor of a foreign-key join", row)?;
        let has_begun = fields.byte()?;
        let time = fields.time()?;
        let after = match has_begun {
            1 => Some(fields.rest().to_vec()),
            0 => {
                fields.end()?;
                None
            }
            _ => return Err(fields.damaged()),
        };
        Ok(Self { time, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_pinned() {
        let subscriber = Subscriber {
            token: 7,
            partition: Partition::new(3).unwrap(),
        };
        let row = subscriber.encode();
        assert_eq!(row, *b"\x01\0\0\0\0\0\0\0\x07\0\0\0\x03");
        assert_eq!(Subscriber::decode(&row), Ok(subscriber));
        assert_eq!(subscriber_key(b"f", b"k"), *b"\0\0\0\x01fk");
        let row = FanOut::begin(Some(Timestamp(5))).encode();
        assert_eq!(row, *b"\x01\0\0\0\0\0\0\0\0\x05");
    }

    #[test]
    fn subscribers_of_one_key_are_not_those_of_a_longer_one() {
        let key = subscriber_key(b"ab", b"c");
        assert!(!key.starts_with(&subscriber_prefix(b"a")));
        assert_eq!(subscriber_of_key(&key), Ok((&b"ab"[..], &b"c"[..])));
        // A length that lies.
        assert!(subscriber_of_key(b"\0\0\0\x09ab").is_err());
        assert!(Subscriber::decode(b"\x01\0\0\0\0\0\0\0\x07\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn a_second_update_sets_the_place_back() {
        let first = FanOut::begin(Some(Timestamp(1)));
        let then = first.next(Some(b"k".to_vec()), true).unwrap();
        assert_eq!(then.after.as_deref(), Some(&b"k"[..]));
        assert_eq!(then.time, Some(Timestamp(1)));
        let again = FanOut::begin(Some(Timestamp(2)));
        assert_eq!((again.after, again.time), (None, Some(Timestamp(2))));
        assert_eq!(then.next(Some(b"m".to_vec()), false), None);
        // Without a further answer, the place stays.
        assert_eq!(then.next(None, true), Some(then));
    }

    #[test]
    fn places_are_read_as_they_were_written() {
        for time in [None, Some(Timestamp(-1)), Some(Timestamp(1))] {
            for after in [None, Some(Vec::new()), Some(b"k".to_vec())] {
                let place = FanOut { time, after };
                assert_eq!(FanOut::decode(&place.encode()), Ok(place));
            }
        }
        assert!(FanOut::decode(b"\x01\x03\0\0\0\0\0\0\0\x05").is_err());
        assert!(FanOut::decode(b"\x01\0\0\0\0\0\0\0\0\x05k").is_err());
        assert!(matches!(
            FanOut::decode(b"\x02"),
            Err(ForeignError::Newer { .. })
        ));
    }
}
