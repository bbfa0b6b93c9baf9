//! The log line about the restores of a worker.

use eos_protocol::Now;
use eos_protocol::state::RestoreKind;

use crate::worker::WorkerSpec;

/// The restores since the worker had none: one line for all tasks of a start.
#[derive(Debug, Default)]
pub(super) struct Summary {
    began: Option<Now>,
    kinds: Vec<RestoreKind>,
    records: u64,
}

impl Summary {
    /// Restores are under way.
    pub(super) fn begin(&mut self, now: Now) {
        self.began.get_or_insert(now);
    }

    /// Adds records that were read from changelogs.
    pub(super) fn add_records(&mut self, records: u64) {
        self.records += records;
    }

    /// Adds a task whose state is complete.
    pub(super) fn add_task(&mut self, kind: RestoreKind) {
        self.kinds.push(kind);
    }

    /// Logs the restores, if there were any, and forgets them.
    pub(super) fn log(&mut self, spec: &WorkerSpec, now: Now) {
        let Self {
            began,
            kinds,
            records,
        } = std::mem::take(self);
        if kinds.is_empty() {
            return;
        }
        let count = |kind| kinds.iter().filter(|one| **one == kind).count();
        tracing::info!(
            app = %spec.app, worker = %spec.id, tasks = kinds.len(),
            exact = count(RestoreKind::Exact), replayed = count(RestoreKind::Replayed),
            rebuilt = count(RestoreKind::Rebuilt), first = count(RestoreKind::First),
            records, took_ms = began.map_or(0, |began| now.since(began).as_millis()),
            "state restored"
        );
    }
}
