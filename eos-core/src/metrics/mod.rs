//! The metrics of a running app.
//!
//! [`Handle::metrics`](crate::Handle::metrics) returns [`Metrics`]: plain numbers of one moment, to be logged, asserted
//! on or exported. A read delays no worker: workers count with relaxed atomics once per step, never per record, and
//! describe their inputs twice a second. Counters of one snapshot may therefore be a moment apart: a record may be
//! counted before its commit is.
//!
//! With the feature `prometheus`, `Metrics::to_prometheus` writes the metrics in Prometheus' text format, and
//! `App::prometheus` serves them over HTTP. `docs/metrics.md` lists the names.

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
pub use histogram::{DurationStats, Histogram};
pub use ledger::LedgerMetrics;
pub use phases::Phase;
pub use totals::{CommitTimes, Commits, Restores, Totals};

#[cfg(feature = "prometheus")]
pub(crate) use endpoint::{Endpoint, Serving};
pub(crate) use global::GlobalMeter;
pub(crate) use meter::{Count, Meters, WorkerMeter};
pub(crate) use phases::{Phases, Stopwatch, in_ms};

/// The metrics of an app in this process. See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// The app's name.
    pub app: String,
    /// The sums over all workers of the process, since the app started.
    pub totals: Totals,
    /// Each worker, by number. Ended workers are included.
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

/// The metrics of one worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Its number in the process.
    pub id: WorkerId,
    /// Its counters and commit times since it started.
    pub totals: Totals,
    /// The state of its transaction. `None` once the worker has ended.
    pub state: Option<State>,
    /// The age of its open transaction. `None` if none is open. An open transaction holds back the last stable offset
    /// of its output partitions, and so the readers of these partitions. With at-least-once, nothing is held back: the
    /// value is the age of the oldest uncommitted offset.
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
    /// The group's generation at the last commit. `None` before the first commit.
    pub generation: Option<Generation>,
    /// The tasks that it owns.
    pub tasks: Vec<TaskMetrics>,
    /// The tasks whose state is not restored yet. Updated twice a second.
    pub restoring: Vec<RestoringMetrics>,
}

/// The progress of a task's restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoringMetrics {
    /// The task.
    pub task: TaskId,
    /// Records read from its changelogs so far.
    pub records: u64,
    /// Bytes of these records: keys and values.
    pub bytes: u64,
    /// The number of offsets left to read. `None` before the first read: another worker or process still has the
    /// database open, or no broker has returned the end offsets of the changelogs yet.
    ///
    /// It counts offsets, not records. Transaction markers and compacted records are included.
    pub remaining: Option<u64>,
    /// The estimated time that the rest takes at the speed so far. `None` while the speed is unknown.
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

/// The metrics of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskMetrics {
    /// The task.
    pub id: TaskId,
    /// Its input partitions.
    pub inputs: Vec<InputMetrics>,
    /// The highest timestamp of the task's records. `None` before the first record with a timestamp.
    pub stream_time: Option<Timestamp>,
    /// The time from stream time to the start of the latest window in its stores. The changelog is not trimmed until
    /// stream time reaches the window. `None` if no window is ahead.
    pub windows_ahead: Option<Duration>,
    /// The time since the earliest unhandled item became due; zero if none is due. Items are timers and final
    /// results of closed windows. Each uses its own clock: stream time or the machine's clock. `None` if the task has
    /// no such items, or if its store can't be read.
    pub due_behind: Option<Duration>,
    /// Its asynchronous calls. `None` if its stage makes none.
    pub calls: Option<CallMetrics>,
    /// Whether it is paused at a failed record and waits for [`Handle::resume`](crate::Handle::resume).
    pub paused: bool,
    /// The number of parked keys, and of dead letters without a key that are not replayed yet, at most 10,000 per
    /// input. It includes uncommitted changes. `None` if no source of the stage has dead letters
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

/// The progress of one input partition. Updated twice a second, or less often while a closure takes longer than that.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputMetrics {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset of the next record to process. Earlier records may not be committed yet.
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
    /// It is normal that this value changes. If it only grows, a producer hangs: `kafka-transactions.sh find-hanging`
    /// names it.
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

/// The number of offsets between the two. Zero if `to` is an old value and `from` is already past it.
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
