//! The counters of a worker.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eos_protocol::{CommitCause, Generation, Now, State, WorkerId};

use super::global::GlobalMeter;
use super::histogram::{HistogramMeter, SpentMeter};
use super::phases::Phases;
use super::{
    CommitTimes, Commits, LedgerMetrics, Metrics, Phase, RestoreKind, Restores, RestoringMetrics,
    TaskMetrics, Totals, WorkerMetrics,
};
use crate::boundary::Ledger;

/// The plain counters of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    RecordsIn,
    RecordsOut,
    Skipped,
    Retried,
    RepeatedLetters,
    DeadLetters,
    Late,
    LateWindows,
    NewIds,
    Duplicates,
    TooOld,
    WithoutId,
    CallsRepeated,
    CallsTimedOut,
    Stale,
    Gaps,
    GivenUp,
    JoinAlone,
    JoinTooLatePairs,
    StaleAnswers,
    Misplaced,
    Aborts,
    Fences,
    Rebuilds,
    Quarantines,
    Rebalances,
    Abandoned,
    RestoredRecords,
    RestoredBytes,
}

impl Count {
    const ALL: [Self; 29] = [
        Self::RecordsIn,
        Self::RecordsOut,
        Self::Skipped,
        Self::Retried,
        Self::RepeatedLetters,
        Self::DeadLetters,
        Self::Late,
        Self::LateWindows,
        Self::NewIds,
        Self::Duplicates,
        Self::TooOld,
        Self::WithoutId,
        Self::CallsRepeated,
        Self::CallsTimedOut,
        Self::Stale,
        Self::Gaps,
        Self::GivenUp,
        Self::JoinAlone,
        Self::JoinTooLatePairs,
        Self::StaleAnswers,
        Self::Misplaced,
        Self::Aborts,
        Self::Fences,
        Self::Rebuilds,
        Self::Quarantines,
        Self::Rebalances,
        Self::Abandoned,
        Self::RestoredRecords,
        Self::RestoredBytes,
    ];

    fn of(self, totals: &mut Totals) -> &mut u64 {
        match self {
            Self::RecordsIn => &mut totals.records_in,
            Self::RecordsOut => &mut totals.records_out,
            Self::Skipped => &mut totals.skipped,
            Self::Retried => &mut totals.retried,
            Self::RepeatedLetters => &mut totals.repeated_letters,
            Self::DeadLetters => &mut totals.dead_letters,
            Self::Late => &mut totals.late_records,
            Self::LateWindows => &mut totals.late_windows,
            Self::NewIds => &mut totals.dedup_new,
            Self::Duplicates => &mut totals.dedup_duplicates,
            Self::TooOld => &mut totals.dedup_too_old,
            Self::WithoutId => &mut totals.dedup_missing_id,
            Self::CallsRepeated => &mut totals.calls_repeated,
            Self::CallsTimedOut => &mut totals.calls_timed_out,
            Self::Stale => &mut totals.dedup_stale,
            Self::Gaps => &mut totals.dedup_gaps,
            Self::GivenUp => &mut totals.reorder_gaps,
            Self::JoinAlone => &mut totals.join_alone,
            Self::JoinTooLatePairs => &mut totals.join_too_late_pairs,
            Self::StaleAnswers => &mut totals.stale_answers,
            Self::Misplaced => &mut totals.misplaced_keys,
            Self::Aborts => &mut totals.aborts,
            Self::Fences => &mut totals.fences,
            Self::Rebuilds => &mut totals.rebuilds,
            Self::Quarantines => &mut totals.quarantines,
            Self::Rebalances => &mut totals.rebalances,
            Self::Abandoned => &mut totals.abandoned_threads,
            Self::RestoredRecords => &mut totals.restored_records,
            Self::RestoredBytes => &mut totals.restored_bytes,
        }
    }
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

/// The metrics of one worker. The worker writes them, and any thread reads them.
///
/// Counters are relaxed atomics: their order has no meaning. The descriptions of tasks are behind a lock, which the
/// worker takes twice a second.
#[derive(Debug, Default)]
pub(crate) struct WorkerMeter {
    id: WorkerId,
    counts: [AtomicU64; Count::ALL.len()],
    commits: [AtomicU64; CommitCause::ALL.len()],
    restores: [AtomicU64; RestoreKind::ALL.len()],
    phases: [SpentMeter; Phase::ALL.len()],
    latency: HistogramMeter,
    /// The index of the state in `State::ALL`, plus one. 0 once the worker has ended.
    state: AtomicU8,
    /// The start of the open transaction, if one is open.
    open_since: Moment,
    /// The end of the last step; the worker's creation before the first step ends. None once the worker has ended.
    stepped: Moment,
    /// The last response from a broker; the worker's creation before the first one. None once the worker has ended.
    responded: Moment,
    tasks: Mutex<Tasks>,
}

/// An optional point in time. One thread stores it; other threads read it and compute its age.
///
/// In nanoseconds plus one; 0 means none.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

impl Moment {
    fn set(&self, now: Now) {
        let nanos = u64::try_from(now.0.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos.saturating_add(1), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn age(&self, now: Now) -> Option<Duration> {
        let nanos = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.since(Now(Duration::from_nanos(nanos))))
    }
}

#[derive(Debug, Default)]
struct Tasks {
    generation: Option<Generation>,
    tasks: Vec<TaskMetrics>,
    restoring: Vec<RestoringMetrics>,
}

impl WorkerMeter {
    /// The meter of a worker that starts now.
    pub(crate) fn new(id: WorkerId) -> Self {
        Self {
            id,
            state: AtomicU8::new(State::Cold as u8 + 1),
            ..Self::default()
        }
    }

