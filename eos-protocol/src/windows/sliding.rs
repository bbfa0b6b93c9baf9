//! Sliding windows.

use std::time::Duration;

use super::{OpenSession, SessionsError, WindowError, checked_ms, ms, open_sessions};
use crate::due::Place;
use crate::ids::Timestamp;

/// Windows of a fixed length that start or end at a record (KIP-450, Kafka Streams' `SlidingWindows`).
///
/// Two records of a key are in one window if the difference of their times is at most the length: both ends belong to a
/// window. Each record has a window that ends at it, and one that starts a millisecond after it, as long as they hold
/// records. All records earlier than the length share the window that starts at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sliding {
    difference: Duration,
    grace: Duration,
}

impl Sliding {
    /// Creates windows for records whose times differ by at most this much, without grace.
    #[must_use]
    #[doc(alias = "of_time_difference")]
    pub const fn of(difference: Duration) -> Self {
        Self {
            difference,
            grace: Duration::ZERO,
        }
    }

    /// Sets the time for which a window accepts late records after its end, in stream time. The default is zero.
    #[must_use]
    pub const fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The time for which a window accepts late records.
    #[must_use]
    pub const fn grace_time(&self) -> Duration {
        self.grace
    }

    /// The maximum difference between the times of two records in one window, in milliseconds.
    #[must_use]
    pub fn difference_ms(&self) -> i64 {
        ms(self.difference)
    }

    /// The maximum difference between the times of two records in one window.
    #[must_use]
    pub const fn difference(&self) -> Duration {
        self.difference
    }

    /// Checks the durations.
    ///
    /// # Errors
    /// [`WindowError`] if a duration is far too long.
    pub fn check(&self) -> Result<(), WindowError> {
        let too_long = |what, duration| WindowError::TooLong { what, duration };
        checked_ms(self.difference.saturating_mul(2))
            .ok_or_else(|| too_long("a time difference", self.difference))?;
        checked_ms(self.difference.saturating_mul(2).saturating_add(self.grace))
            .ok_or_else(|| too_long("a grace", self.grace))?;
        Ok(())
    }

    /// The stream time at which the window with this start closes: the first millisecond after its end and the grace.
    #[must_use]
    pub fn closes_at(&self, start: Timestamp) -> Timestamp {
        self.after(start, ms(self.difference) + ms(self.grace) + 1)
    }

    /// The stream time from which no record needs the window with this start. A record needs earlier windows to compute
    /// its own, up to twice the length before it.
    #[must_use]
    pub fn forgotten_at(&self, start: Timestamp) -> Timestamp {
        self.after(start, 2 * ms(self.difference) + ms(self.grace) + 2)
    }

    /// The stream time at which the task removes the window with this start, if no final result waits for it. Until then, a
    /// later record of the key removes it. So the task rarely visits the row of a key with regular records.
    fn removed_at(&self, start: Timestamp) -> Timestamp {
        let needed = 2 * ms(self.difference) + ms(self.grace) + 2;
        self.after(start, needed.saturating_mul(2))
    }

    fn after(&self, start: Timestamp, ms: i64) -> Timestamp {
        Timestamp(start.0.saturating_add(ms)).min(Place::LAST)
    }

    /// Returns whether the window with this start is closed at this stream time.
    #[must_use]
    pub fn is_closed(&self, start: Timestamp, stream_time: Timestamp) -> bool {
        self.closes_at(start) <= stream_time
    }

    /// Returns whether a record is late: the window that starts after it is closed (`KStreamSlidingWindowAggregate`). A
    /// record at or after [`Place::LAST`] is late, because all of its windows are closed.
    #[must_use]
    pub fn is_late(&self, time: Timestamp, stream_time: Timestamp) -> bool {
        time.0.saturating_add(1 + ms(self.difference))
            <= stream_time.0.saturating_sub(ms(self.grace))
            || time >= Place::LAST
    }
}

/// The stored windows of one key, in the order of their starts.
///
/// ```text
/// version (1 byte) · emitted (8) · for each window: start (8) · highest time (8) · length of the result (4) · result
/// ```
///
/// Numbers are big-endian, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingRow<'a> {
    /// The final results of the windows that start up to this time are emitted.
    emitted: Timestamp,
    /// The start, the highest time of a record, and the result of each window.
    windows: Vec<OpenSession<'a>>,
}

/// The format of rows.
const VERSION: u8 = 2;

impl Default for SlidingRow<'_> {
    fn default() -> Self {
        Self {
            emitted: Timestamp(i64::MIN),
            windows: Vec::new(),
        }
    }
}

