//! The metrics of global tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The metrics of one global table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GlobalMetrics {
    /// The table's name.
    pub table: String,
    /// Its topic.
    pub topic: String,
    /// Records that became rows or deleted rows since the app started.
    pub records: u64,
    /// Records that could not be decoded and were skipped.
    pub skipped: u64,
    /// The number of offsets up to the last stable ones that were not read yet, at most five seconds ago.
    pub behind: u64,
}

/// The counters of one global table.
#[derive(Debug)]
pub(crate) struct GlobalMeter {
    table: Arc<str>,
    topic: String,
    records: AtomicU64,
    skipped: AtomicU64,
    behind: AtomicU64,
}

impl GlobalMeter {
    pub(crate) fn new(table: &Arc<str>, topic: &str) -> Self {
        Self {
            table: Arc::clone(table),
            topic: topic.to_owned(),
            records: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            behind: AtomicU64::new(0),
        }
    }

    pub(crate) fn read_one(&self) {
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a skipped record. Returns the number of all skipped records.
    pub(crate) fn skipped_one(&self) -> u64 {
        self.skipped.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn is_behind(&self, offsets: u64) {
        self.behind.store(offsets, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> GlobalMetrics {
        GlobalMetrics {
            table: self.table.to_string(),
            topic: self.topic.clone(),
            records: self.records.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            behind: self.behind.load(Ordering::Relaxed),
        }
    }
}

/// Name, kind, help, value.
#[cfg(feature = "prometheus")]
type OfGlobal = (
    &'static str,
    &'static str,
    &'static str,
    fn(&GlobalMetrics) -> u64,
);

/// The Prometheus metrics of a global table.
#[cfg(feature = "prometheus")]
pub(super) const GLOBALS: [OfGlobal; 3] = [
    (
        "eos_global_records_total",
        "counter",
        "Records that became rows of a global table, or deleted rows.",
        |table| table.records,
    ),
    (
        "eos_global_skipped_total",
        "counter",
        "Records of a global table that could not be decoded and were skipped.",
        |table| table.skipped,
    ),
    (
        "eos_global_behind_offsets",
        "gauge",
        "Offsets up to the last stable ones that a global table has not read yet.",
        |table| table.behind,
    ),
];
