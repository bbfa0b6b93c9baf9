//! Error policies: the fate of a record that fails.

use eos_protocol::sequence::LetterNumber;
use eos_protocol::{
    Attempt, Clock, CommitCause, DeadLetter, Offset, Timestamp, TopicName, TopicPartition,
};
use eos_state::StoreError;

use super::log_limiter::Fate;
use super::{Done, Failed, Pipeline, Processed};
use crate::advice::advice;
use crate::client::{Client, Headers, Records};
use crate::error_policy::{LastResort, Retry};
use crate::reorder::WaitingRows;
use crate::rules;
use crate::topology::{Fault, forget_right};
use crate::worker::parked_keys::numbered;
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::transaction::TransactionDriver;
use crate::worker::{RecordsOf, WorkerError};

/// Returns the fault of a record or item that aborts its transactions.
pub(super) fn aborts<C: Client>(txn: &TransactionDriver<C>) -> Fault {
    let last = txn.last_error();
    Fault::Aborts(last.map(|error| format!("{error}{}", advice(error))))
}

/// The size limit of an error text in a dead letter's headers, in bytes. A record that is nearly as large as its topic
/// allows should still fit into a dead-letter topic with the same limit.
const TEXT: usize = 4 << 10;

impl Pipeline {
    /// Handles a record that failed behind this source, at the head of this input. It leaves no effects.
    pub(super) fn refused<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        source: usize,
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        self.numbers = std::mem::take(&mut self.scratch.get_mut().numbers);
        if rules::drops_failed_effects() {
            self.clear();
            task.forget();
        }
        // The next try has a time of its own.
        task.own_moments = None;
        let Some((input, _)) = record.record() else {
            return Done::failed(due_error(task, fault));
        };
        let (last, letters) = last_resort_of_all(task, input, Some(source));
        let sources = task.chains.inputs.get(input);
        let failed = sources.and_then(|all| all.get(source));
        let retry = failed.and_then(|failed| failed.policy.tries().copied());
        if let Some(retry) = retry.filter(|_| !fault.is_permanent())
            && self.park(shared, task, record, &retry, &fault)
        {
            return Done::Commit(CommitCause::RecordFailed);
        }
        self.decide(shared, task, record, (&last, letters), fault, txn)
    }

    /// Handles a record that aborts every transaction, after its last attempt. Any of its sources may be the cause, so
    /// the strictest policy counts.
    pub(super) fn condemn<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        self.numbers.clear();
        let Some((number, offset)) = record.record() else {
            return Done::failed(due_error(task, fault));
        };
        let input = task.progress.inputs().get(number);
        if input.is_some_and(|i| txn.blame.is_hopeless(&i.partition, offset)) {
            // The record's dead letter also aborts its transactions.
            return Done::failed(error(task, record, fault, false));
        }
        let (last, letters) = last_resort_of_all(task, number, None);
        self.decide(shared, task, record, (&last, letters), fault, txn)
    }

    fn decide<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        (last, letters): (&LastResort, Option<usize>),
        fault: Fault,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        if fault.is_fatal() {
            return Done::failed(error(task, record, fault, false));
        }
        match (last, letters) {
            (LastResort::Skip, _) => {
                self.tell(shared, task, record, None, &fault);
                let numbers = std::mem::take(&mut self.numbers);
                if let Err(source) = pass_over(shared, task, &numbers) {
                    return store_failed(record, source);
                }
                self.finished(shared, task, record.failed(Failed::Skipped(1)), txn)
            }
            (LastResort::DeadLetter(topic), Some(output)) => {
                self.tell(shared, task, record, Some(topic), &fault);
                let number = match Self::number_letter(task, record) {
                    Ok(number) => number,
                    Err(source) => return store_failed(record, source),
                };
                // A letter in sequence comes back before the later records of its key, so it keeps its place. Without a key,
                // later records do not wait for it.
                let numbers = std::mem::take(&mut self.numbers);
                let comes_back = number.is_some() && has_key(task, record);
                if !comes_back && let Err(source) = pass_over(shared, task, &numbers) {
                    return store_failed(record, source);
                }
                self.write_dead_letter(shared, task, record, (output, number), &fault);
                match self.oversize(shared, 0) {
                    Some(too_large) => {
                        self.clear();
                        task.forget();
                        Done::failed(error(task, record, too_large, false))
                    }
                    None => self.finished(shared, task, record.failed(Failed::DeadLetter(1)), txn),
                }
            }
            (LastResort::Pause(topic), _) => {
                self.pause(shared, task, record, (topic.as_ref(), letters), fault, txn)
            }
            _ => Done::failed(error(task, record, fault, true)),
        }
    }

    /// Schedules a retry of the record. The records before it are committed meanwhile, and the worker's other tasks
    /// continue. Returns false after the last attempt.
    fn park<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        retry: &Retry,
        fault: &Fault,
    ) -> bool {
        let found = record.record();
        let Some((input, offset)) =
            found.and_then(|(input, offset)| Some((task.progress.inputs().get(input)?, offset)))
        else {
            return false;
        };
        let (now, before) = (shared.now(), task.attempt.as_ref());
        let plan = retry.plan(shared.env.entropy());
        let before_this = before.cloned();
        task.attempt = plan.failed(now, &input.partition, offset, before);
        let Some(attempt) = &task.attempt else {
            // The dead letter contains the number of attempts.
            task.attempt = before_this;
            return false;
        };
        tracing::debug!(
            app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
            %offset, tries = attempt.tries, error = %fault, "retrying the record"
        );
        self.counters.retries += 1;
        true
    }

    /// Writes the record as it was read, with the reason in its headers (KIP-1034).
    pub(super) fn write_dead_letter<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &Task<RecordsOf<C>>,
        record: Processed,
        (output, number): (usize, Option<LetterNumber>),
        fault: &Fault,
    ) {
        let Some((input, offset)) = record.record() else {
            return;
        };
        let message = task.head(input);
        let input = task.progress.inputs().get(input);
        let (Some(message), Some(input)) = (message, input) else {
            return;
        };
        let is_its = |it: &&Attempt| it.offset == offset && it.partition == input.partition;
        let attempts = task
            .attempt
            .as_ref()
            .filter(is_its)
            .map_or(0, |it| it.tries);
        let mut headers: Headers = numbered(message.headers(), number);
        let about = self.letter_headers(shared, (&input.partition, offset), attempts, fault);
        for header in about.iter() {
            headers.push(header.name(), header.value());
        }
        let (key, value) = (message.key(), message.value());
        self.scratch
            .get_mut()
            .write_raw(output, key, value, message.timestamp(), headers);
    }

    /// Returns the headers of a dead letter about a record, or about a moment after this record.
    pub(super) fn letter_headers<C: Client>(
        &self,
        shared: &Shared<C>,
        (partition, offset): (&TopicPartition, Offset),
        attempts: u32,
        fault: &Fault,
    ) -> Headers {
        let letter = DeadLetter {
            partition,
            offset,
            exception: fault.kind(),
            message: &fault.to_string(),
            stacktrace: &fault.causes(),
            app: &shared.spec.app,
            attempts: attempts.saturating_add(1),
            time: shared.env.wall_clock(),
        };
        let mut headers = Headers::new();
        for (name, value) in letter.headers(TEXT) {
            headers.push(name, Some(&value));
        }
        headers
    }

    /// Logs that a record came after its window was closed. The rate is limited.
    pub(super) fn warn_late<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &Task<RecordsOf<C>>,
        record: Processed,
    ) {
        let Some(withheld) = self.log.admit(&Fate::Late, shared.now()) else {
            return;
        };
        let found = record.record();
        let Some((input, offset)) =
            found.and_then(|(input, offset)| Some((task.progress.inputs().get(input)?, offset)))
        else {
            tracing::warn!(
                app = %shared.spec.app, worker = %shared.spec.id, task = %record.task, withheld,
                "a result of a timer or of a closed window is late for a later step: its window there is closed, or its \
                 place in the order has passed. It goes to the topic of late records, is passed on or is skipped (logged \
                 at most once per 10 s; `withheld` is the number of suppressed lines). Give the later step more grace \
                 (guide: Final results)"
            );
            return;
        };
        let behind = task.progress.stream_time().zip(record.timestamp);
        let behind_ms = behind.map(|(stream, time)| stream.0.saturating_sub(time.0));
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
            %offset, behind_ms, withheld,
            "a record arrived after its window was closed, or after its place in an order had passed; it \
             goes to the topic of late records, is passed on or is skipped (logged at most once per 10 s; `withheld` is the number of suppressed \
             lines). Its time is `behind_ms` before the highest one of its partition: if that is \
             expected, give the windows more grace (guide: Windows), or let the records of the order wait \
             longer (guide: Records out of order)"
        );
    }

    /// Logs the fate of a record. The rate is limited, so that a topic full of failed records does not fill the log.
    pub(super) fn tell<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &Task<RecordsOf<C>>,
        record: Processed,
        dead_letters: Option<&TopicName>,
        fault: &Fault,
    ) {
        let found = record.record();
        let Some((input, offset)) =
            found.and_then(|(input, offset)| Some((task.progress.inputs().get(input)?, offset)))
        else {
            return;
        };
        let what = match dead_letters {
            Some(_) => "a record failed and becomes a dead letter",
            None => "a record failed and is skipped",
        };
        let fate = dead_letters.map_or(Fate::Skipped, |to| Fate::DeadLetter(to.clone()));
        let loud = self.log.admit(&fate, shared.now());
        let dead_letters = dead_letters.map(tracing::field::display);
        if let Some(withheld) = loud {
            tracing::warn!(
                app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
                %offset, dead_letters, withheld, error = %fault,
                "{what} (logged at most once per 10 s, each one at level debug; `withheld` is the \
                 number of suppressed lines)"
            );
        } else {
            tracing::debug!(
                app = %shared.spec.app, worker = %shared.spec.id, partition = %input.partition,
                %offset, dead_letters, error = %fault, "{what}"
            );
        }
    }
}

