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
    /// By input: the number of its rows. `None` if it is unknown.
    rows: Vec<Option<Rows>>,
    /// The record at hand.
    pub(super) at_hand: Option<AtHand>,
}

/// The number of rows of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rows {
    number: u64,
    /// Whether there may be more rows.
    is_lower_bound: bool,
}

impl Rows {
    const fn of(number: u64) -> Self {
        Self {
            number,
            is_lower_bound: number >= COUNT_LIMIT,
        }
    }

    /// The number after a row is inserted.
    const fn increment(self) -> Self {
        Self {
            number: self.number.saturating_add(1),
            ..self
        }
    }

    /// The number after a row is deleted. `None` if a lower bound falls below half of [`COUNT_LIMIT`]: the rows are
    /// then counted again. The margin keeps such counts rare.
    const fn decrement(self) -> Option<Self> {
        let number = self.number.saturating_sub(1);
        match self.is_lower_bound && number < COUNT_LIMIT / 2 {
            true => None,
            false => Some(Self { number, ..self }),
        }
    }
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
                rows: vec![None; stores.len()],
                stores,
                at_hand: None,
            })
        })
    }

    /// Handles an abort: rows that it deleted are there again.
    pub(super) fn aborted(&mut self) {
        self.at_hand = None;
        if rules::looks_for_parked_keys_after_abort() {
            self.rows.fill(None);
        }
    }

    /// Whether the input has a parked key.
    pub(super) fn has_any(&mut self, input: usize, state: &TaskState) -> Result<bool, StoreError> {
        Ok(self.count_of(input, state)? > 0)
    }

    /// The number of parked keys and of failed records without a key: exact below half of [`COUNT_LIMIT`] per
    /// input, and possibly a lower bound above. `None` if the store can't be read.
    pub(super) fn count(&mut self, state: &TaskState) -> Option<u64> {
        let counts = (0..self.stores.len()).map(|input| self.count_of(input, state));
        counts.sum::<Result<u64, _>>().ok()
    }

    fn count_of(&mut self, input: usize, state: &TaskState) -> Result<u64, StoreError> {
        let (Some(rows), Some(Some((store, topic)))) =
            (self.rows.get_mut(input), self.stores.get(input))
        else {
            return Ok(0);
        };
        if let Some(rows) = *rows {
            return Ok(rows.number);
        }
        let range = KeyRange::prefix(&prefix(topic));
        let mut scan = state.store.scan(*store, &range, Direction::Forward)?;
        let mut number = 0;
        while number < COUNT_LIMIT && scan.next()?.is_some() {
            number += 1;
        }
        *rows = Some(Rows::of(number));
        Ok(number)
    }

    /// Writes a row of the record at hand. `None` deletes the row.
    pub(super) fn write(
        &mut self,
        at_hand: &AtHand,
        row: Option<&ParkedKey>,
        state: &TaskState,
    ) -> Result<(), StoreError> {
        if let Some(rows) = self.rows.get_mut(at_hand.input) {
            *rows = rows.and_then(|rows| match (&at_hand.row, row) {
                (None, Some(_)) => Some(rows.increment()),
                (Some(_), None) => rows.decrement(),
                _ => Some(rows),
            });
        }
        match row {
            Some(row) => {
                let row = row.encode();
                state.store.put(at_hand.store, &at_hand.row_key, &row)
            }
            None => state.store.delete(at_hand.store, &at_hand.row_key),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_bound_of_rows_is_counted_again_at_half() {
        let exact = Rows::of(2);
        assert_eq!(exact.increment().number, 3);
        let none = exact.decrement().and_then(Rows::decrement).unwrap();
        assert_eq!(none, Rows::of(0));
        let mut rows = Rows::of(COUNT_LIMIT);
        let mut deleted = 0;
        while let Some(fewer) = rows.decrement() {
            rows = fewer;
            deleted += 1;
        }
        assert_eq!((deleted, rows.number), (5_000, 5_000));
    }
}
