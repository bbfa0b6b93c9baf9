//! The caller's handles of a running app.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use eos_protocol::AppId;
use tokio::sync::oneshot;

use super::app_state::{AppState, Observed};
use crate::error::Error;
use crate::metrics::{Meters, Metrics};
use crate::paused::{PauseId, Paused, Resume, ResumeError};
use crate::views::{View, ViewError, Viewable, Viewer};
use crate::worker::{Env, PauseBoard, StopMode};

/// A handle that stops a running app, returns its state and metrics, and resumes paused tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    stop: Arc<AtomicU8>,
    watched: Arc<Watched>,
}

/// The shared data of the handle and the workers.
#[derive(Debug)]
struct Watched {
    app: AppId,
    env: Env,
    meters: Meters,
    pauses: Arc<PauseBoard>,
    viewer: Viewer,
    observed: Observed,
}

impl Handle {
    /// Returns a handle. `env` has the workers' clock.
    pub(super) fn new(
        app: AppId,
        env: Env,
        meters: Meters,
        pauses: Arc<PauseBoard>,
        viewer: Viewer,
    ) -> Self {
        Self {
            stop: Arc::default(),
            watched: Arc::new(Watched {
                app,
                env,
                meters,
                pauses,
                viewer,
                observed: Observed::default(),
            }),
        }
    }

    /// Stops the app: each worker commits and closes. Returns at once. The run of the app ends when all workers are
    /// done. A second call has no effect.
    pub fn stop(&self, mode: StopMode) {
        let mode = match mode {
            StopMode::Restart => 1,
            StopMode::Leave => 2,
        };
        let _first_one_counts =
            self.stop
                .compare_exchange(0, mode, Ordering::Relaxed, Ordering::Relaxed);
        self.watched.viewer.board().stop();
    }

    /// Returns the metrics of the app in this process since its start. They include workers that have ended.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let Watched {
            app, env, meters, ..
        } = &*self.watched;
        meters.read(app.as_str(), env.now())
    }

    /// Returns the state of the app in this process, at most a quarter of a second old.
    #[must_use]
    pub fn state(&self) -> AppState {
        self.watched.observed.state()
    }

    /// Calls a function with the current state, within a quarter of a second, and then with each new state.
    ///
    /// The function runs on a background thread. While it blocks, states and summaries are late. Records are not.
    ///
    /// ```
    /// # use eos_core::Handle;
    /// fn watch(handle: &Handle) {
    ///     handle.on_state(|state| println!("the app is {state:?}"));
    /// }
    /// ```
    pub fn on_state(&self, f: impl Fn(AppState) + Send + Sync + 'static) {
        self.watched.observed.listen(Arc::new(f));
    }

    /// Returns the tasks of this process that are paused by [`ErrorPolicy::pause`](crate::ErrorPolicy::pause), in the order
    /// of their pauses.
    #[must_use]
    pub fn paused(&self) -> Vec<Paused> {
        self.watched.pauses.paused()
    }

    /// Decides about a paused task. Returns at once. The worker carries out the decision in its next step, within about
    /// 50 ms.
    ///
    /// # Exactly-once
    /// A skip or a dead letter is committed with the record's offset. If that transaction is aborted, the decision is
    /// carried out again. If the process stops, or the task moves to another one, before the commit, then the record
    /// fails and pauses there again.
    ///
    /// # Errors
    /// [`ResumeError`] if the task is not paused any more, or if there is no dead-letter topic.
    pub fn resume(&self, id: PauseId, how: Resume) -> Result<(), ResumeError> {
        self.watched.pauses.resume(id, how)
    }

    /// Returns a view of the committed rows of a store in this process: interactive queries.
    ///
    /// `store` is the definition of a store, its handle, or [`Table::rows`](crate::Table::rows). Views of a store exist as
    /// soon as the app starts; a read fails until the state of its task is restored. The module [`views`](crate::views)
    /// describes which rows a process has.
    ///
    /// ```
    /// use eos_core::{Handle, KeyValueStore};
    /// use eos_core::views::ViewError;
    ///
    /// # fn answer(handle: &Handle, user: String) -> String {
    /// let counts = KeyValueStore::<String, u64>::plain("counts");
    /// match handle.view(&counts).and_then(|view| view.get(&user)) {
    ///     Ok(count) => format!("{user}: {}", count.unwrap_or(0)),
    ///     Err(ViewError::Elsewhere { partition, .. }) => format!("ask the process with partition {partition}"),
    ///     Err(error) => format!("try again: {error}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Exactly-once
    /// The view shows only the effects of committed transactions, each of them whole.
    ///
    /// # Errors
    /// [`ViewError::UnknownStore`] if the app has no such store, [`ViewError::OtherTypes`] if it has other types.
    pub fn view<H: Viewable>(&self, store: &H) -> Result<View<H::Store>, ViewError> {
        self.watched.viewer.view(store)
    }

    /// Wakes the waiting reads of views whose deadlines have passed.
    pub(super) fn wake_views(&self) {
        let Watched { viewer, env, .. } = &*self.watched;
        viewer.board().wake_overdue(|| env.now());
    }

    pub(super) fn observed(&self) -> &Observed {
        &self.watched.observed
    }

    pub(super) fn asked(&self) -> Option<StopMode> {
        match self.stop.load(Ordering::Relaxed) {
            1 => Some(StopMode::Restart),
            2 => Some(StopMode::Leave),
            _ => None,
        }
    }
}

/// A started app. Dropping it stops the app in the background.
#[derive(Debug)]
pub struct Running {
    pub(super) handle: Handle,
    /// The result of the run, until it is received.
    pub(super) ended: Option<oneshot::Receiver<Result<(), Error>>>,
    /// The metrics endpoint. It responds until it is dropped.
    #[cfg(feature = "prometheus")]
    pub(super) _serving: Option<crate::metrics::Serving>,
}

impl Running {
    /// Returns a handle that stops and observes the app.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the app has ended, because of a stop or a failed worker.
    ///
    /// # Errors
    /// The [`Error`] of a failed worker, or of the global tables. The other workers have ended by then.
    ///
    /// # Cancel safety
    /// Safe: the app continues until it is stopped, and another call waits for it again. After the first result, all
    /// further calls return `Ok`.
    pub async fn ended(&mut self) -> Result<(), Error> {
        let Some(ended) = &mut self.ended else {
            return Ok(());
        };
        let end = ended.await.unwrap_or(Err(Error::Gone));
        self.ended = None;
        end
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop(StopMode::Restart);
    }
}
