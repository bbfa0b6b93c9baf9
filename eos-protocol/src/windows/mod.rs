//! Windows of time: which one a record is in, when it is closed, when it is forgotten.
//!
//! Everything is told by *stream time*, the highest time of the records that a task has taken: no
//! clock is asked, so records that are replayed come to the same results as when they were new.

mod expiry;
mod terms;

use std::time::Duration;

pub use expiry::Expiry;
pub use terms::{OtherWindows, Terms, TermsError};

use crate::ids::Timestamp;

/// A stretch of time: from its start, up to its end, which it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// The first millisecond that is in it.
    pub start: Timestamp,
    /// The first one after it.
    pub end: Timestamp,
}

/// Windows of one length, one after the other without a gap: each moment is in exactly one.
///
/// They begin at multiples of their length since 1970 (UTC), as Kafka Streams' `TimeWindows` do
/// without `advanceBy`. A window takes records until stream time reaches its end and the *grace*
/// behind it; then it is closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tumbling {
    size: Duration,
    grace: Duration,
}

/// Windows that can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// No moment would be in them.
    #[error(
        "windows of {size:?} hold no moment, for times are in milliseconds: make them 1 ms long at \
         least, with `Tumbling::of(Duration::from_millis(1))`"
    )]
    Empty {
        /// What was asked for.
        size: Duration,
    },
    /// Milliseconds don't reach so far.
    #[error("{what} of {asked:?} is more than the {MOST_MS} ms that are possible: make it shorter")]
    TooLong {
        /// Of which duration it was asked.
        what: &'static str,
        /// What was asked for.
        asked: Duration,
    },
}

/// The longest that size, grace and retention may be: some 146 million years, so that sums of them
/// are numbers still.
const MOST_MS: i64 = i64::MAX / 2;

impl Tumbling {
    /// Windows of this length, without grace: a window is closed as soon as a record of a later one
    /// was taken (Kafka Streams' `ofSizeWithNoGrace`).
    #[must_use]
    pub const fn of(size: Duration) -> Self {
        Self {
            size,
            grace: Duration::ZERO,
        }
    }

    /// How long a window takes late records after its end, in stream time. Zero unless said otherwise.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Their length.
    #[must_use]
    pub const fn size(&self) -> Duration {
        self.size
    }

    /// Whether there are such windows.
    ///
    /// # Errors
    /// [`WindowError`]: they are shorter than a millisecond, or far too long.
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

    /// How long after its start a window takes records: its length and the grace.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.size.saturating_add(self.grace)
    }

    /// The window that holds this moment; none before 1970, where no record of Kafka's is.
    #[must_use]
    pub fn window(&self, time: Timestamp) -> Option<Window> {
        let size = self.size_ms();
        if time.0 < 0 || size == 0 {
            return None;
        }
        Some(self.at(Timestamp(time.0 - time.0 % size)))
    }

    /// The window that begins here.
    #[must_use]
    pub fn at(&self, start: Timestamp) -> Window {
        Window {
            start,
            end: Timestamp(start.0.saturating_add(self.size_ms())),
        }
    }

    /// Whether a window takes no records any more at this stream time, the record at hand included
    /// (`KStreamWindowAggregate`: one is taken if `windowEnd > observedStreamTime - grace`).
    #[must_use]
    pub fn is_closed(&self, window: Window, stream_time: Timestamp) -> bool {
        window.end.0 <= stream_time.0.saturating_sub(ms(self.grace))
    }

    /// The starts of the windows that hold a moment of this stretch: from, and up to, which is not
    /// part of it. In order.
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

/// Whole milliseconds; [`MOST_MS`] if they are more.
fn ms(duration: Duration) -> i64 {
    checked_ms(duration).unwrap_or(MOST_MS)
}

fn checked_ms(duration: Duration) -> Option<i64> {
    let ms = i64::try_from(duration.as_millis()).ok();
    ms.filter(|ms| *ms <= MOST_MS)
}

/// Whether this is a time that a window's retention can be.
///
/// # Errors
/// [`WindowError`]: it is far too long.
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
