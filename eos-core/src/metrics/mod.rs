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
mod totals;

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::Progress;
use eos_protocol::{Generation, Now, Offset, State, TaskId, Timestamp, TopicPartition, WorkerId};

#[cfg(feature = "prometheus")]
pub use endpoint::EndpointError;
pub use eos_protocol::CommitCause;
pub use eos_protocol::state::RestoreKind;
pub use global::GlobalMetrics;
pub use histogram::{Histogram, Spent};
pub use ledger::LedgerMetrics;
pub use phases::Phase;
pub use totals::{CommitTimes, Commits, Restores, Totals};

#[cfg(feature = "prometheus")]
pub(crate) use endpoint::{Endpoint, Serving};
pub(crate) use global::GlobalMeter;
pub(crate) use meter::{Count, Meters, WorkerMeter};
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
