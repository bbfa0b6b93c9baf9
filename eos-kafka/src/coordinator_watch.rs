//! Reconnects a producer that waits for a former coordinator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eos_protocol::{CoordinatorWait, Now};

use super::ffi::{Client, Connections, Failure};

/// The interval of the checks of a call.
const LOOK: Duration = Duration::from_millis(250);

/// A thread beside a producer, because the stuck call blocks the worker's thread.
#[derive(Debug)]
pub(super) struct CoordinatorWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    calling: AtomicBool,
    stopped: AtomicBool,
    /// The number of connections that were shut down.
    reconnects: AtomicU32,
}

impl CoordinatorWatch {
    pub(super) fn new(client: &Client) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let (seen, connections, name) = (Arc::clone(&shared), client.connections(), client.name());
        let thread = thread::Builder::new()
            .name("eos-coordinator".into())
            .spawn(move || seen.run(&connections, &name))
            .map_err(|e| Failure::no_thread(&e))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the number of connections that were shut down.
    #[cfg(test)]
    pub(super) fn reconnects(&self) -> u32 {
        self.shared.reconnects.load(Ordering::Relaxed)
    }

    /// Watches a call that may wait for a coordinator.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.shared.calling.store(true, Ordering::Relaxed);
        let result = call();
        self.shared.calling.store(false, Ordering::Relaxed);
        result
    }
}

impl Shared {
    fn run(&self, connections: &Connections, name: &str) {
        let (begun, mut wait) = (Instant::now(), CoordinatorWait::default());
        while !self.stopped.load(Ordering::Relaxed) {
            let calling = self.calling.load(Ordering::Relaxed);
            let traffic = calling.then(|| connections.traffic());
            let is_stuck = wait.is_stuck(Now(begun.elapsed()), traffic);
            if is_stuck && traffic.is_some_and(|seen| connections.shut_one_down(seen)) {
                self.reconnects.fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    client = name,
                    "sending offsets without a request in flight; reconnecting to look up the coordinators"
                );
            }
            thread::park_timeout(LOOK);
        }
    }
}

impl Drop for CoordinatorWatch {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The panic hook has printed a panic of the thread.
            let _ = thread.join();
        }
    }
}
