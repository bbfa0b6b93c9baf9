//! Dead letters in sequence: the parked records of a key.
//!
//! A record gets its [`LetterNumber`] once, when it becomes a dead letter for the first time, and keeps it. Until the
//! key's letters are replayed, discarded or released, its later records become dead letters as well, unprocessed.
//!
//! | record | the key has no row | the key has a row |
//! |---|---|---|
//! | new | processed; a failure makes the row and number 1 | parked under the next number |
//! | replayed, number = `next` of this episode | left out | processed; then `next` moves on, or it is parked again under its number |
//! | replayed, later number | left out | parked again under its number |
//! | replayed, earlier number or another episode | left out | left out |

use std::fmt;

use crate::ids::Offset;

/// The header of a dead letter with its number.
pub const SEQUENCE: &str = "eos-sequence";
/// The header of a replayed record, a discard or a release.
pub const REPLAY: &str = "eos-replay";
/// The header of a replayed record with the app and the topic for which [`REPLAY`] counts, separated by a space. Headers
/// travel to output topics. Its format never changes: another format would get another name.
pub const REPLAY_FOR: &str = "eos-replay-for";

/// Returns the value of [`REPLAY_FOR`]: the app whose dead letter it was, and the topic of origin.
#[must_use]
pub fn replay_for(app: &str, topic: &str) -> String {
    format!("{app} {topic}")
}

/// The version of rows and headers.
const VERSION: u8 = 1;

/// The number of a dead letter of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetterNumber {
    /// The offset of the record that failed first. It names the episode.
    pub episode: Offset,
    /// The place of the letter in the episode, from 1.
    pub n: u64,
}

impl fmt::Display for LetterNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.episode, self.n)
    }
}

/// The content of the header [`REPLAY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The record is a replayed letter.
    Record(LetterNumber),
    /// The letter is given up.
    Discard(LetterNumber),
    /// All letters up to this number are given up. If this number is the highest one, the key is released.
    ReleaseThrough(LetterNumber),
    /// All letters of the episode are given up. `None` means any episode of the key. Versions before `ReleaseThrough`
    /// wrote the episode of a letter.
    Release(Option<Offset>),
}

/// An invalid row or header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    /// A header of a newer version of eos.
    #[error(
        "the header {name} has format {version}, but this version of eos reads up to format {VERSION}. Upgrade this app to \
         the newest version of eos"
    )]
    Newer {
        /// The header.
        name: &'static str,
        /// Its format.
        version: u64,
    },
    /// A header with an unknown format.
    #[error(
        "the header {name} has the value {value:?}, but a valid value has the form {example:?}. Another program or a \
         newer version of eos wrote it. Use the newest version of eos, or write the record without this header"
    )]
    Header {
        /// The name of the header.
        name: &'static str,
        /// Its value.
        value: String,
        /// A valid value.
        example: &'static str,
    },
    /// A row with an unknown format.
    #[error(
        "the row of a parked key has {0} bytes in an unknown format: a newer version of eos wrote it. Run the newest \
         version that ever used this state"
    )]
    Row(usize),
}

impl LetterNumber {
    /// Returns the value of the header [`SEQUENCE`].
    #[must_use]
    pub fn header(&self) -> String {
        format!("{VERSION} {self}")
    }

    /// Reads the header [`SEQUENCE`].
    ///
    /// # Errors
    /// If it has another format.
    pub fn of_header(value: &[u8]) -> Result<Self, SequenceError> {
        let words = words(value);
        let number = match &words[..] {
            [version, episode, n] if *version == VERSION.to_string() => number(episode, n),
            _ => None,
        };
        number.ok_or_else(|| invalid(SEQUENCE, value, "1 17 3"))
    }
}

impl Replay {
    /// Returns the value of the header [`REPLAY`].
    #[must_use]
    pub fn header(&self) -> String {
        match self {
            Self::Record(number) => format!("{VERSION} record {number}"),
            Self::Discard(number) => format!("{VERSION} discard {number}"),
            Self::ReleaseThrough(number) => format!("{VERSION} release {number}"),
            Self::Release(Some(episode)) => format!("{VERSION} release {episode}"),
            Self::Release(None) => format!("{VERSION} release"),
        }
    }

    /// Reads the header [`REPLAY`].
    ///
    /// # Errors
    /// If it has another format.
    pub fn of_header(value: &[u8]) -> Result<Self, SequenceError> {
        let words = words(value);
        let replay = match &words[..] {
            [version, ..] if *version != VERSION.to_string() => None,
            [_, "record", episode, n] => number(episode, n).map(Self::Record),
            [_, "discard", episode, n] => number(episode, n).map(Self::Discard),
            [_, "release", episode, n] => number(episode, n).map(Self::ReleaseThrough),
            [_, "release", episode] => offset(episode).map(|it| Self::Release(Some(it))),
            [_, "release"] => Some(Self::Release(None)),
            _ => None,
        };
        replay.ok_or_else(|| invalid(REPLAY, value, "1 record 17 3"))
    }
}

fn words(value: &[u8]) -> Vec<&str> {
    std::str::from_utf8(value).map_or_else(|_| Vec::new(), |text| text.split(' ').collect())
}

fn number(episode: &str, n: &str) -> Option<LetterNumber> {
    let (episode, n) = (offset(episode)?, n.parse().ok().filter(|n| *n > 0)?);
    Some(LetterNumber { episode, n })
}

fn offset(text: &str) -> Option<Offset> {
    text.parse()
        .ok()
        .and_then(|offset| Offset::new(offset).ok())
}

