//! A join of a stream with a table.
//!
//! The table is a sibling topic. Each record carries the table's row at its arrival.

use std::collections::BTreeMap;

use eos_core::{App, KeyValueStore, Topic};

use super::case::Case;
use super::plain::STATELESS;
use super::record::{Draft, Given};
use super::remains::{Found, Left, verdict};
use super::topics::{INPUT, OUTPUTS};
use eos_oracle::{Evidence, Fold, Keys, Row};
use eos_testkit::rng::Rng;

pub(super) const JOINED: Case = Case {
    inputs: &INPUTS,
    sibling: Some(ROWS),
    // The stage has the name of the first topic in alphabetical order.
    changelog: Some("sim-in-changelog"),
    draft,
    declare: |app, _| declare(app),
    judge,
    ..STATELESS
};

/// The table's topic. It is declared first, so that the group subscribes to it.
const ROWS: &str = "rows";
const INPUTS: [&str; 2] = [ROWS, INPUT];

fn declare(app: &mut App) {
    let rows = app.table(
        &Topic::<String, Option<String>>::plain(ROWS),
        &KeyValueStore::plain("rows"),
    );
    // A row is identified by its number plus one; 0 means no row.
    let number = |row: String| row.split(' ').next().and_then(|it| it.parse::<i64>().ok());
    let joined = app
        .source(&Topic::<String, String>::plain(INPUT))
        .left_join(&rows, move |order, row| {
            format!("{order} {}", row.and_then(number).map_or(0, |it| it + 1))
        });
    joined.clone().to(&Topic::plain(OUTPUTS[0]));
    joined.to(&Topic::plain(OUTPUTS[1]));
}

/// Returns a record. A third of the records are rows, some of them tombstones.
fn draft(rng: &mut Rng, now: i64) -> Draft {
    let row = rng.one_in(3);
    Draft {
        topic: if row { ROWS } else { INPUT },
        timestamp: now - rng.between(0, 40),
        tombstone: row && rng.one_in(6),
        ..Draft::plain(now)
    }
}

/// Returns the fold that keeps the last value of each key, with its time.
fn table() -> Fold {
    Fold::new(|contents, record| {
        let key = record.key.unwrap_or_default().to_vec();
        let (time, tombstone) = (record.value / 2, record.value % 2 == 1);
        let digit = char::from(key.last().copied().unwrap_or_default());
        let mut row = time.to_be_bytes().to_vec();
        row.extend_from_slice(format!("{} {digit}", record.seq).as_bytes());
        match tombstone {
            true => contents.remove(&key),
            false => contents.insert(key, row),
        };
        0
    })
}

fn judge(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let evidence = |topic: &'static str| {
        let mut keys = Keys::default();
        let rows = left.of(topic).map(|it| Row {
            seq: Some(it.seq),
            key: keys.intern(Some(it.key.as_bytes())),
            partition: it.partition,
            offset: it.offset,
            value: it.timestamp * 2 + i64::from(it.tombstone),
        });
        let rows = rows.collect();
        left.evidence(topic, rows, keys)
    };
    let mut orders = evidence(INPUT)?;
    orders.outputs = OUTPUTS
        .map(|topic| left.output(topic, &mut orders.keys, None))
        .into();
    let rows = Evidence {
        state: left.copies(ROWS, &table()),
        ..evidence(ROWS)?
    };
    for output in &orders.outputs {
        left.out_of_order(&output.topic, found);
        let carried = output
            .rows
            .iter()
            .filter_map(|it| Some((it.seq?, it.value)));
        let carried: BTreeMap<u64, i64> = carried.collect();
        for partition in 0..left.partitions {
            let of_it = |it: &&Given| it.partition == partition;
            let rows: Vec<_> = left.of(ROWS).filter(of_it).collect();
            let orders: Vec<_> = left.of(INPUT).filter(of_it).collect();
            let latest = left.by_time(INPUTS, partition);
            let mut table = Table::new(&rows);
            for order in &orders {
                // The lost record is already reported.
                let Some(carries) = carried.get(&order.seq) else {
                    continue;
                };
                found.saw("records were joined", 1);
                let due = table.meet(order, *carries, &latest);
                if let Err(due) = due {
                    let (topic, seq, key) = (&output.topic, order.seq, &order.key);
                    found.wrong.push(format!(
                        "VIOLATED joined: {topic}-{partition}, seq {seq} of {key} carries {carries}, and the \
                         table can have {due:?}"
                    ));
                    break;
                }
            }
        }
    }
    Ok([orders, rows].iter().filter_map(verdict).collect())
}