impl<'a> SlidingRow<'a> {
    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`SessionsError`] if the bytes have a newer format or are damaged.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SessionsError> {
        let damaged = SessionsError::Damaged { len: bytes.len() };
        let (version, rest) = bytes.split_first().ok_or(damaged)?;
        match *version {
            VERSION => {}
            version if version > VERSION => {
                let known = VERSION;
                return Err(SessionsError::Newer { version, known });
            }
            _ => return Err(damaged),
        }
        let (emitted, rest) = rest.split_first_chunk().ok_or(damaged)?;
        Ok(Self {
            emitted: Timestamp(i64::from_be_bytes(*emitted)),
            windows: open_sessions::read(rest).ok_or(damaged)?,
        })
    }

    /// Replaces the content of `into` with the windows as bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        into.push(VERSION);
        into.extend_from_slice(&self.emitted.0.to_be_bytes());
        open_sessions::write(&self.windows, into);
    }

    /// The windows that start in this span, in order.
    pub fn between(
        &self,
        first: Timestamp,
        last: Timestamp,
    ) -> impl Iterator<Item = &OpenSession<'a>> {
        let windows = self.windows.iter();
        windows.filter(move |it| first <= it.first && it.first <= last)
    }

    /// Returns the windows as if no result were emitted.
    #[must_use]
    pub fn without_mark(self) -> Self {
        Self {
            windows: self.windows,
            ..Self::default()
        }
    }

    /// Returns whether there is no window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Adds a window, or replaces the one with the same start.
    pub fn put(&mut self, window: OpenSession<'a>) {
        match self
            .windows
            .binary_search_by_key(&window.first, |it| it.first)
        {
            Ok(at) => self.windows[at] = window,
            Err(at) => self.windows.insert(at, window),
        }
    }

    /// Returns the windows that close up to this stream time and whose results are not emitted, and marks them as
    /// emitted.
    pub fn take_closed(
        &mut self,
        windows: &Sliding,
        stream_time: Timestamp,
    ) -> Vec<OpenSession<'a>> {
        let emitted = self.emitted;
        let closed = self.windows.iter();
        let closed =
            closed.filter(|it| it.first > emitted && windows.is_closed(it.first, stream_time));
        let closed: Vec<_> = closed.cloned().collect();
        if let Some(last) = closed.last() {
            self.emitted = last.first;
        }
        closed
    }

    /// Drops the windows that no record needs at this stream time. With final results, a window stays until its result
    /// is emitted.
    pub fn forget(&mut self, windows: &Sliding, stream_time: Timestamp, is_final: bool) {
        let emitted = self.emitted;
        self.windows.retain(|it| {
            windows.forgotten_at(it.first) > stream_time || is_final && it.first > emitted
        });
    }

    /// The first stream time at which a window with a pending final result closes, or another window is removed.
    #[must_use]
    pub fn next_due(&self, windows: &Sliding, is_final: bool) -> Option<Timestamp> {
        let due = self
            .windows
            .iter()
            .map(|it| match is_final && it.first > self.emitted {
                true => windows.closes_at(it.first),
                false => windows.removed_at(it.first),
            });
        due.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: i64, highest: i64, result: &[u8]) -> OpenSession<'_> {
        OpenSession {
            first: Timestamp(start),
            last: Timestamp(highest),
            result: result.into(),
        }
    }

    #[test]
    fn the_format_is_pinned() {
        let mut row = SlidingRow::default();
        row.put(window(7, 9, b""));
        row.put(window(1, 2, b"a"));
        row.put(window(1, 3, b"ab"));
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        let expected = b"\x02\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\x02ab\
            \0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0";
        assert_eq!(bytes, expected);
        assert_eq!(SlidingRow::decode(&bytes), Ok(row));
        assert!(SlidingRow::decode(&bytes[..12]).is_err());
        bytes[0] = 3;
        let newer = Err(SessionsError::Newer {
            version: 3,
            known: 2,
        });
        assert_eq!(SlidingRow::decode(&bytes), newer);
    }

    #[test]
    fn a_window_is_emitted_once_and_stays_while_it_is_needed() {
        let windows = Sliding::of(Duration::from_millis(10)).grace(Duration::from_millis(5));
        let mut row = SlidingRow::default();
        row.put(window(0, 5, b"a"));
        row.put(window(6, 9, b"b"));
        assert_eq!(row.next_due(&windows, true), Some(Timestamp(16)));
        // A record needs the window until 27. It is removed later, so that the row is visited less often.
        assert_eq!(row.next_due(&windows, false), Some(Timestamp(54)));
        assert!(row.take_closed(&windows, Timestamp(15)).is_empty());
        assert_eq!(
            row.take_closed(&windows, Timestamp(16)),
            [window(0, 5, b"a")]
        );
        assert!(row.take_closed(&windows, Timestamp(16)).is_empty());
        assert_eq!(row.next_due(&windows, true), Some(Timestamp(22)));
        row.forget(&windows, Timestamp(1_000), true);
        assert_eq!(row.between(Timestamp(0), Timestamp(100)).count(), 1);
        row.forget(&windows, Timestamp(1_000), false);
        assert!(row.is_empty());
    }
}