    pub(crate) fn count(&self, what: Count, n: u64) {
        if n > 0 {
            add(&self.counts, what as usize, n);
        }
    }

    /// Counts a committed transaction.
    pub(crate) fn committed(&self, cause: CommitCause, phases: &Phases) {
        add(&self.commits, cause as usize, 1);
        for (meter, phase) in self.phases.iter().zip(Phase::ALL) {
            meter.record(phases.of(phase));
        }
        self.latency.record(phases.whole);
    }

    /// Counts a restored task.
    pub(crate) fn restored(&self, kind: RestoreKind) {
        add(&self.restores, kind as usize, 1);
    }

    /// Stores the new state of the transaction machine.
    pub(crate) fn moved(&self, to: State, now: Now) {
        self.state.store(to as u8 + 1, Ordering::Relaxed);
        match to {
            State::Open => self.open_since.set(now),
            // Still open at the brokers, or its outcome is unknown.
            State::Sealing
            | State::SendingOffsets
            | State::Committing
            | State::Aborting
            | State::InDoubt => {}
            State::Cold
            | State::Initializing
            | State::Idle
            | State::Claiming
            | State::Fenced
            | State::Failed => {
                self.open_since.clear();
            }
        }
    }

    /// Stores the time of a response from a broker, or of the worker's creation.
    pub(crate) fn responded(&self, now: Now) {
        self.responded.set(now);
    }

    /// Stores the end of a step, or the creation of the worker.
    pub(crate) fn stepped(&self, now: Now) {
        self.stepped.set(now);
    }

    /// Stores the current tasks.
    pub(crate) fn tasks(
        &self,
        generation: Option<Generation>,
        tasks: Vec<TaskMetrics>,
        restoring: Vec<RestoringMetrics>,
    ) {
        *self.lock() = Tasks {
            generation,
            tasks,
            restoring,
        };
    }

    /// Ends the worker: clears its state and its tasks, and keeps its counters.
    pub(crate) fn ended(&self) {
        self.state.store(0, Ordering::Relaxed);
        self.open_since.clear();
        self.stepped.clear();
        self.responded.clear();
        *self.lock() = Tasks::default();
    }

