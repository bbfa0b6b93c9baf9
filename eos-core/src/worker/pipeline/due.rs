//! Due items: moments of timers that have come, and final results of closed windows.
//!
//! Each item is a unit like a record: it has the scratch to itself, and joins the open transaction under the same
//! limits. The error policies of the task's sources decide about a failed item. If the item is a record that waited,
//! only the policies of its own sources decide. The removal of its moment is one of the effects of an item.
//!
//! **Order.** Items of stream time come before the task's next record, by moment, store and key. An item sees its own
//! moment as stream time. Items of the machine's clock take turns with records.

use eos_protocol::reorder::Held;
use eos_protocol::state::StoreId;
use eos_protocol::windows::AnyWindows;
use eos_protocol::{Clock, CommitCause, ItemName, Offset, Place, Timestamp, TopicPartition};
use eos_state::{DueItem, NextDue, StoreError, TaskStore};

use super::policy::{aborts, due_error, last_resort_of_item, pass_over, store_failed};
use super::{Done, Failed, Pipeline, Processed, Unit};
use crate::client::{Client, Headers, Records};
use crate::ctx::Origin;
use crate::error_policy::LastResort;
use crate::reorder::WaitingRows;
use crate::store::StoreSpec;
use crate::topology::{DueOf, Fault, Moment, ROUNDS};
use crate::worker::shared::Shared;
use crate::worker::task::{DueAttempt, Task};
use crate::worker::task_state::{Dropped, TaskState};
use crate::worker::ticks::{self, Ticks};
use crate::worker::transaction::TransactionDriver;
use crate::worker::{RecordsOf, WorkerError};

/// The header of a dead letter with the name of a timer or a store, and the moment of the item.
const HEADER: &str = "eos-due";
/// The header of a dead letter with the start of a final result's window, in milliseconds.
const WINDOW: &str = "eos-window";

/// The turn of a due item.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// The item is the first one in the order of its clock.
    InOrder,
    /// The item comes before a record of its key.
    BeforeRecord {
        /// The time of the record, by the clock of the item.
        now: Timestamp,
        /// The stream time up to which all items were handled before the unit of the record.
        handled_to: Option<Timestamp>,
    },
}

