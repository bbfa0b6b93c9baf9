//! The offset up to which a windowed changelog may be deleted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Offset, Timestamp};

/// The number of trims per retention. Smaller steps would need more stored offsets for little gain.
const STEPS: i64 = 16;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trim {
    retention: i64,
    step: i64,
    /// Each LSO with the stream time at which it was observed. Both grow.
    observed: VecDeque<(Offset, Timestamp)>,
    /// The highest observed LSO.
    newest: Option<Offset>,
    /// The highest LSO at the seal of the transaction under way, if it wrote to the changelog.
    sealed: Option<Offset>,
    /// The last commit record is at this offset or later.
    commit_record: Option<Offset>,
    /// Below this offset every window is expired.
    over: Option<Offset>,
    /// The last result.
    trimmed: Option<Offset>,
}

impl Trim {
    /// A trim for a changelog whose stores keep a window this long after its start: the longest of their retentions.
    #[must_use]
    pub fn new(retention: Duration) -> Self {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        Self {
            retention,
            step: (retention / STEPS).max(1),
            observed: VecDeque::new(),
            newest: None,
            sealed: None,
            commit_record: None,
            over: None,
            trimmed: None,
        }
    }

    /// Records an LSO. `seen` is the task's current stream time, including the open transaction: a transaction in
    /// doubt may be below the LSO already.
    pub fn observe(&mut self, lso: Offset, seen: Option<Timestamp>) {
        if self.newest.is_some_and(|newest| lso <= newest) {
            return;
        }
        self.newest = Some(lso);
        let seen = seen.unwrap_or(Timestamp(i64::MIN));
        // The last entry moves until it is a step away from the previous one, so the entries stay few.
        let before = self.observed.len().checked_sub(2);
        let before = before.and_then(|at| self.observed.get(at));
        let is_near = |(_, time): &(Offset, Timestamp)| seen.0.saturating_sub(time.0) < self.step;
        if before.is_some_and(is_near) {
            self.observed.pop_back();
        }
        self.observed.push_back((lso, seen));
    }

    /// Records that a transaction that touches the task is sealed. `wrote` is true if it ends with a commit record in
    /// this changelog.
    pub fn sealed(&mut self, wrote: bool) {
        self.sealed = if wrote { self.newest } else { None };
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
    }
}

#[cfg(test)]
#[path = "trim_test.rs"]
mod tests;
