//! Lengths of windows, in milliseconds.

use std::time::Duration;

/// The maximum number of windows that one moment is in.
pub(super) const MOST_WINDOWS: i64 = 1_000;

/// Invalid windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The windows are shorter than a millisecond, so no moment would be in them.
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
    /// The distance between the starts of windows is shorter than a millisecond, or longer than the windows.
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
        MOST_WINDOWS
    )]
    TooMany {
        /// The length of the windows.
        size: Duration,
        /// The configured distance.
        advance: Duration,
        /// The number of windows per record.
        windows: i64,
    },
    /// A duration exceeds the maximum, some 146 million years.
    #[error("{what} of {duration:?} exceeds the maximum of {MOST_MS} ms. Make it shorter")]
    TooLong {
        /// The name of the duration.
        what: &'static str,
        /// The configured duration.
        duration: Duration,
    },
}

/// The maximum of size, grace and retention: some 146 million years, so that sums of them fit into the number type.
pub(super) const MOST_MS: i64 = i64::MAX / 2;

/// Whole milliseconds, at most [`MOST_MS`].
pub(crate) fn ms(duration: Duration) -> i64 {
    checked_ms(duration).unwrap_or(MOST_MS)
}

pub(crate) fn checked_ms(duration: Duration) -> Option<i64> {
    let ms = i64::try_from(duration.as_millis()).ok();
    ms.filter(|ms| *ms <= MOST_MS)
}
