//! Rows and positions in a ledger.
//!
//! The ledger fails at random: responses are lost, commits take effect late, it restarts, and a failover loses the last
//! commit. In the end each record has one row.

use std::collections::BTreeMap;

use eos_core::{App, Topic};

use super::case::Case;
use super::plain::STATELESS;
use super::record::Given;
use super::remains::{Found, Left};
use super::topics::INPUT;
use eos_testkit::ledger::{LedgerDefence, ModelLedger};

pub(super) const LEDGER: Case = Case {
    outputs: &[],
    declare: |_, _| {},
    ledger: Some(declare),
    judge,
    ..STATELESS
};

/// One in this number of calls fails.
const FAULTS: usize = 40;
const ROWS: &str = "rows";

/// The defences of a ledger, by the names in [`Run::without`](super::Run::without).
const DEFENCES: [(&str, LedgerDefence); 4] = [
    ("ledger_epoch", LedgerDefence::Epoch),
    ("ledger_locks", LedgerDefence::WaitsForLocks),
    ("ledger_compares", LedgerDefence::Compares),
    ("ledger_one_transaction", LedgerDefence::OneTransaction),
];

/// Returns the names of the defences.
pub(super) fn defences() -> impl Iterator<Item = &'static str> {
    DEFENCES.iter().map(|(name, _)| *name)
}

/// Returns the ledger of a run.
pub(super) fn of_run(seed: u64, without: Option<&str>) -> ModelLedger {
    let ledger = ModelLedger::new("sim");
    ledger.fail_at_random(seed, FAULTS);
    let mut missing = DEFENCES.iter().filter(|(name, _)| Some(*name) == without);
    match missing.next() {
        Some((_, defence)) => ledger.without(*defence),
        None => ledger,
    }
}

fn declare(app: &mut App, ledger: &ModelLedger) {
    app.source(&Topic::<String, String>::plain(INPUT))
        .to_place(ledger.place(ROWS));
}

fn value(it: &Given) -> String {
    let digit: usize = it
        .key
        .chars()
        .skip(1)
        .collect::<String>()
        .parse()
        .unwrap_or(0);
    String::from_utf8_lossy(&it.kind.value(it.seq, digit)).into_owned()
}

/// Compares the rows of each key with its records, in their order.
fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    found.saw("the ledger failed", left.ledger.faults());
    let mut given: Vec<&Given> = left.of(INPUT).collect();
    given.sort_by_key(|it| it.offset);
    let mut expected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for it in given {
        expected.entry(&it.key).or_default().push(value(it));
    }
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, row) in left.ledger.rows::<String, String>(ROWS) {
        rows.entry(key).or_default().extend(row);
    }
    let mut verdicts = Vec::new();
    for (key, expected) in &expected {
        let rows = rows.remove(*key).unwrap_or_default();
        let times = |row: &String| rows.iter().filter(|it| *it == row).count();
        let lost = expected.iter().find(|row| times(row) == 0);
        let doubled = expected.iter().find(|row| times(row) > 1);
        verdicts.extend(lost.map(|row| format!("VIOLATED lost: {row:?} of {key} has no row")));
        verdicts.extend(
            doubled.map(|row| format!("VIOLATED doubled: {row:?} of {key} has several rows")),
        );
        if lost.or(doubled).is_none() && rows != *expected {
            verdicts.push(format!(
                "VIOLATED reordered: the rows of {key} are {rows:?}, not {expected:?}"
            ));
        }
    }
    verdicts.extend(
        rows.into_keys()
            .map(|key| format!("VIOLATED unexpected: rows of {key}")),
    );
    Ok(verdicts)
}
