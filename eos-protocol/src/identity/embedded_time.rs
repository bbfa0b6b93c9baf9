//! Ids that begin with the time of their creation.

use std::time::Duration;

use super::SeenWindowError;
use crate::ids::Timestamp;
use crate::windows::Expiry;

/// The longest accepted time from stream time to the time of an id.
pub const MOST_SKEW: Duration = Duration::from_secs(600);

/// A UUIDv7 or a ULID: 48 bits of time, in milliseconds since 1970, and 80 bits of other data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimedId {
    /// The id: its time is the first six bytes, big-endian.
    pub bytes: [u8; 16],
}

/// The text forms of a [`TimedId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedIdFormat {
    /// UUID version 7 (RFC 9562, section 5.7): 32 hexadecimal digits in five groups.
    UuidV7,
    /// ULID: 26 characters of Crockford's base 32.
    Ulid,
}

/// A text is not an id with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimedIdError {
    /// The text has another length.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// The length of the format, in bytes.
        expected: usize,
        /// The length of the text, in bytes.
        found: usize,
    },
    /// A character is not allowed at its place.
    #[error("byte {at} is {found:#04x}, which is not allowed there")]
    Character {
        /// The place, from 0.
        at: usize,
        /// The byte.
        found: u8,
    },
    /// A UUID has another version. Its first bytes are no time.
    #[error("it is a UUID of version {0}")]
    Version(u8),
    /// A UUID is not of the variant of RFC 9562.
    #[error("its variant is not that of RFC 9562")]
    Variant,
    /// A ULID has more than 128 bits.
    #[error("it is higher than the highest ULID, 7ZZZZZZZZZZZZZZZZZZZZZZZZZ")]
    TooHigh,
}

impl TimedId {
    /// Reads an id. Lower-case and upper-case letters are equal.
    ///
    /// # Errors
    /// [`TimedIdError`] if the text is not of this format.
    pub fn parse(format: TimedIdFormat, text: &[u8]) -> Result<Self, TimedIdError> {
        match format {
            TimedIdFormat::UuidV7 => uuid_v7(text),
            TimedIdFormat::Ulid => ulid(text),
        }
        .map(|bytes| Self { bytes })
    }

    /// The time of the id.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        let [a, b, c, d, e, f, ..] = self.bytes;
        Timestamp(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

fn of_length<const N: usize>(text: &[u8]) -> Result<&[u8; N], TimedIdError> {
    text.try_into().map_err(|_| TimedIdError::Length {
        expected: N,
        found: text.len(),
    })
}

fn uuid_v7(text: &[u8]) -> Result<[u8; 16], TimedIdError> {
    let (mut bytes, mut digits) = ([0; 16], 0);
    for (at, &found) in of_length::<36>(text)?.iter().enumerate() {
        let digit = match (at, found) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => None,
            _ => char::from(found).to_digit(16),
        };
        let digit = digit.ok_or(TimedIdError::Character { at, found })? as u8;
        bytes[digits / 2] |= digit << (4 * (1 - digits % 2));
        digits += 1;
    }
    match (bytes[6] >> 4, bytes[8] >> 6) {
        (7, 0b10) => Ok(bytes),
        (_, 0b10) => Err(TimedIdError::Version(bytes[6] >> 4)),
        _ => Err(TimedIdError::Variant),
    }
}

/// The characters of Crockford's base 32, by their value.
const BASE_32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

fn ulid(text: &[u8]) -> Result<[u8; 16], TimedIdError> {
    let mut number: u128 = 0;
    for (at, &found) in of_length::<26>(text)?.iter().enumerate() {
        let character = found.to_ascii_uppercase();
        let digit = BASE_32.iter().position(|it| *it == character);
        let digit = digit.ok_or(TimedIdError::Character { at, found })?;
        if at == 0 && digit > 7 {
            return Err(TimedIdError::TooHigh);
        }
        number = number << 5 | digit as u128;
    }
    Ok(number.to_be_bytes())
}

/// The time for which ids with a time of their own count as seen.
///
/// An id is stored in the bucket of its own time: a sixteenth of the window. So one read decides, and the store needs an
/// id for one window and one bucket.
///
/// Two clocks meet here: that of the component that makes ids, and stream time, which is the highest timestamp of the
/// records. Stream time decides, because it is committed and expires the buckets of all stores. If the times of ids moved
/// it, one wrong id would make all current ones too old, and another row would have to keep the highest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedIds {
    remember: i64,
}

/// The age of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdAge {
    /// The store has the id if it was seen: in the bucket with this start.
    Current(Timestamp),
    /// The store may have forgotten the id. The time from the id to stream time.
    TooOld(Duration),
    /// The id is further ahead of stream time than [`MOST_SKEW`]. The time from stream time to the id.
    Future(Duration),
}

impl TimedIds {
    /// The parts of the window that a bucket has.
    pub(super) const BUCKETS: u32 = 16;

    /// Creates a window of this length. An id counts as seen until stream time is further ahead of its time than this.
    #[must_use]
    pub fn remembered_for(remember: Duration) -> Self {
        Self {
            remember: i64::try_from(remember.as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// Returns the time for which ids are remembered.
    #[must_use]
    pub fn remember(&self) -> Duration {
        duration(self.remember)
    }

    /// Checks the duration. `horizon`: the time for which senders repeat a record, if it is known.
    ///
    /// # Errors
    /// [`SeenWindowError`] with the durations and the fix.
    pub fn check(&self, horizon: Option<Duration>) -> Result<(), SeenWindowError> {
        let window = self.remember();
        match horizon {
            _ if self.remember < 1 => Err(SeenWindowError::TooShort),
            Some(horizon) if window < horizon => Err(SeenWindowError::Horizon { window, horizon }),
            _ => Ok(()),
        }
    }

    /// The length of a bucket, in milliseconds.
    fn bucket(&self) -> i64 {
        let buckets = i64::from(Self::BUCKETS);
        let rest = i64::from(self.remember % buckets > 0);
        (self.remember / buckets + rest).max(1)
    }

    /// Returns the time for which buckets are kept.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        let bucket = self.bucket();
        // A bucket is over once this is its age. Its first id may then be too old by one bucket.
        let retention = self.remember.saturating_add(bucket);
        Expiry::of_buckets(duration(retention), duration(bucket))
    }

    /// Judges the time of an id at this stream time.
    #[must_use]
    pub fn age(&self, id: Timestamp, stream_time: Timestamp) -> IdAge {
        let behind = stream_time.0.saturating_sub(id.0);
        if behind > self.remember {
            return IdAge::TooOld(duration(behind));
        }
        let ahead = duration(behind.saturating_neg());
        if ahead > MOST_SKEW {
            return IdAge::Future(ahead);
        }
        IdAge::Current(self.bucket_of(id))
    }

    /// The starts of all buckets with a time that is remembered at this stream time, from the last one back.
    pub fn buckets(&self, stream_time: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let first = self.bucket_of(Timestamp(stream_time.0.saturating_sub(self.remember)));
        let (last, step) = (self.bucket_of(stream_time), self.bucket());
        let starts = std::iter::successors(Some(last), move |start| {
            Some(Timestamp(start.0.saturating_sub(step)))
        });
        starts.take_while(move |start| *start >= first)
    }

    /// The start of the bucket of this time.
    #[must_use]
    pub fn bucket_of(&self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_sub(time.0.rem_euclid(self.bucket())))
    }
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
#[path = "embedded_time_test.rs"]
mod tests;
