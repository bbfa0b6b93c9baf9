//! The periodic work of a worker.

mod changelog_ends;
mod idle_inputs;
mod mirror;
mod purge;
mod report;

use std::time::Duration;

use eos_protocol::Now;

use idle_inputs::IdleInputs;
use mirror::Mirror;

use super::RecordsOf;
use super::shared::Shared;
use super::tasks::Tasks;
use crate::client::Client;

pub(super) use changelog_ends::take_any_end;
pub(super) use report::report;

/// The interval between two searches for idle tasks.
const IDLE: Duration = Duration::from_secs(60);

/// The times at which periodic work is due.
#[derive(Debug, Default)]
pub(super) struct Chores {
    reported: Option<Now>,
    next_changelog_ends: Now,
    /// The start time of the query of changelogs in flight.
    changelogs_queried: Option<Now>,
    /// The number of queries of changelogs in a row without a response.
    silent_changelogs: u32,
    idle_inputs: IdleInputs,
    mirror: Mirror,
    next_purge: Now,
    idle_looked_at: Now,
}

impl Chores {
    /// Queries the ends of changelogs and of idle inputs periodically. The client has one such query in flight.
    pub(super) fn read_ends<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &mut Tasks<RecordsOf<C>>,
    ) {
        if self.changelogs_queried.is_none() {
            self.idle_inputs.look(shared, source, tasks);
        }
        if !self.idle_inputs.is_in_flight() {
            self.read_changelog_ends(shared, source, tasks);
        }
    }

    /// Copies the positions of the app's ledger to the consumer group periodically.
    pub(super) fn mirror<C: Client>(
        &mut self,
        shared: &Shared<C>,
        source: &mut C::Source,
        tasks: &Tasks<RecordsOf<C>>,
    ) {
        if shared.topology.ledger().is_some() {
            self.mirror.copy(shared, source, tasks);
        }
    }

    /// Abandons a query of ends.
    pub(super) fn abandon_ends(&mut self) {
        self.changelogs_queried = None;
        self.idle_inputs.abandon();
    }

    /// Returns whether the search for tasks with soon expiring offsets is due.
    pub(super) fn looks_for_idle(&mut self, now: Now) -> bool {
        let due = now.since(self.idle_looked_at) >= IDLE;
        if due {
            self.idle_looked_at = now;
        }
        due
    }
}
