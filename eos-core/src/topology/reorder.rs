//! The nodes that put records in order.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use eos_protocol::reorder::{Arrival, MOST_WAITING, Turn, Waiting, is_too_late};
use eos_protocol::{Timestamp, TopicPartition};
use eos_state::StoreError;

use super::fault::Fault;
use super::node::{Moment, Next, Node};
use super::nodes::take;
use crate::ctx::Ctx;
use crate::dedup::encode_key;
use crate::failure::Failure;
use crate::record::Record;
use crate::reorder::{
    OnGap, Reorder, ReorderError, ReorderStore, WaitingRows, number_key, scope_and_number,
};
use crate::rules;
use crate::store::StateError;

/// The action for a late record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// The record fails.
    Fail,
    /// The record leaves by the second exit.
    Leave,
    /// The record is forwarded out of order.
    Pass,
}

impl Late {
    /// Handles a late record.
    fn handle<K: 'static, V: 'static>(
        self,
        ctx: &Ctx<'_>,
        record: Record<K, V>,
        next: &mut Next<'_>,
        error: impl FnOnce() -> ReorderError,
    ) -> Result<(), Fault> {
        if self == Self::Fail {
            return Err(fault(error()));
        }
        ctx.came_late();
        match self {
            Self::Pass => next.forward(ctx, &mut Some(record)),
            _ => next.forward_rest(ctx, &mut Some(record)),
        }
    }
}

/// Holds each record until stream time is ahead of it by a given time, and then forwards it.
///
/// The key of a row is the number of the arrival (8 bytes). Rows of one moment come up in the order of their keys, so
/// records leave by time and arrival.
pub(crate) struct ReorderByTime<K, V> {
    pub(crate) store: usize,
    pub(crate) rows: ReorderStore<K, V>,
    /// The wait of a record, in milliseconds.
    pub(crate) within: i64,
    pub(crate) late: Late,
}

impl<K: 'static, V: 'static> Node for ReorderByTime<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let Some(time) = record.timestamp.filter(|time| time.0 >= 0) else {
            return Err(Fault::NoTime(record.timestamp));
        };
        ctx.check_ahead(self.store, time)?;
        let now = ctx.stream_time().map_or(time, |seen| seen.max(time));
        if is_too_late(time, self.within, now) {
            return self.late.handle(ctx, record, next, || ReorderError::Late {
                store: Arc::clone(self.rows.shared_name()),
                time,
                behind: millis(now.0.saturating_sub(time.0)),
                within: millis(self.within),
            });
        }
        let rows = rows(ctx, self.store)?;
        let failed = failed(&self.rows);
        let row = self.rows.row(ctx, &record)?;
        let mut totals = rows.totals().map_err(failed)?;
        let number = totals.add(row.len());
        if totals.bytes > MOST_WAITING && !ends_a_wait(ctx, &rows, now).map_err(failed)? {
            return Err(full(&self.rows, totals));
        }
        rows.set_totals(totals).map_err(failed)?;
        let until = Timestamp(time.0.saturating_add(self.within));
        rows.hold(&number.to_be_bytes(), until, &row)
            .map_err(failed)
    }

    fn due_stores(&self) -> &[usize] {
        std::slice::from_ref(&self.store)
    }

    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        let rows = rows(ctx, self.store)?;
        release(&rows, &self.rows, moment.value)?;
        if !rules::keeps_waiting_records() && moment.fired > moment.at {
            return Ok(());
        }
        forward((&rows, &self.rows), ctx, moment.value, next)
    }
}

/// Whether the current record moves stream time to the end of a wait. If it failed, stream time would not advance, and all
/// later records would fail. A due item moves no stream time.
fn ends_a_wait(ctx: &Ctx<'_>, rows: &WaitingRows<'_>, now: Timestamp) -> Result<bool, StoreError> {
    let moves = ctx.handled_to().is_none_or(|handled| handled < now);
    Ok(moves && rows.has_due(now)?)
}

/// Holds each record until the numbers before it were forwarded or given up.
///
/// A waiting record has a moment: the end of its wait. Once the record is the next one, this moment is now, so it comes
/// up as an item of its own. If it then fails in a later step, the error policy applies to it, and not to the record
/// that ended its wait.
pub(crate) struct ReorderByNumber<K, V> {
    pub(crate) store: usize,
    pub(crate) rows: ReorderStore<K, V>,
    pub(crate) number: Arc<dyn Fn(&V) -> u64 + Send + Sync>,
    pub(crate) settings: Reorder,
    pub(crate) late: Late,
    pub(crate) repairs: Repairs,
}

