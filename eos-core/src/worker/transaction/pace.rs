//! The timing of commits and of new transactions.

use std::time::Duration;

use eos_protocol::{
    CommitCause, CommitCost, CommitPacer, CommitPolicy, Load, Now, may_join,
    until_markers_are_written,
};

use crate::metrics::{Phases, Stopwatch};
use crate::worker::spec::WorkerSpec;

/// Measures the open transaction and the cost of commits.
#[derive(Debug)]
pub(in crate::worker) struct Pace {
    /// The open transaction.
    load: Option<Load>,
    /// The size of its state changes, in bytes.
    kept: usize,
    /// The reason for its commit.
    cause: CommitCause,
    pacer: CommitPacer,
    /// Times the commit in progress.
    stopwatch: Stopwatch,
    /// The expected time of the last transaction's markers. No transaction begins before.
    begins_at: Now,
    /// Whether the worker waits for these markers in this step.
    awaits_markers: bool,
    /// The idle time of the worker since the last commit.
    idle: Duration,
    /// The time that the databases took from the worker since the last commit.
    applying: Duration,
}

impl Pace {
    pub(super) fn new(policy: CommitPolicy) -> Self {
        Self {
            load: None,
            kept: 0,
            cause: CommitCause::Interval,
            pacer: CommitPacer::new(policy),
            stopwatch: Stopwatch::default(),
            begins_at: Now::default(),
            awaits_markers: false,
            idle: Duration::ZERO,
            applying: Duration::ZERO,
        }
    }

    /// Whether a record that is finished by `now` may join the open transaction. A slow record must not abort the
    /// records before it.
    pub(in crate::worker) fn admits(&self, now: Now, spec: &WorkerSpec) -> bool {
        let (timeout, commit) = (spec.transaction_timeout, spec.limits.commit);
        let load = self.load.as_ref();
        load.is_none_or(|load| may_join(now, load, timeout, commit))
    }

    /// Records the begin of a transaction.
    pub(super) fn opened(&mut self, now: Now) {
        self.load.get_or_insert(Load {
            since: now,
            records: 0,
            bytes: 0,
        });
    }

    /// Adds a record, with the size of its changes in bytes.
    pub(in crate::worker) fn took(&mut self, kept: usize) {
        self.kept += kept;
        if let Some(load) = &mut self.load {
            load.records += 1;
        }
    }

    /// Adds a result, with the size of its changes in bytes.
    pub(in crate::worker) fn keeps(&mut self, kept: usize) {
        self.kept += kept;
    }

    /// Adds the size of outputs, in bytes.
    pub(in crate::worker) fn sent(&mut self, bytes: usize) {
        if let Some(load) = &mut self.load {
            load.bytes += bytes as u64;
        }
    }

    /// Whether the transaction has no outputs yet.
    pub(in crate::worker) fn is_empty(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.bytes == 0)
    }

    /// Returns the reason to commit the open transaction now, if there is one. `most_records`: the limit during the
    /// search for a record that aborts its transactions.
    pub(super) fn due(
        &self,
        now: Now,
        most_records: Option<u64>,
        most_kept: usize,
    ) -> Option<CommitCause> {
        let load = self.load.as_ref()?;
        if most_records.is_some_and(|most| load.records >= most) {
            return Some(CommitCause::Records);
        }
        if self.kept >= most_kept {
            return Some(CommitCause::Bytes);
        }
        self.pacer.policy().due(now, load)
    }

    /// Returns the time until the commit of the open transaction is due.
    pub(in crate::worker) fn wait(&self, now: Now) -> Option<Duration> {
        let load = self.load.as_ref()?;
        Some(self.pacer.policy().wait(now, load))
    }

    /// The current time between two commits.
    pub(in crate::worker) fn interval(&self) -> Duration {
        self.pacer.policy().interval
    }

    pub(in crate::worker) fn commits_for(&mut self, cause: CommitCause) {
        self.cause = cause;
    }

    pub(in crate::worker) fn cause(&self) -> CommitCause {
        self.cause
    }

    /// Checks whether a transaction that begins now would meet the markers of the last one, and returns the wait for
    /// them. `takes_records` does not read the clock again: between two readings the wait could end, and the worker
    /// would sleep without a reason to wake up.
    pub(super) fn look_at_markers(&mut self, now: Now, idle: bool) -> Option<Duration> {
        let wait = match idle {
            true => self.begins_at.since(now),
            false => Duration::ZERO,
        };
        self.awaits_markers = !wait.is_zero();
        self.awaits_markers.then_some(wait)
    }

    pub(super) fn awaits_markers(&self) -> bool {
        self.awaits_markers
    }

    /// Adds a wait to the idle time, except a wait for markers, because records may be available then.
    pub(in crate::worker) fn waited(&mut self, from: Now, now: Now) {
        self.idle += now.since(from.max(self.begins_at));
    }

    /// Adds the time for which the worker waited for its databases.
    pub(in crate::worker) fn applied(&mut self, took: Duration) {
        self.applying += took;
    }

    /// Begins the commit. Returns the age of the transaction.
    pub(super) fn seal(&mut self, now: Now) -> Option<Duration> {
        self.stopwatch = Stopwatch::start(now);
        self.load.as_ref().map(|load| now.since(load.since))
    }

    pub(super) fn heard(&mut self, event: eos_protocol::Event, now: Now) {
        self.stopwatch.heard(event, now);
    }

    /// Records the time at which the commit is known.
    pub(in crate::worker) fn known(&mut self, now: Now) {
        self.stopwatch.known(now);
    }

    /// Ends the commit. Returns the durations of its phases.
    pub(super) fn committed(&mut self, now: Now, has_markers: bool, partitions: usize) -> Phases {
        self.load = None;
        self.kept = 0;
        let mut phases = self.stopwatch.stop(now);
        if has_markers {
            let known = Now(now.0.saturating_sub(phases.apply));
            self.begins_at = known.after(until_markers_are_written(phases.commit));
        }
        let applying = std::mem::take(&mut self.applying);
        phases.apply += applying;
        phases.whole += applying;
        self.pacer.committed(CommitCost {
            took: phases.whole + self.begins_at.since(now),
            idle: std::mem::take(&mut self.idle),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
        });
        phases
    }

    /// Discards the transaction. Returns the number of its records.
    pub(in crate::worker) fn discarded(&mut self) -> u64 {
        self.kept = 0;
        self.load.take().map_or(0, |load| load.records)
    }

    /// Returns the idle time since the last commit.
    #[cfg(test)]
    pub(in crate::worker) fn idle(&self) -> Duration {
        self.idle
    }

    /// Returns the cost of a commit, if it is known.
    #[cfg(test)]
    pub(in crate::worker) fn cost(&self) -> Duration {
        self.pacer.cost()
    }
}
