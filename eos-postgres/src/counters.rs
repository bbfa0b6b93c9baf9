//! Counters of the sessions of a process.

use std::sync::atomic::{AtomicU64, Ordering};

use eos_core::boundary::LedgerTotals;

/// Counters that all sessions of this process share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    rows: AtomicU64,
    skipped: AtomicU64,
    dead_letters: AtomicU64,
    careful_transactions: AtomicU64,
}

impl Counters {
    /// Adds the counts of a committed transaction.
    pub(crate) fn add(&self, counts: &LedgerTotals) {
        for (total, count) in [
            (&self.rows, counts.rows),
            (&self.skipped, counts.skipped),
            (&self.dead_letters, counts.dead_letters),
            (&self.careful_transactions, counts.careful_transactions),
        ] {
            total.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn totals(&self) -> LedgerTotals {
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        LedgerTotals {
            rows: read(&self.rows),
            skipped: read(&self.skipped),
            dead_letters: read(&self.dead_letters),
            careful_transactions: read(&self.careful_transactions),
        }
    }
}
