//! Waiting dead letters: their rows, and the decisions of a replay.

use std::collections::{BTreeMap, BTreeSet};

use crate::fields::{cut, put, put_nullable, take, take_eight, take_nullable};
use crate::ids::{Offset, Timestamp};
use crate::sequence::{LetterNumber, Replay};

/// The format that this version writes, and the newest that it reads. Format 1 is JSON.
const FORMAT: u8 = 2;

/// A letter that waits.
///
/// It is stored as it was read. The headers of its replay and its [`action`](Decisions::action) are those of the start that
/// writes it.
///
/// ```text
/// row key: topic · 0 · partition (4 bytes) · length of the key (8) · key · episode (8) · n (8) · offset of the letter (8)
/// row: format (1) · time of the failure (8) · time of the record (8) · offset of the record (8) · is the key null (1) ·
///      app · value · headers: name and value, to the end
/// app, name: length (varint) · bytes
/// value: 0 for null, else length + 1 (varint) · bytes
/// ```
///
/// Numbers are big-endian. Letters of a key are in the order of their numbers; a letter without a number has 0 as episode and
/// `n`. The time of a record without one is the lowest number. The row does not repeat its key, so a letter fits into the
/// changelog if it fits into a dead-letter topic of the same limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingLetter<'a> {
    /// The topic of origin.
    pub topic: &'a str,
    /// The partition of origin.
    pub partition: u32,
    /// The offset of the record that failed.
    pub offset: i64,
    /// The app in which it failed.
    pub app: &'a str,
    /// The key of the record.
    pub key: Option<&'a [u8]>,
    /// The value of the record.
    pub value: Option<&'a [u8]>,
    /// The time of the record.
    pub time: Option<Timestamp>,
    /// The time of the failure.
    pub failed_at: Timestamp,
    /// The number of a letter in sequence.
    pub number: Option<LetterNumber>,
    /// Names and values of the headers.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// An error of the row of a waiting letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LetterError {
    /// Another version of eos wrote the row.
    #[error(
        "a waiting letter has format {0}, but this version reads up to format {FORMAT}. Run the replay with the newest \
         version that ever used this state"
    )]
    Format(u8),
    /// Bytes are missing or invalid.
    #[error(
        "a waiting letter is damaged, because another program wrote to the changelog of the replay. Write its record \
         to the topic of origin by hand"
    )]
    Damaged,
}

impl<'a> WaitingLetter<'a> {
    /// Returns the row key of the letter at this offset of the dead-letter topic.
    #[must_use]
    pub fn row_key(&self, at: Offset) -> Vec<u8> {
        let (episode, n) = self.number.map_or((0, 0), |it| (it.episode.get(), it.n));
        let key = self.key.unwrap_or_default();
        let mut row_key = self.topic.as_bytes().to_vec();
        row_key.push(0);
        row_key.extend_from_slice(&self.partition.to_be_bytes());
        row_key.extend_from_slice(&(key.len() as u64).to_be_bytes());
        row_key.extend_from_slice(key);
        row_key.extend_from_slice(&episode.to_be_bytes());
        row_key.extend_from_slice(&n.to_be_bytes());
        row_key.extend_from_slice(&at.get().to_be_bytes());
        row_key
    }

    /// Returns the prefix of the row keys of all letters with this number and the key of this letter.
    #[must_use]
    pub fn sibling(&self, number: LetterNumber) -> Vec<u8> {
        let number = Some(number);
        let mut row_key = WaitingLetter {
            number,
            headers: Vec::new(),
            ..*self
        }
        .row_key(Offset::ZERO);
        row_key.truncate(row_key.len() - 8);
        row_key
    }

    /// Returns a row key before those of all letters of this key and episode, and one behind them. `None` for a letter
    /// without a key or a number, which waits for no other.
    #[must_use]
    pub fn episode_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let episode = self.number.filter(|_| self.key.is_some())?.episode;
        let begin = self.sibling(LetterNumber { episode, n: 0 });
        let n = u64::MAX;
        let mut behind = self.sibling(LetterNumber { episode, n });
        behind.extend_from_slice(&[u8::MAX; 9]);
        Some((begin, behind))
    }

    /// Returns the row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![FORMAT];
        let time = self.time.map_or(i64::MIN, |time| time.0);
        for number in [self.failed_at.0, time, self.offset] {
            row.extend_from_slice(&number.to_be_bytes());
        }
        row.push(u8::from(self.key.is_none()));
        put(self.app.as_bytes(), &mut row);
        put_nullable(self.value, &mut row);
        for (name, value) in &self.headers {
            put(name.as_bytes(), &mut row);
            put_nullable(*value, &mut row);
        }
        row
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`LetterError`] for another format, or if bytes are missing or invalid.
    pub fn decode(row_key: &'a [u8], row: &'a [u8]) -> Result<Self, LetterError> {
        let (format, rest) = row.split_first().ok_or(LetterError::Damaged)?;
        match *format {
            FORMAT => read(row_key, rest).ok_or(LetterError::Damaged),
            format => Err(LetterError::Format(format)),
        }
    }

    /// The size of key and value in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len)
    }
}

/// Returns the topic in a row key. Every format has it at the same place.
#[must_use]
pub fn topic_of(row_key: &[u8]) -> Option<&str> {
    let end = row_key.iter().position(|byte| *byte == 0)?;
    text(row_key.get(..end)?)
}

