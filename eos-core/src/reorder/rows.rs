//! The rows of waiting records.

use std::sync::Arc;

use eos_protocol::reorder::{Held, Turn, Waiting};
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::{Clock, Timestamp};
use eos_state::{Direction, KeyRange, StoreError, TaskStore, due_range, due_row};

use crate::store::StoreSpec;

/// The key of the totals beside the waiting records. The keys of turns are not empty.
const TOTALS: &[u8] = b"";

/// The error of a row without its moments.
const CUT: &str = "a waiting record is cut short: another program wrote to the changelog. Start under another app name";

/// The rows of a store of waiting records: the records with their moments, the totals of the task, and the turns of the
/// keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingRows<'c> {
    task: &'c TaskStore,
    name: &'c Arc<str>,
    id: StoreId,
}

impl<'c> WaitingRows<'c> {
    pub(crate) fn new(task: &'c TaskStore, spec: &'c StoreSpec) -> Self {
        Self {
            task,
            name: &spec.name,
            id: spec.id,
        }
    }

    /// Stops the worker, whatever the policy: the row belongs to other records than the one that reads it.
    fn unreadable(&self, error: impl ToString) -> StoreError {
        self.task.unreadable(self.name, error.to_string())
    }

    /// Reads the row of a waiting record.
    pub(crate) fn held<'r>(&self, row: &'r [u8]) -> Result<Held<'r>, StoreError> {
        Held::decode(row).map_err(|error| self.unreadable(error))
    }

    pub(crate) fn totals(&self) -> Result<Waiting, StoreError> {
        let mut row = Vec::new();
        match self.task.get_undated(self.id, TOTALS, &mut row)? {
            true => Waiting::decode(&row).map_err(|error| self.unreadable(error)),
            false => Ok(Waiting::default()),
        }
    }

    /// Whether the stream time of the current record ends the wait of a record.
    pub(crate) fn has_due(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.task.has_due_item(self.id, Clock::Stream, now)
    }

    pub(crate) fn set_totals(&self, totals: Waiting) -> Result<(), StoreError> {
        let mut row = Vec::new();
        totals.encode(&mut row);
        self.task.put_undated(self.id, TOTALS, &row)
    }

    /// Returns the turn of a key. `None` if the key has had no records.
    pub(crate) fn turn(&self, scope: &[u8]) -> Result<Option<Turn>, StoreError> {
        let mut row = Vec::new();
        if !self.task.get_undated(self.id, scope, &mut row)? {
            return Ok(None);
        }
        let turn = Turn::decode(&row).map_err(|error| self.unreadable(error))?;
        Ok(Some(turn))
    }

    pub(crate) fn set_turn(&self, scope: &[u8], turn: &Turn) -> Result<(), StoreError> {
        let mut row = Vec::new();
        turn.encode(&mut row);
        self.task.put_undated(self.id, scope, &row)
    }

    /// Lets a record wait until this moment.
    pub(crate) fn hold(&self, key: &[u8], until: Timestamp, row: &[u8]) -> Result<(), StoreError> {
        self.task.put_due(self.id, key, until, row)
    }

    /// Ends the wait of a record: it is due now.
    pub(crate) fn call(&self, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let mut row = Vec::new();
        match self.task.get_due(self.id, key, &mut row)? {
            Some(until) if until > now => self.task.put_due(self.id, key, now, &row),
            // The wait has ended before, or the record does not wait.
            _ => Ok(()),
        }
    }

    /// Whether a record with this key waits.
    pub(crate) fn waits(&self, key: &[u8]) -> Result<bool, StoreError> {
        let found = self.task.get_due(self.id, key, &mut Vec::new())?;
        Ok(found.is_some())
    }

    /// Ends the wait of the next record of a key, if this record waits.
    pub(crate) fn call_next(
        &self,
        scope: &[u8],
        turn: &Turn,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match turn.next_waiting() {
            Some(next) => self.call(&number_key(scope, next), now),
            None => Ok(()),
        }
    }

    /// Returns the keys of a scope's records that wait with a lower number than this one, in the order of their
    /// numbers.
    pub(crate) fn below(
        &self,
        scope: &[u8],
        turn: &Turn,
        number: u64,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let Some(numbers) = turn.below(number) else {
            return Ok(Vec::new());
        };
        let (from, to) = (number_key(scope, numbers.start), number_key(scope, number));
        let range = due_range(&KeyRange::between(&from[..]..&to));
        let mut scan = self.task.scan(self.id, &range, Direction::Forward)?;
        let mut keys = Vec::new();
        while let Some((key, row)) = scan.next()? {
            let (key, ..) = due_row(key, row).ok_or_else(|| self.unreadable(CUT))?;
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    /// Whether records of the same key wait with lower numbers.
    pub(crate) fn has_lower(&self, of: OwnRows, key: &[u8]) -> Result<bool, StoreError> {
        let Some((scope, number)) =
            scope_and_number(key).filter(|_| of == OwnRows::WaitingByNumber)
        else {
            return Ok(false);
        };
        match self.turn(scope)? {
            Some(turn) => Ok(!self.below(scope, &turn, number)?.is_empty()),
            None => Ok(false),
        }
    }

    /// Removes a waiting record, and returns its row.
    fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut row = Vec::new();
        let found = self.task.get_due(self.id, key, &mut row)?;
        self.task.delete_due(self.id, key)?;
        Ok(found.map(|_| row))
    }

    /// Passes over the number of a failed record that did not wait. Ends the wait of the next record of its key, if
    /// that record waits.
    pub(crate) fn pass_over(&self, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let Some((scope, number)) = scope_and_number(key) else {
            return Ok(());
        };
        let mut turn = self.turn(scope)?.unwrap_or_else(|| Turn::starting_at(0));
        turn.pass(number);
        self.set_turn(scope, &turn)?;
        self.call_next(scope, &turn, now)
    }

    /// Removes a waiting record that failed at this moment, and the waiting records of its key with lower numbers.
    /// Returns the removed rows.
    pub(crate) fn leave_out(
        &self,
        of: OwnRows,
        key: &[u8],
        at: Timestamp,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut left = Vec::new();
        match scope_and_number(key).filter(|_| of == OwnRows::WaitingByNumber) {
            Some((scope, number)) => {
                let mut turn = self.turn(scope)?.unwrap_or_else(|| Turn::starting_at(0));
                for lower in self.below(scope, &turn, number)? {
                    left.extend(self.take(&lower)?);
                }
                left.extend(self.take(key)?);
                turn.left(left.len() as u64);
                turn.pass(number);
                self.set_turn(scope, &turn)?;
                self.call_next(scope, &turn, at)?;
            }
            None => left.extend(self.take(key)?),
        }
        let mut totals = self.totals()?;
        left.iter().for_each(|row| totals.remove(row.len()));
        self.set_totals(totals)?;
        Ok(left)
    }
}

/// Returns the key of a waiting number: the length of the scope (4 bytes), the scope, and the number (8 bytes), so that
/// the numbers of a key are in order.
pub(crate) fn number_key(scope: &[u8], number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(scope.len() + 12);
    let len = u32::try_from(scope.len()).unwrap_or(u32::MAX);
    key.extend_from_slice(&len.to_be_bytes());
    key.extend_from_slice(scope);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Returns the scope and the number of the key of a waiting number.
pub(crate) fn scope_and_number(key: &[u8]) -> Option<(&[u8], u64)> {
    let (scope, number) = key.get(4..)?.split_last_chunk()?;
    Some((scope, u64::from_be_bytes(*number)))
}
