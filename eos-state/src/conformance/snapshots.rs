//! The rules of snapshots.

use proptest::test_runner::TestCaseError;

use super::model::{Model, Outcome, broke, same};
use super::operation::{Key, STORES};
use super::{position, seq_of};
use crate::{Direction, KeyRange, StateReader, StateSnapshot, StoreError};

/// The snapshots of an open engine, and the committed states that they may show.
#[derive(Default)]
pub(super) struct Snapshots {
    /// The states after the last two transactions, with their numbers.
    states: Vec<(u64, Model)>,
    taken: Vec<(StateSnapshot, Model)>,
}

impl Snapshots {
    /// Adds the state after a transaction.
    pub(super) fn committed(&mut self, seq: u64, state: &Model) {
        self.states.retain(|(known, _)| known + 1 == seq);
        self.states.push((seq, state.clone()));
    }

    /// Adds a snapshot. It shows the last transaction, or the one before while the last one is in flight.
    pub(super) fn took(&mut self, snapshot: StateSnapshot, last: u64, in_flight: bool) -> Outcome {
        let found = snapshot
            .position()
            .map_or(Some(0), seq_of)
            .unwrap_or(u64::MAX);
        if found != last && !(in_flight && found + 1 == last) {
            return Err(TestCaseError::fail(format!(
                "a snapshot shows transaction {found}, and {last} is the last one; in flight: {in_flight}"
            )));
        }
        let at = snapshot.position().cloned();
        same(
            "the position of a snapshot",
            at,
            (found > 0).then(|| position(found)),
        )?;
        let state = self.states.iter().find(|(seq, _)| *seq == found);
        let state = state.map(|(_, state)| state.clone()).unwrap_or_default();
        compare(&snapshot, &state)?;
        self.taken.push((snapshot, state));
        Ok(())
    }

    /// Compares all snapshots with the states at which they were taken.
    pub(super) fn compare(&self) -> Outcome {
        let mut taken = self.taken.iter();
        taken.try_for_each(|(snapshot, state)| compare(snapshot, state))
    }

    /// Checks that the engine refuses its snapshots, because it is closed.
    pub(super) fn check_closed(&mut self, reader: Option<&StateReader>) -> Outcome {
        let closed = StoreError::Closed;
        if let Some(reader) = reader {
            let refused = reader.snapshot().err();
            same(
                "a snapshot of a closed engine",
                refused,
                Some(closed.clone()),
            )?;
        }
        for (snapshot, _) in self.taken.drain(..) {
            for (store, _) in STORES {
                let page = snapshot.page(store, &KeyRange::all(), Direction::Forward);
                same(
                    "a page of a closed engine",
                    page.err(),
                    Some(closed.clone()),
                )?;
                let value = snapshot.get(store, b"k", &mut Vec::new());
                same(
                    "a key of a closed engine",
                    value.err(),
                    Some(closed.clone()),
                )?;
            }
        }
        Ok(())
    }
}

fn compare(snapshot: &StateSnapshot, state: &Model) -> Outcome {
    for (store, _) in STORES {
        let rows = state.iter().filter(|((of, _), _)| *of == store);
        let mut rows: Vec<(Key, Vec<u8>)> = rows
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        for direction in [Direction::Forward, Direction::Reverse] {
            let found = all(snapshot, &KeyRange::all(), store, direction)?;
            same("the rows of a snapshot", found, rows.clone())?;
            rows.reverse();
        }
        for (key, expected) in &rows {
            let mut value = b"what was there before".to_vec();
            let there = snapshot.get(store, key, &mut value).map_err(broke)?;
            same(
                "a key of a snapshot",
                there.then_some(&value),
                Some(expected),
            )?;
            let alone = KeyRange::between(&key[..]..=&key[..]);
            let found = all(snapshot, &alone, store, Direction::Forward)?;
            same("a range of a snapshot", found.len(), 1)?;
        }
        let missing = snapshot.get(store, b"no such key", &mut Vec::new());
        same(
            "a missing key of a snapshot",
            missing.map_err(broke)?,
            false,
        )?;
    }
    Ok(())
}

fn all(
    snapshot: &StateSnapshot,
    range: &KeyRange,
    store: eos_protocol::state::StoreId,
    direction: Direction,
) -> Result<Vec<(Key, Vec<u8>)>, TestCaseError> {
    let (mut rows, mut rest) = (Vec::new(), Some(range.clone()));
    while let Some(range) = rest {
        let page = snapshot.page(store, &range, direction).map_err(broke)?;
        rows.extend(page.rows);
        rest = page.rest;
    }
    Ok(rows)
}
