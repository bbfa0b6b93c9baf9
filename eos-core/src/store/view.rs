//! Views of stores for one record.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::windows::{AnyWindows, Expiry};
use eos_protocol::{Clock, Place, Timestamp};
use eos_state::{KeyRange, StoreError, StoreKind, TaskStore, due_range, due_row};

use super::state_error::StateError;
use super::{Definition, KeyValueStore};
use crate::codec::{CodecError, Encoded, Part};
use crate::failure::Failure;
use crate::global::GlobalReads;

/// A store in the topology.
pub(crate) struct StoreSpec {
    pub(crate) name: Arc<str>,
    pub(crate) id: StoreId,
    pub(crate) kind: StoreKind,
    /// The expiry of its windows, if any.
    pub(crate) expiry: Option<Expiry>,
    /// The windows of an operator's store.
    pub(crate) windows: Option<AnyWindows>,
    /// Whether the results of the windows are emitted when they close.
    pub(crate) is_final: bool,
    /// Whether its stage closes windows while no records arrive.
    pub(crate) closes_when_idle: bool,
    /// The clock of its moments, if its rows have moments.
    pub(crate) clock: Option<Clock>,
    /// The period of a tick, in milliseconds.
    pub(crate) period: Option<i64>,
    /// Whether a deduplication store accepts records that are far ahead of the machine's clock.
    pub(crate) trusts_times: bool,
    /// The [`Definition`].
    pub(crate) definition: Box<dyn Any + Send + Sync>,
}

impl StoreSpec {
    /// Whether a task has to visit a row when its first session closes. Then it emits results, or it moves stream time on
    /// while no records arrive. Other sessions only take space once they have closed.
    pub(crate) fn visits_at_close(&self) -> bool {
        self.is_final || self.closes_when_idle
    }

    /// Whether its stage refuses records that are far ahead of the machine's clock: it depends on stream time, and stream
    /// time would not return.
    pub(crate) fn refuses_future(&self) -> bool {
        if self.id.is_seen(&self.name) {
            return !self.trusts_times;
        }
        if self.is_fan_out() {
            return false;
        }
        let has_moments = matches!(self.clock, Some(Clock::Stream | Clock::Background));
        has_moments || self.expiry.is_some() || self.windows.is_some()
    }

    /// Whether it has the moments of a timer or a tick.
    pub(crate) fn is_timer(&self) -> bool {
        let is_due = matches!(self.clock, Some(Clock::Stream | Clock::Wall));
        is_due && self.windows.is_none() && self.waiting_rows().is_none() && !self.is_alone()
    }

    /// Whether it has the moments at which records of a join go out alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.id.own_rows(&self.name) == Some(OwnRows::Alone)
    }

    /// Returns the store whose rows contain the moments of this due store, if there is one.
    pub(crate) fn rows_with_moments(&self) -> Option<StoreId> {
        self.is_alone()
            .then(|| StoreId::own(&self.name, OwnRows::Joined))
    }

    /// Whether it has the updates of a foreign-key join that have not reached all rows.
    pub(crate) fn is_fan_out(&self) -> bool {
        self.id.own_rows(&self.name) == Some(OwnRows::ForeignFanOut)
    }

    /// Whether it has the name of another store, which belongs to the same operator.
    pub(crate) fn shares_name(&self) -> bool {
        let rows = self.id.own_rows(&self.name);
        rows.is_some_and(OwnRows::share_a_name)
    }

    /// Whether its due items run code of the program, which may fail. They belong to no source.
    pub(crate) fn has_items_that_fail(&self) -> bool {
        let waits = self.is_fan_out() || self.waiting_rows().is_some();
        self.is_timer() || self.is_final || self.is_alone() || waits
    }

    /// The content of an operator's store with records that wait for their turn.
    pub(crate) fn waiting_rows(&self) -> Option<OwnRows> {
        let rows = self.id.own_rows(&self.name);
        rows.filter(|rows| rows.are_waiting())
    }
}

impl fmt::Debug for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// The stores that a record may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateAccess<'r> {
    /// All stores of the app.
    pub(crate) specs: &'r [StoreSpec],
    /// The stores of the task; `None` if its stage has none.
    pub(crate) task: Option<&'r TaskStore>,
    /// The expiry of windows by store. A store that is not listed uses its declared expiry.
    pub(crate) windows: &'r [(StoreId, Expiry)],
    /// The times before which sessions and sliding windows are closed in any case, by store.
    pub(crate) closed: &'r [(StoreId, Timestamp)],
    /// The limit of the starts of windows, in a stage that refuses times from the future.
    pub(crate) most_ahead: Option<MostAhead<'r>>,
    pub(crate) buffers: &'r RefCell<Buffers>,
}

/// The limit of times that are ahead of the machine's clock.
#[derive(Clone, Copy)]
pub(crate) struct MostAhead<'r> {
    pub(crate) wall_clock: &'r (dyn Fn() -> Timestamp + Send + Sync),
    pub(crate) limit: Duration,
}