fn read<'a>(row_key: &'a [u8], mut rest: &'a [u8]) -> Option<WaitingLetter<'a>> {
    let topic = topic_of(row_key)?;
    let (partition, mut place) = row_key.get(topic.len() + 1..)?.split_first_chunk()?;
    let len = u64::from_be_bytes(take_eight(&mut place)?);
    let key = cut(&mut place, len)?;
    let episode = i64::from_be_bytes(take_eight(&mut place)?);
    let n = u64::from_be_bytes(take_eight(&mut place)?);
    let episode = Offset::new(episode).ok()?;
    let failed_at = Timestamp(i64::from_be_bytes(take_eight(&mut rest)?));
    let time = i64::from_be_bytes(take_eight(&mut rest)?);
    let offset = i64::from_be_bytes(take_eight(&mut rest)?);
    let key = match cut(&mut rest, 1)? {
        [0] => Some(key),
        _ => None,
    };
    let mut letter = WaitingLetter {
        topic,
        partition: u32::from_be_bytes(*partition),
        offset,
        app: text(take(&mut rest)?)?,
        key,
        value: take_nullable(&mut rest)?,
        time: (time != i64::MIN).then_some(Timestamp(time)),
        failed_at,
        number: (n > 0).then_some(LetterNumber { episode, n }),
        headers: Vec::new(),
    };
    while !rest.is_empty() {
        let name = text(take(&mut rest)?)?;
        letter.headers.push((name, take_nullable(&mut rest)?));
    }
    Some(letter)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The operator's decisions about letters in one start of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decisions {
    /// The numbers of a topic and key.
    discards: BTreeMap<(String, Vec<u8>), BTreeSet<u64>>,
    /// Topic, partition and first offset.
    without_key: BTreeSet<(String, u32, i64)>,
    /// Topics and keys.
    releases: BTreeSet<(String, Vec<u8>)>,
    lost: BTreeSet<LostKey>,
}

/// A parked key whose letters are lost, for example by the retention of the dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostKey {
    /// The app that parked the key.
    pub app: String,
    /// The topic of origin.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// The encoded key.
    pub key: Vec<u8>,
}

impl Decisions {
    /// Discards the letter of a topic and key with this number.
    pub fn discard(&mut self, topic: &str, key: &[u8], n: u64) {
        let of = (topic.to_owned(), key.to_vec());
        self.discards.entry(of).or_default().insert(n);
    }

    /// Discards the letter of the record without a key that first failed at this place.
    pub fn discard_without_key(&mut self, topic: &str, partition: u32, offset: i64) {
        let place = (topic.to_owned(), partition, offset);
        self.without_key.insert(place);
    }

    /// Releases a key of a topic.
    pub fn release(&mut self, topic: &str, key: &[u8]) {
        self.releases.insert((topic.to_owned(), key.to_vec()));
    }

    /// Releases a key whose letters are lost.
    pub fn release_lost(&mut self, key: LostKey) {
        self.lost.insert(key);
    }

    /// The released keys without letters.
    pub fn lost(&self) -> impl Iterator<Item = &LostKey> {
        self.lost.iter()
    }

    /// The discarded numbers before the number of a letter.
    pub fn discards_before(&self, letter: &WaitingLetter<'_>) -> Vec<LetterNumber> {
        let (Some(number), Some(key)) = (letter.number, letter.key) else {
            return Vec::new();
        };
        if self.discards.is_empty() {
            return Vec::new();
        }
        let of = (letter.topic.to_owned(), key.to_vec());
        let numbers = self.discards.get(&of).into_iter().flatten();
        let before = numbers.filter(|n| **n < number.n);
        before.map(|n| LetterNumber { n: *n, ..number }).collect()
    }

    /// The topics of the decisions, some of them several times.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        let discards = self.discards.keys().map(|(topic, _)| &**topic);
        let without_key = self.without_key.iter().map(|(topic, ..)| &**topic);
        let releases = self.releases.iter().map(|(topic, _)| &**topic);
        let lost = self.lost.iter().map(|lost| &*lost.topic);
        discards.chain(without_key).chain(releases).chain(lost)
    }

    /// Returns the action of a letter. `None` if it has no number: then it comes back as a new record.
    ///
    /// A record without a key is not a record with an empty key. Its letter is the only one of its episode, so all such
    /// letters have number 1, and only their places distinguish them.
    #[must_use]
    pub fn action(&self, letter: &WaitingLetter<'_>) -> Option<Replay> {
        let number = letter.number?;
        let Some(key) = letter.key else {
            let place = || {
                (
                    letter.topic.to_owned(),
                    letter.partition,
                    number.episode.get(),
                )
            };
            let is_given_up = !self.without_key.is_empty() && self.without_key.contains(&place());
            return Some(match is_given_up {
                true => Replay::Discard(number),
                false => Replay::Record(number),
            });
        };
        if self.discards.is_empty() && self.releases.is_empty() {
            return Some(Replay::Record(number));
        }
        let of = (letter.topic.to_owned(), key.to_vec());
        let discards = self.discards.get(&of);
        Some(match self.releases.contains(&of) {
            true => Replay::ReleaseThrough(number),
            false if discards.is_some_and(|all| all.contains(&number.n)) => Replay::Discard(number),
            false => Replay::Record(number),
        })
    }
}

#[cfg(test)]
#[path = "letter_test.rs"]
mod tests;
