//! The periodic work of a worker.

mod changelog_ends;
mod purge;
mod report;

use std::time::Duration;

use eos_protocol::Now;

pub(super) use changelog_ends::take_any_end;
pub(super) use report::report;

/// The interval between two searches for idle tasks.
const IDLE: Duration = Duration::from_secs(60);

/// The times at which periodic work is due.
#[derive(Debug, Default)]
pub(super) struct Chores {
    reported: Option<Now>,
    next_changelog_ends: Now,
    next_purge: Now,
    idle_looked_at: Now,
}

impl Chores {
    /// Whether the search for tasks with soon expiring offsets is due.
    pub(super) fn looks_for_idle(&mut self, now: Now) -> bool {
        let due = now.since(self.idle_looked_at) >= IDLE;
        if due {
            self.idle_looked_at = now;
        }
        due
    }
}
