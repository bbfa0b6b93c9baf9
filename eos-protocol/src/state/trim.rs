//! How far the front of a windowed changelog may be deleted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Offset, Timestamp};

/// A changelog is cut in steps of this part of the retention: as fine as it is worth remembering.
const STEPS: i64 = 16;

/// Up to where a task's partition of a windowed changelog holds nothing but windows that are over
/// (design §5: trimmed by committed stream time, never by the clock).
///
/// A window starts no later than the record that is in it, so not after the task's stream time. When an
/// LSO is *heard*, every record below it was written at the stream time of that moment, or before. So
/// once the *committed* stream time is a retention beyond that, all windows below that LSO are over.
///
/// Two things stay all the same:
/// - what lies behind the last commit record, and it itself: without it a restart would find a changelog
///   that lost data. Below an LSO that was read before the transaction was sealed that wrote it is fine;
/// - what another worker may have written since: an LSO counts only once a transaction committed that was
///   sealed later, which proves that no other owner came between (as for
///   [`ChangelogOffsets`](super::ChangelogOffsets)). So no result is beyond what the position holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trim {
    retention: i64,
    step: i64,
    /// An LSO, and the stream time when it was heard. Both grow.
    heard: VecDeque<(Offset, Timestamp)>,
    /// The highest LSO that was heard.
    newest: Option<Offset>,
    /// The same when the transaction was sealed that is under way, if it wrote to the changelog.
    sealed: Option<Offset>,
    /// The last commit record is not below this.
    commit_record: Option<Offset>,
    /// Below this every window is over.
    over: Option<Offset>,
    /// What was answered last.
    trimmed: Option<Offset>,
}

impl Trim {
    /// Of a changelog whose stores keep a window this long after its start: the longest of their
    /// retentions.
    #[must_use]
    pub fn new(retention: Duration) -> Self {
        let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        Self {
            retention,
            step: (retention / STEPS).max(1),
            heard: VecDeque::new(),
            newest: None,
            sealed: None,
            commit_record: None,
            over: None,
            trimmed: None,
        }
    }

    /// The broker told the LSO. `seen` is the task's stream time now, of the open transaction
    /// included: one that is in doubt may be below the LSO already.
    pub fn heard(&mut self, lso: Offset, seen: Option<Timestamp>) {
        if self.newest.is_some_and(|newest| lso <= newest) {
            return;
        }
        self.newest = Some(lso);
        let seen = seen.unwrap_or(Timestamp(i64::MIN));
        // The last one moves on until it is a step away from the one before: so they stay few.
        let before = self.heard.len().checked_sub(2);
        let before = before.and_then(|at| self.heard.get(at));
        let is_near = |(_, time): &(Offset, Timestamp)| seen.0.saturating_sub(time.0) < self.step;
        if before.is_some_and(is_near) {
            self.heard.pop_back();
        }
        self.heard.push_back((lso, seen));
    }

    /// A transaction that touches the task is sealed; `wrote` tells whether it ends in a commit record
    /// in this changelog.
    pub fn sealed(&mut self, wrote: bool) {
        self.sealed = if wrote { self.newest } else { None };
    }

    /// That transaction is committed, with this stream time. Returns up to where the changelog may be
    /// deleted, if that is further than what was answered before.
    pub fn committed(&mut self, stream_time: Option<Timestamp>) -> Option<Offset> {
        self.commit_record = self.commit_record.max(self.sealed.take());
        let time = stream_time?;
        while let Some(&(lso, seen)) = self.heard.front()
            && seen.0.saturating_add(self.retention) <= time.0
        {
            self.over = self.over.max(Some(lso));
            self.heard.pop_front();
        }
        let to = self.over?.min(self.commit_record?);
        if self.trimmed.is_some_and(|trimmed| to <= trimmed) {
            return None;
        }
        self.trimmed = Some(to);
        Some(to)
    }

    /// That transaction is known not to be committed.
    pub fn discarded(&mut self) {
        self.sealed = None;
    }
}

#[cfg(test)]
#[path = "trim_test.rs"]
mod tests;