impl MostAhead<'_> {
    /// Returns the lead of a time over the machine's clock, and the limit, if the lead exceeds the limit. Reads the clock only
    /// if the time is after stream time.
    pub(crate) fn exceeded(
        &self,
        time: Timestamp,
        stream_time: Option<Timestamp>,
    ) -> Option<(Duration, Duration)> {
        if Some(time) <= stream_time {
            return None;
        }
        let ahead = time.0.saturating_sub((self.wall_clock)().0);
        let ahead = Duration::from_millis(u64::try_from(ahead).unwrap_or(0));
        (ahead > self.limit).then_some((ahead, self.limit))
    }
}

impl fmt::Debug for MostAhead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.limit, f)
    }
}

/// Buffers for the current key and value, reused for all records, and the global tables as the record sees them.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) globals: GlobalReads,
}

/// A view of a store for the current record. Returned by [`Ctx::store`](crate::Ctx::store).
///
/// Writes count once the record is processed, in the same transaction as its outputs and its offset. A record that fails
/// leaves no trace. Reads see the record's own writes.
///
/// # Exactly-once
/// A store and its changelog topic hold exactly the writes of committed transactions, even after a crash.
///
/// # Errors
/// Methods return a [`Failure`](crate::Failure) if the store belongs to another app or stream, if a key or a value can't
/// be encoded or decoded, or if the disk fails. Return the failure with `?`. If the disk fails, the worker stops,
/// regardless of the [`ErrorPolicy`](crate::ErrorPolicy).
pub struct KeyValueView<'c, K, V> {
    found: Result<Found<'c, KeyValueStore<K, V>>, StateError>,
}

/// A store of the task, with its definition.
pub(super) struct Found<'c, D> {
    pub(super) definition: &'c D,
    pub(super) id: StoreId,
    pub(super) task: &'c TaskStore,
    buffers: &'c RefCell<Buffers>,
    /// How long a row lives after its last write, in milliseconds.
    expire_after: Option<i64>,
    stream_time: Option<Timestamp>,
}

impl<D> Clone for Found<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Found<'_, D> {}

impl<'c, K: 'static, V: 'static> KeyValueView<'c, K, V> {
    pub(crate) fn failed(error: StateError) -> Self {
        Self { found: Err(error) }
    }

    pub(crate) fn new(
        access: &StateAccess<'c>,
        index: usize,
        stream_time: Option<Timestamp>,
    ) -> Self {
        Self {
            found: Found::new(access, index).map(|found| found.at(stream_time)),
        }
    }

    /// Returns the value of a key.
    #[must_use = "return the failure with `?`"]
    pub fn get(&self, key: &K) -> Result<Option<V>, Failure> {
        Ok(self.read(key)?)
    }

    /// Sets the value of a key.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn put(&self, key: &K, value: &V) -> Result<(), Failure> {
        Ok(self.write(key, value)?)
    }

    /// Deletes a key. A missing key is no error.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn delete(&self, key: &K) -> Result<(), Failure> {
        Ok(self.forget(key)?)
    }

    /// Replaces the value of a key by the result of `f`, and returns the new value.
    ///
    /// ```
    /// # use eos_core::{App, KeyValueStore, Topic};
    /// # let mut app = App::new("a");
    /// let counts = app.store(&KeyValueStore::<String, u64>::plain("counts"));
    /// let out = app.output(&Topic::<String, u64>::plain("counts-out"));
    /// app.source(&Topic::<String, String>::plain("clicks"))
    ///     .with_store(&counts)
    ///     .for_each(move |ctx, click| {
    ///         let n = ctx.store(&counts).update(&click.key, |seen| seen.unwrap_or(0) + 1)?;
    ///         ctx.emit(&out, click.key, n)
    ///     });
    /// ```
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this write"]
    pub fn update(&self, key: &K, f: impl FnOnce(Option<V>) -> V) -> Result<V, Failure> {
        let value = f(self.read(key)?);
        self.write(key, &value)?;
        Ok(value)
    }

    /// The definition of the store.
    pub(crate) fn definition(&self) -> Result<&'c KeyValueStore<K, V>, StateError> {
        Ok(self.found()?.definition)
    }

    pub(crate) fn read(&self, key: &K) -> Result<Option<V>, StateError> {
        let found = self.found()?;
        found.read(|into| found.definition.encode_key(key, into))
    }

    pub(crate) fn write(&self, key: &K, value: &V) -> Result<(), StateError> {
        let found = self.found()?;
        found.write(|into| found.definition.encode_key(key, into), value)
    }

    pub(crate) fn forget(&self, key: &K) -> Result<(), StateError> {
        let found = self.found()?;
        found.forget(|into| found.definition.encode_key(key, into))
    }

    pub(super) fn found(&self) -> Result<Found<'c, KeyValueStore<K, V>>, StateError> {
        self.found.as_ref().copied().map_err(StateError::again)
    }
}

impl<'c, D: Definition> Found<'c, D> {
    pub(super) fn new(access: &StateAccess<'c>, index: usize) -> Result<Self, StateError> {
        let spec = access.specs.get(index).ok_or(StateError::OtherApp)?;
        let definition = spec.definition.downcast_ref().ok_or(StateError::OtherApp)?;
        let task = access.task.filter(|task| task.has(spec.id));
        let task = task.ok_or_else(|| StateError::Elsewhere {
            store: Arc::clone(&spec.name),
        })?;
        Ok(Self {
            definition,
            id: spec.id,
            task,
            buffers: access.buffers,
            expire_after: D::expire_after(definition)
                .map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
            stream_time: None,
        })
    }