/// The gaps that a restart leaves time to repair.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// The time of the clock at the first record or item of the task.
    began: Option<Timestamp>,
}

impl Repairs {
    /// Notes the time of the first record or item of the task.
    fn begin(&mut self, now: Option<Timestamp>) {
        self.began = self.began.or(now);
    }

    /// Whether an item with a gap waits once more: it was due when the task started. Otherwise no record that fills the gap
    /// could be read after a restart, because due items come before records.
    fn allow(&self, moment: Moment<'_>) -> bool {
        self.began.is_some_and(|began| moment.at <= began)
    }
}

impl<K: 'static, V: 'static> ReorderByNumber<K, V> {
    fn gap(&self, turn: &Turn, number: u64) -> Fault {
        fault(ReorderError::Gap {
            store: Arc::clone(self.rows.shared_name()),
            expected: turn.next(),
            number,
        })
    }

    fn too_far(&self, turn: &Turn, number: u64) -> Fault {
        fault(ReorderError::TooFar {
            store: Arc::clone(self.rows.shared_name()),
            expected: turn.next(),
            number,
            gap: self.settings.gap,
        })
    }

    /// Lets a record wait. If it is too far from the next number, or if the waiting records are too large, it fails, or
    /// its wait ends now.
    fn wait(
        &self,
        ctx: &Ctx<'_>,
        (rows, scope): (&WaitingRows<'_>, &[u8]),
        mut turn: Turn,
        (number, record): (u64, &Record<K, V>),
        is_too_far: bool,
    ) -> Result<(), Fault> {
        let failed = failed(&self.rows);
        let passes_on = self.settings.on_gap == OnGap::PassOn;
        let now = ctx.time_of(self.settings.clock.into());
        let now = now.ok_or(Fault::NoTime(record.timestamp))?;
        let may_fail = || -> Result<bool, Fault> {
            if passes_on {
                return Ok(false);
            }
            let by_records = self.settings.clock == crate::timers::Clock::Stream;
            let ends_a_wait = by_records && ends_a_wait(ctx, rows, now).map_err(failed)?;
            Ok(!ends_a_wait)
        };
        if is_too_far && may_fail()? {
            return Err(self.too_far(&turn, number));
        }
        let row = self.rows.row(ctx, record)?;
        let mut totals = rows.totals().map_err(failed)?;
        totals.add(row.len());
        let is_full = totals.bytes > MOST_WAITING;
        if is_full && may_fail()? {
            return Err(full(&self.rows, totals));
        }
        let until = match passes_on && (is_too_far || is_full) {
            // Its item first ends the waits of lower numbers.
            true => now,
            false => self.settings.until(now),
        };
        rows.hold(&number_key(scope, number), until, &row)
            .map_err(failed)?;
        rows.set_totals(totals).map_err(failed)?;
        turn.wait();
        rows.set_turn(scope, &turn).map_err(failed)
    }
}

impl<K: 'static, V: 'static> Node for ReorderByNumber<K, V> {
    fn process(
        &mut self,
        ctx: &Ctx<'_>,
        record: &mut dyn Any,
        next: &mut Next<'_>,
    ) -> Result<(), Fault> {
        let Some(record) = take::<K, V>(record) else {
            return Ok(());
        };
        let (name, number) = (self.rows.shared_name(), (self.number)(&record.value));
        let (mut scope, mut key) = (Vec::new(), Vec::new());
        let has_key = encode_key(&*self.rows.key, name, &record.key, &mut key)?;
        scope.push(u8::from(has_key));
        scope.append(&mut key);
        self.repairs.begin(ctx.time_of(self.settings.clock.into()));
        let rows = rows(ctx, self.store)?;
        let failed = failed(&self.rows);
        let turn = rows.turn(&scope).map_err(failed)?;
        let mut turn = turn.unwrap_or_else(|| Turn::starting_at(self.settings.first));
        let mut arrival = turn.arrives(number, self.settings.gap);
        if arrival != Arrival::Late
            && turn.waiting() > 0
            && rows.waits(&number_key(&scope, number)).map_err(failed)?
        {
            // This applies to the next number as well: by the machine's clock, this record may arrive before that wait
            // ends.
            arrival = Arrival::Late;
        }
        match arrival {
            Arrival::Next => {
                turn.pass(number);
                rows.set_turn(&scope, &turn).map_err(failed)?;
                if turn.next_waiting().is_some() {
                    let now = ctx.time_of(self.settings.clock.into());
                    let now = now.ok_or(Fault::NoTime(record.timestamp))?;
                    rows.call_next(&scope, &turn, now).map_err(failed)?;
                }
                ctx.forwards_number(self.store, number_key(&scope, number));
                next.forward(ctx, &mut Some(record))
            }
            Arrival::Late => self
                .late
                .handle(ctx, record, next, || ReorderError::Repeated {
                    store: Arc::clone(name),
                    number,
                    next: turn.next(),
                }),
            arrival => {
                let is_too_far = matches!(arrival, Arrival::TooFar { .. });
                self.wait(ctx, (&rows, &scope), turn, (number, &record), is_too_far)
            }
        }
    }

