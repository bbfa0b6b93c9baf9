//! A dead letter, and the record that it becomes.

use eos_protocol::sequence::{
    LetterNumber, REPLAY, REPLAY_FOR, Replay as ReplayOf, SEQUENCE, SequenceError,
};
use eos_protocol::{Offset, Timestamp, dead_letter};
use serde::{Deserialize, Serialize};

use super::Replay;
use crate::client::Headers;
use crate::codec::{CodecError, Encode, Encoded, Field};
use crate::failure::Failure;
use crate::record::Record;
use crate::rules;

/// The version of stored letters.
const VERSION: u8 = 1;
/// The header with the number of the replay, for deduplication.
const GENERATION: &str = "eos-replay-generation";
/// The header of a letter that comes from a timer or a final result.
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
    /// The letter comes from a timer or a final result.
    #[error(
        "the letter comes from {due}, a timer or a final result, so it has no record to replay. To skip such letters, call \
         `app.on_error(ErrorPolicy::skip())` on the replay"
    )]
    Due {
        /// The name of the timer or the store, and the moment.
        due: String,
    },
    /// The replay has no such topic of origin.
    #[error(
        "the letter comes from the topic {topic}, but the replay writes to {known}. Add `.to({topic:?})`. If the \
         topic no longer exists, skip its letters with `app.on_error(ErrorPolicy::skip())`"
    )]
    OtherOrigin {
        /// The topic of the letter.
        topic: String,
        /// The topics of the replay.
        known: String,
    },
    /// A newer version of eos stored the letter.
    #[error(
        "a waiting letter has the format {0}, which a newer version of eos wrote. Run the replay with that version"
    )]
    Version(u8),
    /// The number of the letter is unreadable.
    #[error(transparent)]
    Number(#[from] SequenceError),
}

/// A letter that waits for its round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    version: u8,
    pub(super) topic: String,
    partition: u32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp: Option<i64>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    /// The episode and the number of a sequenced letter.
    number: Option<(i64, u64)>,
    /// The time of the failure, in milliseconds since 1970.
    pub(super) failed_at: i64,
}

impl Letter {
    /// Reads a dead letter, and prepares the record of its replay.
    pub(super) fn of(
        record: Record<Option<Vec<u8>>, Option<Vec<u8>>>,
        replay: &Replay,
    ) -> Result<Self, ReplayError> {
        let Record {
            key,
            value,
            timestamp,
            headers,
        } = record;
        if let Some(due) = headers.get(DUE) {
            let due = String::from_utf8_lossy(due).into_owned();
            return Err(ReplayError::Due { due });
        }
        let topic: String = header(&headers, dead_letter::TOPIC)?;
        let partition: u32 = header(&headers, dead_letter::PARTITION)?;
        let offset: i64 = header(&headers, dead_letter::OFFSET)?;
        let failed_at: i64 = header(&headers, dead_letter::TIME)?;
        let number = headers.get(SEQUENCE).map(LetterNumber::of_header);
        let number = number.transpose()?;
        let released = key
            .as_ref()
            .is_some_and(|key| replay.releases.contains(key));
        let discarded = |number: LetterNumber| {
            let key = key.clone().unwrap_or_default();
            replay.discards.contains(&(key, number.n))
        };
        let action = number.map(|number| match (released, discarded(number)) {
            (true, _) => ReplayOf::Release(Some(number.episode)),
            (false, true) => ReplayOf::Discard(number),
            (false, false) => ReplayOf::Record(number),
        });
        let app: String = header(&headers, dead_letter::APP)?;
        let place = format!("{partition} {offset}");
        Ok(Self {
            version: VERSION,
            headers: replayed(&headers, (&app, &topic, &place), action, replay.generation),
            topic,
            partition,
            key,
            value,
            timestamp: timestamp.map(|time| time.0),
            number: number.map(|number| (number.episode.get(), number.n)),
            failed_at,
        })
    }

    /// Returns the key under which the letter waits. The letters of a key are in the order of their numbers.
    pub(super) fn sort_key(&self, offset: Offset) -> Vec<u8> {
        let (episode, n) = self.number.unwrap_or_default();
        let mut sort = Vec::new();
        sort.extend_from_slice(self.topic.as_bytes());
        sort.push(0);
        sort.extend_from_slice(&self.partition.to_be_bytes());
        let key = self.key.as_deref().unwrap_or_default();
        sort.extend_from_slice(&(key.len() as u64).to_be_bytes());
        sort.extend_from_slice(key);
        sort.extend_from_slice(&episode.to_be_bytes());
        sort.extend_from_slice(&n.to_be_bytes());
        sort.extend_from_slice(&offset.get().to_be_bytes());
        sort
    }

    /// The size of key and value in bytes.
    pub(super) fn bytes(&self) -> usize {
        let parts = self.key.iter().chain(&self.value);
        parts.map(Vec::len).sum()
    }

    pub(super) fn into_record(self) -> Result<Record<Place, Option<Vec<u8>>>, Failure> {
        if self.version != VERSION {
            return Err(Failure::permanent(ReplayError::Version(self.version)));
        }
        let place = Place {
            key: self.key,
            partition: self.partition,
        };
        let mut record = Record::new(place, self.value);
        record.timestamp = self.timestamp.map(Timestamp);
        for (name, value) in self.headers {
            record.headers.push(name, value.as_deref());
        }
        Ok(record)
    }
}

/// Returns the headers of a replayed record: the headers of the letter without those of the error, the origin, and the
/// place in the replay.
fn replayed(
    letter: &Headers,
    (app, topic, place): (&str, &str, &str),
    action: Option<ReplayOf>,
    generation: Option<u64>,
) -> Vec<(String, Option<Vec<u8>>)> {
    let is_ours = |name: &str| {
        name.starts_with("__streams.errors.")
            || name.starts_with("__eos.errors.")
            || [SEQUENCE, REPLAY, REPLAY_FOR].contains(&name)
            || generation.is_some() && name == GENERATION
    };
    let kept = letter.iter().filter(|header| !is_ours(header.name()));
    let kept = kept.map(|it| (it.name().to_owned(), it.value().map(<[u8]>::to_vec)));
    let mut headers: Vec<_> = kept.collect();
    let mut push = |name: &str, value: String| {
        headers.push((name.to_owned(), Some(value.into_bytes())));
    };
    // An origin in another topic comes from an earlier replay, and does not count.
    let of_topic = format!("{topic} ");
    let is_origin = |name: &str, value: Option<&[u8]>| {
        name == dead_letter::ORIGIN && value.is_some_and(|it| it.starts_with(of_topic.as_bytes()))
    };
    if !letter.iter().any(|it| is_origin(it.name(), it.value())) {
        push(dead_letter::ORIGIN, format!("{topic} {place}"));
    }
    if let Some(action) = action {
        push(REPLAY, action.header());
        push(REPLAY_FOR, format!("{app} {topic}"));
    }
    // A new generation passes every deduplication, so only the operator may choose it.
    let generation = match rules::keeps_generation_in_replay() {
        true => generation,
        false => Some(generation.unwrap_or(1)),
    };
    if let Some(generation) = generation {
        push(GENERATION, generation.to_string());
    }
    headers
}

/// Reads a header of a dead letter.
fn header<T: std::str::FromStr>(headers: &Headers, name: &'static str) -> Result<T, ReplayError> {
    let value = headers
        .get(name)
        .and_then(|value| std::str::from_utf8(value).ok());
    let value = value.and_then(|value| value.parse().ok());
    value.ok_or(ReplayError::Foreign { header: name })
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