    /// The same, at this stream time, which decides whether a row is expired.
    fn at(self, stream_time: Option<Timestamp>) -> Self {
        Self {
            stream_time,
            ..self
        }
    }

    /// Whether a row that is due for deletion at this time is expired.
    fn is_expired(&self, due: Timestamp) -> bool {
        self.stream_time.is_some_and(|now| due <= now)
    }

    /// Returns the range of rows with these keys.
    pub(super) fn range(&self, keys: KeyRange) -> KeyRange {
        match self.expire_after {
            Some(_) => due_range(&keys),
            None => keys,
        }
    }

    /// Returns the key and the value of a row, unless it is expired.
    pub(super) fn live<'r>(&self, key: &'r [u8], row: &'r [u8]) -> Option<(&'r [u8], &'r [u8])> {
        if self.expire_after.is_none() {
            return Some((key, row));
        }
        let (key, due, value) = due_row(key, row)?;
        (!self.is_expired(due)).then_some((key, value))
    }

    /// `key` writes the key's bytes.
    pub(super) fn read(
        &self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
    ) -> Result<Option<D::Value>, StateError> {
        let buffers = &mut *self.buffers.borrow_mut();
        self.encode_key(key, &mut buffers.key)?;
        let Buffers { key, value, .. } = &mut *buffers;
        let there = match self.expire_after {
            None => self.task.get(self.id, key, value),
            Some(_) => {
                let due = self.task.get_due(self.id, key, value);
                due.map(|due| due.is_some_and(|due| !self.is_expired(due)))
            }
        };
        if !there.map_err(|source| self.failed(source))? {
            return Ok(None);
        }
        let value = self.definition.decode_value(&buffers.value);
        value.map(Some).map_err(|source| self.unreadable(source))
    }

    /// Whether [`TaskStore::lacks_since`] tells that the key is missing.
    pub(super) fn lacks_since(
        &self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
    ) -> Result<bool, StateError> {
        let buffers = &mut *self.buffers.borrow_mut();
        self.encode_key(key, &mut buffers.key)?;
        let lacks = self.task.lacks_since(self.id, &buffers.key);
        lacks.map_err(|source| self.failed(source))
    }

    pub(super) fn write(
        &self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
        value: &D::Value,
    ) -> Result<(), StateError> {
        let buffers = &mut *self.buffers.borrow_mut();
        self.encode_key(key, &mut buffers.key)?;
        self.encode_value(value, &mut buffers.value)?;
        let written = match self.expire_after {
            None => self.task.put(self.id, &buffers.key, &buffers.value),
            Some(after) => {
                let store = || self.name();
                let now = self
                    .stream_time
                    .ok_or_else(|| StateError::NoStreamTime { store: store() })?;
                let due = Timestamp(now.0.saturating_add(after)).min(Place::LAST);
                self.task
                    .put_due(self.id, &buffers.key, due, &buffers.value)
            }
        };
        written.map_err(|source| self.failed(source))
    }

    pub(super) fn forget(
        &self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
    ) -> Result<(), StateError> {
        let buffers = &mut *self.buffers.borrow_mut();
        self.encode_key(key, &mut buffers.key)?;
        let deleted = match self.expire_after {
            None => self.task.delete(self.id, &buffers.key),
            Some(_) => self.task.delete_due(self.id, &buffers.key).map(drop),
        };
        deleted.map_err(|source| self.failed(source))
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(self.definition.name())
    }

    pub(super) fn encode_key(
        &self,
        key: impl FnOnce(&mut Vec<u8>) -> Result<Encoded, CodecError>,
        into: &mut Vec<u8>,
    ) -> Result<(), StateError> {
        into.clear();
        let encoded = key(into).map_err(|source| StateError::Key {
            store: self.name(),
            source,
        })?;
        match encoded {
            Encoded::Bytes => Ok(()),
            Encoded::Null => Err(StateError::NullKey { store: self.name() }),
        }
    }

    fn encode_value(&self, value: &D::Value, into: &mut Vec<u8>) -> Result<(), StateError> {
        into.clear();
        let encoded =
            self.definition
                .codec()
                .encode(value, into, &self.definition.field(Part::Value));
        let encoded = encoded.map_err(|source| StateError::Value {
            store: self.name(),
            source,
        })?;
        match encoded {
            Encoded::Bytes => Ok(()),
            Encoded::Null => Err(StateError::NullValue { store: self.name() }),
        }
    }

    pub(super) fn unreadable(&self, source: CodecError) -> StateError {
        StateError::Unreadable {
            store: self.name(),
            source,
        }
    }

    pub(super) fn failed(&self, source: StoreError) -> StateError {
        StateError::Store {
            store: self.name(),
            source,
        }
    }
}

impl<K, V> fmt::Debug for KeyValueView<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyValueView")
    }
}
