//! Waiting letters in their first format, which was JSON.

use eos_protocol::letter::{LetterError, WaitingLetter};
use eos_protocol::sequence::{LetterNumber, REPLAY, REPLAY_FOR};
use eos_protocol::{Offset, Timestamp};
use serde::Deserialize;

/// The first byte of such a row. It is no number of a later format.
const BEGIN: u8 = b'{';

/// A row in the first format. Its headers are those of the replay that read the letter.
#[derive(Debug, Deserialize)]
pub(super) struct FirstFormat {
    topic: String,
    partition: u32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp: Option<i64>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    number: Option<(i64, u64)>,
    failed_at: i64,
}

impl FirstFormat {
    /// Reads a row. `None` if it has a later format.
    pub(super) fn decode(row: &[u8]) -> Option<Result<Self, LetterError>> {
        let is_first = row.first() == Some(&BEGIN);
        is_first.then(|| serde_json::from_slice(row).map_err(|_| LetterError::Damaged))
    }

    /// Returns the letter without the decision of the replay that stored it. The headers already contain the origin. A
    /// generation is kept, because the record may have had it before it failed.
    pub(super) fn letter(&self) -> Result<WaitingLetter<'_>, LetterError> {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(n, v)| (&**n, v.as_deref())).collect();
        let of = headers.iter().find(|(name, _)| *name == REPLAY_FOR);
        let app = of.and_then(|(_, value)| {
            let value = std::str::from_utf8((*value)?).ok()?;
            value.strip_suffix(&*self.topic)?.strip_suffix(' ')
        });
        let number = self.number.map(|(episode, n)| {
            let episode = Offset::new(episode).map_err(|_| LetterError::Damaged)?;
            Ok(LetterNumber { episode, n })
        });
        let kept = headers
            .iter()
            .filter(|it| ![REPLAY, REPLAY_FOR].contains(&it.0));
        Ok(WaitingLetter {
            topic: &self.topic,
            partition: self.partition,
            offset: 0,
            // Only letters with a number need it, and these have the header.
            app: app.unwrap_or_default(),
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            time: self.timestamp.map(Timestamp),
            failed_at: Timestamp(self.failed_at),
            number: number.transpose()?,
            headers: kept.copied().collect(),
        })
    }
}
