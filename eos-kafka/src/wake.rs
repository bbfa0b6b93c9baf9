//! Wakes the worker from librdkafka's threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that a wait continues after the first signal.
const GATHER: Duration = Duration::from_millis(1);

/// A signal that is kept until a waiter takes it.
#[derive(Debug, Default)]
pub(super) struct Wake {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Wake {
    /// Ends the current wait, or the next one.
    pub(super) fn signal(&self) {
        *self
            .signalled
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for a signal and takes it. Waits a little longer for signals right behind it.
    pub(super) fn wait(&self, at_most: Duration) {
        let start = Instant::now();
        let signalled = self
            .signalled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut signalled, _) = self
            .changed
            .wait_timeout_while(signalled, at_most, |signalled| !*signalled)
            .unwrap_or_else(PoisonError::into_inner);
        if *signalled {
            // A fetch fills one partition's queue after the other, each with its own signal. Handling each signal at
            // once costs a context switch and a small batch every time.
            drop(signalled);
            std::thread::sleep(GATHER.min(at_most.saturating_sub(start.elapsed())));
            signalled = self
                .signalled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
        }
        *signalled = false;
    }
}

impl std::task::Wake for Wake {
    fn wake(self: Arc<Self>) {
        self.signal();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_signal_before_the_wait_is_not_lost_and_ends_one_wait_only() {
        let wake = Wake::default();
        wake.signal();
        let start = Instant::now();
        wake.wait(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(5));
        wake.wait(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_signal_from_another_thread_ends_the_wait() {
        let wake = Arc::new(Wake::default());
        let other = Arc::clone(&wake);
        let start = Instant::now();
        let thread = std::thread::spawn(move || other.signal());
        wake.wait(Duration::from_secs(10));
        assert!(start.elapsed() < Duration::from_secs(5));
        thread.join().unwrap();
    }
}
