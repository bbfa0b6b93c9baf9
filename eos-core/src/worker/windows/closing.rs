//! The final results of one store.

use std::collections::VecDeque;
use std::ops::Bound;

use eos_protocol::state::StoreId;
use eos_protocol::windows::{Cursor, Hopping, Terms};
use eos_protocol::{Clock, Place, Round, Timestamp};
use eos_state::{Direction, DueItem, KeyRange, StoreError, TaskStore};

use super::key_of;
use crate::rules;
use crate::store::{TERMS, start_bytes, window_of};

/// The maximum number of results that are read ahead, and the maximum of their bytes.
const READ_AHEAD: (usize, usize) = (256, 64 << 10);

/// The bound of a store that was not read yet.
const UNKNOWN: Timestamp = Timestamp(i64::MIN);

/// The final results of a store, in the order of window and key.
///
/// The store is ordered by the starts of windows, so the results of the windows that close next are the rows behind the
/// [`Cursor`]. The cursor lies in the store's terms.
#[derive(Debug)]
pub(super) struct Closing {
    id: StoreId,
    windows: Hopping,
    /// The cursor of a store that has none yet.
    first: Cursor,
    /// There is nothing to emit before this stream time.
    next: Timestamp,
    /// The next rows of one window, read ahead. The results of this store do not change them, because the window is
    /// closed.
    ahead: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Closing {
    pub(super) fn new(id: StoreId, windows: Hopping, first: Cursor) -> Self {
        Self {
            id,
            windows,
            first,
            next: UNKNOWN,
            ahead: VecDeque::new(),
        }
    }

    pub(super) fn id(&self) -> StoreId {
        self.id
    }

    /// Returns the cursor, without the writes of the current record.
    pub(super) fn cursor(&self, store: &TaskStore) -> Result<Cursor, StoreError> {
        if !rules::commits_cursor_with_results() {
            return Ok(self.first.clone());
        }
        let mut bytes = Vec::new();
        let there = store.get_kept(self.id, TERMS, &mut bytes)?;
        // The task has read the terms before its first record.
        let terms = there.then(|| Terms::decode(&bytes).ok()).flatten();
        let cursor = terms.and_then(|terms| terms.cursor().cloned());
        Ok(cursor.unwrap_or_else(|| self.first.clone()))
    }

    /// Begins behind the windows that start before this, in a store without a cursor.
    pub(super) fn begin_behind(&mut self, start: Timestamp) {
        if self.first.start() < start {
            self.first = Cursor::before(start);
        }
    }

    /// Moves the cursor in memory only.
    pub(super) fn move_to(&mut self, cursor: Cursor) {
        self.first = cursor;
    }

    /// Returns a moment before which no result is final.
    pub(super) fn next(&self) -> Timestamp {
        let first = self.ahead.front().and_then(|(row, _)| window_of(row));
        let first = first.map(|start| self.windows.closes_at(start));
        first.unwrap_or(self.next)
    }

    /// Finds the first result to emit at this stream time.
    pub(super) fn look(
        &mut self,
        store: &TaskStore,
        stream_time: Timestamp,
        taken: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let cursor = self.cursor(store)?;
        self.skip_emitted(&cursor);
        if !self.ahead.is_empty() {
            return Ok(());
        }
        self.read_ahead(store, &cursor, stream_time)?;
        if self.ahead.is_empty() {
            // The next record may be behind the time of idle inputs.
            let proven = taken.map_or(UNKNOWN, |taken| taken.min(stream_time));
            self.next = self.windows.closes_at(self.windows.first_open(proven));
        }
        Ok(())
    }

    /// Returns the first result that [`look`](Self::look) found.
    pub(super) fn item(&self) -> Option<DueItem> {
        let (key, value) = self.ahead.front()?.clone();
        let (store, moment) = (self.id, self.next());
        let round = Round::of(moment);
        Some(DueItem {
            clock: Clock::Stream,
            place: Place { round, store, key },
            due: moment,
            value,
        })
    }

    /// Forgets rows that a unit at this stream time may change. Their windows close later.
    pub(super) fn may_change(&mut self, stream_time: Timestamp) {
        let open = self.windows.first_open(stream_time);
        self.next = self.next().min(self.windows.closes_at(open));
        self.ahead.clear();
    }

    /// Drops the first result if it is emitted.
    fn skip_emitted(&mut self, cursor: &Cursor) {
        self.next = self.next();
        let emitted =
            |row: &[u8]| window_of(row).is_none_or(|start| cursor.includes(start, key_of(row)));
        if self.ahead.front().is_some_and(|(row, _)| emitted(row)) {
            self.ahead.pop_front();
        }
    }

    fn read_ahead(
        &mut self,
        store: &TaskStore,
        cursor: &Cursor,
        stream_time: Timestamp,
    ) -> Result<(), StoreError> {
        let range = self.behind(cursor, stream_time);
        let mut rows = store.scan(self.id, &range, Direction::Forward)?;
        let (most, mut bytes) = READ_AHEAD;
        while let Some((row, value)) = rows.next()? {
            let of_other_window = |(first, _): &(Vec<u8>, _)| window_of(first) != window_of(row);
            if self.ahead.front().is_some_and(of_other_window) {
                break;
            }
            bytes = bytes.saturating_sub(row.len() + value.len());
            self.ahead.push_back((row.to_vec(), value.to_vec()));
            if bytes == 0 || self.ahead.len() == most {
                break;
            }
        }
        Ok(())
    }

    /// Returns the rows behind a cursor whose windows are closed at this stream time.
    fn behind(&self, cursor: &Cursor, stream_time: Timestamp) -> KeyRange {
        let mut from = start_bytes(cursor.start()).to_vec();
        let from = match cursor.key() {
            Some(key) => {
                from.extend_from_slice(key);
                Bound::Excluded(&from[..])
            }
            None => Bound::Included(&from[..]),
        };
        let open = start_bytes(self.windows.first_open(stream_time));
        KeyRange::between((from, Bound::Excluded(&open[..])))
    }

    /// Returns the last moment up to which all results are emitted, at most this stream time.
    pub(super) fn handled_to(
        &self,
        store: &TaskStore,
        stream_time: Timestamp,
    ) -> Result<Timestamp, StoreError> {
        if self.next() > stream_time {
            return Ok(stream_time);
        }
        let range = self.behind(&self.cursor(store)?, stream_time);
        let mut rows = store.scan(self.id, &range, Direction::Forward)?;
        let first = rows.next()?.and_then(|(row, _)| window_of(row));
        let before = |start| Timestamp(self.windows.closes_at(start).0.saturating_sub(1));
        Ok(first.map_or(stream_time, before))
    }

    /// Forgets the rows that were read in a discarded transaction.
    pub(super) fn discarded(&mut self) {
        if rules::forgets_next_due() {
            self.next = UNKNOWN;
            self.ahead.clear();
        }
    }
}