fn invalid(name: &'static str, value: &[u8], example: &'static str) -> SequenceError {
    // Other programs may have a header of this name, so one number is not enough.
    let words = words(value);
    let version = words.first().filter(|_| words.len() > 1);
    let version = version.and_then(|version| version.parse().ok());
    if let Some(version) = version.filter(|version: &u64| *version > u64::from(VERSION)) {
        return SequenceError::Newer { name, version };
    }
    SequenceError::Header {
        name,
        value: String::from_utf8_lossy(value).into_owned(),
        example,
    }
}

/// The state of a key with dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedKey {
    episode: Offset,
    /// The number of the next letter to process.
    next: u64,
    /// The highest number.
    highest: u64,
    /// The numbers behind `next` that are discarded, in order.
    discarded: Vec<u64>,
}

/// The fate of a record whose source has sequenced dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The record is processed.
    Process,
    /// The record is a letter whose turn has come: it is processed.
    ProcessLetter(LetterNumber),
    /// The record becomes a dead letter under this number, unprocessed.
    Park(LetterNumber),
    /// The letter was processed, discarded or released before. The record is left out.
    Repeated,
    /// The record is a discard or a release. It has changed the key's state, and is left out.
    Done,
}

impl ParkedKey {
    /// The state of a key whose record at this offset is its first dead letter. It has number 1.
    #[must_use]
    pub const fn first(episode: Offset) -> Self {
        Self {
            episode,
            next: 1,
            highest: 1,
            discarded: Vec::new(),
        }
    }

    /// The number of the highest letter.
    #[must_use]
    pub const fn last(&self) -> LetterNumber {
        LetterNumber {
            episode: self.episode,
            n: self.highest,
        }
    }

    /// The number of the next letter to process.
    #[must_use]
    pub const fn next(&self) -> LetterNumber {
        LetterNumber {
            episode: self.episode,
            n: self.next,
        }
    }

    /// Gives the next number to another letter.
    pub const fn park(&mut self) -> LetterNumber {
        self.highest = self.highest.saturating_add(1);
        self.last()
    }

    /// Records that the next letter is processed. Returns false if none is left: then the key is released.
    #[must_use]
    pub fn advance(&mut self) -> bool {
        self.next = self.next.saturating_add(1);
        while self.discarded.first() == Some(&self.next) {
            self.discarded.remove(0);
            self.next = self.next.saturating_add(1);
        }
        self.next <= self.highest
    }

    /// Discards a letter that is not processed yet. Returns false if none is left.
    fn discard(&mut self, n: u64) -> bool {
        if n == self.next {
            return self.advance();
        }
        if let Err(at) = self.discarded.binary_search(&n) {
            self.discarded.insert(at, n);
        }
        true
    }

    /// Gives up all letters up to a number that is not processed yet. Returns false if none is left.
    fn discard_through(&mut self, n: u64) -> bool {
        self.discarded.retain(|discarded| *discarded > n);
        self.next = n;
        self.advance()
    }

    /// Returns whether the letter of this number is still to be processed.
    fn awaits(&self, number: LetterNumber) -> bool {
        number.episode == self.episode
            && (self.next..=self.highest).contains(&number.n)
            && self.discarded.binary_search(&number.n).is_err()
    }

    /// Encodes the row.
    ///
    /// ```text
    /// version (1 byte) · episode · next · highest · discarded numbers, 8 bytes each
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![VERSION];
        row.extend_from_slice(&self.episode.get().to_be_bytes());
        for n in [self.next, self.highest].iter().chain(&self.discarded) {
            row.extend_from_slice(&n.to_be_bytes());
        }
        row
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// If it has another format.
    pub fn decode(row: &[u8]) -> Result<Self, SequenceError> {
        let error = || SequenceError::Row(row.len());
        let (&VERSION, rest) = row.split_first().ok_or_else(error)? else {
            return Err(error());
        };
        let (numbers, []) = rest.as_chunks::<8>() else {
            return Err(error());
        };
        let [episode, next, highest, discarded @ ..] = numbers else {
            return Err(error());
        };
        let n = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        Ok(Self {
            episode: Offset::new(i64::from_be_bytes(*episode)).map_err(|_| error())?,
            next: n(next),
            highest: n(highest),
            discarded: discarded.iter().map(n).collect(),
        })
    }
}

/// Decides about a record of a key, and updates the key's row. `row` is `None` if the key is not parked.
pub fn arrives(row: &mut Option<ParkedKey>, replay: Option<Replay>) -> Arrival {
    let Some(key) = row else {
        return match replay {
            None => Arrival::Process,
            Some(_) => Arrival::Repeated,
        };
    };
    match replay {
        None => Arrival::Park(key.park()),
        Some(Replay::Record(number)) if !key.awaits(number) => Arrival::Repeated,
        Some(Replay::Record(number)) if number.n == key.next => Arrival::ProcessLetter(number),
        Some(Replay::Record(number)) => Arrival::Park(number),
        Some(Replay::Discard(number)) if !key.awaits(number) => Arrival::Repeated,
        Some(Replay::Discard(number)) => {
            if !key.discard(number.n) {
                *row = None;
            }
            Arrival::Done
        }
        // A letter may be discarded, so only its number counts.
        Some(Replay::ReleaseThrough(number))
            if number.episode != key.episode || !(key.next..=key.highest).contains(&number.n) =>
        {
            Arrival::Repeated
        }
        Some(Replay::ReleaseThrough(number)) => {
            if !key.discard_through(number.n) {
                *row = None;
            }
            Arrival::Done
        }
        Some(Replay::Release(episode)) => match episode.is_none_or(|it| it == key.episode) {
            true => {
                *row = None;
                Arrival::Done
            }
            false => Arrival::Repeated,
        },
    }
}

#[cfg(test)]
#[path = "sequence_test.rs"]
mod tests;
