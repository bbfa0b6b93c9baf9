//! The stored terms of windows.

use std::fmt;
use std::time::Duration;

use super::Cursor;
use crate::ids::Timestamp;
use crate::joins::{JoinKind, JoinTerms};

/// The format of windows without overlap.
const WITHOUT_OVERLAP: u8 = 1;
/// The format of windows with overlap.
const WITH_OVERLAP: u8 = 2;
/// The format of windows with a cursor.
const WITH_CURSOR: u8 = 3;
/// The format of joins whose rows have no moments of their own.
const JOIN: u8 = 4;
/// The format of joins whose rows may have moments of their own, and the newest that this version reads.
const VERSION: u8 = 5;

/// The terms on which a store keeps its windows. They are stored with the windows, for the next program.
///
/// ```text
/// version (1 byte) · length (8) · retention (8) · over before (8)
/// version (1 byte) · length (8) · retention (8) · over before (8) · distance (8)
/// version (1 byte) · length (8) · retention (8) · over before (8) · distance (8) · start (8) · has key (1) · key
/// version (1 byte) · length (8) · retention (8) · over before (8) · distance (8) · terms of the join (41)
/// ```
///
/// Numbers are big-endian, in milliseconds. Windows that do not overlap have the first form (version 1), which earlier
/// versions of this library read as well. Windows that overlap have the second one (version 2). Windows whose results
/// are emitted when they close have the third one (version 3), so that versions without cursors refuse them. The rows
/// of a join have the fourth one: version 4 for an inner join, and version 5 for the others, because versions that find the
/// unpaired results of rows by items alone would skip them. This version reads version 4 for all joins.
///
/// - **The cursor** ([`Cursor`]) is the position of the last emitted result. It is part of the terms, because each
///   transaction that writes to the changelog writes the terms. So no trim removes the only copy.
/// - **The length** is in no key. A window of another length with the same start has the same key, so the length may
///   not change.
/// - **The distance** between the starts of windows is in no key either. With another distance, some windows would lack
///   the records so far, so the distance may not change.
/// - **The retention** may change. Windows that were expired by the old retention are or may be gone from the
///   database and the changelog. With a longer retention, such a window would seem open and empty, and its next result
///   would be wrong. So expired windows stay expired, and all others are kept for longer.
/// - **Over before** is the limit of all previous programs. Windows that start before it are expired,
///   regardless of the retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub(super) size: i64,
    /// The distance between the starts of windows.
    pub(super) advance: i64,
    pub(super) retention: i64,
    pub(super) expired_before: Timestamp,
    pub(super) cursor: Option<Cursor>,
    pub(super) join: Option<JoinTerms>,
}

/// The error of bytes that are no valid terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Written by a newer version of this library.
    #[error(
        "it has format {version}, this version reads up to {known}: run the newest version that ever \
         used this state"
    )]
    Newer {
        /// The format's number.
        version: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// The bytes are damaged.
    #[error(
        "it is damaged ({len} bytes): another program wrote to the changelog. Start under another \
         app name"
    )]
    Damaged {
        /// The number of bytes.
        len: usize,
    },
}

impl Terms {
    /// The length of the windows. Zero if it is unknown, because a closure keeps them.
    #[must_use]
    pub fn size(&self) -> Duration {
        duration(self.size)
    }

    /// The distance between the starts of windows.
    #[must_use]
    pub fn advance(&self) -> Duration {
        duration(self.advance)
    }

    /// The time for which a window is kept after its start.
    #[must_use]
    pub fn retention(&self) -> Duration {
        duration(self.retention)
    }

    /// Returns the position of the last emitted final result. `None` if the windows emit every update.
    #[must_use]
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// The terms of the join. `None` if the store has windows.
    #[must_use]
    pub fn join(&self) -> Option<&JoinTerms> {
        self.join.as_ref()
    }

    /// Sets the cursor.
    #[must_use]
    pub fn with_cursor(self, cursor: Option<Cursor>) -> Self {
        Self { cursor, ..self }
    }

    /// The terms as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let of_join = self.join.as_ref().map(|join| match join.kind() {
            JoinKind::Inner => JOIN,
            JoinKind::Left | JoinKind::Outer => VERSION,
        });
        let of_windows = match (&self.cursor, self.advance != self.size) {
            (Some(_), _) => WITH_CURSOR,
            (None, true) => WITH_OVERLAP,
            (None, false) => WITHOUT_OVERLAP,
        };
        let version = of_join.unwrap_or(of_windows);
        let mut bytes = vec![version];
        let numbers = [self.size, self.retention, self.expired_before.0];
        let advance = (version != WITHOUT_OVERLAP).then_some(self.advance);
        let cursor = self.cursor.as_ref().filter(|_| self.join.is_none());
        let start = cursor.map(|cursor| cursor.start.0);
        for number in numbers.into_iter().chain(advance).chain(start) {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        if let Some(cursor) = cursor {
            bytes.push(u8::from(cursor.key.is_some()));
            bytes.extend_from_slice(cursor.key().unwrap_or_default());
        }
        if let Some(join) = &self.join {
            join.encode(&mut bytes);
        }
        bytes
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`TermsError`] if the bytes have a newer format or are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, TermsError> {
        let damaged = TermsError::Damaged { len: bytes.len() };
        let (version, rest) = bytes.split_first().ok_or(damaged)?;
        if *version > VERSION {
            return Err(TermsError::Newer {
                version: *version,
                known: VERSION,
            });
        }
        let count = match *version {
            WITHOUT_OVERLAP => 3,
            WITH_OVERLAP | JOIN | VERSION => 4,
            WITH_CURSOR => 5,
            _ => return Err(damaged),
        };
        let (numbers, key) = rest.split_at_checked(count * 8).ok_or(damaged)?;
        let mut numbers = numbers.as_chunks::<8>().0.iter();
        let mut number = || numbers.next().map(|bytes| i64::from_be_bytes(*bytes));
        let (Some(size), Some(retention), Some(expired_before)) = (number(), number(), number())
        else {
            return Err(damaged);
        };
        let advance = number().unwrap_or(size);
        let join = match *version {
            JOIN | VERSION => Some(JoinTerms::decode(key).ok_or(damaged)?),
            _ => None,
        };
        let key = if join.is_some() { &[] } else { key };
        let cursor = match (number(), key) {
            (None, []) => None,
            (Some(start), [0]) => Some(Cursor::before(Timestamp(start))),
            (Some(start), [1, key @ ..]) => Some(Cursor::at(Timestamp(start), key)),
            _ => return Err(damaged),
        };
        if size < 0 || retention < 0 || advance < 0 {
            return Err(damaged);
        }
        Ok(Self {
            size,
            advance,
            retention,
            expired_before: Timestamp(expired_before),
            cursor,
            join,
        })
    }
}

pub(super) fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// The windows of a store differ from those of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its windows are {} in the existing state, and {} in this program", Kind(*found, *found_every), Kind(*now, *every))]
pub struct OtherWindows {
    /// The length of the stored windows. Zero if it is unknown, because a closure keeps them.
    pub found: Duration,
    /// The distance between the starts of the stored windows.
    pub found_every: Duration,
    /// The length of the program's windows. Zero if it is unknown.
    pub now: Duration,
    /// The distance between the starts of the program's windows.
    pub every: Duration,
}

struct Kind(Duration, Duration);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(size, every) = self;
        if size.is_zero() {
            return f.write_str("a closure's own");
        }
        write!(f, "{size:?} long")?;
        if every != size {
            write!(f, ", every {every:?}")?;
        }
        Ok(())
    }
}
