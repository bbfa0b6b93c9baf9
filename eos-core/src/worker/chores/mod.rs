//! Periodic work of a worker beside its records.

mod changelog_ends;
mod purge;
mod report;

use std::time::Duration;

use eos_protocol::Now;

pub(super) use changelog_ends::take_any_end;
pub(super) use report::report;

/// How often idle tasks are looked for.
const IDLE: Duration = Duration::from_secs(60);

/// When each piece of periodic work is due.
#[derive(Debug, Default)]
pub(super) struct Chores {
    reported: Option<Now>,
    next_changelog_ends: Now,
    next_purge: Now,
    idle_looked_at: Now,
}

impl Chores {
    /// Whether it is time to look for tasks whose offsets expire soon.
    pub(super) fn looks_for_idle(&mut self, now: Now) -> bool {
        let due = now.since(self.idle_looked_at) >= IDLE;
        if due {
            self.idle_looked_at = now;
        }
        due
    }
}
