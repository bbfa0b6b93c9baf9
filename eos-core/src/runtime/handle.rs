//! What a caller holds of a running app.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use eos_protocol::AppId;
use tokio::sync::oneshot;

use super::app_state::{AppState, Observed};
use crate::error::Error;
use crate::metrics::{Metrics, WorkerMeter};
use crate::worker::{Env, StopMode};

/// Stops a running app and tells how it is doing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    stop: Arc<AtomicU8>,
    watched: Arc<Watched>,
}

/// What the workers tell of themselves.
#[derive(Debug)]
struct Watched {
    app: AppId,
    env: Env,
    meters: Vec<Arc<WorkerMeter>>,
    observed: Observed,
}

impl Handle {
    /// `env` has the workers' clock.
    pub(super) fn new(app: AppId, env: Env, meters: Vec<Arc<WorkerMeter>>) -> Self {
        Self {
            stop: Arc::default(),
            watched: Arc::new(Watched {
                app,
                env,
                meters,
                observed: Observed::default(),
            }),
        }
    }

    /// Stops the app: each worker commits what it has and closes. Returns at once; the app's run
    /// ends when all are done. Asking again changes nothing.
    pub fn stop(&self, mode: StopMode) {
        let mode = match mode {
            StopMode::Restart => 1,
            StopMode::Leave => 2,
        };
        let _first_one_counts =
            self.stop
                .compare_exchange(0, mode, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What the app has done in this process since it started, and how it stands. Workers that
    /// have ended are still in it.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let Watched {
            app, env, meters, ..
        } = &*self.watched;
        Metrics::gather(app.as_str(), env.now(), meters)
    }

    /// The state of the app in this process, a quarter of a second ago at most.
    #[must_use]
    pub fn state(&self) -> AppState {
        self.watched.observed.state()
    }

    /// Calls a function with the present state, within a quarter of a second, and then with each new one.
    ///
    /// The function runs on a background thread. While it blocks, states and summaries are late; records are not.
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
    /// Until it has answered.
    pub(super) ended: Option<oneshot::Receiver<Result<(), Error>>>,
    /// Answers scrapers until it is dropped.
    #[cfg(feature = "prometheus")]
    pub(super) _serving: Option<crate::metrics::Serving>,
}

impl Running {
    /// A handle to stop it and to see how it does.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the app has ended: because it was stopped, or because a worker could not go on.
    ///
    /// # Errors
    /// The first worker's [`Error`]; the others have stopped cleanly by then.
    ///
    /// # Cancel safety
    /// Safe: the app runs on until it is stopped, and can be waited for again. Once it has answered,
    /// it answers `Ok` from then on.
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
