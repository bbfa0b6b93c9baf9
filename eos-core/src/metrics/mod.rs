//! What an app has done and how it stands, readable while it runs.
//!
//! [`Handle::metrics`](crate::Handle::metrics) answers [`Metrics`]: plain numbers of one moment, to
//! be logged, asserted on or exported. Reading them delays no worker: workers count with relaxed
//! atomics once per step, never per record, and describe their inputs twice a second. Counters of
//! one snapshot may therefore be a moment apart: a record can be counted whose commit is not yet.
//!
//! With the feature `prometheus`, `Metrics::to_prometheus` writes them in Prometheus' text format
//! and `App::prometheus` serves that over HTTP. `docs/metrics.md` lists the names.

#[cfg(feature = "prometheus")]
#[cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, reason = "without the adapter there is no client to run on")
)]
mod endpoint;
mod global;
mod histogram;
mod ledger;
mod meter;
mod phases;
#[cfg(feature = "prometheus")]
mod prometheus;

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::Progress;
use eos_protocol::{Generation, Now, Offset, State, TaskId, Timestamp, TopicPartition, WorkerId};

use crate::boundary::Ledger;

#[cfg(feature = "prometheus")]
pub use endpoint::EndpointError;
pub use eos_protocol::CommitCause;
pub use eos_protocol::state::RestoreKind;
pub use global::GlobalMetrics;
pub use histogram::Histogram;
pub use ledger::LedgerMetrics;
pub use phases::Phase;

#[cfg(feature = "prometheus")]
pub(crate) use endpoint::{Endpoint, Serving};
pub(crate) use global::GlobalMeter;
pub(crate) use meter::{Count, WorkerMeter};
pub(crate) use phases::{Phases, Stopwatch, in_ms};

/// How an app in this process does: see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The app's name.
    pub app: String,
    /// What all workers of the process did since the app started.
    pub totals: Totals,
    /// Each worker, by number; those that have ended, too.
    pub workers: Vec<WorkerMetrics>,
    /// Each global table, in the order of their declarations.
    pub globals: Vec<GlobalMetrics>,
    /// The ledger, if the app has one.
    pub ledger: Option<LedgerMetrics>,
}

/// The meters of an app in this process.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) workers: Vec<Arc<WorkerMeter>>,
    pub(crate) globals: Vec<Arc<GlobalMeter>>,
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
}

impl Meters {
    pub(crate) fn read(&self, app: &str, now: Now) -> Metrics {
        let globals = self.globals.iter().map(|meter| meter.read());
        let ledger = self.ledger.as_deref();
        Metrics {
            globals: globals.collect(),
            ledger: ledger.map(LedgerMetrics::read),
            ..Metrics::gather(app, now, &self.workers)
        }
    }
}

impl Metrics {
    fn gather(app: &str, now: Now, meters: &[Arc<WorkerMeter>]) -> Self {
        let workers: Vec<WorkerMetrics> = meters.iter().map(|meter| meter.read(now)).collect();
        let mut totals = Totals::default();
        for worker in &workers {
            totals.add(&worker.totals);
        }
        Self {
            app: app.to_owned(),
            totals,
            workers,
            globals: Vec::new(),
            ledger: None,
        }
    }
}