/// Passes over the numbers of a record that is given up. Otherwise the later records of its keys would wait for it.
pub(super) fn pass_over<C: Client>(
    shared: &Shared<C>,
    task: &Task<RecordsOf<C>>,
    numbers: &[(usize, Vec<u8>)],
) -> Result<(), StoreError> {
    let Some(state) = task.state.as_ref().filter(|_| !numbers.is_empty()) else {
        return Ok(());
    };
    for (store, key) in numbers {
        let Some(spec) = shared.topology.stores().get(*store) else {
            continue;
        };
        let now = match spec.clock {
            Some(Clock::Wall) => shared.env.wall_clock(),
            _ => task.stream_time().unwrap_or(Timestamp(0)),
        };
        WaitingRows::new(&state.store, spec).pass_over(key, now)?;
    }
    Ok(())
}

/// Removes the kept right value of a left row whose answer an error policy skips or writes as a dead letter. Otherwise the row
/// would use an outdated value until its next answer.
pub(super) fn forget_given_up<C: Client>(
    shared: &Shared<C>,
    task: &Task<RecordsOf<C>>,
    record: Processed,
) -> Result<(), StoreError> {
    let (Some((input, _)), Some(state)) = (record.record(), &task.state) else {
        return Ok(());
    };
    for store in task.chains.right_value_stores(input) {
        let spec = shared.topology.stores().get(store);
        let key = task.head(input).and_then(|message| message.key());
        if let Some((spec, key)) = spec.zip(key) {
            forget_right(&state.store, spec, key)?;
        }
    }
    Ok(())
}