    fn due_stores(&self) -> &[usize] {
        std::slice::from_ref(&self.store)
    }

    /// Forwards a record whose wait is over.
    fn due(&mut self, ctx: &Ctx<'_>, moment: Moment<'_>, next: &mut Next<'_>) -> Result<(), Fault> {
        self.repairs.begin(Some(moment.fired));
        let rows = rows(ctx, self.store)?;
        let failed = failed(&self.rows);
        let Some((scope, number)) = scope_and_number(moment.key) else {
            return Ok(());
        };
        let turn = rows.turn(scope).map_err(failed)?;
        let mut turn = turn.unwrap_or_else(|| Turn::starting_at(self.settings.first));
        let lower = rows.below(scope, &turn, number).map_err(failed)?;
        let first = lower.first().and_then(|key| scope_and_number(key));
        let first = first.map_or(number, |(_, number)| number);
        if u128::from(first) > turn.next()
            && self.settings.on_gap == OnGap::Fail
            && self.repairs.allow(moment)
        {
            let until = self.settings.until(moment.fired);
            return (rows.hold(moment.key, until, moment.value)).map_err(failed);
        }
        if !lower.is_empty() {
            // The lower numbers arrived later, and are forwarded first.
            let mut lower = lower.iter();
            let called = lower.try_for_each(|key| rows.call(key, moment.at));
            called.map_err(failed)?;
            return rows
                .hold(moment.key, moment.at, moment.value)
                .map_err(failed);
        }
        if u128::from(number) > turn.next() {
            if self.settings.on_gap != OnGap::PassOn {
                return Err(self.gap(&turn, number));
            }
            ctx.gave_numbers_up();
        }
        turn.pass(number);
        turn.left(1);
        rows.set_turn(scope, &turn).map_err(failed)?;
        rows.call_next(scope, &turn, moment.at).map_err(failed)?;
        release(&rows, &self.rows, moment.value)?;
        if !rules::keeps_waiting_records() && moment.fired > moment.at {
            return Ok(());
        }
        forward((&rows, &self.rows), ctx, moment.value, next)
    }
}

/// Returns the rows of a store of waiting records.
fn rows<'c>(ctx: &'c Ctx<'_>, store: usize) -> Result<WaitingRows<'c>, Fault> {
    let state = ctx.state();
    match (state.specs.get(store), state.task) {
        (Some(spec), Some(task)) => Ok(WaitingRows::new(task, spec)),
        _ => Err(Fault::State(StateError::OtherApp)),
    }
}

/// Removes a record from the totals of the waiting records.
fn release<K, V>(
    rows: &WaitingRows<'_>,
    store: &ReorderStore<K, V>,
    row: &[u8],
) -> Result<(), Fault> {
    let failed = failed(store);
    let mut totals = rows.totals().map_err(failed)?;
    totals.remove(row.len());
    rows.set_totals(totals).map_err(failed)
}

/// Forwards the record of a row, with its own origin, time and headers.
fn forward<K: 'static, V: 'static>(
    (rows, store): (&WaitingRows<'_>, &ReorderStore<K, V>),
    ctx: &Ctx<'_>,
    row: &[u8],
    next: &mut Next<'_>,
) -> Result<(), Fault> {
    let held = rows.held(row).map_err(failed(store))?;
    let (record, topic, offset) = store.record(held).map_err(|e| store.unreadable(e))?;
    let headers = record.headers.clone();
    let from = TopicPartition::new(topic, ctx.partition());
    let origin = ctx.origin_of((&from, offset), record.timestamp, &headers);
    next.forward(&ctx.of_record(&origin), &mut Some(record))
}

fn failed<K, V>(store: &ReorderStore<K, V>) -> impl Fn(StoreError) -> Fault + Copy + '_ {
    move |source| {
        let store = Arc::clone(store.shared_name());
        Fault::State(StateError::Store { store, source })
    }
}

fn full<K, V>(store: &ReorderStore<K, V>, totals: Waiting) -> Fault {
    fault(ReorderError::Full {
        store: Arc::clone(store.shared_name()),
        bytes: totals.bytes,
        limit: MOST_WAITING,
    })
}

fn fault(error: ReorderError) -> Fault {
    Fault::User(Failure::permanent(error))
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