/// A task's table at the records that were joined so far. Any interleaving of both topics is correct that keeps the
/// order of each and explains all carried rows.
struct Table<'a> {
    rows: &'a [&'a Given],
    /// The number of applied rows.
    taken: usize,
    /// The rows by key, as a record carries them.
    carried: BTreeMap<&'a str, i64>,
}

impl<'a> Table<'a> {
    fn new(rows: &'a [&'a Given]) -> Table<'a> {
        Table {
            rows,
            taken: 0,
            carried: BTreeMap::new(),
        }
    }

    fn of(&self, key: &str) -> i64 {
        self.carried.get(key).copied().unwrap_or(0)
    }

    fn take(&mut self) -> bool {
        let Some(row) = self.rows.get(self.taken) else {
            return false;
        };
        let carried = if row.tombstone { 0 } else { row.seq as i64 + 1 };
        self.carried.insert(&row.key, carried);
        self.taken += 1;
        true
    }

    fn take_below(&mut self, offset: i64) {
        while self
            .rows
            .get(self.taken)
            .is_some_and(|it| it.offset < offset)
        {
            self.take();
        }
    }

    /// Joins a record that carries this row. Applies the fewest rows that explain it, which leaves the most for
    /// later records. Returns the possible rows if no number of rows explains it.
    fn meet(&mut self, order: &Given, carries: i64, latest: &[&Given]) -> Result<(), Vec<i64>> {
        self.take_below(order.behind);
        // The order of records before the last start is known.
        let at = latest.iter().position(|it| it.seq == order.seq);
        let before = at.map_or(&latest[..0], |at| &latest[..at]);
        if let Some(row) = before.iter().rfind(|it| it.topic == ROWS) {
            self.take_below(row.offset + 1);
        }
        let mut due = vec![self.of(&order.key)];
        while due.last() != Some(&carries) {
            // No further row can have arrived before the record.
            if at.is_some() || !self.take() {
                return Err(due);
            }
            let of_it = self.of(&order.key);
            if due.last() != Some(&of_it) {
                due.push(of_it);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Kind;
    use super::*;

    fn given(seq: u64, topic: &'static str, offset: i64, behind: i64) -> Given {
        Given {
            seq,
            topic,
            key: "k".into(),
            partition: 0,
            offset,
            timestamp: 0,
            tombstone: false,
            kind: Kind::Good,
            behind,
            arrived: 0,
        }
    }

    #[test]
    fn a_row_is_neither_taken_back_nor_missing_once_it_is_committed() {
        let rows = [given(0, ROWS, 0, 0), given(1, ROWS, 1, 0)];
        let rows: Vec<&Given> = rows.iter().collect();
        let order = |behind| given(9, INPUT, 0, behind);
        let mut table = Table::new(&rows);
        assert_eq!(table.meet(&order(0), 0, &[]), Ok(()));
        assert_eq!(table.meet(&order(0), 2, &[]), Ok(()));
        assert_eq!(table.meet(&order(0), 1, &[]), Err(vec![2]));
        let mut table = Table::new(&rows);
        assert_eq!(table.meet(&order(1), 0, &[]), Err(vec![1, 2]));
        let latest = order(0);
        let latest = [rows[0], &latest];
        let mut table = Table::new(&rows);
        assert_eq!(table.meet(latest[1], 2, &latest), Err(vec![1]));
        assert_eq!(table.meet(latest[1], 1, &latest), Ok(()));
    }
}
