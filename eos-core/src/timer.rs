//! Timers: moments per key that survive crashes and moves.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::state::{OwnRows, StoreId};
use eos_protocol::{Clock as DueClock, Place, Timestamp};
use eos_state::{StoreBackend, StoreError, StoreKind, TaskStore, due_row};

use crate::codec::{Codec, CodecError, Encoded, Field, Part, Plain, PlainType};
use crate::ctx::Ctx;
use crate::failure::Failure;
use crate::own_timer::OwnTimer;
use crate::store::{
    Buffers, RowsError, RowsOf, StateAccess, StateError, StoreRows, StoreSpec, live_rows,
};

/// The clock of a timer or a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Stream time: the highest timestamp of the task's records.
    Stream,
    /// The clock of the machine.
    Wall,
}

impl From<Clock> for DueClock {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Stream => DueClock::Stream,
            Clock::Wall => DueClock::Wall,
        }
    }
}

/// The definition of a timer: at most one moment for each key.
///
/// [`App::timer`](crate::App::timer) takes the definition and returns the handle for closures. At the moment of a key,
/// the timer fires: its handler runs ([`Stream::on_timer`](crate::Stream::on_timer)).
///
/// The name identifies the timer in the state of the app. A timer with a new name is a new timer without moments.
///
/// ```
/// use std::time::Duration;
///
/// use eos_core::{App, Timer, Topic};
///
/// let mut app = App::new("carts");
/// let idle = app.timer(&Timer::<String>::event_time("idle"));
/// app.source(&Topic::<String, String>::plain("cart-events"))
///     .on_timer(&idle, |ctx, due| ctx.forward(due.key, "abandoned".to_owned()))
///     .process(move |ctx, event| ctx.timer(&idle).set_in(&event.key, Duration::from_secs(1800)))
///     .to(&Topic::plain("abandoned-carts"));
/// ```
///
/// # Exactly-once
/// The transaction of a record commits the moments that the record sets. The transaction of a handler's effects removes
/// the moment. The effects of each moment therefore count exactly once, also after crashes and moves. The handler
/// itself may run again after a crash or an aborted transaction.
pub struct Timer<K> {
    pub(crate) name: Arc<str>,
    clock: Clock,
    key: Arc<dyn Codec<K>>,
}

impl<K> Timer<K> {
    /// A timer of stream time. It fires when the task processes a record at or after the moment. With
    /// [`close_when_idle`](crate::Stream::close_when_idle), it also fires without a record.
    pub fn event_time(name: &str) -> Self
    where
        K: PlainType,
    {
        Self::event_time_with(name, Plain)
    }

    /// A timer of the machine's clock. It never fires before the moment. It fires some milliseconds later, or when the
    /// task starts, if the moment has passed.
    pub fn wall_clock(name: &str) -> Self
    where
        K: PlainType,
    {
        Self::wall_clock_with(name, Plain)
    }

    /// [`event_time`](Self::event_time) with a codec for its keys. Equal keys must have equal bytes.
    pub fn event_time_with(name: &str, key: impl Codec<K>) -> Self {
        Self::with(name, Clock::Stream, key)
    }

    /// [`wall_clock`](Self::wall_clock) with a codec for its keys. Equal keys must have equal bytes.
    pub fn wall_clock_with(name: &str, key: impl Codec<K>) -> Self {
        Self::with(name, Clock::Wall, key)
    }

    fn with(name: &str, clock: Clock, key: impl Codec<K>) -> Self {
        Self {
            name: name.into(),
            clock,
            key: Arc::new(key),
        }
    }

    /// The name of the timer.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K: 'static> Timer<K> {
    fn field(&self) -> Field<'_> {
        Field::bare(&self.name, Part::Key)
    }

    fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<(), StateError> {
        into.clear();
        let store = || Arc::clone(&self.name);
        match self.key.encode(key, into, &self.field()) {
            Ok(Encoded::Bytes) => Ok(()),
            Ok(Encoded::Null) => Err(StateError::NullKey { store: store() }),
            Err(source) => Err(StateError::Key {
                store: store(),
                source,
            }),
        }
    }

    fn decode_key(&self, bytes: &[u8]) -> Result<K, CodecError> {
        self.key.decode(Some(bytes), &self.field())
    }

    pub(crate) fn spec(&self) -> StoreSpec {
        StoreSpec {
            name: Arc::clone(&self.name),
            id: StoreId::due(&self.name),
            kind: StoreKind::Point,
            expiry: None,
            windows: None,
            is_final: false,
            closes_when_idle: false,
            clock: Some(self.clock.into()),
            period: None,
            trusts_times: false,
            definition: Box::new(self.clone()),
        }
    }
}

impl<K: 'static> StoreRows for Timer<K> {
    type Key = K;
    /// The moment of the key.
    type Value = Timestamp;

    fn store_name(&self) -> &str {
        &self.name
    }

    fn rows(&self, database: &dyn StoreBackend) -> Result<RowsOf<Self>, RowsError> {
        let rows = live_rows(database, StoreId::due(&self.name))?;
        let items = rows.iter().filter_map(|(key, row)| due_row(key, row));
        let decoded = items.map(|(key, at, _)| match self.decode_key(key) {
            Ok(key) => Ok((key, at)),
            Err(source) => Err(RowsError::Row {
                store: self.name.to_string(),
                source,
            }),
        });
        decoded.collect()
    }
}

