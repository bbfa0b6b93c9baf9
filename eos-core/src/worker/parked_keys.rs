//! The parked keys of a task.

use eos_protocol::sequence::{LetterNumber, ParkedKey, REPLAY, REPLAY_FOR, SEQUENCE};
use eos_protocol::state::StoreId;
use eos_protocol::{Offset, TopicName};
use eos_state::{Direction, KeyRange, StoreError};

use super::task_state::TaskState;
use crate::client::Headers;
use crate::rules;
use crate::topology::Chains;

/// The most rows that a count reads, to bound its duration.
const COUNT_LIMIT: u64 = 10_000;

/// The parked keys of a task.
#[derive(Debug)]
pub(super) struct ParkedKeys {
    /// By input: the store of its parked keys, and its topic.
    pub(super) stores: Vec<Option<(StoreId, TopicName)>>,
    /// By input: whether the store may have a row. `None` if that is unknown.
    any: Vec<Option<bool>>,
    /// By input: the last count of its rows, for the metrics.
    counts: Vec<Counted>,
    /// The record at hand.
    pub(super) at_hand: Option<AtHand>,
}

/// The last count of the rows of an input. No decision about a record depends on it.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    rows: Option<u64>,
    /// Whether the rows have not changed since.
    is_current: bool,
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
                counts: vec![Counted::default(); stores.len()],
                stores,
                at_hand: None,
            })
        })
    }

    /// Handles an abort: rows that it deleted are there again.
    pub(super) fn aborted(&mut self) {
        self.at_hand = None;
        self.changed();
        if rules::looks_for_parked_keys_after_abort() {
            self.any.fill(None);
        }
    }

    /// Records that rows may have changed, so that the next count reads them.
    pub(super) fn changed(&mut self) {
        self.counts.iter_mut().for_each(|it| it.is_current = false);
    }

    /// Returns whether the input has a parked key.
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
        let found = count(state, *store, topic, 1)? > 0;
        *any = Some(found);
        Ok(found)
    }

    /// Returns the number of parked keys and of letters without a key, at most [`COUNT_LIMIT`] per input. `None` if it
    /// is not counted yet, or if the store can't be read.
    ///
    /// `budget` is the number of rows that the counts of all tasks may still read. If it is used up, an input keeps its
    /// last count.
    pub(super) fn count(&mut self, state: &TaskState, budget: &mut u64) -> Option<u64> {
        let mut all = Some(0_u64);
        for (store, counted) in self.stores.iter().zip(&mut self.counts) {
            let Some((store, topic)) = store else {
                continue;
            };
            if !counted.is_current && *budget > 0 {
                let rows = count(state, *store, topic, COUNT_LIMIT).ok();
                *budget = budget.saturating_sub(rows.unwrap_or(0).max(1));
                *counted = Counted {
                    rows,
                    is_current: rows.is_some(),
                };
            }
            all = all.zip(counted.rows).map(|(a, b)| a.saturating_add(b));
        }
        all
    }

    /// Writes a row of the record at hand. `None` deletes the row.
    pub(super) fn write(
        &mut self,
        at_hand: &AtHand,
        row: Option<&ParkedKey>,
        state: &TaskState,
    ) -> Result<(), StoreError> {
        self.changed();
        let any = self.any.get_mut(at_hand.input);
        match row {
            Some(row) => {
                any.into_iter().for_each(|any| *any = Some(true));
                let row = row.encode();
                state.store.put(at_hand.store, &at_hand.row_key, &row)
            }
            None => {
                let known = (!rules::looks_for_parked_keys_after_release()).then_some(false);
                any.into_iter().for_each(|any| *any = known);
                state.store.delete(at_hand.store, &at_hand.row_key)
            }
        }
    }
}

/// Counts the rows of a topic, at most `most`.
fn count(
    state: &TaskState,
    store: StoreId,
    topic: &TopicName,
    most: u64,
) -> Result<u64, StoreError> {
    let range = KeyRange::prefix(&prefix(topic));
    let mut scan = state.store.scan(store, &range, Direction::Forward)?;
    let mut rows = 0;
    while rows < most && scan.next()?.is_some() {
        rows += 1;
    }
    Ok(rows)
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
    // A number from another app or program would identify another letter.
    headers.remove(SEQUENCE);
    if let Some(number) = number {
        headers.remove(REPLAY);
        headers.remove(REPLAY_FOR);
        headers.push(SEQUENCE, Some(number.header().as_bytes()));
    }
    headers
}