impl Pipeline {
    /// Handles the next due item of a clock, if there is one.
    pub(super) fn due<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        clock: Clock,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (stream_time, taken) = (task.stream_time(), task.progress.stream_time());
        let state = task.state.as_mut()?;
        if !state.has_due_of(clock) {
            return None;
        }
        let now = match clock {
            Clock::Stream => stream_time?,
            // Some background work waits for no time.
            Clock::Background => stream_time.unwrap_or(Timestamp(-Place::LAST.0)),
            Clock::Wall => shared.env.wall_clock(),
        };
        let unit = Processed {
            task: task.progress.task,
            unit: Unit::Index(clock),
            timestamp: None,
            failed: None,
        };
        let failed = |source| {
            Done::failed(WorkerError::Store {
                task: task.progress.task,
                source: Box::new(source),
            })
        };
        if !task.ticks.are_set(clock, now) {
            match arm_ticks(shared, &state.store, &mut task.ticks, clock, now) {
                Ok(false) => {}
                Ok(true) => return Some(self.finished(shared, task, unit, txn)),
                Err(source) => return Some(failed(source)),
            }
        }
        let state = task.state.as_mut()?;
        match state.next_due(clock, now, taken) {
            Ok(NextDue::Nothing) => {
                // Moments before the next record of their key may still come.
                if clock != Clock::Stream {
                    task.past_sets.end(clock);
                }
                if clock == Clock::Wall {
                    self.wake_at(task, now);
                }
                None
            }
            Ok(NextDue::Moved) => Some(self.finished(shared, task, unit, txn)),
            Ok(NextDue::Item(item)) => {
                if clock != Clock::Wall && stream_time.is_some() {
                    // This time is ahead of the records only if the inputs are idle.
                    task.progress.advance_stream_time(now);
                }
                Some(self.handle(shared, task, unit, (&item, Turn::InOrder), txn))
            }
            Err(source) => Some(failed(source)),
        }
    }

    /// Wakes the worker for the next moment of the machine's clock.
    fn wake_at<R: Records>(&mut self, task: &Task<R>, now: Timestamp) {
        let store = task.state.as_ref().map(|state| &state.store);
        let next = store.and_then(|store| store.next_due_at(Clock::Wall));
        if let Some(next) = next {
            let wait = next.0.saturating_sub(now.0).max(0);
            self.wake
                .after(std::time::Duration::from_millis(wait.unsigned_abs()));
        }
    }

    /// Handles an item.
    pub(super) fn handle<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        (item, turn): (&DueItem, Turn),
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let (index, name) = store_of(shared, item);
        let fault = |source| Fault::Due {
            name: name.into(),
            store: index,
            key: item.place.key.as_slice().into(),
            at: item.due,
            of: kind_of(shared, index),
            source: Box::new(source),
        };
        let name = ItemName::of(item.place.store, &item.place.key, item.due);
        let id = task.progress.task;
        let own = || name.partition(id);
        let unit = Processed {
            unit: Unit::Due(item.clock, name),
            ..unit
        };
        let is_blamed = txn.blame.has_culprit() && txn.blame.is_culprit(&own(), Offset::ZERO);
        let is_hopeless = is_blamed && txn.blame.is_hopeless(&own(), Offset::ZERO);
        // After an abort, lower numbers may wait again. A decision would remove these records too. So the item runs first and
        // ends their waits.
        let goes_first = !is_hopeless
            && (is_blamed || !task.pauses.is_empty())
            && match has_lower(shared, task.state.as_ref(), index, item) {
                Ok(has_lower) => has_lower,
                Err(source) => return store_failed(unit, source),
            };
        let place = (index, &*item.place.key, item.due);
        if !goes_first && let Some(done) = self.meets_item(shared, task, place, txn) {
            return done;
        }
        if !goes_first && is_blamed {
            self.numbers.clear();
            let fault = fault(aborts(txn));
            if is_hopeless {
                return Done::failed(due_error(task, fault));
            }
            return self.drop_item(shared, task, unit, fault, txn);
        }
        if task.past_sets.exceed(item) {
            return self.refused_due(shared, task, unit, own(), fault(Fault::Rounds(ROUNDS)), txn);
        }
        let handled = self.run_item(shared, task, index, (item, turn));
        if let Some(error) = self.poisoned(shared, unit.task, task.state.as_ref()) {
            task.forget();
            self.clear();
            return Done::failed(error);
        }
        match handled {
            Ok(()) => self.finished(shared, task, unit, txn),
            Err(Fault::MomentsFirst(timers)) => self.moments_first(shared, task, unit, timers, txn),
            Err(found @ Fault::Due { .. }) => {
                self.refused_due(shared, task, unit, own(), found, txn)
            }
            Err(other) => self.refused_due(shared, task, unit, own(), fault(other), txn),
        }
    }

    /// Marks the item as handled, and runs its node. Effects stay in the scratch.
    fn run_item<C: Client>(
        &self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        index: usize,
        (item, turn): (&DueItem, Turn),
    ) -> Result<(), Fault> {
        let Some(state) = &mut task.state else {
            return Ok(());
        };
        let failed = |source| {
            Fault::State(crate::store::StateError::Store {
                store: store_of(shared, item).1.into(),
                source,
            })
        };
        match turn {
            Turn::InOrder => state.handle_due(item),
            // Items before it may still come, so the mark stays.
            Turn::BeforeRecord { .. } => {
                (state.store.delete_due(item.place.store, &item.place.key)).map(|_| ())
            }
        }
        .map_err(failed)?;
        // An expired row has no node.
        let Some(node) = task.chains.handler(index) else {
            return Ok(());
        };
        let Some(input) = task.progress.inputs().first() else {
            return Ok(());
        };
        let wall_clock = shared.env.wall_clock();
        let now = match (turn, item.clock) {
            (Turn::BeforeRecord { now, .. }, _) => now,
            (Turn::InOrder, Clock::Wall) => wall_clock,
            (Turn::InOrder, Clock::Stream | Clock::Background) => {
                (task.progress.stream_time()).map_or(item.due, |time| time.max(item.due))
            }
        };
        // An item that runs before its turn shows nothing about those before it.
        let seen = task.progress.stream_time();
        let moment = Some(item.place.moment());
        let (stream_time, handled_to) = match (item.clock, turn) {
            (Clock::Stream, Turn::InOrder) => (moment, moment),
            (Clock::Stream, Turn::BeforeRecord { handled_to, .. }) => {
                (handled_to.max(moment), handled_to)
            }
            (Clock::Wall | Clock::Background, _) => (seen, seen),
        };
        let headers = Headers::new();
        let origin = Origin {
            task: task.progress.task,
            partition: &input.partition,
            offset: Offset::new(input.next.get() - 1).unwrap_or(Offset::ZERO),
            timestamp: Some(item.due),
            stream_time,
            handled_to,
            wall_clock: Some(wall_clock),
            takes_moments: true,
            headers: &headers,
        };
        let spec = shared.topology.stores().get(index);
        let missed = match spec.and_then(|spec| spec.period) {
            Some(period) => {
                let period = period.max(1);
                let missed = ticks::missed(item.due, period, now);
                let next = ticks::next(item.due, period, now);
                if next <= Place::LAST {
                    let Place { store, key, .. } = &item.place;
                    let set = state.store.put_due(*store, key, next, &[]);
                    set.map_err(failed)?;
                }
                task.ticks.forget();
                missed
            }
            None => 0,
        };
        let moment = Moment {
            store: index,
            key: &item.place.key,
            value: &item.value,
            at: item.due,
            fired: now,
            missed,
        };
        self.run_due(shared, &mut task.chains, node, state, moment, &origin)?;
        if kind_of(shared, index) == DueOf::Timer {
            let set = state.store.set_items(item.clock).map_err(failed)?;
            task.past_sets.handled(item, now, set);
        }
        Ok(())
    }

    /// Handles a failed item. It leaves no effects.
    fn refused_due<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        partition: TopicPartition,
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        self.numbers = std::mem::take(&mut self.scratch.get_mut().numbers);
        self.clear();
        task.forget();
        let item = match &fault {
            Fault::Due { store, key, at, .. } => (*store, key.to_vec(), *at),
            _ => Default::default(),
        };
        let retry = last_resort_of_item(task, input_of(shared, task, &fault)).2;
        if let Some(retry) = retry.filter(|_| !fault.is_permanent()) {
            let plan = retry.plan(shared.env.entropy());
            let before = task.due_attempt.as_ref();
            let before = before.filter(|before| before.item == item);
            let before = before.map(|before| &before.attempt);
            let attempt = plan.failed(shared.now(), &partition, Offset::ZERO, before);
            if let Some(attempt) = attempt {
                tracing::debug!(
                    app = %shared.spec.app, worker = %shared.spec.id, task = %unit.task, error = %fault,
                    "a timer or final result failed; retrying"
                );
                task.due_attempt = Some(DueAttempt { item, attempt });
                self.counters.retries += 1;
                return Done::Commit(CommitCause::RecordFailed);
            }
        }
        self.drop_item(shared, task, unit, fault, txn)
    }

    /// Removes a failed item by the error policy, pauses the task, or fails. There are no effects of its handler.
    pub(super) fn drop_item<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if fault.is_fatal() {
            return Done::failed(due_error(task, fault));
        }
        let (last, letters, _) = last_resort_of_item(task, input_of(shared, task, &fault));
        if let LastResort::Pause(topic) = &last {
            return self.pause(shared, task, unit, (topic.as_ref(), letters), fault, txn);
        }
        if last == LastResort::Fail {
            return Done::failed(due_error(task, fault));
        }
        match self.remove_item(shared, task, unit, &fault, (last, letters)) {
            Ok(unit) => self.finished(shared, task, unit, txn),
            Err(error) => Done::Failed(error),
        }
    }

    /// Removes a failed item: skips it, or writes a dead letter.
    pub(super) fn remove_item<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        fault: &Fault,
        (last, letters): (LastResort, Option<usize>),
    ) -> Result<Processed, Box<WorkerError>> {
        let Fault::Due {
            name,
            store: index,
            key,
            at,
            ..
        } = fault
        else {
            return Ok(unit);
        };
        let spec = shared.topology.stores().get(*index);
        if spec.is_some_and(StoreSpec::is_fan_out) {
            let reason = format!(
                "{fault}. Rows of a foreign-key join still wait for this update, so neither an error policy nor a \
                 decision about a pause skips it. Remove the cause (make the codec available, or raise \
                 max.message.bytes of the topic), and start the app again"
            );
            let (task, reason) = (unit.task, Fault::User(reason.into()).into());
            return Err(Box::new(WorkerError::Due { task, reason }));
        }
        let clock = spec.and_then(|spec| spec.clock).unwrap_or(Clock::Stream);
        task.ticks.forget();
        let dropped = match (&mut task.state, spec) {
            (Some(state), Some(spec)) => state.drop_due(spec, key, *at),
            _ => Ok(Vec::new()),
        };
        let numbers = std::mem::take(&mut self.numbers);
        let dropped = dropped.and_then(|dropped| {
            pass_over(shared, task, &numbers)?;
            Ok(dropped)
        });
        let dropped = match dropped {
            Ok(dropped) => dropped,
            Err(source) => {
                return Err(Box::new(WorkerError::Store {
                    task: unit.task,
                    source: Box::new(source),
                }));
            }
        };
        let count = (dropped.len() as u64).max(1);
        let failed = match (&last, letters) {
            (LastResort::DeadLetter(_), Some(output)) => {
                for item in &dropped {
                    self.write_due_letter(shared, task, output, (name, *at, item), fault);
                }
                if let Some(too_large) = self.oversize(shared, 0) {
                    self.clear();
                    task.forget();
                    return Err(Box::new(due_error(task, too_large)));
                }
                Failed::DeadLetter(count)
            }
            _ => Failed::Skipped(count),
        };
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, task = %unit.task, error = %fault,
            "a timer or final result failed and {}",
            if failed == Failed::Skipped(count) { "is skipped" } else { "goes to the dead-letter topic" }
        );
        let store = spec.map_or_else(|| StoreId::due(name), |spec| spec.id);
        let unit = Processed {
            unit: Unit::Due(clock, ItemName::of(store, key, *at)),
            ..unit
        };
        Ok(unit.failed(failed))
    }

    fn write_due_letter<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &Task<RecordsOf<C>>,
        output: usize,
        (name, at, item): (&str, Timestamp, &Dropped),
        fault: &Fault,
    ) {
        let Some(input) = task.progress.inputs().first() else {
            return;
        };
        let tries = task.due_attempt.as_ref().map_or(0, |it| it.attempt.tries);
        let offset = Offset::new(input.next.get() - 1).unwrap_or(Offset::ZERO);
        let origin = match &item.origin {
            Some((topic, offset)) => {
                let partition = input.partition.partition;
                (TopicPartition::new(topic.clone(), partition), *offset)
            }
            None => (input.partition.clone(), offset),
        };
        let mut headers = item.headers.clone();
        let own = self.letter_headers(shared, (&origin.0, origin.1), tries, fault);
        for header in own.iter() {
            headers.push(header.name(), header.value());
        }
        headers.push(HEADER, Some(format!("{name} {}", at.0).as_bytes()));
        if let Some(start) = item.window {
            headers.push(WINDOW, Some(start.0.to_string().as_bytes()));
        }
        self.scratch.get_mut().write_raw(
            output,
            item.key.as_deref(),
            item.value.as_deref(),
            item.time.or(Some(at)),
            headers,
        );
    }
}