impl<K> Clone for Timer<K> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            clock: self.clock,
            key: Arc::clone(&self.key),
        }
    }
}

impl<K> fmt::Debug for Timer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("name", &self.name)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// The handle of a timer, for [`Ctx::timer`] and [`Stream::on_timer`](crate::Stream::on_timer). Returned by
/// [`App::timer`](crate::App::timer). Closures capture the handle by `move`.
pub struct TimerHandle<K> {
    pub(crate) app: u64,
    pub(crate) index: usize,
    key: PhantomData<fn(K)>,
}

impl<K> TimerHandle<K> {
    pub(crate) fn new(app: u64, index: usize) -> Self {
        Self {
            app,
            index,
            key: PhantomData,
        }
    }
}

impl<K> Clone for TimerHandle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for TimerHandle<K> {}

impl<K> fmt::Debug for TimerHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimerHandle").field(&self.index).finish()
    }
}

/// A due moment of a timer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Due<K> {
    /// The key.
    pub key: K,
    /// The moment that was set.
    pub at: Timestamp,
    /// The time of the timer's clock at which the handler runs: stream time, or the machine's clock.
    pub fired: Timestamp,
    pub(crate) timer: usize,
    /// The key as the timer encodes it.
    pub(crate) encoded: Vec<u8>,
}

impl<K> Due<K> {
    pub(crate) fn lent(&self) -> Due<&K> {
        Due {
            key: &self.key,
            at: self.at,
            fired: self.fired,
            timer: self.timer,
            encoded: self.encoded.clone(),
        }
    }
    /// Returns whether the moment belongs to this timer, for a [`Processor`](crate::Processor) with several timers.
    #[must_use]
    pub fn is_of<L>(&self, timer: &TimerHandle<L>) -> bool {
        self.timer == timer.index
    }
}

/// A tick of [`Stream::on_tick`](crate::Stream::on_tick).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// The moment of the tick: a multiple of the period since 1970.
    pub at: Timestamp,
    /// The number of later ticks that became due in the meantime. The handler runs once for all of them.
    pub missed: u64,
    /// The time of the clock at which the handler runs.
    pub fired: Timestamp,
}

/// Returns the store of a tick. Its only key is empty.
pub(crate) fn tick_spec(name: &str, clock: Clock, period: Duration) -> StoreSpec {
    StoreSpec {
        name: name.into(),
        id: StoreId::own(name, OwnRows::Tick),
        kind: StoreKind::Point,
        expiry: None,
        windows: None,
        is_final: false,
        closes_when_idle: false,
        clock: Some(clock.into()),
        period: Some(i64::try_from(period.as_millis()).unwrap_or(i64::MAX)),
        trusts_times: false,
        definition: Box::new(()),
    }
}

impl Ctx<'_> {
    /// Returns a view of a timer for the current record. The step needs [`Stream::on_timer`](crate::Stream::on_timer)
    /// or [`Stream::with_timer`](crate::Stream::with_timer).
    pub fn timer<K: 'static>(&self, timer: &TimerHandle<K>) -> TimerView<'_, K> {
        let found = self.usable(timer.app, timer.index);
        TimerView {
            found: found.and_then(|index| Found::new(self.state(), index)),
            timestamp: self.timestamp(),
            stream_time: self.time_of(DueClock::Stream),
            wall_clock: self.time_of(DueClock::Wall),
        }
    }
}

/// A view of a timer for the current record. Returned by [`Ctx::timer`].
///
/// # Errors
/// Methods return a [`Failure`] if the timer belongs to another app or step, if a key can't be encoded, or if the disk
/// fails. `set` and `set_in` also fail if the moment is too late, and `set_in` if the record has no timestamp. Return
/// the failure with `?`. If the disk fails, the worker stops, regardless of the [`ErrorPolicy`](crate::ErrorPolicy).
pub struct TimerView<'c, K> {
    found: Result<Found<'c, K>, StateError>,
    timestamp: Option<Timestamp>,
    stream_time: Option<Timestamp>,
    wall_clock: Option<Timestamp>,
}

struct Found<'c, K> {
    timer: &'c Timer<K>,
    id: StoreId,
    task: &'c TaskStore,
    buffers: &'c RefCell<Buffers>,
}

impl<'c, K: 'static> Found<'c, K> {
    fn new(access: &StateAccess<'c>, index: usize) -> Result<Self, StateError> {
        let spec = access.specs.get(index).ok_or(StateError::OtherApp)?;
        let timer = spec.definition.downcast_ref().ok_or(StateError::OtherApp)?;
        let task = access.task.filter(|task| task.has(spec.id));
        let task = task.ok_or_else(|| StateError::TimerElsewhere {
            timer: Arc::clone(&spec.name),
        })?;
        Ok(Self {
            timer,
            id: spec.id,
            task,
            buffers: access.buffers,
        })
    }

    fn failed(&self, source: StoreError) -> StateError {
        StateError::Store {
            store: Arc::clone(&self.timer.name),
            source,
        }
    }
}

