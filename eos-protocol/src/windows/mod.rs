//! Time windows: their records, their end and their expiry.
//!
//! *Stream time* decides everything. It is the highest timestamp of a task's records, so replayed records lead to the
//! same results as new ones. It advances with the clock only in a stage with `close_when_idle`.

mod any;
mod cursor;
mod expiry;
mod hopping;
pub(crate) mod length;
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
pub use length::WindowError;
pub(crate) use length::{checked_ms, ms};
pub use open_sessions::{OpenSession, OpenSessions, SessionsError};
pub use row_terms::{OtherRows, RowTerms};
pub use session::Session;
pub use sliding::{Sliding, SlidingRow};
pub use terms::{OtherWindows, Terms, TermsError};

use crate::ids::Timestamp;

/// A half-open interval of time: the end is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// The first millisecond of the window.
    pub start: Timestamp,
    /// The first millisecond after the window.
    pub end: Timestamp,
}

/// Adjacent windows of one length. Each moment is in exactly one window.
///
/// They start at multiples of their length since 1970 (UTC), as Kafka Streams' `TimeWindows` do without `advanceBy`. A
/// window accepts records until stream time reaches its end plus the *grace*. Then it is closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tumbling {
    size: Duration,
    grace: Duration,
}

impl Tumbling {
    /// Creates windows of this length without grace. A window closes with the first record of a later window (Kafka
    /// Streams' `ofSizeWithNoGrace`).
    #[must_use]
    pub const fn of(size: Duration) -> Self {
        Self {
            size,
            grace: Duration::ZERO,
        }
    }

    /// Sets the time for which a window accepts late records after its end, in stream time. The default is zero.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The length of the windows.
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
        let too_long = |what, duration| WindowError::TooLong { what, duration };
        checked_ms(self.size).ok_or_else(|| too_long("a length", self.size))?;
        checked_ms(self.grace).ok_or_else(|| too_long("a grace", self.grace))?;
        checked_ms(self.size.saturating_add(self.grace))
            .ok_or_else(|| too_long("a grace", self.grace))?;
        Ok(())
    }

    /// The time for which a window accepts records after its start: its length plus the grace.
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

    /// Returns whether a window is closed at this stream time, which includes the current record
    /// (`KStreamWindowAggregate`: a window accepts a record if `windowEnd > observedStreamTime - grace`).
    #[must_use]
    pub fn is_closed(&self, window: Window, stream_time: Timestamp) -> bool {
        window.end.0 <= stream_time.0.saturating_sub(ms(self.grace))
    }

    /// The starts of the windows that hold a moment of this half-open interval, in order.
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

/// Checks that this is a valid retention.
///
/// # Errors
/// [`WindowError`] if it is far too long.
pub fn check_retention(retention: Duration) -> Result<(), WindowError> {
    match checked_ms(retention) {
        Some(_) => Ok(()),
        None => Err(WindowError::TooLong {
            what: "a retention",
            duration: retention,
        }),
    }
}

#[cfg(test)]
mod windows_test;