/// Returns the input of a failed record that waited. Its sources decide about it. `None` for other items.
fn input_of<C: Client>(
    shared: &Shared<C>,
    task: &Task<RecordsOf<C>>,
    fault: &Fault,
) -> Option<usize> {
    let Fault::Due { store, key, .. } = fault else {
        return None;
    };
    let spec = shared.topology.stores().get(*store)?;
    spec.waiting_rows()?;
    let mut row = Vec::new();
    let state = task.state.as_ref()?;
    state.store.get_due(spec.id, key, &mut row).ok()?;
    let held = Held::decode(&row).ok()?;
    let topic = std::str::from_utf8(held.topic).ok()?;
    let inputs = task.progress.inputs();
    (inputs.iter()).position(|input| input.partition.topic.as_str() == topic)
}

/// Sets the first tick of each step of this clock that has none, for the current unit. Returns whether it set one.
fn arm_ticks<C: Client>(
    shared: &Shared<C>,
    store: &TaskStore,
    ticks: &mut Ticks,
    clock: Clock,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (mut set, mut from) = (false, Timestamp(i64::MIN));
    for spec in shared.topology.stores() {
        let Some(period) = spec
            .period
            .filter(|_| spec.clock == Some(clock) && store.has(spec.id))
        else {
            continue;
        };
        let mut at = store.get_due(spec.id, &[], &mut Vec::new())?;
        let (is_set, next) = ticks::is_set(at, period, now);
        if !is_set {
            at = Some(Timestamp(next)).filter(|next| *next <= Place::LAST);
            if let Some(next) = at {
                store.put_due(spec.id, &[], next, &[])?;
                set = true;
            }
        }
        let own = at.map_or(Timestamp(i64::MAX), |at| ticks::set_from(at, period));
        from = from.max(own);
    }
    ticks.set_from(clock, from);
    Ok(set)
}

