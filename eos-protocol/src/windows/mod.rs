//! Time windows: their records, their end and their expiry.
//!
//! *Stream time* decides everything. It is the highest time of the records that a task has taken, so replayed records lead
//! to the same results as new ones. Only a stage that closes windows of idle inputs lets it run on with the clock.

mod any;
mod cursor;
mod expiry;
mod hopping;
mod open_sessions;
mod row_terms;
mod session;
mod sliding;
mod terms;

use std::time::Duration;

pub use any::AnyWindows;
pub use cursor::Cursor;
pub use expiry::Expiry;
pub use hopping::Hopping;
pub use open_sessions::{OpenSession, OpenSessions, SessionsError};
pub use row_terms::{OtherRows, RowTerms};
pub use session::Session;
pub use sliding::{Sliding, SlidingRow};
pub use terms::{OtherWindows, Terms, TermsError};

use crate::ids::Timestamp;

/// An interval of time, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// The first millisecond in it.
    pub start: Timestamp,
    /// The first millisecond after it.
    pub end: Timestamp,
}

/// Windows of one length without gaps: each moment is in exactly one.
///
/// They begin at multiples of their length since 1970 (UTC), as Kafka Streams' `TimeWindows` do
/// without `advanceBy`. A window takes records until stream time reaches its end and the *grace*
/// behind it; then it is closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tumbling {
    size: Duration,
    grace: Duration,
}

/// Invalid windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// They are shorter than a millisecond, so no moment would be in them.
    #[error(
        "windows of {size:?} are too short, because times are in milliseconds. Make them 1 ms long \
         or longer, with `Tumbling::of(Duration::from_millis(1))`"
    )]
    Empty {
        /// The configured length.
        size: Duration,
    },
    /// The gap of sessions is shorter than a millisecond.
    #[error(
        "a gap of {gap:?} is too short, because times are in milliseconds. Make it 1 ms or longer, with \
         `Session::gap(Duration::from_millis(1))`"
    )]
    NoGap {
        /// The configured gap.
        gap: Duration,
    },
    /// The distance between the starts of windows is no part of their length.
    #[error(
        "windows of {size:?} every {advance:?} are not possible: the distance must be at least 1 ms and at most the \
         length. Change `every(..)`"
    )]
    Advance {
        /// The configured distance.
        advance: Duration,
        /// The length of the windows.
        size: Duration,
    },
    /// Each record would be in too many windows.
    #[error(
        "with windows of {size:?} every {advance:?}, each record is in {windows} windows, and the maximum is {}. Make \
         the windows shorter, or the distance longer with `every(..)`",
        hopping::MOST_WINDOWS
    )]
    TooMany {
        /// The length of the windows.
        size: Duration,
        /// The configured distance.
        advance: Duration,
        /// The number of windows per record.
        windows: i64,
    },
    /// A duration is too long for a number of milliseconds.
    #[error("{what} of {asked:?} exceeds the maximum of {MOST_MS} ms. Make it shorter")]
    TooLong {
        /// The name of the duration.
        what: &'static str,
        /// The configured duration.
        asked: Duration,
    },
}

/// The maximum of size, grace and retention: some 146 million years, so that sums of them fit into the number type.
const MOST_MS: i64 = i64::MAX / 2;

impl Tumbling {
    /// Windows of this length, without grace: a window closes as soon as a record of a later window was taken (Kafka
    /// Streams' `ofSizeWithNoGrace`).
    #[must_use]
    pub const fn of(size: Duration) -> Self {
        Self {
            size,
            grace: Duration::ZERO,
        }
    }

    /// The time after its end during which a window takes late records, in stream time. Zero by default.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Their length.
    #[must_use]
    pub const fn size(&self) -> Duration {
        self.size
    }

    /// Checks the length.
    ///
    /// # Errors
    /// [`WindowError`] if the windows are shorter than a millisecond, or far too long.
    pub fn check(&self) -> Result<(), WindowError> {
        if self.size_ms() == 0 {
            return Err(WindowError::Empty { size: self.size });
        }
        let too_long = |what, asked| WindowError::TooLong { what, asked };
        checked_ms(self.size).ok_or_else(|| too_long("a length", self.size))?;
        checked_ms(self.grace).ok_or_else(|| too_long("a grace", self.grace))?;
        checked_ms(self.size.saturating_add(self.grace))
            .ok_or_else(|| too_long("a grace", self.grace))?;
        Ok(())
    }

    /// The time after its start during which a window takes records: its length and the grace.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.size.saturating_add(self.grace)
    }

    /// The window that holds this moment. `None` before 1970, where Kafka has no records.
    #[must_use]
    pub fn window(&self, time: Timestamp) -> Option<Window> {
        let size = self.size_ms();
        if time.0 < 0 || size == 0 {
            return None;
        }
        Some(self.at(Timestamp(time.0 - time.0 % size)))
    }

    /// The window with this start.
    #[must_use]
    pub fn at(&self, start: Timestamp) -> Window {
        Window {
            start,
            end: Timestamp(start.0.saturating_add(self.size_ms())),
        }
    }

    /// Whether a window is closed at this stream time, which includes the current record (`KStreamWindowAggregate`:
    /// one is taken if `windowEnd > observedStreamTime - grace`).
    #[must_use]
    pub fn is_closed(&self, window: Window, stream_time: Timestamp) -> bool {
        window.end.0 <= stream_time.0.saturating_sub(ms(self.grace))
    }

    /// The starts of the windows that hold a moment of this interval, which does not include its end. In order.
    pub fn starts(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        let size = self.size_ms().max(1);
        let from = from.0.max(0);
        let mut next = Some(from - from % size);
        std::iter::from_fn(move || {
            let start = next.filter(|start| *start < to.0)?;
            next = start.checked_add(size);
            Some(Timestamp(start))
        })
    }

    fn size_ms(&self) -> i64 {
        ms(self.size)
    }
}

/// Whole milliseconds, at most [`MOST_MS`].
pub(crate) fn ms(duration: Duration) -> i64 {
    checked_ms(duration).unwrap_or(MOST_MS)
}

pub(crate) fn checked_ms(duration: Duration) -> Option<i64> {
    let ms = i64::try_from(duration.as_millis()).ok();
    ms.filter(|ms| *ms <= MOST_MS)
}

/// Checks that this is a valid retention.
///
/// # Errors
/// [`WindowError`] if it is far too long.
pub fn check_retention(retention: Duration) -> Result<(), WindowError> {
    match checked_ms(retention) {
        Some(_) => Ok(()),
        None => Err(WindowError::TooLong {
            what: "a retention",
            asked: retention,
        }),
    }
}

#[cfg(test)]
mod windows_test;
