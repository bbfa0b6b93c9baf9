//! Paused tasks: each stands still at a failed record or item until a decision.

use std::sync::Arc;

use eos_protocol::{
    Clock, CommitCause, ItemName, Met, Pause, PausePlace, Timestamp, TopicName, Verdict,
};

use super::policy::{pass_over, store_failed};
use super::{Done, Failed, Pipeline, Processed, Unit};
use crate::client::Client;
use crate::error_policy::LastResort;
use crate::paused::{Paused, PausedAt, Resume};
use crate::rules;
use crate::topology::Fault;
use crate::worker::RecordsOf;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::task_pause::TaskPause;
use crate::worker::task_state::TaskState;
use crate::worker::transaction::TransactionDriver;

impl Pipeline {
    /// Pauses the task at a record or a due item.
    pub(super) fn pause<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        unit: Processed,
        (topic, output): (Option<&TopicName>, Option<usize>),
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let (place, at) = match (&fault, unit.record()) {
            (
                Fault::Due {
                    name,
                    store,
                    key,
                    at,
                    ..
                },
                _,
            ) => {
                let (store, key, at) = (*store, key.clone(), *at);
                let paused = PausedAt::Due {
                    name: name.to_string(),
                    key: key.to_vec(),
                    at,
                };
                (PausePlace::Item { store, key, at }, paused)
            }
            (_, Some((input, offset))) => {
                let Some(input) = task.progress.inputs().get(input) else {
                    return Done::Dry;
                };
                let partition = input.partition.clone();
                let paused = PausedAt::Record {
                    partition: partition.clone(),
                    offset,
                };
                (PausePlace::Record { partition, offset }, paused)
            }
            _ => return Done::failed(super::policy::due_error(task, fault)),
        };
        // An abort would lose the earlier verdict. So it is committed before the task pauses again.
        if task.pauses.iter().any(|it| it.rule.is_over()) {
            return Done::Commit(CommitCause::RecordFailed);
        }
        let letters = topic.cloned().zip(output);
        let spec = &shared.spec;
        let ticket = spec.pauses.add(spec.id, |id| Paused {
            id,
            task: unit.task,
            at: at.clone(),
            error: fault.to_string(),
            since: shared.env.wall_clock(),
            dead_letters: letters.as_ref().map(|(topic, _)| topic.clone()),
        });
        tracing::error!(
            app = %spec.app, worker = %spec.id, task = %unit.task, %at, pause = %ticket.id, error = %fault,
            "a record or moment failed; its task is paused, other tasks continue. Fix the cause, then call \
             `Handle::resume(id, ..)` with `Resume::Retry`, `Resume::Skip` or `Resume::DeadLetter`. \
             `Handle::paused()` lists the paused tasks. A restart processes the record again"
        );
        let pause = TaskPause {
            rule: Pause::at(place),
            ticket,
            fault: Arc::new(fault),
            numbers: std::mem::take(&mut self.numbers),
            letters,
        };
        task.pauses.push(pause);
        if !rules::holds_back_paused_records() {
            return self.finished(shared, task, unit.failed(Failed::Skipped(1)), txn);
        }
        Done::Commit(CommitCause::RecordFailed)
    }

    /// Returns the next step of a paused task, or `None` if it goes on.
    pub(super) fn stand_still<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let mut at = 0;
        while let Some(pause) = task.pauses.get_mut(at) {
            if pause.rule.stands_still() {
                match pause.ticket.decision() {
                    None => return Some(Done::Dry),
                    Some(Resume::Retry) => {
                        let pause = task.pauses.remove(at);
                        log(shared, task.progress.task, &pause, "is retried");
                        forgive(task, pause.rule.place(), txn);
                        continue;
                    }
                    Some(Resume::Skip) => pause.rule.decide(Verdict::Skip),
                    Some(Resume::DeadLetter) => pause.rule.decide(Verdict::DeadLetter),
                }
            }
            // After an abort, an earlier record may cancel the item. The pause ends once the cancellation is committed.
            if !pause.rule.is_reached()
                && !task.progress.touched()
                && is_gone(shared, task.state.as_ref(), pause.rule.place())
            {
                let pause = task.pauses.remove(at);
                log(shared, task.progress.task, &pause, "no longer exists");
                continue;
            }
            let verdict = pause.rule.pending().filter(|_| pause.rule.is_reached());
            // A record is judged where it is taken.
            let is_item = matches!(pause.rule.place(), PausePlace::Item { .. });
            if let Some(verdict) = verdict.filter(|_| is_item) {
                return Some(self.judge_item(shared, task, at, verdict, txn));
            }
            at += 1;
        }
        None
    }

    /// Returns the result of the turn if the task has to stop before this record.
    pub(super) fn meets_record<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (input, offset) = record.record()?;
        let mut at = 0;
        while let Some(pause) = task.pauses.get_mut(at) {
            let partition = &task.progress.inputs().get(input)?.partition;
            match pause.rule.meets_record(partition, offset) {
                Met::Other => at += 1,
                Met::StandStill => return Some(Done::Dry),
                Met::Apply(verdict) => {
                    return Some(self.judge_record(shared, task, record, (at, verdict), txn));
                }
                Met::Passed => _ = task.pauses.remove(at),
            }
        }
        None
    }

    /// Carries out the verdict about a record.
    fn judge_record<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        (at, verdict): (usize, Verdict),
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let place = record.record().and_then(|(input, offset)| {
            let input = task.progress.inputs().get(input)?;
            Some((&input.partition, offset))
        });
        if place.is_some_and(|(partition, offset)| txn.blame.is_hopeless(partition, offset)) {
            // The dead letter aborts its transactions, too. The operator can't take back the decision.
            task.pauses.remove(at);
            let fault = Fault::Aborts(txn.last_error().map(ToString::to_string));
            return self.condemn(shared, task, record, fault, txn);
        }
        let Some(pause) = task.pauses.get_mut(at) else {
            return Done::Next;
        };
        let fault = Arc::clone(&pause.fault);
        pause.rule.applied();
        let (last, output) = pause.last_resort(verdict);
        let numbers = pause.numbers.clone();
        if let Err(source) = pass_over(shared, task, &numbers) {
            return store_failed(record, source);
        }
        let (LastResort::DeadLetter(topic), Some(output)) = (&last, output) else {
            self.tell(shared, task, record, None, &fault);
            return self.finished(shared, task, record.failed(Failed::Skipped(1)), txn);
        };
        self.tell(shared, task, record, Some(topic), &fault);
        self.write_dead_letter(shared, task, record, (output, None), &fault);
        if let Some(too_large) = self.oversize(shared, 0) {
            self.clear();
            task.pauses.remove(at);
            task.forget();
            self.numbers = numbers;
            let letters = (Some(topic), Some(output));
            return self.pause(shared, task, record, letters, too_large, txn);
        }
        self.finished(shared, task, record.failed(Failed::DeadLetter(1)), txn)
    }

    /// Carries out the verdict about a due item.
    fn judge_item<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        at: usize,
        verdict: Verdict,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let Some(pause) = task.pauses.get_mut(at) else {
            return Done::Next;
        };
        let fault = Arc::clone(&pause.fault);
        pause.rule.applied();
        self.numbers.clone_from(&pause.numbers);
        let last = pause.last_resort(verdict);
        let unit = Processed {
            task: task.progress.task,
            unit: Unit::Index(Clock::Stream),
            timestamp: None,
            failed: None,
        };
        match self.remove_item(shared, task, unit, &fault, last) {
            Ok(unit) => self.finished(shared, task, unit, txn),
            Err(error) => Done::Failed(error),
        }
    }

    /// Returns the result of the turn if the task has to stop before this item.
    pub(super) fn meets_item<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        (store, key, at): (usize, &[u8], Timestamp),
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        for (n, pause) in task.pauses.iter_mut().enumerate() {
            match pause.rule.meets_item(store, key, at) {
                Met::Other | Met::Passed => {}
                Met::StandStill => return Some(Done::Dry),
                Met::Apply(verdict) => return Some(self.judge_item(shared, task, n, verdict, txn)),
            }
        }
        None
    }
}

