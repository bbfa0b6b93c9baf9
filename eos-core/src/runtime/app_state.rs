//! The state of an app, and its listeners.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metrics::{Metrics, WorkerMetrics};

/// The state of an app in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppState {
    /// A worker has no assignment yet.
    Starting,
    /// The state of a task is being restored. Other tasks process records.
    Restoring,
    /// All tasks of this process are processing records. A process may have no tasks.
    Running,
    /// The app is stopping on request, or because a worker failed.
    Stopping,
    /// The app has ended.
    Stopped,
}

impl AppState {
    const ALL: [Self; 5] = [
        Self::Starting,
        Self::Restoring,
        Self::Running,
        Self::Stopping,
        Self::Stopped,
    ];

    /// Returns the state for these metrics.
    pub(super) fn of(metrics: &Metrics, is_stopping: bool) -> Self {
        let mut workers = metrics.workers.iter();
        let has_ended = |worker: &WorkerMetrics| worker.state.is_none();
        if is_stopping || workers.clone().any(has_ended) {
            Self::Stopping
        } else if workers.clone().any(|worker| worker.totals.rebalances == 0) {
            Self::Starting
        } else if workers.any(|worker| !worker.restoring.is_empty()) {
            Self::Restoring
        } else {
            Self::Running
        }
    }
}

type Listener = Arc<dyn Fn(AppState) + Send + Sync>;

/// The last state, and the listeners.
#[derive(Default)]
pub(super) struct Observed {
    state: AtomicU8,
    /// The listeners, each with the last state of its calls.
    listeners: Mutex<Vec<(Listener, Option<AppState>)>>,
}

impl Observed {
    pub(super) fn state(&self) -> AppState {
        let at = usize::from(self.state.load(Ordering::Relaxed));
        AppState::ALL.get(at).copied().unwrap_or(AppState::Stopped)
    }

    /// Adds a listener. The thread that observes the workers calls it, so that its calls are in order.
    pub(super) fn listen(&self, listener: Listener) {
        self.listeners().push((listener, None));
        if self.state() == AppState::Stopped {
            self.deliver(AppState::Stopped);
        }
    }

    /// Stores a new state, and calls each listener that has not received it yet.
    pub(super) fn enter(&self, state: AppState) {
        // A late observation must not replace the final state.
        if self.state() == AppState::Stopped {
            return;
        }
        let at = AppState::ALL.iter().position(|known| *known == state);
        let at = at.and_then(|at| u8::try_from(at).ok()).unwrap_or_default();
        self.state.store(at, Ordering::Relaxed);
        self.deliver(state);
    }

    fn deliver(&self, state: AppState) {
        let mut due = Vec::new();
        for (listener, seen) in &mut *self.listeners() {
            if seen.replace(state) != Some(state) {
                due.push(Arc::clone(listener));
            }
        }
        // Called without the lock, because a listener may add another listener.
        due.iter().for_each(|listener| call(listener, state));
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<(Listener, Option<AppState>)>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn call(listener: &Listener, state: AppState) {
    if catch_unwind(AssertUnwindSafe(|| listener(state))).is_err() {
        tracing::warn!(?state, "a state listener panicked");
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::{State, TaskId};

    use super::*;
    use crate::metrics::RestoringMetrics;

    fn worker(rebalances: u64) -> WorkerMetrics {
        let mut worker = WorkerMetrics {
            state: Some(State::Open),
            ..WorkerMetrics::default()
        };
        worker.totals.rebalances = rebalances;
        worker
    }

    fn metrics(workers: Vec<WorkerMetrics>) -> Metrics {
        Metrics {
            workers,
            ..Metrics::default()
        }
    }

    #[test]
    fn the_state_is_that_of_the_least_advanced_worker() {
        let of = |workers| AppState::of(&metrics(workers), false);
        assert_eq!(of(vec![worker(1), worker(0)]), AppState::Starting);
        let mut restoring = worker(1);
        restoring.restoring = vec![RestoringMetrics::new(TaskId::default(), None)];
        assert_eq!(of(vec![worker(1), restoring]), AppState::Restoring);
        assert_eq!(of(vec![worker(1), worker(2)]), AppState::Running);
        let mut ended = worker(1);
        ended.state = None;
        assert_eq!(of(vec![worker(1), ended]), AppState::Stopping);
        let asked = AppState::of(&metrics(vec![worker(1)]), true);
        assert_eq!(asked, AppState::Stopping);
    }

    #[test]
    fn listeners_get_the_present_state_and_each_change_once() {
        let (observed, seen) = (
            Arc::new(Observed::default()),
            Arc::new(Mutex::new(Vec::new())),
        );
        let note = || {
            let seen = Arc::clone(&seen);
            move |state| seen.lock().unwrap().push(state)
        };
        observed.listen(Arc::new(|_| {
            panic!("a listener that panics hurts no other")
        }));
        let (first, second, again) = (note(), note(), Arc::clone(&observed));
        observed.listen(Arc::new(move |state| {
            first(state);
            if state == AppState::Stopped {
                again.listen(Arc::new(second.clone()));
            }
        }));
        let states = [
            AppState::Starting,
            AppState::Running,
            AppState::Running,
            AppState::Stopped,
        ];
        for state in states {
            observed.enter(state);
        }
        observed.enter(AppState::Stopping);
        let stopped = AppState::Stopped;
        let expected = [AppState::Starting, AppState::Running, stopped, stopped];
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(observed.state(), AppState::Stopped);
    }
}
