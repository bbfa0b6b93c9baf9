//! The thread of the reader.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::{GlobalError, GlobalReader};
use crate::client::Client;
use crate::error::Error;
use crate::runtime::handle::Handle;
use crate::worker::{Step, StopMode};

type End = Result<(), Error>;

/// The thread that reads the global tables. A drop stops it.
#[derive(Debug)]
pub(in crate::runtime) struct GlobalThread {
    stops: Arc<AtomicBool>,
    ended: Receiver<End>,
}

impl GlobalThread {
    /// Starts the thread. If the reader fails, the thread stops the app, and the reader's error becomes the app's
    /// error.
    ///
    /// # Errors
    /// If the system can't create a thread.
    pub(in crate::runtime) fn start<C: Client>(
        make: impl FnOnce() -> Result<GlobalReader<C>, GlobalError> + Send + 'static,
        app: Handle,
    ) -> io::Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stops);
        let (end, ended) = channel();
        std::thread::Builder::new()
            .name("eos-global".into())
            .spawn(move || {
                let body = || run(make, &asked);
                let ran = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Gone));
                let failed = ran.is_err();
                let _receiver_may_have_ended = end.send(ran);
                if failed {
                    app.stop(StopMode::Restart);
                }
            })?;
        Ok(Self { stops, ended })
    }

    /// Stops the thread, and returns its result, or `None` if it is still running after `patience`.
    pub(in crate::runtime) fn stop(self, patience: Duration) -> Option<End> {
        self.stops.store(true, Ordering::Relaxed);
        match self.ended.recv_timeout(patience) {
            Ok(end) => Some(end),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Error::Gone)),
        }
    }
}

impl Drop for GlobalThread {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
    }
}

fn run<C: Client>(
    make: impl FnOnce() -> Result<GlobalReader<C>, GlobalError>,
    stops: &AtomicBool,
) -> End {
    let mut reader = make()?;
    while !stops.load(Ordering::Relaxed) {
        match reader.step()? {
            Step::Busy => {}
            Step::Idle(nap) => reader.wait(nap),
            Step::Stopped => return Ok(()),
        }
    }
    Ok(())
}
