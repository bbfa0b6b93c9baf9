//! Sequenced dead letters: records behind a dead letter of their key.
//!
//! Only sources with `in_sequence` come here. As long as a task has no row in the store, a record costs the lookup of
//! one header, and no read.

use eos_protocol::sequence::{
    Arrival, LetterNumber, ParkedKey, REPLAY, REPLAY_FOR, Replay, SequenceError, arrives,
    replay_for,
};
use eos_state::StoreError;

use super::policy::aborts;
use super::{Done, Failed, Pipeline, Processed};
use crate::client::{Client, Message, Records};
use crate::error_policy::LastResort;
use crate::failure::Failure;
use crate::rules;
use crate::topology::Fault;
use crate::worker::parked_keys::{AtHand, row_key};
use crate::worker::shared::Shared;
use crate::worker::task::Task;
use crate::worker::transaction::TransactionDriver;
use crate::worker::{RecordsOf, WorkerError};

impl Pipeline {
    /// Decides about a record of a sequenced source. `None` if it is processed.
    pub(super) fn arrives<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        txn: &mut TransactionDriver<C>,
    ) -> Option<Done> {
        let (input, offset) = record.record()?;
        let (parked, state) = (task.parked.as_mut()?, task.state.as_ref()?);
        parked.at_hand = None;
        let (store, topic) = parked.stores.get(input)?.clone()?;
        // Its stage makes no asynchronous calls: no record is ahead of its turn.
        let message = task.fetched.get(input).and_then(Records::first)?;
        let partition = &task.progress.inputs().get(input)?.partition;
        let is_culprit = txn.blame.is_culprit(partition, offset);
        let headers = message.headers();
        // Headers travel to output topics, where the place in a replay of this topic means nothing.
        let own = |of: &[u8]| of == replay_for(shared.spec.app.as_str(), topic.as_str()).as_bytes();
        let replay = headers.get(REPLAY);
        let replay = replay.filter(|_| headers.get(REPLAY_FOR).is_none_or(own));
        let replay = match replay.map(Replay::of_header).transpose() {
            Ok(replay) => replay,
            Err(error) => {
                // If a policy gave the record up, its key would wait for it forever.
                let failure = match error {
                    SequenceError::Newer { .. } => Failure::fatal(error),
                    _ => Failure::permanent(error),
                };
                return Some(self.refused(shared, task, record, 0, Fault::User(failure), txn));
            }
        };
        let failed = |source: StoreError| {
            Some(Done::failed(WorkerError::Store {
                task: record.task,
                source: Box::new(source),
            }))
        };
        let key = message.key();
        let mut at_hand = AtHand {
            input,
            store,
            row_key: Vec::new(),
            row: None,
            letter: None,
        };
        // A record without a key waits for none, and its letter names it by its first offset.
        let first = match (key, replay) {
            (
                None,
                Some(
                    Replay::Record(number)
                    | Replay::Discard(number)
                    | Replay::ReleaseThrough(number),
                ),
            ) => number.episode,
            (None, Some(Replay::Release(Some(episode)))) => episode,
            _ => offset,
        };
        at_hand.row_key = row_key(&topic, key, first);
        let may_be_parked = match replay {
            None if key.is_none() => Ok(false),
            _ => parked.has_any(input, state),
        };
        match may_be_parked {
            Ok(true) => {
                let mut row = Vec::new();
                match state.store.get(store, &at_hand.row_key, &mut row) {
                    Ok(true) => match ParkedKey::decode(&row) {
                        Ok(row) => at_hand.row = Some(row),
                        Err(error) => {
                            let fault = Fault::User(Failure::permanent(error));
                            return Some(Done::failed(super::policy::error(
                                task, record, fault, false,
                            )));
                        }
                    },
                    Ok(false) => {}
                    Err(source) => return failed(source),
                }
            }
            Ok(false) => {}
            Err(source) => return failed(source),
        }
        let mut row = at_hand.row.clone();
        let arrival = arrives(&mut row, replay);
        if is_culprit && !matches!(arrival, Arrival::Repeated | Arrival::Done) {
            // The error policy decides: a letter of this record may abort its transactions as well.
            at_hand.letter = replay.and_then(|replay| match replay {
                Replay::Record(number) => Some(number),
                _ => None,
            });
            parked.at_hand = Some(at_hand);
            // If a parked record ran now, it would overtake the letters of its key.
            let waits = matches!(arrival, Arrival::Park(_));
            return waits.then(|| self.condemn(shared, task, record, aborts(txn), txn));
        }
        match arrival {
            Arrival::Process => {
                parked.at_hand = Some(at_hand);
                None
            }
            Arrival::ProcessLetter(number) => {
                at_hand.letter = Some(number);
                parked.at_hand = Some(at_hand);
                None
            }
            Arrival::Park(number) => {
                if let Err(source) = parked.write(&at_hand, row.as_ref(), state) {
                    return failed(source);
                }
                Some(self.follow(shared, task, record, number, txn))
            }
            Arrival::Repeated => {
                self.counters.repeated_letters += 1;
                tracing::debug!(
                    app = %shared.spec.app, worker = %shared.spec.id, task = %record.task, %offset,
                    "a replayed record was processed, discarded or released before; leaving it out"
                );
                Some(self.finished(shared, task, record.left_out(), txn))
            }
            Arrival::Done => {
                if let Err(source) = parked.write(&at_hand, row.as_ref(), state) {
                    return failed(source);
                }
                Some(self.finished(shared, task, record.left_out(), txn))
            }
        }
    }

    /// Writes the dead letter of a record behind another dead letter of its key.
    fn follow<C: Client>(
        &mut self,
        shared: &Shared<C>,
        task: &mut Task<RecordsOf<C>>,
        record: Processed,
        number: LetterNumber,
        txn: &mut TransactionDriver<C>,
    ) -> Done {
        let fault = Fault::Parked(number);
        let (last, output) = super::policy::last_resort_of_input(task, record);
        let (LastResort::DeadLetter(topic), Some(output)) = (&last, output) else {
            return Done::failed(super::policy::error(task, record, fault, true));
        };
        self.tell(shared, task, record, Some(topic), &fault);
        self.write_dead_letter(shared, task, record, (output, Some(number)), &fault);
        match self.oversize(shared, 0) {
            Some(too_large) => {
                self.clear();
                task.forget();
                Done::failed(super::policy::error(task, record, too_large, false))
            }
            None => self.finished(shared, task, record.failed(Failed::DeadLetter(1)), txn),
        }
    }

    /// Returns the number of the dead letter of the record at hand, and keeps the number in its row.
    pub(super) fn number_letter<R: Records>(
        task: &mut Task<R>,
        record: Processed,
    ) -> Result<Option<LetterNumber>, StoreError> {
        let Some((_, offset)) = record.record() else {
            return Ok(None);
        };
        let (Some(parked), Some(state)) = (&mut task.parked, &task.state) else {
            return Ok(None);
        };
        let Some(at_hand) = parked.at_hand.take() else {
            return Ok(None);
        };
        let mut row = at_hand.row.clone();
        let number = match (&mut row, at_hand.letter) {
            (_, Some(number)) if rules::gives_letter_numbers_once() => return Ok(Some(number)),
            (Some(row), _) => row.park(),
            (None, _) => row.insert(ParkedKey::first(offset)).last(),
        };
        parked.write(&at_hand, row.as_ref(), state)?;
        Ok(Some(number))
    }

    /// Records that the letter at hand is processed. The last letter of a key releases the key.
    pub(super) fn letter_processed<R: Records>(task: &mut Task<R>) -> Result<(), StoreError> {
        let (Some(parked), Some(state)) = (&mut task.parked, &task.state) else {
            return Ok(());
        };
        let Some(at_hand) = parked.at_hand.take().filter(|it| it.letter.is_some()) else {
            return Ok(());
        };
        let Some(mut row) = at_hand.row.clone() else {
            return Ok(());
        };
        let is_left = row.advance() && rules::releases_after_last_letter();
        parked.write(&at_hand, Some(&row).filter(|_| is_left), state)
    }
}
