//! Stored letters that a replay does not read again.

use eos_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use crate::App;
use crate::failure::Failure;
use crate::store::{KeyValueStore, KeyValueView};
use crate::store_handle::Store;

/// The only key of the store.
const ROW: u32 = 0;
/// The version of the row.
const VERSION: u8 = 1;

/// The place before which all stored letters failed too late for this replay.
///
/// Such letters stay for a later start. Without this place, each round would read all of them. The place is a row, so
/// it moves and aborts with the letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    version: u8,
    /// The end of the replay, in milliseconds since 1970. A replay with another end reads all letters again.
    until: i64,
    /// The first key that may have a letter of this replay.
    pub(super) key: Vec<u8>,
}

impl Passed {
    pub(super) fn store(app: &mut App) -> Store<KeyValueStore<u32, Self>> {
        app.store(&KeyValueStore::json("passed-letters"))
    }

    /// Returns the stored place, or the place before all letters.
    pub(super) fn read(
        view: &KeyValueView<'_, u32, Self>,
        until: Timestamp,
    ) -> Result<Self, Failure> {
        let found = view.get(&ROW)?;
        let found = found.filter(|it| it.version == VERSION && it.until == until.0);
        Ok(found.unwrap_or(Self {
            version: VERSION,
            until: until.0,
            key: Vec::new(),
        }))
    }

    /// Moves the place behind a letter.
    pub(super) fn behind(&mut self, mut key: Vec<u8>) {
        // The first key above the letter's key.
        key.push(0);
        self.key = key;
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

    /// Moves the place back to a letter that arrives before it.
    pub(super) fn arrives(
        view: &KeyValueView<'_, u32, Self>,
        until: Timestamp,
        key: &[u8],
    ) -> Result<(), Failure> {
        let before = Self::read(view, until)?;
        if before.key[..] <= *key {
            return Ok(());
        }
        let key = key.to_vec();
        view.put(&ROW, &Self { key, ..before })
    }
}
