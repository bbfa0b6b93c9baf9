//! The timing of commits and of new transactions.

use std::time::Duration;

use eos_protocol::{
    CommitCause, CommitCost, CommitPacer, CommitPolicy, CommitSize, Load, Now, may_join,
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
    /// The size of transactions, if the time of a commit depends on it.
    size: Option<CommitSize>,
    /// Whether the commit in progress met other workers.
    is_contended: bool,
    /// The begin of the commit in progress.
    sealed_at: Option<Now>,
    /// Times the commit in progress.
    stopwatch: Stopwatch,
    /// The expected time of the last transaction's markers. No transaction begins before.
    begins_at: Now,
    /// Whether the worker waits for these markers in this step.
    awaits_markers: bool,
    /// The idle time of the worker since the last commit.
    idle: Duration,
    /// The time that the databases took from the worker since the last transaction.
    applying: Duration,
}

impl Pace {
    pub(super) fn new(policy: CommitPolicy, size: Option<CommitSize>) -> Self {
        Self {
            size,
            is_contended: false,
            sealed_at: None,
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

    /// Returns whether a record that is finished by `now` may join the open transaction. A slow record must not abort
    /// the records before it.
    pub(in crate::worker) fn admits(&self, now: Now, spec: &WorkerSpec) -> bool {
        let (timeout, commit) = (spec.transaction_timeout, spec.limits.commit);
        let load = self.load.as_ref();
        load.is_none_or(|load| may_join(now, load, timeout, commit))
    }

    /// Returns whether the wait for the databases has left the open transaction too little time for its commit.
    pub(super) fn is_stalled(&self, now: Now, spec: &WorkerSpec) -> bool {
        let without_wait = Now(now.0.saturating_sub(self.applying));
        !self.admits(now, spec) && self.admits(without_wait, spec)
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

    /// Returns whether the transaction has no outputs yet.
    pub(in crate::worker) fn is_empty(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.bytes == 0)
    }

    /// Returns the reason to commit the open transaction now, if there is one. `most_records`: the limit during the
    /// search for a record that aborts its transactions.
    #[inline(always)]
    pub(super) fn due(
        &self,
        now: Now,
        most_records: Option<u64>,
        most_kept: usize,
    ) -> Option<CommitCause> {
        let load = self.load.as_ref()?;
        let in_time = self.size.and_then(|size| size.limit());
        let reaches = |most: Option<u64>| most.is_some_and(|most| load.records >= most);
        if reaches(most_records) || reaches(in_time) {
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

    /// Returns the current time between two commits.
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
        self.sealed_at = Some(now);
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
        let applying = self.applying;
        let records = self.ended();
        let mut phases = self.stopwatch.stop(now);
        if let Some(size) = &mut self.size {
            // `COMMIT` itself takes as long for one record as for many.
            size.committed(records, phases.whole.saturating_sub(phases.commit));
        }
        if has_markers {
            let known = Now(now.0.saturating_sub(phases.apply));
            self.begins_at = known.after(until_markers_are_written(phases.commit));
        }
        phases.apply += applying;
        phases.whole += applying;
        self.pacer.committed(CommitCost {
            took: phases.whole + self.begins_at.since(now),
            idle: std::mem::take(&mut self.idle),
            partitions: u32::try_from(partitions).unwrap_or(u32::MAX),
        });
        phases
    }

    /// Records that the transaction met other workers.
    pub(super) fn contended(&mut self) {
        self.is_contended = true;
    }

    /// Discards the transaction. Returns the number of its records.
    pub(in crate::worker) fn discarded(&mut self, now: Now) -> u64 {
        let (sealed_at, is_contended) = (self.sealed_at, self.is_contended);
        let records = self.ended();
        if let Some(size) = &mut self.size {
            let took = sealed_at.map_or(Duration::ZERO, |sealed_at| now.since(sealed_at));
            size.given_up(records, took, is_contended);
        }
        records
    }

    /// Returns the number of records of the transaction.
    fn ended(&mut self) -> u64 {
        self.kept = 0;
        self.applying = Duration::ZERO;
        self.is_contended = false;
        self.sealed_at = None;
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