/// What was done since the app started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Records processed, those of aborted transactions included: an abort counts them again.
    pub records_in: u64,
    /// Records written, those of aborted transactions included.
    pub records_out: u64,
    /// Records that failed and were skipped.
    pub skipped: u64,
    /// Further attempts at records that had failed.
    pub retried: u64,
    /// Records that failed and went to a dead letter topic.
    pub dead_letters: u64,
    /// Replayed dead letters that were processed, discarded or released before, and are left out.
    pub repeated_letters: u64,
    /// Records that came too late for their window or their order. They are dropped, passed on, or written where
    /// [`late_to`](crate::windows::WindowedGroup::late_to) says. Those of aborted transactions included.
    pub late_records: u64,
    /// Tumbling and hopping windows that were closed when a record for them arrived. A record counts once per such window,
    /// even if other windows still accept it. Those of aborted transactions included.
    pub late_windows: u64,
    /// Records with a new id, for a deduplication. Those of aborted transactions included, as in the next seven.
    pub new_ids: u64,
    /// Duplicates that a deduplication found.
    pub duplicates: u64,
    /// Records that were too old for a deduplication to judge, and were forwarded.
    pub too_old: u64,
    /// Records without an id that a deduplication forwarded.
    pub without_id: u64,
    /// Asynchronous calls that started again: further tries, and calls of records that come again.
    pub calls_repeated: u64,
    /// Tries of asynchronous calls without a result in time.
    pub calls_timed_out: u64,
    /// Records of a former epoch of their producer, or with a version that is not higher than the last one.
    pub stale: u64,
    /// Gaps in the numbers of producers.
    pub gaps: u64,
    /// Gaps in the numbers of keys that an order has given up. Those of aborted transactions included.
    pub given_up: u64,
    /// Records of joins of streams that went out alone, because they had no pair until they closed. Those of aborted
    /// transactions included.
    pub join_alone: u64,
    /// Pairs of joins of streams that were missed, because the earlier record had closed when the later one came. Those of
    /// aborted transactions included.
    pub join_too_late_pairs: u64,
    /// Answers of foreign-key joins that were left out, because their row has meanwhile subscribed again. Those of aborted
    /// transactions included.
    pub stale_answers: u64,
    /// Records of joined topics whose key is in another partition than Kafka's partitioner, or the topic's own one, chooses.
    /// Those of aborted transactions included.
    pub misplaced_keys: u64,
    /// Transactions committed, by cause.
    pub commits: Commits,
    /// Transactions given up: what they held was done again.
    pub aborts: u64,
    /// Transaction calls that failed because the group member or the producer was not current any more: a newer one exists,
    /// a rebalance began, or the transaction timed out.
    pub fences: u64,
    /// Producers replaced: quarantine, fences, repeated aborts.
    pub rebuilds: u64,
    /// Those among them with a request that was never answered: it may still arrive, and meets a newer
    /// epoch then instead of the next transaction.
    pub quarantines: u64,
    /// Assignments and revocations handled.
    pub rebalances: u64,
    /// Threads left to themselves, because a call of the Kafka client did not come back. Each one
    /// leaks until the process ends.
    pub abandoned: u64,
    /// Tasks whose state was made whole, by how.
    pub restores: Restores,
    /// Records of changelogs that were read for it.
    pub restored_records: u64,
    /// Their bytes, keys and values.
    pub restored_bytes: u64,
    /// How long commits took.
    pub commit_times: CommitTimes,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.records_in += other.records_in;
        self.records_out += other.records_out;
        self.skipped += other.skipped;
        self.retried += other.retried;
        self.dead_letters += other.dead_letters;
        self.repeated_letters += other.repeated_letters;
        self.late_records += other.late_records;
        self.late_windows += other.late_windows;
        self.new_ids += other.new_ids;
        self.duplicates += other.duplicates;
        self.too_old += other.too_old;
        self.without_id += other.without_id;
        self.calls_repeated += other.calls_repeated;
        self.calls_timed_out += other.calls_timed_out;
        self.stale += other.stale;
        self.gaps += other.gaps;
        self.given_up += other.given_up;
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
        self.abandoned += other.abandoned;
        self.restores.add(&other.restores);
        self.restored_records += other.restored_records;
        self.restored_bytes += other.restored_bytes;
        self.commit_times.add(&other.commit_times);
    }
}

/// Transactions committed, by why they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Commits([u64; CommitCause::ALL.len()]);

impl Commits {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those of one cause.
    #[must_use]
    pub fn by(&self, cause: CommitCause) -> u64 {
        self.iter().find(|(c, _)| *c == cause).map_or(0, |(_, n)| n)
    }

    /// Each cause with its count, those that never came up included.
    pub fn iter(&self) -> impl Iterator<Item = (CommitCause, u64)> + '_ {
        CommitCause::ALL.into_iter().zip(self.0)
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// Tasks whose state was made whole before their first record here, by how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restores([u64; RestoreKind::ALL.len()]);

impl Restores {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those of one kind.
    #[must_use]
    pub fn by(&self, kind: RestoreKind) -> u64 {
        self.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| n)
    }

    /// Each kind with its count, those that never came up included.
    pub fn iter(&self) -> impl Iterator<Item = (RestoreKind, u64)> + '_ {
        RestoreKind::ALL.into_iter().zip(self.0)
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// How long commits took, from the end of intake until the answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CommitTimes {
    /// Intake has stopped; what is under way is handed to the producer: outputs, results that go on once per
    /// commit, and what was changed in stores.
    pub seal: Spent,
    /// `send_offsets_to_transaction`. Zero without transactions, where the offsets are the commit.
    pub send_offsets: Spent,
    /// Until every output was acknowledged. Runs beside `send_offsets`.
    pub drain: Spent,
    /// `commit_transaction` (EndTxn), until its outcome was known.
    pub commit: Spent,
    /// The changes go to the databases: the hand-over, and the wait for the previous transaction.
    pub apply: Spent,
    /// All of it: `seal`, the longer one of `send_offsets` and `drain`, `commit`, `apply`.
    pub whole: Histogram,
}

