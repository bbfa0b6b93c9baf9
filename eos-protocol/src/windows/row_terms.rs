//! The stored terms of sessions and sliding windows.

use super::terms::duration;
use super::{AnyWindows, OtherWindows, TermsError, ms};
use crate::ids::Timestamp;

/// The format that this version writes, and the newest that it reads.
const VERSION: u8 = 1;
/// The length of the terms, in bytes.
const LEN: usize = 26;

/// The terms on which a store keeps sessions or sliding windows. They are stored with the windows, for the next
/// program.
///
/// ```text
/// version (1 byte) · has final results (1) · length (8) · grace (8) · closed before (8)
/// ```
///
/// Numbers are big-endian, in milliseconds. The length is the gap of sessions, or the length of sliding windows.
///
/// - **The length** of sliding windows may not change. A stored window has a start and no length, so results of both
///   lengths would mix. The gap of sessions may change, because a stored session has both ends.
/// - **Final results** need all results since the last emitted one. With updates, the store drops results that are
///   emitted. So neither kind can follow the other.
/// - **Closed before** is the limit of all previous programs. With a longer gap or grace, a window that has closed
///   would seem open and empty, and its result would be wrong or come a second time. So closed windows stay closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTerms {
    is_final: bool,
    length: i64,
    grace: i64,
    closed_before: Timestamp,
}

/// The reason why a program can't continue the rows of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherRows {
    /// The sliding windows have another length.
    Length(OtherWindows),
    /// The results of the stored windows are final (true) or updates (false), and those of this program are not.
    Results {
        /// Whether the results of the stored windows are final.
        was_final: bool,
    },
}

impl RowTerms {
    /// The terms of a new store. `None` for windows of a fixed length.
    #[must_use]
    pub fn of(windows: &AnyWindows, is_final: bool) -> Option<Self> {
        let (length, grace) = match windows {
            AnyWindows::Fixed(_) => return None,
            AnyWindows::Session(sessions) => (sessions.gap_time(), sessions.grace_time()),
            AnyWindows::Sliding(windows) => (windows.difference(), windows.grace_time()),
        };
        Some(Self {
            is_final,
            length: ms(length),
            grace: ms(grace),
            closed_before: Timestamp(i64::MIN),
        })
    }

    /// Sessions whose last record is before this time, and sliding windows that start before it, are closed,
    /// regardless of their grace.
    #[must_use]
    pub fn closed_before(&self) -> Timestamp {
        self.closed_before
    }

    /// Returns whether results are final.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// Continues the rows of an earlier program at this stream time. Returns whether the terms differ from that
    /// program's.
    ///
    /// # Errors
    /// [`OtherRows`] if the rows do not fit these terms.
    pub fn take_over(
        &mut self,
        found: &Self,
        windows: &AnyWindows,
        stream_time: Option<Timestamp>,
    ) -> Result<bool, OtherRows> {
        if matches!(windows, AnyWindows::Sliding(_)) && found.length != self.length {
            return Err(OtherRows::Length(OtherWindows {
                found: duration(found.length),
                found_every: duration(found.length),
                now: duration(self.length),
                every: duration(self.length),
            }));
        }
        if found.is_final != self.is_final {
            let was_final = found.is_final;
            return Err(OtherRows::Results { was_final });
        }
        self.closed_before = found.closed_before;
        if self.open_for() > found.open_for()
            && let Some(now) = stream_time
        {
            let closed = Timestamp(now.0.saturating_sub(found.open_for()));
            self.closed_before = closed.max(found.closed_before);
        }
        Ok(self != found)
    }

    /// The time for which a window accepts records after the time that decides about its close: length plus grace.
    fn open_for(&self) -> i64 {
        self.length.saturating_add(self.grace)
    }

