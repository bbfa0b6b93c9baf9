//! The rows of a join in a task's stores.

use std::ops::Bound;
use std::sync::Arc;

use eos_protocol::Timestamp;
use eos_protocol::joins::{
    Arrival, Arrived, EachRow, JoinError, JoinKind, JoinStorage, JoinTerms, Joining, Stored, Within,
};
use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::windows::Expiry;
use eos_state::{Direction, KeyRange, StoreError, TaskStore};

use crate::codec::CodecError;
use crate::rules;
use crate::store::window_of;

/// The stores of a join: the rows with the records, and the moments of unpaired results.
pub(crate) struct JoinRows<'c> {
    task: &'c TaskStore,
    name: &'c Arc<str>,
    rows: StoreId,
    alone: StoreId,
    joining: Joining,
    /// Rows that start before this time are expired.
    expired_before: Timestamp,
}

impl<'c> JoinRows<'c> {
    /// Returns the stores with this name at a stream time.
    pub(crate) fn new(
        task: &'c TaskStore,
        name: &'c Arc<str>,
        expiry: &Expiry,
        stream_time: Option<Timestamp>,
    ) -> Self {
        // A store of this kind always has terms.
        let none = || JoinTerms::new(JoinKind::Inner, Within::of(std::time::Duration::ZERO));
        let terms = expiry.join().copied().unwrap_or_else(none);
        Self {
            task,
            name,
            rows: StoreId::own(name, OwnRows::Joined),
            alone: StoreId::own(name, OwnRows::Alone),
            joining: Joining::new(terms)
                .pairing_closed(!rules::pairs_open_records_only())
                .visiting_once(!rules::sets_next_visits())
                .forgetting_visits(!rules::notes_last_visits()),
            expired_before: expiry.expired_before(stream_time),
        }
    }

    pub(crate) fn kind(&self) -> JoinKind {
        self.joining.terms().kind()
    }

    /// See [`Joining::arrive`].
    pub(crate) fn arrive(
        &self,
        record: Arrival<'_>,
        stream_time: Timestamp,
        handled_to: Option<Timestamp>,
    ) -> Result<Arrived, StoreError> {
        let arrived = self.joining.arrive(self, record, stream_time, handled_to);
        arrived.map_err(|e| self.failed(e))
    }

    /// See [`Joining::take_alone`].
    pub(crate) fn take_alone(
        &self,
        key: &[u8],
        moment: Timestamp,
    ) -> Result<Vec<Stored>, StoreError> {
        let alone = self.joining.take_alone(self, key, moment);
        alone.map_err(|e| self.failed(e))
    }

    /// Returns the error of stored bytes that can't be decoded. It stops the worker.
    pub(crate) fn unreadable(&self, error: &CodecError) -> StoreError {
        self.task.unreadable(self.name, error.to_string())
    }

    /// Converts an error of the join. An unreadable row stops the worker under every error policy, because the row has
    /// other records.
    fn failed(&self, error: JoinError<StoreError>) -> StoreError {
        match error {
            JoinError::Storage(error) => error,
            JoinError::Row(error) => self.task.unreadable(self.name, error.to_string()),
        }
    }
}

impl JoinStorage for JoinRows<'_> {
    type Error = StoreError;

    fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, StoreError> {
        // The database may or may not have dropped the row.
        if window_of(key).is_some_and(|start| start < self.expired_before) {
            return Ok(false);
        }
        self.task.get(self.rows, key, into)
    }

    fn put(&self, key: &[u8], row: &[u8]) -> Result<(), StoreError> {
        self.task.put(self.rows, key, row)
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut EachRow<'_>) -> Result<(), StoreError> {
        let range = KeyRange::between((Bound::Included(from), Bound::Included(to)));
        let mut scan = self.task.scan(self.rows, &range, Direction::Forward)?;
        while let Some((key, row)) = scan.next()? {
            if each(key, row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn put_dated(
        &self,
        key: &[u8],
        row: &[u8],
        planned: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        match self.kind() {
            JoinKind::Inner => self.put(key, row),
            JoinKind::Left | JoinKind::Outer => self.task.put_dated(self.alone, key, row, planned),
        }
    }

    fn has_visited(&self, key: &[u8], moment: Timestamp) -> Result<bool, StoreError> {
        self.task.has_visited(self.alone, key, moment)
    }

    fn put_item(&self, key: &[u8], moment: Timestamp) -> Result<(), StoreError> {
        self.task.put_due(self.alone, key, moment, &[])
    }

    fn delete_item(&self, key: &[u8]) -> Result<(), StoreError> {
        self.task.delete_due(self.alone, key).map(|_| ())
    }
}