impl<K: 'static> TimerView<'_, K> {
    /// Sets the moment of a key, and replaces an earlier one. A moment that has passed is due at once.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this moment"]
    pub fn set(&self, key: &K, at: Timestamp) -> Result<(), Failure> {
        let found = self.found()?;
        if at > Place::LAST {
            return Err(StateError::Moment {
                timer: Arc::clone(&found.timer.name),
                at,
            }
            .into());
        }
        let buffers = &mut *found.buffers.borrow_mut();
        found.timer.encode_key(key, &mut buffers.key)?;
        // A moment in the past is due at the time of this unit.
        let earliest = match found.timer.clock {
            Clock::Stream => self.stream_time.unwrap_or(at),
            Clock::Wall => at,
        };
        let put = found
            .task
            .put_due_from(found.id, &buffers.key, (at, earliest), &[]);
        Ok(put.map_err(|source| found.failed(source))?)
    }

    /// Sets the moment of a key to a time from now. For a timer of event time, now is the timestamp of the current
    /// record, or in a handler its moment. For a timer of the machine's clock, now is the time of this clock.
    #[must_use = "return the failure with `?`. If it is ignored, the record counts without this moment"]
    pub fn set_in(&self, key: &K, after: Duration) -> Result<(), Failure> {
        let found = self.found()?;
        let now = match found.timer.clock {
            Clock::Stream => self.timestamp,
            Clock::Wall => self.wall_clock,
        };
        let now = now.ok_or_else(|| StateError::NoTime {
            timer: Arc::clone(&found.timer.name),
        })?;
        let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        self.set(key, Timestamp(now.0.saturating_add(after)))
    }

    /// Removes the moment of a key. A key without a moment is no error.
    #[must_use = "return the failure with `?`. If it is ignored, the moment stays"]
    pub fn cancel(&self, key: &K) -> Result<(), Failure> {
        let found = self.found()?;
        let buffers = &mut *found.buffers.borrow_mut();
        found.timer.encode_key(key, &mut buffers.key)?;
        let deleted = found.task.delete_due(found.id, &buffers.key);
        deleted.map_err(|source| found.failed(source))?;
        Ok(())
    }

    /// Returns the moment of a key.
    #[must_use = "return the failure with `?`"]
    pub fn due(&self, key: &K) -> Result<Option<Timestamp>, Failure> {
        let found = self.found()?;
        let buffers = &mut *found.buffers.borrow_mut();
        found.timer.encode_key(key, &mut buffers.key)?;
        let due = (found.task).get_due(found.id, &buffers.key, &mut buffers.value);
        Ok(due.map_err(|source| found.failed(source))?)
    }

    fn found(&self) -> Result<&Found<'_, K>, StateError> {
        self.found.as_ref().map_err(StateError::again)
    }
}

impl<K> fmt::Debug for TimerView<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerView").finish_non_exhaustive()
    }
}

/// Returns a timer for the key of a record, if one of its moments may come no later than the record. The result includes
/// whether there is such a moment. A moment that the current unit has set comes after the unit.
pub(crate) fn before_record<K: 'static>(
    ctx: &Ctx<'_>,
    timer: usize,
    key: &K,
) -> Result<Option<(OwnTimer, bool)>, StateError> {
    let access = ctx.state();
    // A tick belongs to no key.
    let spec = access.specs.get(timer).filter(|spec| spec.period.is_none());
    let clock = spec.and_then(|spec| spec.clock);
    let (Some(clock), Some(task)) = (clock, access.task) else {
        return Ok(None);
    };
    let Some(now) = ctx
        .time_of(clock)
        .filter(|now| task.may_be_due(clock, *now))
    else {
        return Ok(None);
    };
    let found = Found::<K>::new(access, timer)?;
    let mut encoded = Vec::new();
    found.timer.encode_key(key, &mut encoded)?;
    let due = task.due_before_unit(found.id, &encoded);
    let due = due.map_err(|source| found.failed(source))?;
    let own = OwnTimer {
        store: timer,
        key: encoded,
        clock,
        now,
        handled_to: ctx.handled_to(),
    };
    Ok(Some((own, due.is_some_and(|due| due <= now))))
}

/// Encodes a key as a timer does.
pub(crate) fn encode_key<K: 'static>(
    ctx: &Ctx<'_>,
    timer: usize,
    key: &K,
) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::new();
    Found::<K>::new(ctx.state(), timer)?
        .timer
        .encode_key(key, &mut bytes)?;
    Ok(bytes)
}

/// Decodes the key of a timer.
pub(crate) fn decode_key<K: 'static>(
    ctx: &Ctx<'_>,
    timer: usize,
    key: &[u8],
) -> Result<K, StateError> {
    let found = Found::<K>::new(ctx.state(), timer)?;
    let store = || Arc::clone(&found.timer.name);
    found
        .timer
        .decode_key(key)
        .map_err(|source| StateError::Unreadable {
            store: store(),
            source,
        })
}