    /// The terms as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_final)];
        for number in [self.length, self.grace, self.closed_before.0] {
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
        if *version > VERSION {
            return Err(TermsError::Newer {
                version: *version,
                known: VERSION,
            });
        }
        let (is_final, numbers) = rest.split_first().ok_or(damaged)?;
        if *version != VERSION || *is_final > 1 || bytes.len() != LEN {
            return Err(damaged);
        }
        let mut numbers = numbers.as_chunks::<8>().0.iter();
        let mut number = || numbers.next().map(|bytes| i64::from_be_bytes(*bytes));
        match (number(), number(), number()) {
            (Some(length @ 0..), Some(grace @ 0..), Some(closed_before)) => Ok(Self {
                is_final: *is_final == 1,
                length,
                grace,
                closed_before: Timestamp(closed_before),
            }),
            _ => Err(damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Hopping, Session, Sliding};
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn sliding(length: u64, grace: u64) -> AnyWindows {
        AnyWindows::Sliding(Sliding::of(MS(length)).grace(MS(grace)))
    }

    fn sessions(gap: u64, grace: u64) -> AnyWindows {
        AnyWindows::Session(Session::gap(MS(gap)).grace(MS(grace)))
    }

    fn terms(windows: &AnyWindows) -> RowTerms {
        RowTerms::of(windows, false).unwrap()
    }

    #[test]
    fn the_format_is_pinned() {
        let mut terms = RowTerms::of(&sliding(10, 5), true).unwrap();
        terms.closed_before = Timestamp(7);
        let mut bytes = terms.encode();
        let expected = b"\x01\x01\0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07";
        assert_eq!(bytes, expected);
        assert_eq!(RowTerms::decode(&bytes), Ok(terms));
        for len in 0..bytes.len() {
            let damaged = Err(TermsError::Damaged { len });
            assert_eq!(RowTerms::decode(&bytes[..len]), damaged);
        }
        bytes[0] = 2;
        let newer = TermsError::Newer {
            version: 2,
            known: 1,
        };
        assert_eq!(RowTerms::decode(&bytes), Err(newer));
        bytes[0] = 0;
        assert!(RowTerms::decode(&bytes).is_err());
    }

    #[test]
    fn windows_that_have_closed_stay_closed() {
        let now = Some(Timestamp(1_000));
        for of in [sliding, sessions] {
            let mut same = terms(&of(10, 5));
            assert_eq!(
                same.take_over(&terms(&of(10, 5)), &of(10, 5), now),
                Ok(false)
            );
            assert_eq!(same.closed_before(), Timestamp(i64::MIN));
            let mut shorter = terms(&of(10, 2));
            assert_eq!(shorter.take_over(&same, &of(10, 2), now), Ok(true));
            assert_eq!(shorter.closed_before(), Timestamp(i64::MIN));
            let mut longer = terms(&of(10, 500));
            assert_eq!(longer.take_over(&shorter, &of(10, 500), now), Ok(true));
            assert_eq!(longer.closed_before(), Timestamp(988));
            // The limit stays.
            let mut next = terms(&of(10, 0));
            let later = Some(Timestamp(1_100));
            assert_eq!(next.take_over(&longer, &of(10, 0), later), Ok(true));
            assert_eq!(next.closed_before(), Timestamp(988));
            assert_eq!(longer.take_over(&next, &of(10, 500), later), Ok(true));
            assert_eq!(longer.closed_before(), Timestamp(1_090));
        }
    }

    #[test]
    fn the_limit_is_the_one_of_the_windows() {
        let now = Timestamp(1_000);
        let of = [
            (sessions(10, 5), sessions(10, 6)),
            (sliding(10, 5), sliding(10, 6)),
        ];
        for (before, after) in of {
            let mut longer = terms(&after);
            longer
                .take_over(&terms(&before), &before, Some(now))
                .unwrap();
            let Timestamp(limit) = longer.closed_before();
            let is_closed = |time| match before {
                AnyWindows::Session(session) => session.is_closed(Timestamp(time), now),
                AnyWindows::Sliding(windows) => windows.is_closed(Timestamp(time), now),
                AnyWindows::Fixed(_) => unreachable!(),
            };
            assert!(is_closed(limit - 1) && !is_closed(limit));
        }
    }

    #[test]
    fn other_lengths_and_results_are_refused() {
        let mut longer = terms(&sliding(20, 0));
        let refused = longer.take_over(&terms(&sliding(10, 0)), &sliding(20, 0), None);
        let Err(OtherRows::Length(other)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((other.found, other.now), (MS(10), MS(20)));
        let mut longer = terms(&sessions(20, 0));
        let taken = longer.take_over(&terms(&sessions(10, 0)), &sessions(20, 0), None);
        assert_eq!(taken, Ok(true));
        let was = RowTerms::of(&sessions(10, 0), true).unwrap();
        let mut now = terms(&sessions(10, 0));
        let refused = now.take_over(&was, &sessions(10, 0), None);
        assert_eq!(refused, Err(OtherRows::Results { was_final: true }));
        assert_eq!(
            RowTerms::of(&AnyWindows::Fixed(Hopping::of(MS(1))), false),
            None
        );
    }
}
