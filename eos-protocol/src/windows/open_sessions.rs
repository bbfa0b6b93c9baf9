//! The stored sessions of one key.

use super::Session;
use crate::ids::Timestamp;

/// The format that this version writes, and the newest that it reads.
const VERSION: u8 = 1;
/// The length of a session without its result, in bytes.
const HEAD: usize = 20;

/// A session of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession<'a> {
    /// The time of its first record.
    pub first: Timestamp,
    /// The time of its last record.
    pub last: Timestamp,
    /// The encoded result.
    pub result: std::borrow::Cow<'a, [u8]>,
}

/// The sessions of one key, in the order of their times.
///
/// ```text
/// version (1 byte) · for each session: first (8) · last (8) · length of the result (4) · result
/// ```
///
/// Numbers are big-endian. Times are in milliseconds, and both ends belong to the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenSessions<'a>(Vec<OpenSession<'a>>);

/// The error of bytes that are no valid sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionsError {
    /// Written by a newer version of this library.
    #[error(
        "the row has format {version}, but this version reads up to {known}: run the newest version that ever used this state"
    )]
    Newer {
        /// The format's number.
        version: u8,
        /// The newest format that this version reads.
        known: u8,
    },
    /// The bytes are damaged.
    #[error(
        "the row is damaged ({len} bytes): another program wrote to the changelog. Start under another app name"
    )]
    Damaged {
        /// The number of bytes.
        len: usize,
    },
}

/// Reads spans with their results. `None` if the bytes are damaged.
pub(super) fn read(mut rest: &[u8]) -> Option<Vec<OpenSession<'_>>> {
    let mut sessions = Vec::new();
    while !rest.is_empty() {
        let (head, more) = rest.split_first_chunk::<HEAD>()?;
        let (first, head) = head.split_first_chunk()?;
        let (last, len) = head.split_first_chunk()?;
        let len = usize::try_from(u32::from_be_bytes(*len.first_chunk()?)).ok()?;
        let (result, more) = more.split_at_checked(len)?;
        sessions.push(OpenSession {
            first: Timestamp(i64::from_be_bytes(*first)),
            last: Timestamp(i64::from_be_bytes(*last)),
            result: result.into(),
        });
        rest = more;
    }
    Some(sessions)
}

