//! The parked keys of a task.

use eos_protocol::sequence::{LetterNumber, ParkedKey, REPLAY, REPLAY_FOR, SEQUENCE};
use eos_protocol::state::StoreId;
use eos_protocol::{Offset, TopicName};
use eos_state::{Direction, KeyRange, StoreError};

use super::task_state::TaskState;
use crate::client::Headers;
use crate::rules;
use crate::topology::Chains;

/// The parked keys of a task.
#[derive(Debug)]
pub(super) struct ParkedKeys {
    /// By input: the store of its parked keys, and its topic.
    pub(super) stores: Vec<Option<(StoreId, TopicName)>>,
    /// By input: whether the store may have a row. `None` if that is unknown.
    any: Vec<Option<bool>>,
    /// The record at hand.
    pub(super) at_hand: Option<AtHand>,
}

/// A record of a sequenced source, until it is merged or fails.
#[derive(Debug)]
pub(super) struct AtHand {
    pub(super) input: usize,
    pub(super) store: StoreId,
    /// The key of its row.
    pub(super) row_key: Vec<u8>,
    /// The row before the record.
    pub(super) row: Option<ParkedKey>,
    /// The number of the letter, if the record is one whose turn has come.
    pub(super) letter: Option<LetterNumber>,
}

impl ParkedKeys {
    /// Returns the parked keys of a task, if one of its sources has sequenced dead letters.
    pub(super) fn of<'t>(
        chains: &Chains,
        topics: impl Iterator<Item = &'t TopicName>,
    ) -> Option<Box<Self>> {
        let sequence = |sources: &Vec<crate::topology::Source>| {
            sources.iter().find_map(|source| source.sequence)
        };
        let stores: Vec<_> = chains
            .inputs
            .iter()
            .zip(topics)
            .map(|(sources, topic)| Some((sequence(sources)?, topic.clone())))
            .collect();
        stores.iter().any(Option::is_some).then(|| {
            Box::new(Self {
                any: vec![None; stores.len()],
                stores,
                at_hand: None,
            })
        })
    }

    /// Handles an abort: rows that it deleted are there again.
    pub(super) fn aborted(&mut self) {
        self.at_hand = None;
        if rules::looks_for_parked_keys_after_abort() {
            self.any.fill(None);
        }
    }

    /// Whether the input has a parked key.
    pub(super) fn has_any(&mut self, input: usize, state: &TaskState) -> Result<bool, StoreError> {
        let Some(any) = self.any.get_mut(input) else {
            return Ok(false);
        };
        if let Some(any) = *any {
            return Ok(any);
        }
        let Some(Some((store, topic))) = self.stores.get(input) else {
            return Ok(false);
        };
        let range = KeyRange::prefix(&prefix(topic));
        let mut scan = state.store.scan(*store, &range, Direction::Forward)?;
        let found = scan.next()?.is_some();
        *any = Some(found);
        Ok(found)
    }

    /// Writes a row of the record at hand. `None` deletes the row.
    pub(super) fn write(
        &mut self,
        at_hand: &AtHand,
        row: Option<&ParkedKey>,
        state: &TaskState,
    ) -> Result<(), StoreError> {
        let any = self.any.get_mut(at_hand.input);
        match row {
            Some(row) => {
                any.into_iter().for_each(|any| *any = Some(true));
                let row = row.encode();
                state.store.put(at_hand.store, &at_hand.row_key, &row)
            }
            None => {
                any.into_iter().for_each(|any| *any = None);
                state.store.delete(at_hand.store, &at_hand.row_key)
            }
        }
    }
}

/// Returns the beginning of the row keys of a topic. Topic names have at most 249 bytes.
fn prefix(topic: &TopicName) -> Vec<u8> {
    let name = topic.as_str().as_bytes();
    let mut prefix = vec![u8::try_from(name.len()).unwrap_or(u8::MAX)];
    prefix.extend_from_slice(name);
    prefix
}

/// Returns the key of a row.
///
/// ```text
/// length of the topic (1 byte) · topic · 1 · key
/// length of the topic (1 byte) · topic · 0 · offset of a record without a key (8 bytes)
/// ```
pub(super) fn row_key(topic: &TopicName, key: Option<&[u8]>, offset: Offset) -> Vec<u8> {
    let mut row = prefix(topic);
    match key {
        Some(key) => {
            row.push(1);
            row.extend_from_slice(key);
        }
        None => {
            row.push(0);
            row.extend_from_slice(&offset.get().to_be_bytes());
        }
    }
    row
}

/// Returns the headers of a dead letter: those of the record, without its place in a replay, and its number.
pub(super) fn numbered(mut headers: Headers, number: Option<LetterNumber>) -> Headers {
    if let Some(number) = number {
        headers.remove(REPLAY);
        headers.remove(REPLAY_FOR);
        headers.remove(SEQUENCE);
        headers.push(SEQUENCE, Some(number.header().as_bytes()));
    }
    headers
}
