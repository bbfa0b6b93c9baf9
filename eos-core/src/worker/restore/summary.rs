//! The log line about the restores of a worker.

use eos_protocol::Now;
use eos_protocol::state::RestoreKind;

use crate::worker::WorkerSpec;

/// The restores since the worker last had none. They give one line for all tasks of a start.
#[derive(Debug, Default)]
pub(super) struct Summary {
    began: Option<Now>,
    kinds: Vec<RestoreKind>,
    records: u64,
}

impl Summary {
    /// Records that restores are under way.
    pub(super) fn begin(&mut self, now: Now) {
        self.began.get_or_insert(now);
    }

    /// Returns whether restores began since the last line.
    pub(super) const fn has_begun(&self) -> bool {
        self.began.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::tests::spec;
    use eos_protocol::Guarantee;

    /// A revocation may take the last restore, and the next one may come hours later.
    #[test]
    fn the_next_start_counts_from_nothing() {
        let mut summary = Summary::default();
        assert!(!summary.has_begun());
        summary.begin(Now::default());
        summary.add_records(7);
        summary.add_task(RestoreKind::Rebuilt);
        assert!(summary.has_begun());
        summary.log(&spec(0, Guarantee::ExactlyOnce), Now::default());
        assert!(!summary.has_begun());
        assert!(summary.kinds.is_empty());
        assert_eq!(summary.records, 0);
    }
}
