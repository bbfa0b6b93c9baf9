//! What a worker has done so far, readable while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the process started. All workers of a process share one.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) records_in: AtomicU64,
    pub(crate) records_out: AtomicU64,
    pub(crate) skipped: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) rebuilds: AtomicU64,
    pub(crate) rebalances: AtomicU64,
}

/// The [`Counters`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Records processed, those of aborted transactions included.
    pub records_in: u64,
    /// Records written, those of aborted transactions included.
    pub records_out: u64,
    /// Records that failed and were left out.
    pub skipped: u64,
    /// Records that failed and became dead letters.
    pub dead_letters: u64,
    /// Times that a record was put off to be tried again.
    pub retries: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Transactions aborted.
    pub aborts: u64,
    /// Producers replaced (quarantine, fences, repeated aborts).
    pub rebuilds: u64,
    /// Assignments and revocations answered.
    pub rebalances: u64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// The counts of this moment.
    #[must_use]
    pub fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            records_in: read(&self.records_in),
            records_out: read(&self.records_out),
            skipped: read(&self.skipped),
            dead_letters: read(&self.dead_letters),
            retries: read(&self.retries),
            commits: read(&self.commits),
            aborts: read(&self.aborts),
            rebuilds: read(&self.rebuilds),
            rebalances: read(&self.rebalances),
        }
    }
}
