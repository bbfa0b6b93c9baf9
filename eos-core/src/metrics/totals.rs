//! Counters and commit times since the app started.

use eos_protocol::CommitCause;
use eos_protocol::state::RestoreKind;

use super::histogram::{DurationStats, Histogram};
use super::phases::Phase;

/// Counters and commit times of a worker or of all workers, since the app started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Processed records. Records of aborted transactions are included, and count again when they are reprocessed.
    pub records_in: u64,
    /// Written records. Those of aborted transactions are included.
    pub records_out: u64,
    /// Records that failed and were skipped.
    pub skipped: u64,
    /// Retries of failed records.
    pub retried: u64,
    /// Records that failed and went to a dead letter topic.
    pub dead_letters: u64,
    /// Replayed dead letters that were processed, discarded or released before. They are left out.
    pub repeated_letters: u64,
    /// Records that were too late for their window or their order. They are dropped, passed on, or written to the topic
    /// of [`late_to`](crate::windows::WindowedGroup::late_to). Those of aborted transactions are included.
    pub late_records: u64,
    /// Tumbling and hopping windows that were closed when a record for them arrived. A record counts once per such
    /// window, even if other windows still accept it. Those of aborted transactions are included.
    pub late_windows: u64,
    /// Records whose id was new to a deduplication. Those of aborted transactions are included.
    pub dedup_new: u64,
    /// Duplicates that a deduplication found. Those of aborted transactions are included.
    pub dedup_duplicates: u64,
    /// Records that were too old for a deduplication to judge, and were forwarded. Those of
    /// aborted transactions are included.
    pub dedup_too_old: u64,
    /// Records without an id that a deduplication forwarded. Those of aborted transactions are included.
    pub dedup_missing_id: u64,
    /// Asynchronous calls that started again: further tries, and calls of records that are processed again.
    pub calls_repeated: u64,
    /// Tries of asynchronous calls without a result in time.
    pub calls_timed_out: u64,
    /// Records of a former epoch of their producer, or with a version that is not higher than the last one. Those of
    /// aborted transactions are included.
    pub dedup_stale: u64,
    /// Gaps in the numbers of producers. Those of aborted transactions are included.
    pub dedup_gaps: u64,
    /// Gaps in the numbers of keys that `reorder_by` gave up. Those of aborted transactions are included.
    pub reorder_gaps: u64,
    /// Records of joins of streams that went out alone, because they had no pair until they closed. Those of aborted
    /// transactions are included.
    pub join_alone: u64,
    /// Missed pairs of joins of streams: the earlier record had closed when the later one came. Those of aborted
    /// transactions are included.
    pub join_too_late_pairs: u64,
    /// Answers of foreign-key joins that were left out, because their row has meanwhile subscribed again. Those of
    /// aborted transactions are included.
    pub stale_answers: u64,
    /// Records of joined topics whose key is in another partition than Kafka's partitioner, or the topic's own one,
    /// chooses. Those of aborted transactions are included.
    pub misplaced_keys: u64,
    /// Committed transactions, by cause.
    pub commits: Commits,
    /// Aborted transactions. Their records were processed again.
    pub aborts: u64,
    /// Transaction calls that failed because the group member or the producer was not current any more: a newer one
    /// exists, a rebalance began, or the transaction timed out.
    pub fences: u64,
    /// Producers replaced after a quarantine, a fence or repeated aborts.
    pub rebuilds: u64,
    /// Producers replaced while a request of theirs had no response. If that request still arrives, it meets a newer
    /// producer epoch instead of the next transaction.
    pub quarantines: u64,
    /// Handled assignments and revocations.
    pub rebalances: u64,
    /// Threads abandoned because a call to the Kafka client did not return. Each thread leaks until the process ends.
    pub abandoned_threads: u64,
    /// Tasks whose state was restored, by kind.
    pub restores: Restores,
    /// Changelog records that were read to restore state.
    pub restored_records: u64,
    /// Bytes of these records: keys and values.
    pub restored_bytes: u64,
    /// Durations of commits.
    pub commit_times: CommitTimes,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.dead_letters += other.dead_letters;
        self.repeated_letters += other.repeated_letters;
        self.late_records += other.late_records;
        self.late_windows += other.late_windows;
        self.dedup_new += other.dedup_new;
        self.dedup_duplicates += other.dedup_duplicates;
        self.dedup_too_old += other.dedup_too_old;
        self.dedup_missing_id += other.dedup_missing_id;
        self.calls_repeated += other.calls_repeated;
        self.calls_timed_out += other.calls_timed_out;
        self.dedup_stale += other.dedup_stale;
        self.dedup_gaps += other.dedup_gaps;
        self.reorder_gaps += other.reorder_gaps;
        self.join_alone += other.join_alone;
        self.join_too_late_pairs += other.join_too_late_pairs;
        self.stale_answers += other.stale_answers;
        self.misplaced_keys += other.misplaced_keys;
        self.commits.add(&other.commits);
        self.aborts += other.aborts;
        self.fences += other.fences;
        self.rebuilds += other.rebuilds;
        self.quarantines += other.quarantines;
        self.rebalances += other.rebalances;
        self.abandoned_threads += other.abandoned_threads;
        self.restores.add(&other.restores);
        self.restored_records += other.restored_records;
        self.restored_bytes += other.restored_bytes;
        self.commit_times.add(&other.commit_times);
    }
}