/// Appends spans with their results.
pub(super) fn write(sessions: &[OpenSession<'_>], into: &mut Vec<u8>) {
    for session in sessions {
        into.extend_from_slice(&session.first.0.to_be_bytes());
        into.extend_from_slice(&session.last.0.to_be_bytes());
        let len = u32::try_from(session.result.len()).unwrap_or(u32::MAX);
        into.extend_from_slice(&len.to_be_bytes());
        into.extend_from_slice(&session.result);
    }
}

impl<'a> OpenSessions<'a> {
    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`SessionsError`] if the bytes have a newer format or are damaged.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, SessionsError> {
        let damaged = SessionsError::Damaged { len: bytes.len() };
        let (version, rest) = bytes.split_first().ok_or(damaged)?;
        match *version {
            VERSION => {}
            0 => return Err(damaged),
            version => {
                let known = VERSION;
                return Err(SessionsError::Newer { version, known });
            }
        }
        Ok(Self(read(rest).ok_or(damaged)?))
    }

    /// Replaces the content of `into` with the sessions as bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.clear();
        into.push(VERSION);
        write(&self.0, into);
    }

    /// The sessions, in the order of their times.
    pub fn iter(&self) -> impl Iterator<Item = &OpenSession<'a>> {
        self.0.iter()
    }

    /// Returns whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a session.
    pub fn insert(&mut self, session: OpenSession<'a>) {
        let at = self.0.partition_point(|it| it.first < session.first);
        self.0.insert(at, session);
    }

    /// Removes the sessions that close up to this stream time, in order.
    pub fn take_closed(
        &mut self,
        windows: &Session,
        stream_time: Timestamp,
    ) -> Vec<OpenSession<'a>> {
        self.0
            .extract_if(.., |it| windows.is_closed(it.last, stream_time))
            .collect()
    }

    /// Removes the sessions that a record joins, in order. They are open at this stream time, and near enough to the
    /// record's time. Sessions whose last record is before `closed_before` are closed in any case.
    pub fn take_joined(
        &mut self,
        windows: &Session,
        time: Timestamp,
        (stream_time, closed_before): (Timestamp, Timestamp),
    ) -> Vec<OpenSession<'a>> {
        let joins = |it: &mut OpenSession<'a>| {
            let is_open = it.last >= closed_before && !windows.is_closed(it.last, stream_time);
            is_open && windows.joins((it.first, it.last), time)
        };
        self.0.extract_if(.., joins).collect()
    }

    /// Returns the stream time at which the task visits the row. With `at_close`, it is the time at which the first
    /// session closes. Otherwise it is later, so that one visit removes several sessions.
    #[must_use]
    pub fn next_due(&self, windows: &Session, at_close: bool) -> Option<Timestamp> {
        let closes = self.0.iter().map(|it| windows.closes_at(it.last)).min()?;
        Some(match at_close {
            true => closes,
            false => windows.removed_at(closes),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::due::Place;
    use proptest::prelude::*;

    fn session(first: i64, last: i64, result: &[u8]) -> OpenSession<'_> {
        OpenSession {
            first: Timestamp(first),
            last: Timestamp(last),
            result: result.into(),
        }
    }

    #[test]
    fn the_format_is_pinned() {
        let mut sessions = OpenSessions::default();
        sessions.insert(session(7, 9, b""));
        sessions.insert(session(1, 2, b"ab"));
        let mut bytes = Vec::new();
        sessions.encode(&mut bytes);
        let expected = b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x02ab\
            \0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0";
        assert_eq!(bytes, expected);
        assert_eq!(OpenSessions::decode(&bytes), Ok(sessions));
        // A cut between two sessions is not visible.
        for len in (0..bytes.len()).filter(|len| ![1, 23].contains(len)) {
            let damaged = Err(SessionsError::Damaged { len });
            assert_eq!(OpenSessions::decode(&bytes[..len]), damaged);
        }
        bytes[0] = 2;
        let newer = Err(SessionsError::Newer {
            version: 2,
            known: 1,
        });
        assert_eq!(OpenSessions::decode(&bytes), newer);
    }

    #[test]
    fn closed_sessions_without_a_final_result_are_removed_later() {
        let windows = Session::gap(Duration::from_millis(10)).grace(Duration::from_millis(5));
        let mut sessions = OpenSessions::default();
        assert_eq!(sessions.next_due(&windows, true), None);
        sessions.insert(session(1, 20, b""));
        sessions.insert(session(30, 30, b""));
        assert_eq!(sessions.next_due(&windows, true), Some(Timestamp(36)));
        assert_eq!(sessions.next_due(&windows, false), Some(Timestamp(81)));
        let mut sessions = OpenSessions::default();
        sessions.insert(session(1, i64::MAX, b""));
        for at_close in [false, true] {
            let due = sessions.next_due(&windows, at_close);
            assert_eq!(due, Some(Place::LAST));
        }
    }

    proptest! {
        /// Records in any order lead to the sessions of the records in order, as long as none is late.
        #[test]
        fn sessions_do_not_depend_on_the_order_of_records(
            times in proptest::collection::vec(0_i64..60, 1..12),
            gap in 1_u64..8,
        ) {
            let windows = Session::gap(Duration::from_millis(gap)).grace(Duration::from_millis(100));
            let of = |times: &[i64]| {
                let mut open = OpenSessions::default();
                for time in times.iter().copied().map(Timestamp) {
                    let joined = open.take_joined(&windows, time, (Timestamp(60), Timestamp(0)));
                    let first = joined.iter().map(|it| it.first).min().map_or(time, |it| it.min(time));
                    let last = joined.iter().map(|it| it.last).max().map_or(time, |it| it.max(time));
                    open.insert(session(first.0, last.0, b""));
                }
                open
            };
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let (any, sorted) = (of(&times), of(&sorted));
            prop_assert_eq!(&any, &sorted);
            let spans: Vec<_> = any.iter().map(|it| (it.first.0, it.last.0)).collect();
            let apart = |pair: &[(i64, i64)]| pair[1].0 - pair[0].1 > gap.cast_signed();
            prop_assert!(spans.windows(2).all(apart));
        }
    }
}
