//! Stored letters that a replay does not read again.

use crate::App;
use crate::codec::{CodecError, Decode, Encode, Encoded, Field, Plain};
use crate::failure::Failure;
use crate::store::{KeyValueStore, KeyValueView};
use crate::store_handle::Store;

/// The only key of the store.
const ROW: u32 = 0;
/// The version of the row. Version 1 was JSON, without the start.
const VERSION: u8 = 2;

/// The place before which this start of the replay writes no letters.
///
/// The letters before the place failed too late, or are stuck. They stay for another start, which may have another end,
/// other topics or another version. So another start reads all letters again. Without the place, each round would read
/// all letters. The place is a row, so it commits and aborts with the letters.
///
/// ```text
/// version (1 byte) · start (8) · key
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passed {
    /// The start. `None` in another version.
    start: Option<u64>,
    /// The first key that may have a letter of this replay.
    pub(super) key: Vec<u8>,
}

impl Passed {
    pub(super) fn store(app: &mut App) -> Store<KeyValueStore<u32, Self>> {
        app.store(&KeyValueStore::with("passed-letters", Plain, PassedCodec))
    }

    /// Returns the stored place, or the place before all letters.
    pub(super) fn read(view: &KeyValueView<'_, u32, Self>, start: u64) -> Result<Self, Failure> {
        let found = view.get(&ROW)?;
        let start = Some(start);
        let found = found.filter(|it| it.start == start);
        let key = Vec::new();
        Ok(found.unwrap_or(Self { start, key }))
    }

    /// Whether the place is at its initial position.
    pub(super) fn is_new(&self) -> bool {
        self.key.is_empty()
    }

    /// Moves the place from its initial position, to note the first round.
    pub(super) fn note_first_round(&mut self) {
        // No letter has a lower key.
        self.key.push(0);
    }

    pub(super) fn write(
        &self,
        view: &KeyValueView<'_, u32, Self>,
        before: &Self,
    ) -> Result<(), Failure> {
        match self == before {
            true => Ok(()),
            false => view.put(&ROW, self),
        }
    }

    /// Moves the place back to the row key `to`, if the place is behind it.
    pub(super) fn move_back_to(
        view: &KeyValueView<'_, u32, Self>,
        start: u64,
        to: &[u8],
    ) -> Result<(), Failure> {
        let own = Some(start);
        match view.get(&ROW)? {
            // The other start may continue, and its place may be behind this letter.
            Some(other) if other.start != own => {
                let key = Vec::new();
                view.put(&ROW, &Self { start: own, key })
            }
            Some(before) if before.key[..] > *to => {
                let key = to.to_vec();
                view.put(&ROW, &Self { key, ..before })
            }
            _ => Ok(()),
        }
    }
}

/// Writes and reads the row.
#[derive(Debug, Clone, Copy)]
struct PassedCodec;

impl Encode<Passed> for PassedCodec {
    fn encode(
        &self,
        passed: &Passed,
        into: &mut Vec<u8>,
        _field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        into.push(VERSION);
        into.extend_from_slice(&passed.start.unwrap_or_default().to_be_bytes());
        into.extend_from_slice(&passed.key);
        Ok(Encoded::Bytes)
    }
}

impl Decode<Passed> for PassedCodec {
    fn decode(&self, bytes: Option<&[u8]>, _field: &Field<'_>) -> Result<Passed, CodecError> {
        let bytes = bytes.unwrap_or_default();
        let row = bytes.strip_prefix(&[VERSION]).unwrap_or_default();
        let (start, key) = match row.split_first_chunk() {
            Some((start, key)) => (Some(u64::from_be_bytes(*start)), key.to_vec()),
            None => (None, Vec::new()),
        };
        Ok(Passed { start, key })
    }
}