/// Returns whether the due item of a pause no longer exists. Items of windows that close by a cursor have no row.
fn is_gone<C: Client>(shared: &Shared<C>, state: Option<&TaskState>, place: &PausePlace) -> bool {
    let PausePlace::Item { store, key, at } = place else {
        return false;
    };
    let spec = shared.topology.stores().get(*store);
    let (Some(spec), Some(state)) = (spec.filter(|it| it.clock.is_some()), state) else {
        return false;
    };
    let due = state.store.get_due(spec.id, key, &mut Vec::new());
    due.is_ok_and(|due| due != Some(*at))
}

/// Forgets the attempts of the paused record, and the aborts that it is blamed for.
fn forgive<C: Client>(
    task: &mut Task<RecordsOf<C>>,
    place: &PausePlace,
    txn: &mut TransactionDriver<C>,
) {
    task.attempt = None;
    task.due_attempt = None;
    match place {
        PausePlace::Record { partition, .. } => txn.blame.revoked(partition),
        PausePlace::Item { .. } => {
            let id = task.progress.task;
            txn.blame
                .revoked_all(|partition| ItemName::is_item_of(partition, id));
        }
    }
}

fn log<C: Client>(shared: &Shared<C>, task: eos_protocol::TaskId, pause: &TaskPause, what: &str) {
    tracing::info!(
        app = %shared.spec.app, worker = %shared.spec.id, %task, pause = %pause.ticket.id,
        "the paused record or moment {what}"
    );
}