fn has_key<R: Records>(task: &Task<R>, record: Processed) -> bool {
    let input = record.record().map(|(input, _)| input);
    let message = input.and_then(|input| task.head(input));
    message.is_some_and(|message| message.key().is_some())
}

pub(super) fn store_failed(record: Processed, source: StoreError) -> Done {
    let (task, source) = (record.task, Box::new(source));
    Done::failed(WorkerError::Store { task, source })
}

/// Returns the strictest last resort of all sources that read the record. A record counts for all of them or for none,
/// so a source that may skip it must not drop the effects of another source. Of two equal ones, the source that failed
/// decides.
fn last_resort_of_all<R: Records>(
    task: &Task<R>,
    input: usize,
    failed: Option<usize>,
) -> (LastResort, Option<usize>) {
    let sources = task.chains.inputs.get(input).into_iter().flatten();
    let strictest = sources
        .enumerate()
        .max_by_key(|(n, source)| (strictness(source.policy.last()), Some(*n) == failed));
    strictest.map_or_else(Default::default, |(_, source)| {
        (source.policy.last().clone(), source.dead_letter)
    })
}

/// Returns the strictest last resort of all sources that read a record.
pub(super) fn last_resort_of_input<R: Records>(
    task: &Task<R>,
    record: Processed,
) -> (LastResort, Option<usize>) {
    match record.record() {
        Some((input, _)) => last_resort_of_all(task, input, None),
        None => Default::default(),
    }
}