impl CommitTimes {
    /// One phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Spent {
        match phase {
            Phase::Seal => self.seal,
            Phase::SendOffsets => self.send_offsets,
            Phase::Drain => self.drain,
            Phase::Commit => self.commit,
            Phase::Apply => self.apply,
        }
    }

    fn add(&mut self, other: &Self) {
        self.seal.add(other.seal);
        self.send_offsets.add(other.send_offsets);
        self.drain.add(other.drain);
        self.commit.add(other.commit);
        self.apply.add(other.apply);
        self.whole.add(&other.whole);
    }
}

/// Time spent on something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Spent {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub total: Duration,
    /// How long at most.
    pub max: Duration,
}

impl Spent {
    /// How long on average; zero if never.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let nanos = self.total.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }
}

/// How one worker does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Its number in the process.
    pub id: WorkerId,
    /// What it did since it started.
    pub totals: Totals,
    /// Where its transaction stands; `None` once the worker has ended.
    pub state: Option<State>,
    /// How long its transaction has been open, `None` while none is. What is open holds back the
    /// last stable offset of its output partitions, and with it everyone who reads them. At least
    /// once nothing is held back: then it is the age of the oldest offset that is not committed.
    pub open_for: Option<Duration>,
    /// The time since its last step ended, or since its creation before the first step has ended.
    /// `None` once the worker has ended.
    ///
    /// A worker waits at most 50 ms between two steps. If this value grows, a closure or a call to the
    /// Kafka client does not return. [`tasks`](Self::tasks) and [`restoring`](Self::restoring) are then
    /// at least as old.
    pub last_step: Option<Duration>,
    /// The time since it received a response from a broker, or since its creation before the first one. `None` once the
    /// worker has ended.
    ///
    /// A worker queries the topics every ten seconds. If this value grows beyond that, it reaches no broker.
    pub last_response: Option<Duration>,
    /// The group's generation as of the last commit; `None` before the first.
    pub generation: Option<Generation>,
    /// The tasks that it owns.
    pub tasks: Vec<TaskMetrics>,
    /// Those among them whose state is not whole yet, half a second ago at most.
    pub restoring: Vec<RestoringMetrics>,
}

/// How far the state of a task is that is not whole yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoringMetrics {
    /// Which task.
    pub task: TaskId,
    /// Records of its changelogs that were read so far.
    pub records: u64,
    /// Their bytes, keys and values.
    pub bytes: u64,
    /// How many offsets are left to read; `None` before anything is read: its database is still open
    /// elsewhere, or no broker has told yet where its changelogs end.
    ///
    /// In offsets, not records: transaction markers and what compaction removed are among them.
    pub remaining: Option<u64>,
    /// How long that takes at the speed so far; `None` as long as there is none.
    pub eta: Option<Duration>,
}

impl RestoringMetrics {
    pub(crate) fn new(task: TaskId, progress: Option<Progress>) -> Self {
        let known = progress.unwrap_or_default();
        Self {
            task,
            records: known.records,
            bytes: known.bytes,
            remaining: progress.map(|progress| progress.remaining),
            eta: known.eta,
        }
    }
}

/// How one task does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskMetrics {
    /// Which one.
    pub id: TaskId,
    /// Its input partitions.
    pub inputs: Vec<InputMetrics>,
    /// The highest time of the records that it has taken; `None` before the first one with a time.
    pub stream_time: Option<Timestamp>,
    /// How far the latest window of its stores starts ahead of that. Until stream time is there, the
    /// changelog is not trimmed behind it. `None` if none is ahead.
    pub windows_ahead: Option<Duration>,
    /// The time since the earliest unhandled item became due; zero if none is due. Items are timers and final
    /// results of closed windows. Each uses its own clock: stream time or the machine's clock. `None` if the task has no such items, or
    /// if its store can't be read.
    pub due_behind: Option<Duration>,
    /// Its asynchronous calls. `None` if its stage makes none.
    pub calls: Option<CallMetrics>,
    /// Whether it is paused at a failed record, and waits for [`Handle::resume`](crate::Handle::resume).
    pub paused: bool,
    /// The number of parked keys, and of dead letters without a key that are not replayed yet. A count ends at
    /// 10,000 per input. It includes uncommitted changes. `None` if no source of the stage has dead letters
    /// [in sequence](crate::ErrorPolicy::in_sequence), if nothing is counted yet, or if the store can't be read.
    pub parked_keys: Option<u64>,
}

/// The asynchronous calls of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CallMetrics {
    /// The number of running calls.
    pub running: u64,
    /// The number of records that wait for their calls, or for the turn of earlier records.
    pub waiting: u64,
}

