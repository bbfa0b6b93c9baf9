//! When the offsets of an idle task are committed once more.
//!
//! A transaction carries the offsets of every task that it touches. A task without records is
//! touched by none, and the broker forgets offsets that were not committed for
//! `offsets.retention.minutes` (seven days by default): always once the group is empty, and of
//! topics that no member subscribes to at any time, which is what a stage's siblings are. A task
//! that lost its offsets starts over, or if it has state must not start at all.

use std::time::Duration;

use crate::time::Now;

/// Offsets are committed again after this time without a commit.
pub const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// A worker does not know when the offsets of a task that it took over were committed. It commits
/// them once it has had the task for this long: a program that is restarted every day would never
/// come to it otherwise, and a task that moves about would be committed with every move if it were
/// done at once.
pub const AFTER_START: Duration = Duration::from_secs(60 * 60);

/// Whether the offsets of a task have to be committed again, with the name that they have.
///
/// `started` is when the worker took the task over, `committed` when it last committed the task's
/// offsets.
#[must_use]
pub fn recommit_due(started: Now, committed: Option<Now>, now: Now) -> bool {
    match committed {
        Some(committed) => now.since(committed) >= EVERY,
        None => now.since(started) >= AFTER_START,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(n: u64) -> Now {
        Now(Duration::from_secs(n * 60 * 60))
    }

    #[test]
    fn offsets_of_an_idle_task_are_committed_daily() {
        let due = |now| recommit_due(hours(1), Some(hours(10)), hours(now));
        assert!(!due(33));
        assert!(due(34));
    }

    #[test]
    fn a_task_that_was_taken_over_is_not_left_for_a_day() {
        let due = |now| recommit_due(hours(10), None, hours(now));
        assert!(!due(10));
        assert!(due(11));
    }
}
