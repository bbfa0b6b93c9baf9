//! The state of an app, and its listeners.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::metrics::{Metrics, WorkerMetrics};

/// What an app in this process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppState {
    /// A worker has no assignment yet.
    Starting,
    /// The state of a task is being restored. Other tasks process records.
    Restoring,
    /// All tasks of this process process records. A process may have no tasks.
    Running,
    /// The app was asked to stop, or a worker failed.
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

    /// The state that these metrics show.
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

type Listener = Box<dyn Fn(AppState) + Send + Sync>;

/// The state that was last seen, and the listeners.
#[derive(Default)]
pub(super) struct Observed {
    state: AtomicU8,
    listeners: Mutex<Vec<Listener>>,
}

impl Observed {
    pub(super) fn state(&self) -> AppState {
        let at = usize::from(self.state.load(Ordering::Relaxed));
        AppState::ALL.get(at).copied().unwrap_or(AppState::Stopped)
    }

    pub(super) fn listen(&self, listener: Listener) {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        call(&listener, self.state());
        listeners.push(listener);
    }

    /// Takes the state in, and calls the listeners if it is another one.
    pub(super) fn enter(&self, state: AppState) {
        let at = AppState::ALL.iter().position(|known| *known == state);
        let at = at.and_then(|at| u8::try_from(at).ok()).unwrap_or_default();
        let listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A look that was late must not undo the end.
        let is_new = self.state() != AppState::Stopped && self.state() != state;
        if is_new {
            self.state.store(at, Ordering::Relaxed);
            listeners.iter().for_each(|listener| call(listener, state));
        }
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
    use std::sync::Arc;

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
        let (observed, seen) = (Observed::default(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        observed.listen(Box::new(|_| {
            panic!("a listener that panics hurts no other")
        }));
        observed.listen(Box::new(move |state| log.lock().unwrap().push(state)));
        for state in [AppState::Running, AppState::Running, AppState::Stopped] {
            observed.enter(state);
        }
        observed.enter(AppState::Stopping);
        let expected = [AppState::Starting, AppState::Running, AppState::Stopped];
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(observed.state(), AppState::Stopped);
    }
}
