//! Moments of a record's key that come before the record.
//!
//! A step finds them when the record reaches it. The unit of the record ends without effects, each moment is a unit of its
//! own, and then the record runs again. So a moment that fails or aborts its transactions does not undo the moments before it,
//! nor the record, and any number of moments has no effect on the size of a unit.

use eos_protocol::{Offset, Place, Round, Timestamp, TopicPartition};
use eos_state::{DueItem, StoreError};

use super::due::Turn;
use super::{Done, Pipeline, Processed, Unit};
use crate::client::Client;
use crate::own_timer::OwnTimer;
use crate::worker::own_moments::OwnMoments;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::transaction::TransactionDriver;
use crate::worker::{RecordsOf, WorkerError};

impl Pipeline {
    /// Handles the first moment before a record or an item. Its unit has found the moment and leaves no effects.
    pub(super) fn moments_first<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        timers: Vec<OwnTimer>,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        self.clear();
        task.forget();
        let done = self.first_moment(shared, task, unit, &timers, txn);
        if let Some((input, offset)) = unit.record()
            && let Some(input) = task.progress.inputs().get(input)
        {
            let place = (input.partition.clone(), offset);
            let own = OwnMoments::new(place, timers, task.own_moments.as_deref());
            task.own_moments = Some(Box::new(own));
        }
        done.unwrap_or(Done::Next)
    }

    /// Handles the next moment before this record, if a former run of the record has found one.
    pub(super) fn next_own_moment<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        (partition, offset): (TopicPartition, Offset),
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        // Another record may come first meanwhile.
        let mut found = task
            .own_moments
            .take()
            .filter(|found| found.is_of(&partition, offset))?;
        let done = self.first_moment(shared, task, record, &found.timers, txn);
        if done.is_none() {
            found.timers.clear();
        }
        task.own_moments = Some(found);
        done
    }

    fn first_moment<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        timers: &[OwnTimer],
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (timer, at) = match first(shared, task, timers) {
            Ok(first) => first?,
            Err(source) => {
                let (task, source) = (unit.task, Box::new(source));
                return Some(Done::failed(WorkerError::Store { task, source }));
            }
        };
        let spec = shared.topology.stores().get(timer.store)?;
        let clock = timer.clock;
        let item = DueItem {
            clock,
            place: Place {
                round: Round::of(at),
                store: spec.id,
                key: timer.key.clone(),
            },
            due: at,
            value: Vec::new(),
        };
        let unit = Processed {
            unit: Unit::Index(clock),
            ..unit.left_out()
        };
        let turn = Turn::BeforeRecord {
            now: timer.now,
            handled_to: timer.handled_to,
        };
        Some(self.handle(shared, task, unit, (&item, turn), txn))
    }
}

/// Returns the timer with the first moment that comes no later than its record.
fn first<'t, C: Client>(
    shared: &Shared<C>,
    task: &Task<RecordsOf<C>>,
    timers: &'t [OwnTimer],
) -> Result<Option<(&'t OwnTimer, Timestamp)>, StoreError> {
    let Some(state) = &task.state else {
        return Ok(None);
    };
    let mut first: Option<(&OwnTimer, Timestamp)> = None;
    for timer in timers {
        let Some(spec) = shared.topology.stores().get(timer.store) else {
            continue;
        };
        let due = state.store.due_before_unit(spec.id, &timer.key)?;
        let is_first = |at: Timestamp| first.is_none_or(|(_, first)| at < first);
        if let Some(at) = due.filter(|at| *at <= timer.now && is_first(*at)) {
            first = Some((timer, at));
        }
    }
    Ok(first)
}