/// Committed transactions, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Commits(pub(super) [u64; CommitCause::ALL.len()]);

impl Commits {
    /// The number of transactions of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of transactions of one cause.
    #[must_use]
    pub fn by(&self, cause: CommitCause) -> u64 {
        self.iter().find(|(c, _)| *c == cause).map_or(0, |(_, n)| n)
    }

    /// Each cause with its count. Causes that never occurred are included.
    pub fn iter(&self) -> impl Iterator<Item = (CommitCause, u64)> + '_ {
        CommitCause::ALL.into_iter().zip(self.0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// Tasks whose state was restored before their first record in this process, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restores(pub(super) [u64; RestoreKind::ALL.len()]);

impl Restores {
    /// The number of restores of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of restores of one kind.
    #[must_use]
    pub fn by(&self, kind: RestoreKind) -> u64 {
        self.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| n)
    }

    /// Each kind with its count. Kinds that never occurred are included.
    pub fn iter(&self) -> impl Iterator<Item = (RestoreKind, u64)> + '_ {
        RestoreKind::ALL.into_iter().zip(self.0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// Durations of commits, from the end of intake to the end of the commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CommitTimes {
    /// After the end of intake: the worker hands the remaining records to the producer. These are outputs, results of
    /// `emit_per_commit`, and the changes of stores.
    pub seal: DurationStats,
    /// `send_offsets_to_transaction`. Zero without transactions, where the offsets are the commit.
    pub send_offsets: DurationStats,
    /// The wait until the brokers have acknowledged every output. Runs beside `send_offsets`.
    pub drain: DurationStats,
    /// `commit_transaction` (EndTxn), until the outcome is known.
    pub commit: DurationStats,
    /// The hand-over of the changes to the databases, and the wait for the changes of the previous transaction.
    pub apply: DurationStats,
    /// The whole commit: `seal`, the longer one of `send_offsets` and `drain`, `commit`, `apply`.
    pub latency: Histogram,
}

impl CommitTimes {
    /// The time spent in one phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> DurationStats {
        match phase {
            Phase::Seal => self.seal,
            Phase::SendOffsets => self.send_offsets,
            Phase::Drain => self.drain,
            Phase::Commit => self.commit,
            Phase::Apply => self.apply,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.seal.add(other.seal);
        self.send_offsets.add(other.send_offsets);
        self.drain.add(other.drain);
        self.commit.add(other.commit);
        self.apply.add(other.apply);
        self.latency.add(&other.latency);
    }
}