/// Returns whether records of the same key wait with lower numbers. The item then only ends their waits.
fn has_lower<C: Client>(
    shared: &Shared<C>,
    state: Option<&TaskState>,
    index: usize,
    item: &DueItem,
) -> Result<bool, StoreError> {
    let spec = shared.topology.stores().get(index);
    let waiting = spec.and_then(|spec| Some((spec, spec.waiting_rows()?)));
    match (waiting, state) {
        (Some((spec, of)), Some(state)) => {
            WaitingRows::new(&state.store, spec).has_lower(of, &item.place.key)
        }
        _ => Ok(false),
    }
}

/// Returns the index and the name of an item's store.
fn store_of<'s, C: Client>(shared: &'s Shared<C>, item: &DueItem) -> (usize, &'s str) {
    let stores = shared.topology.stores();
    let index = stores.iter().position(|spec| spec.id == item.place.store);
    let index = index.unwrap_or(usize::MAX);
    (index, stores.get(index).map_or("?", |spec| &*spec.name))
}

/// Returns the kind of the items of a store.
fn kind_of<C: Client>(shared: &Shared<C>, index: usize) -> DueOf {
    let store = shared.topology.stores().get(index);
    match store.and_then(|store| store.windows) {
        Some(AnyWindows::Session(_) | AnyWindows::Sliding(_)) => DueOf::Closed,
        Some(AnyWindows::Fixed(_)) => DueOf::Window,
        None => match store.and_then(StoreSpec::waiting_rows) {
            Some(_) => DueOf::Waiting,
            None if store.is_some_and(StoreSpec::is_alone) => DueOf::Alone,
            None if store.is_some_and(StoreSpec::is_fan_out) => DueOf::FanOut,
            None => DueOf::Timer,
        },
    }
}