    /// Reads the metrics. `now` is the time of the worker's clock.
    pub(crate) fn read(&self, now: Now) -> WorkerMetrics {
        let state = usize::from(self.state.load(Ordering::Relaxed));
        let tasks = self.lock();
        WorkerMetrics {
            id: self.id,
            totals: self.totals(),
            state: state
                .checked_sub(1)
                .and_then(|n| State::ALL.get(n).copied()),
            open_for: self.open_since.age(now),
            last_step: self.stepped.age(now),
            last_response: self.responded.age(now),
            generation: tasks.generation,
            tasks: tasks.tasks.clone(),
            restoring: tasks.restoring.clone(),
        }
    }

    fn totals(&self) -> Totals {
        let [seal, send_offsets, drain, commit, apply] =
            self.phases.each_ref().map(SpentMeter::read);
        let mut totals = Totals {
            commits: Commits(self.commits.each_ref().map(|n| n.load(Ordering::Relaxed))),
            restores: Restores(self.restores.each_ref().map(|n| n.load(Ordering::Relaxed))),
            commit_times: CommitTimes {
                seal,
                send_offsets,
                drain,
                commit,
                apply,
                latency: self.latency.read(),
            },
            ..Totals::default()
        };
        for (count, n) in Count::ALL.into_iter().zip(&self.counts) {
            *count.of(&mut totals) = n.load(Ordering::Relaxed);
        }
        totals
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(counters: &[AtomicU64], at: usize, n: u64) {
    if let Some(counter) = counters.get(at) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters are in the order of `ALL`, and the discriminant is the index.
    #[test]
    fn everything_counted_comes_back_under_its_own_name() {
        let meter = WorkerMeter::new(WorkerId(0));
        for (n, count) in Count::ALL.into_iter().enumerate() {
            meter.count(count, n as u64 + 1);
        }
        for (n, cause) in CommitCause::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| meter.committed(cause, &Phases::default()));
        }
        for (n, kind) in RestoreKind::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| meter.restored(kind));
        }
        let mut totals = meter.read(Now::default()).totals;
        for (n, (kind, restores)) in totals.restores.iter().enumerate() {
            assert_eq!(restores, n as u64 + 1, "{kind:?}");
            assert_eq!(totals.restores.by(kind), restores);
        }
        for (n, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(*count.of(&mut totals), n as u64 + 1, "{count:?}");
        }
        for (n, (cause, commits)) in totals.commits.iter().enumerate() {
            assert_eq!(commits, n as u64 + 1, "{cause:?}");
            assert_eq!(totals.commits.by(cause), commits);
        }
        assert_eq!(totals.commits.total(), totals.commit_times.seal.count);
    }

    #[test]
    fn a_transaction_is_open_until_its_outcome_is_known() {
        let meter = WorkerMeter::new(WorkerId(0));
        let at = |ms| Now(Duration::from_millis(ms));
        let open_for = |now| meter.read(at(now)).open_for.map(|age| age.as_millis());
        assert_eq!(open_for(0), None);
        for state in State::ALL {
            meter.moved(State::Open, at(0));
            meter.moved(state, at(5));
            let expected = match state {
                State::Open => Some(4),
                State::Sealing
                | State::SendingOffsets
                | State::Committing
                | State::Aborting
                | State::InDoubt => Some(9),
                _ => None,
            };
            assert_eq!(open_for(9), expected, "{state:?}");
            assert_eq!(meter.read(at(9)).state, Some(state));
        }
    }

    #[test]
    fn an_ended_worker_owns_nothing_and_keeps_its_counts() {
        let meter = WorkerMeter::new(WorkerId(3));
        meter.count(Count::Aborts, 2);
        meter.moved(State::Open, Now::default());
        meter.stepped(Now::default());
        meter.tasks(
            Generation::new(4).ok(),
            vec![TaskMetrics::new(
                eos_protocol::TaskId::default(),
                Vec::new(),
            )],
            Vec::new(),
        );
        assert_eq!(meter.read(Now::default()).tasks.len(), 1);
        meter.ended();
        let read = meter.read(Now::default());
        assert_eq!((read.state, read.open_for), (None, None));
        assert_eq!(read.last_step, None);
        assert!(read.tasks.is_empty());
        assert_eq!((read.generation, read.totals.aborts), (None, 2));
    }
}
