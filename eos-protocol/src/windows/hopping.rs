//! Windows that overlap.

use std::time::Duration;

use super::length::MOST_WINDOWS;
use super::{Tumbling, Window, WindowError, ms};
use crate::ids::Timestamp;

/// Windows of one length that start at a fixed distance. Each moment may be in several windows.
///
/// They start at multiples of the distance since 1970 (UTC), as Kafka Streams' `TimeWindows` with `advanceBy` do. A
/// window accepts records until stream time reaches its end plus the *grace*. Then it is closed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hopping {
    windows: Tumbling,
    advance: Duration,
}

impl Hopping {
    /// Creates windows of this length. Without [`every`](Self::every), they do not overlap. Without
    /// [`grace`](Self::grace), a window closes with the first record at or after its end.
    #[must_use]
    pub const fn of(size: Duration) -> Self {
        Self {
            windows: Tumbling::of(size),
            advance: size,
        }
    }

    /// Sets the distance from the start of one window to the start of the next (Kafka Streams' `advanceBy`).
    #[must_use]
    #[doc(alias = "advance_by")]
    pub const fn every(self, advance: Duration) -> Self {
        Self { advance, ..self }
    }

    /// Sets the time for which a window accepts late records after its end, in stream time. The default is zero.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self {
            windows: self.windows.grace(grace),
            ..self
        }
    }

    /// The length of the windows.
    #[must_use]
    pub const fn size(&self) -> Duration {
        self.windows.size()
    }

    /// The distance between the starts of the windows.
    #[must_use]
    pub const fn advance(&self) -> Duration {
        self.advance
    }

    /// Checks the length and the distance.
    ///
    /// # Errors
    /// [`WindowError`] if the windows are shorter than a millisecond or far too long, if the distance is shorter than a
    /// millisecond or longer than the windows, or if a record would be in more than 1,000 windows.
    pub fn check(&self) -> Result<(), WindowError> {
        self.windows.check()?;
        let (size, advance) = (self.size(), self.advance);
        if self.advance_ms() == 0 || advance > size {
            return Err(WindowError::Advance { advance, size });
        }
        if self.per_moment() > MOST_WINDOWS {
            return Err(WindowError::TooMany {
                size,
                advance,
                windows: self.per_moment(),
            });
        }
        Ok(())
    }

    /// The maximum number of windows that one moment is in.
    #[must_use]
    pub fn per_moment(&self) -> i64 {
        let advance = self.advance_ms().max(1);
        let size = ms(self.size());
        size / advance + i64::from(size % advance != 0)
    }

    /// The time for which a window accepts records after its start: its length plus the grace.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.windows.lifetime()
    }

    /// The windows that hold this moment, in the order of their starts. None before 1970, where Kafka has no records
    /// (`TimeWindows.windowsFor`).
    pub fn windows(&self, time: Timestamp) -> impl Iterator<Item = Window> {
        let advance = self.advance_ms().max(1);
        let last = time.0.div_euclid(advance);
        // The first start is the first multiple above `time - size`.
        let first = (time.0.saturating_sub(ms(self.size()))).div_euclid(advance) + 1;
        let starts = (first.max(0)..=last).filter(move |_| time.0 >= 0);
        let windows = self.windows;
        starts.map(move |n| windows.at(Timestamp(n.saturating_mul(advance))))
    }

    /// The window with this start.
    #[must_use]
    pub fn at(&self, start: Timestamp) -> Window {
        self.windows.at(start)
    }

    /// Returns whether a window is closed at this stream time, which includes the current record. See
    /// [`Tumbling::is_closed`].
    #[must_use]
    pub fn is_closed(&self, window: Window, stream_time: Timestamp) -> bool {
        self.windows.is_closed(window, stream_time)
    }

    fn advance_ms(&self) -> i64 {
        ms(self.advance)
    }
}

impl From<Tumbling> for Hopping {
    fn from(windows: Tumbling) -> Self {
        Self {
            windows,
            advance: windows.size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hopping(size: u64, advance: u64) -> Hopping {
        Hopping::of(Duration::from_millis(size)).every(Duration::from_millis(advance))
    }

    #[test]
    fn wrong_windows_are_errors_with_their_numbers() {
        let error = |size, advance| hopping(size, advance).check().unwrap_err();
        assert!(matches!(error(0, 0), WindowError::Empty { .. }));
        assert!(matches!(error(10, 0), WindowError::Advance { .. }));
        assert!(matches!(error(10, 11), WindowError::Advance { .. }));
        let text = error(10_001, 10).to_string();
        assert!(
            text.contains("1001 windows") && text.contains("10ms"),
            "{text}"
        );
        for (size, advance) in [(10, 10), (10, 3), (10_000, 10), (1, 1)] {
            assert_eq!(hopping(size, advance).check(), Ok(()));
        }
    }

    #[test]
    fn the_last_moment_is_in_its_windows() {
        let windows = hopping(2, 1);
        let starts = windows.windows(Timestamp(i64::MAX));
        let starts: Vec<_> = starts.map(|window| window.start.0).collect();
        assert_eq!(starts, [i64::MAX - 1, i64::MAX]);
    }

    #[test]
    fn a_tumbling_window_is_a_hopping_one_without_overlap() {
        let tumbling = Tumbling::of(Duration::from_millis(7)).grace(Duration::from_millis(2));
        for time in 0..30 {
            let one: Vec<_> = Hopping::from(tumbling).windows(Timestamp(time)).collect();
            assert_eq!(one, [tumbling.window(Timestamp(time)).unwrap()]);
        }
    }

    proptest! {
        #[test]
        fn a_moment_is_in_each_window_around_it(size in 1_u64..40, advance in 1_u64..40, time in -5_i64..200) {
            prop_assume!(advance <= size);
            let windows = hopping(size, advance);
            let all = (0..200).map(|n| windows.at(Timestamp(n * advance.cast_signed())));
            let holds = |it: &Window| time >= 0 && it.start.0 <= time && time < it.end.0;
            let expected: Vec<_> = all.filter(holds).collect();
            let found: Vec<_> = windows.windows(Timestamp(time)).collect();
            prop_assert!(found.len() as i64 <= windows.per_moment());
            prop_assert_eq!(found, expected);
        }
    }
}