/// Returns the strictest last resort of all sources of an input, and the retries before it. Without an input, all
/// sources of the task count. The order is fail, pause, retry, dead letter, skip: a source that fails or pauses at once
/// allows no retries.
pub(super) fn last_resort_of_item<R: Records>(
    task: &Task<R>,
    input: Option<usize>,
) -> (LastResort, Option<usize>, Option<Retry>) {
    let inputs = || task.chains.inputs.iter().enumerate();
    let counts = |at| input.is_none_or(|input| input == at);
    let sources = || {
        inputs()
            .filter(|(at, _)| counts(*at))
            .flat_map(|(_, it)| it)
    };
    let strictest = sources().max_by_key(|source| strictness(source.policy.last()));
    let Some(strictest) = strictest else {
        return Default::default();
    };
    let is_strict = |last: &LastResort| matches!(last, LastResort::Fail | LastResort::Pause(_));
    let at_once = sources().any(|it| it.policy.tries().is_none() && is_strict(it.policy.last()));
    let retried = sources().filter(|source| source.policy.tries().is_some());
    let retry = match at_once {
        true => None,
        false => retried
            .max_by_key(|source| strictness(source.policy.last()))
            .and_then(|source| source.policy.tries().copied()),
    };
    (
        strictest.policy.last().clone(),
        strictest.dead_letter,
        retry,
    )
}

fn strictness(last: &LastResort) -> u8 {
    match last {
        LastResort::Skip => 0,
        LastResort::DeadLetter(_) => 1,
        LastResort::Pause(_) => 2,
        LastResort::Fail => 3,
    }
}

pub(super) fn error<R: Records>(
    task: &Task<R>,
    record: Processed,
    fault: Fault,
    policy: bool,
) -> WorkerError {
    let Some((input, offset)) = record.record() else {
        return due_error(task, fault);
    };
    let partition = task.progress.inputs().get(input).map_or_else(
        || TopicPartition::new("?", task.progress.task.partition),
        |input| input.partition.clone(),
    );
    // A skipped record would leave its group wrong.
    let skipping_is_wrong = matches!(fault, Fault::NothingToSubtract { .. });
    WorkerError::Record {
        task: task.progress.task,
        partition,
        offset,
        reason: fault.into(),
        prefix_committed: true,
        policy: policy && !skipping_is_wrong,
    }
}

/// Returns the error of a due item.
pub(super) fn due_error<R: Records>(task: &Task<R>, fault: Fault) -> WorkerError {
    WorkerError::Due {
        task: task.progress.task,
        reason: fault.into(),
    }
}
