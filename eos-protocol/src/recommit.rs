//! The repeated commit of an idle task's offsets.
//!
//! A transaction carries the offsets of every task that it touches. No transaction touches a task without records.
//! The broker forgets offsets that were not committed for `offsets.retention.minutes` (seven days by default): always
//! once the group is empty, and at any time for topics without a subscribed member, such as a stage's siblings. A
//! task that lost its offsets starts over. If it has state, it must not start at all.

use std::time::Duration;

use crate::time::Now;

/// The time without a commit after which offsets are committed again.
pub const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The time after a takeover at which a worker commits a task's offsets. The worker does not know when they were last
/// committed. A longer time would never pass in a program that is restarted every day. An immediate commit would
/// repeat with every move of a task.
pub const AFTER_START: Duration = Duration::from_secs(60 * 60);

/// Returns whether the offsets of a task are due to be committed again, with their name.
///
/// `started` is the time when the worker took over the task, `committed` the time of its last commit of the task's
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
