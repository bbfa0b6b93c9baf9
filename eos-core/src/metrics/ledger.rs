//! Metrics of a ledger.

use crate::boundary::{Ledger, LedgerTotals};

/// Metrics of the app's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LedgerMetrics {
    /// The name of the ledger, such as `postgres shop`.
    pub ledger: String,
    /// Counters since this process opened the ledger.
    pub totals: LedgerTotals,
}

impl LedgerMetrics {
    pub(crate) fn read(ledger: &dyn Ledger) -> Self {
        Self {
            ledger: ledger.name(),
            totals: ledger.totals(),
        }
    }
}

/// Name, help, extra label, value.
#[cfg(feature = "prometheus")]
type OfLedger = (
    &'static str,
    &'static str,
    Option<(&'static str, &'static str)>,
    fn(&LedgerTotals) -> u64,
);

#[cfg(feature = "prometheus")]
const REFUSED: &str = "eos_ledger_refused_records_total";
#[cfg(feature = "prometheus")]
const REFUSED_HELP: &str = "Records left out because the ledger refused one of their rows.";

/// The Prometheus counters of a ledger. Entries with the same name form one metric family.
#[cfg(feature = "prometheus")]
pub(super) const LEDGERS: [OfLedger; 4] = [
    (
        "eos_ledger_rows_total",
        "Rows, statement calls and closure calls of committed transactions.",
        None,
        |totals| totals.rows,
    ),
    (
        REFUSED,
        REFUSED_HELP,
        Some(("outcome", "skipped")),
        |totals| totals.skipped,
    ),
    (
        REFUSED,
        REFUSED_HELP,
        Some(("outcome", "dead_letter")),
        |totals| totals.dead_letters,
    ),
    (
        "eos_ledger_careful_transactions_total",
        "Transactions whose records ran again to find a refused row.",
        None,
        |totals| totals.careful_transactions,
    ),
];
