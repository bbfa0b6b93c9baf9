//! The retention terms that a store keeps beside its windows.

use std::fmt;
use std::time::Duration;

use crate::ids::Timestamp;

/// The format of windows without overlap.
const WITHOUT_OVERLAP: u8 = 1;
/// The format of windows with overlap, and the newest that this version reads.
const VERSION: u8 = 2;

/// The terms on which a store keeps its windows. They are stored with the windows, for the next program.
///
/// ```text
/// version (1 byte) · length (8) · retention (8) · over before (8)
/// version (1 byte) · length (8) · retention (8) · over before (8) · distance (8)
/// ```
///
/// Numbers are big-endian, in milliseconds. Windows that do not overlap have the first form (version 1), which earlier
/// versions of this library read as well. Windows that overlap have the second one (version 2).
///
/// - **The length** is in no key: a window of another length with the same start has the same key. So the length may
///   not change.
/// - **The distance** between the starts of windows is in no key either. With another one, some windows would lack the
///   records so far. So it may not change.
/// - **The retention** may change. Windows that were expired by the old retention are or may be gone from the
///   database and the changelog. By a longer retention such a window would seem open and empty, and its next result
///   would be wrong. So expired windows stay expired, and all others are kept for longer.
/// - **Over before** is the limit of all previous programs: windows that start before it are expired, whatever the
///   retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub(super) size: i64,
    /// The distance between the starts of windows.
    pub(super) advance: i64,
    pub(super) retention: i64,
    pub(super) over_before: Timestamp,
}

/// Why bytes are not valid terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Written by a newer version of this library.
    #[error(
        "it has format {version}, this version reads up to {VERSION}: run the newest version that ever \
         used this state"
    )]
    Newer {
        /// The format's number.
        version: u8,
    },
    /// The bytes are damaged.
    #[error(
        "it is damaged ({len} bytes): another program wrote to the changelog. Start afresh under another \
         app name"
    )]
    Damaged {
        /// How many bytes there are.
        len: usize,
    },
}

impl Terms {
    /// Size of the windows. Zero if it is unknown, because a closure keeps them.
    #[must_use]
    pub fn size(&self) -> Duration {
        duration(self.size)
    }

    /// The distance between the starts of windows.
    #[must_use]
    pub fn advance(&self) -> Duration {
        duration(self.advance)
    }

    /// How long a window is kept after its start.
    #[must_use]
    pub fn retention(&self) -> Duration {
        duration(self.retention)
    }

    /// The terms as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let overlaps = self.advance != self.size;
        let mut bytes = vec![if overlaps { VERSION } else { WITHOUT_OVERLAP }];
        let numbers = [self.size, self.retention, self.over_before.0];
        for number in numbers.into_iter().chain(overlaps.then_some(self.advance)) {
            bytes.extend_from_slice(&number.to_be_bytes());
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
        let (numbers, more) = rest.as_chunks::<8>();
        if !more.is_empty() && *version <= VERSION {
            return Err(damaged);
        }
        let (size, retention, over_before, advance) = match (*version, numbers) {
            (WITHOUT_OVERLAP, [size, retention, over_before]) => {
                (size, retention, over_before, size)
            }
            (VERSION, [size, retention, over_before, advance]) => {
                (size, retention, over_before, advance)
            }
            (0 | WITHOUT_OVERLAP | VERSION, _) => return Err(damaged),
            (version, _) => return Err(TermsError::Newer { version }),
        };
        let [size, retention, over_before, advance] =
            [size, retention, over_before, advance].map(|bytes| i64::from_be_bytes(*bytes));
        if size < 0 || retention < 0 || advance < 0 {
            return Err(damaged);
        }
        Ok(Self {
            size,
            advance,
            retention,
            over_before: Timestamp(over_before),
        })
    }
}

fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A store holds other windows than the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its windows are {} in the existing state, and {} in this program", Kind(*found, *found_every), Kind(*now, *every))]
pub struct OtherWindows {
    /// Size of the stored windows. Zero if it is unknown, because a closure keeps them.
    pub found: Duration,
    /// The distance between the starts of the stored windows.
    pub found_every: Duration,
    /// Size of the program's windows. Zero likewise.
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
