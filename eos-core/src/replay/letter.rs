//! A dead letter, and the record that it becomes.

use eos_protocol::letter::{LostKey, WaitingLetter};
use eos_protocol::sequence::{
    LetterNumber, REPLAY, REPLAY_FOR, Replay as Action, SEQUENCE, SequenceError, replay_for,
};
use eos_protocol::{Timestamp, dead_letter};

use super::Replay;
use crate::client::Headers;
use crate::codec::{CodecError, Encode, Encoded, Field};
use crate::record::Record;
use crate::rules;

/// The header with the number of the replay, for deduplication.
const GENERATION: &str = "eos-replay-generation";
/// The header of a letter about a timer, a final result or a record that waited.
const DUE: &str = "eos-due";

/// An error of a record that can't be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A header of a dead letter is missing or invalid.
    #[error(
        "the record is not a dead letter: its header {header} is missing or invalid. To skip such records, call \
         `app.on_error(ErrorPolicy::skip())` on the replay"
    )]
    Foreign {
        /// The header.
        header: &'static str,
    },
    /// The letter is about a timer, a final result or a record that waited in a reorder buffer.
    #[error(
        "the replay can't write this letter back: its header eos-due ({due}) names a timer, a final result or a record \
         that waited in a reorder step. If the record waited, write its key and value to its topic by hand. To skip \
         such letters, call `app.on_error(ErrorPolicy::skip())` on the replay"
    )]
    Due {
        /// The name of the timer or the store, and the moment.
        due: String,
    },
    /// The number of the letter is unreadable.
    #[error(transparent)]
    Number(#[from] SequenceError),
}

/// A record of a dead-letter topic.
pub(super) type Bytes = Record<Option<Vec<u8>>, Option<Vec<u8>>>;

/// Reads a dead letter, without the headers about its error.
pub(super) fn read(record: &Bytes) -> Result<WaitingLetter<'_>, ReplayError> {
    let headers = &record.headers;
    if let Some(due) = headers.get(DUE) {
        let due = String::from_utf8_lossy(due).into_owned();
        return Err(ReplayError::Due { due });
    }
    let number = headers.get(SEQUENCE).map(LetterNumber::of_header);
    let topic = text(headers, dead_letter::TOPIC)?;
    let partition = number_of(headers, dead_letter::PARTITION)?;
    let offset = number_of(headers, dead_letter::OFFSET)?;
    let failed_at = number_of(headers, dead_letter::TIME)?;
    let is_kept = |name: &str| {
        !name.starts_with("__streams.errors.")
            && !name.starts_with("__eos.errors.")
            && ![SEQUENCE, REPLAY, REPLAY_FOR].contains(&name)
    };
    let kept = headers.iter().filter(|header| is_kept(header.name()));
    Ok(WaitingLetter {
        topic,
        partition,
        offset,
        app: text(headers, dead_letter::APP)?,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        time: record.timestamp,
        failed_at: Timestamp(failed_at),
        number: number.transpose()?,
        headers: kept.map(|it| (it.name(), it.value())).collect(),
    })
}

/// Returns the record that replays a letter, with the headers of the letter, its origin and its place in this replay.
/// `action`: the number of the letter, or a decision about this or an earlier letter of its key.
pub(super) fn replayed(
    letter: &WaitingLetter<'_>,
    replay: &Replay,
    action: Option<Action>,
) -> Record<Place, Option<Vec<u8>>> {
    let place = Place {
        key: letter.key.map(<[u8]>::to_vec),
        partition: letter.partition,
    };
    let mut record = Record::new(place, letter.value.map(<[u8]>::to_vec));
    record.timestamp = letter.time;
    let (topic, app) = (letter.topic, letter.app);
    let headers = &mut record.headers;
    for (name, value) in &letter.headers {
        if replay.generation.is_none() || *name != GENERATION {
            headers.push(*name, *value);
        }
    }
    let mut push = |name: &str, value: String| headers.push(name, Some(value.as_bytes()));
    // An origin in another topic travelled with the record.
    let of_topic = format!("{topic} ");
    let is_origin = |name: &str, value: Option<&[u8]>| {
        name == dead_letter::ORIGIN && value.is_some_and(|it| it.starts_with(of_topic.as_bytes()))
    };
    if !letter.headers.iter().any(|it| is_origin(it.0, it.1)) {
        let origin = format!("{topic} {} {}", letter.partition, letter.offset);
        push(dead_letter::ORIGIN, origin);
    }
    if let Some(action) = action {
        // A decision carries the value as well, because other readers of the topic would treat a null as a deletion.
        push(REPLAY, action.header());
    }
    push(REPLAY_FOR, replay_for(app, topic));
    // A new generation passes every deduplication, so only the operator may choose it.
    let generation = match rules::keeps_generation_in_replay() {
        true => replay.generation,
        false => Some(replay.generation.unwrap_or(1)),
    };
    if let Some(generation) = generation {
        push(GENERATION, generation.to_string());
    }
    record
}

/// Returns the release of a key whose letters are lost. No letter has its value, so the record has none.
pub(super) fn release_of(lost: &LostKey) -> Record<Place, Option<Vec<u8>>> {
    let place = Place {
        key: Some(lost.key.clone()),
        partition: lost.partition,
    };
    let mut record = Record::new(place, None);
    let mut push = |name: &str, value: String| record.headers.push(name, Some(value.as_bytes()));
    push(REPLAY, Action::Release(None).header());
    push(REPLAY_FOR, replay_for(&lost.app, &lost.topic));
    record
}

/// Reads a header of a dead letter.
fn text<'h>(headers: &'h Headers, header: &'static str) -> Result<&'h str, ReplayError> {
    let value = headers.get(header);
    let value = value.and_then(|value| std::str::from_utf8(value).ok());
    value.ok_or(ReplayError::Foreign { header })
}

fn number_of<T: std::str::FromStr>(
    headers: &Headers,
    header: &'static str,
) -> Result<T, ReplayError> {
    let number = text(headers, header)?.parse();
    number.map_err(|_| ReplayError::Foreign { header })
}

/// The key of a replayed record, and its partition.
#[derive(Debug, Clone)]
pub(super) struct Place {
    key: Option<Vec<u8>>,
    pub(super) partition: u32,
}

/// Writes the key of a [`Place`].
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceCodec;

impl Encode<Place> for PlaceCodec {
    fn encode(
        &self,
        place: &Place,
        into: &mut Vec<u8>,
        _field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        Ok(match &place.key {
            Some(key) => {
                into.extend_from_slice(key);
                Encoded::Bytes
            }
            None => Encoded::Null,
        })
    }
}