/// How far one input partition is, half a second ago at most unless a closure takes longer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputMetrics {
    /// Which one.
    pub partition: TopicPartition,
    /// The offset of the next record to process. What lies before it may not be committed yet.
    pub next: Offset,
    /// The number of offsets left to process, up to the high watermark. `None` while the end is unknown.
    ///
    /// It counts offsets, not records. Transaction markers, compacted records and records that open
    /// transactions hold back are included. Markers at the end of the log are not: the lag is 0 once the
    /// worker has processed everything. Where reading stops at another producer's open transaction, the
    /// lag equals [`held_back`](Self::held_back).
    pub lag: Option<u64>,
    /// The number of offsets from the last stable offset to the high watermark. Another producer's open
    /// transaction holds these records back. `None` while there is more to read before the last stable
    /// offset, since the value becomes known only where reading stops.
    ///
    /// It is normal that this moves. If it only grows, a producer hangs: `kafka-transactions.sh
    /// find-hanging` names it.
    pub held_back: Option<u64>,
}

impl InputMetrics {
    pub(crate) fn new(partition: TopicPartition, next: Offset, ends: Ends) -> Self {
        Self {
            partition,
            next,
            lag: ends.lag(next),
            held_back: ends.held_back,
        }
    }
}

/// The ends of an input partition, as far as the source knows them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// [`Source::end`](crate::client::Source::end).
    pub(crate) readable: Option<Offset>,
    /// [`Source::high_watermark`](crate::client::Source::high_watermark).
    pub(crate) high: Option<Offset>,
    /// [`Source::held_back`](crate::client::Source::held_back).
    pub(crate) held_back: Option<u64>,
}

impl Ends {
    /// The lag of a reader at `next`. The readable end excludes markers that the reader has passed, but the high
    /// watermark includes them. The high watermark therefore counts only while there are records to read.
    fn lag(self, next: Offset) -> Option<u64> {
        let readable = self.readable?;
        match self.held_back {
            Some(held_back) if readable <= next => Some(held_back),
            _ => Some(distance(next, self.high.unwrap_or(readable).max(readable))),
        }
    }
}

/// Zero if `to` was heard of before `from` had come that far.
fn distance(from: Offset, to: Offset) -> u64 {
    u64::try_from(to.get().saturating_sub(from.get())).unwrap_or(0)
}

impl TaskMetrics {
    pub(crate) fn new(id: TaskId, inputs: Vec<InputMetrics>) -> Self {
        Self {
            id,
            inputs,
            stream_time: None,
            windows_ahead: None,
            due_behind: None,
            calls: None,
            paused: false,
            parked_keys: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    #[test]
    fn unreported_values_are_unknown_and_not_zero() {
        let lag = |next, end: Option<i64>| {
            let partition = TopicPartition::new("in", eos_protocol::Partition::ZERO);
            let ends = Ends {
                readable: end.map(offset),
                ..Ends::default()
            };
            InputMetrics::new(partition, offset(next), ends).lag
        };
        assert_eq!(lag(3, None), None);
        assert_eq!(lag(3, Some(9)), Some(6));
        assert_eq!(lag(3, Some(2)), Some(0), "old news");
    }

    #[test]
    fn lag_counts_to_the_high_watermark_but_not_markers_that_were_passed() {
        let lag = |next, readable, high, held_back| {
            let ends = Ends {
                readable: Some(offset(readable)),
                high: Some(offset(high)),
                held_back,
            };
            ends.lag(offset(next))
        };
        assert_eq!(lag(3, 5, 9, None), Some(6), "more than may be read");
        assert_eq!(lag(3, 5, 9, Some(4)), Some(6));
        assert_eq!(lag(5, 5, 9, Some(4)), Some(4), "reading stops there");
        assert_eq!(lag(5, 5, 9, Some(3)), Some(3), "behind a marker");
        assert_eq!(lag(5, 5, 6, Some(0)), Some(0), "a marker and nothing else");
        assert_eq!(lag(3, 5, 4, None), Some(2), "an old watermark");
    }

    #[test]
    fn the_process_is_the_sum_of_its_workers() {
        let meters: Vec<_> = [0, 1]
            .map(|n| Arc::new(WorkerMeter::new(WorkerId(n))))
            .into();
        meters[0].count(Count::RecordsIn, 3);
        meters[1].count(Count::RecordsIn, 4);
        meters[1].count(Count::DeadLetters, 1);
        let metrics = Metrics::gather("a", Now::default(), &meters);
        assert_eq!(metrics.totals.records_in, 7);
        assert_eq!(metrics.totals.dead_letters, 1);
        assert_eq!(metrics.workers[1].totals.records_in, 4);
        assert_eq!(metrics.workers[1].id, WorkerId(1));
    }
}
