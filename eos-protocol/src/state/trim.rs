//! The offset up to which a windowed changelog may be deleted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Offset, Timestamp};

/// The number of trims per retention. Smaller steps would need more stored offsets for little gain.
const STEPS: i64 = 16;

/// The format version of a [note](Trim::take_note).
const VERSION: u8 = 1;
/// The length of an offset or a time in a note, in bytes.
const WORD: usize = 8;

/// Finds the offset below which a task's partition of a windowed changelog holds only expired windows (design §5:
/// trimmed by committed stream time, never by the clock).
///
/// A window starts no later than a record in it, so not after the task's stream time. When an LSO is *observed*, every
/// record below it was written at the stream time of that moment, or before. So once the *committed* stream time is a
/// retention beyond that, all windows below that LSO are expired.
///
/// Two kinds of records stay in any case:
/// - The last commit record, and every record after it. Without the commit record, a restart would find a changelog
///   that lost data. An LSO is safe if it was read before the transaction with the commit record was sealed.
/// - Records that another worker may have written since. An LSO counts only after the commit of a transaction that
///   was sealed later. The commit proves that no other owner came between (as for
///   [`ChangelogOffsets`](super::ChangelogOffsets)). So no result is beyond the offset in the last
///   position, which a database may still be applying.
///
/// An owner often loses a task before a whole retention has passed. So a [note](Self::take_note) in the local state keeps the
/// observations. A restore also observes the offsets that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trim {
    retention: i64,
    step: i64,
    /// Each LSO with the stream time at which it was observed. Both grow.
    observed: VecDeque<(Offset, Timestamp)>,
    /// The highest observed LSO.
    newest: Option<Offset>,
    /// The highest LSO when the last sealing began. Without transactions, a later LSO may include the commit record.
    sealing: Option<Offset>,
    /// The same, of the transaction under way, if it wrote to the changelog.
    sealed: Option<Offset>,
    /// The last commit record is at this offset or later.
    commit_record: Option<Offset>,
    /// Below this offset every window is expired.
    over: Option<Offset>,
    /// The last result.
    trimmed: Option<Offset>,
    /// Whether the last note has all observations. The last observation may have moved since.
    is_noted: bool,
}

impl Trim {
    /// A trim for a changelog whose stores keep a window this long after its start: the longest of their retentions.
    #[must_use]
    pub fn new(retention: Duration) -> Self {
        let mut trim = Self {
            retention: 0,
            step: 1,
            observed: VecDeque::new(),
            newest: None,
            sealing: None,
            sealed: None,
            commit_record: None,
            over: None,
            trimmed: None,
            is_noted: true,
        };
        trim.keep_for(retention);
        trim
    }

    /// Records an LSO. `seen` is the task's current stream time, including the open transaction: a transaction in
    /// doubt may be below the LSO already.
    pub fn observe(&mut self, lso: Offset, seen: Option<Timestamp>) {
        if self.newest.is_some_and(|newest| lso <= newest) {
            return;
        }
        self.newest = Some(lso);
        let seen = seen.unwrap_or(Timestamp(i64::MIN));
        // A higher LSO with an earlier time is better evidence. A restore knows the latest window only, and an abort
        // sets stream time back.
        let mut is_move = false;
        while let Some((_, time)) = self.observed.back().filter(|(_, time)| *time >= seen) {
            is_move = *time == seen;
            self.is_noted &= is_move;
            self.observed.pop_back();
        }
        // The last entry moves until it is a step away from the previous one, so the entries stay few.
        if !is_move {
            let before = self.observed.len().checked_sub(2);
            let before = before.and_then(|at| self.observed.get(at));
            let is_near =
                |(_, time): &(Offset, Timestamp)| seen.0.saturating_sub(time.0) < self.step;
            match before.is_some_and(is_near) {
                true => drop(self.observed.pop_back()),
                false => self.is_noted = false,
            }
        }
        self.observed.push_back((lso, seen));
    }

    /// Forgets the observations of windows that are expired at this committed stream time, except for the highest one. A
    /// restore commits nothing, and its changelog may never have been deleted.
    pub fn forget_expired(&mut self, committed: Option<Timestamp>) {
        while let (Some((_, seen)), Some(time)) = (self.observed.get(1), committed)
            && seen.0.saturating_add(self.retention) <= time.0
        {
            self.observed.pop_front();
        }
    }

    /// Sets the retention, the longest one of the stores.
    pub fn keep_for(&mut self, retention: Duration) {
        self.retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        self.step = (self.retention / STEPS).max(1);
    }

    /// Returns a note of the observations for the next owner of the local state. Returns `None` if no step was added since the
    /// last note and no transaction was aborted. The caller commits the note with the transaction under way. The format is: version (1 byte), then LSO and stream time of each observation (8 bytes each, big-endian).
    pub fn take_note(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.is_noted, true) {
            return None;
        }
        let mut note = vec![VERSION];
        for (lso, time) in &self.observed {
            note.extend_from_slice(&lso.get().to_be_bytes());
            note.extend_from_slice(&time.0.to_be_bytes());
        }
        Some(note)
    }

    /// Continues with the observations of an earlier owner. Returns false and ignores the note if it is damaged or has another
    /// version. Trimming then starts from new observations, up to one retention later.
    pub fn resume(&mut self, note: &[u8]) -> bool {
        let Some((&VERSION, rest)) = note.split_first() else {
            return false;
        };
        let (words, []) = rest.as_chunks::<{ 2 * WORD }>() else {
            return false;
        };
        let word = |bytes: &[u8]| bytes.try_into().map(i64::from_be_bytes).ok();
        let mut observed = VecDeque::new();
        for both in words {
            let (lso, time) = both.split_at(WORD);
            let (Some(Ok(lso)), Some(time)) = (word(lso).map(Offset::new), word(time)) else {
                return false;
            };
            observed.push_back((lso, Timestamp(time)));
        }
        let pairs = observed.iter().zip(observed.iter().skip(1));
        let mut grows = pairs.map(|(a, b)| a.0 < b.0 && a.1 < b.1);
        if !grows.all(|it| it) {
            return false;
        }
        self.newest = observed.back().map(|(lso, _)| *lso);
        self.observed = observed;
        true
    }

    /// Records that the sealing of a transaction begins: it has sent nothing to the changelog yet.
    pub fn begin_seal(&mut self) {
        self.sealing = self.newest;
    }

    /// Records that a transaction that touches the task is sealed. `wrote` is true if it ends with a commit record in
    /// this changelog.
    pub fn sealed(&mut self, wrote: bool) {
        self.sealed = self.sealing.filter(|_| wrote);
    }

    /// Records that this transaction is committed, with this stream time. Returns the offset up to which the
    /// changelog may be deleted, if it is beyond the previous result.
    pub fn committed(&mut self, stream_time: Option<Timestamp>) -> Option<Offset> {
        self.commit_record = self.commit_record.max(self.sealed.take());
        let time = stream_time?;
        while let Some(&(lso, seen)) = self.observed.front()
            && seen.0.saturating_add(self.retention) <= time.0
        {
            self.over = self.over.max(Some(lso));
            self.observed.pop_front();
        }
        let to = self.over?.min(self.commit_record?);
        if self.trimmed.is_some_and(|trimmed| to <= trimmed) {
            return None;
        }
        self.trimmed = Some(to);
        Some(to)
    }

    /// Records that this transaction is known not to be committed.
    pub fn discarded(&mut self) {
        self.sealed = None;
        self.is_noted = false;
    }
}

#[cfg(test)]
#[path = "trim_test.rs"]
mod tests;
