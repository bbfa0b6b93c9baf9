//! The letters that a replay need not read again.

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
/// Such letters stay for a later start. Without the place, each round would read all of them. It is a row, so it moves and
/// aborts with the letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    version: u8,
    /// The end of the replay. Another one reads all letters again.
    until: i64,
    /// The first key that may have a letter of this replay.
    pub(super) key: Vec<u8>,
}

impl Passed {
    pub(super) fn store(app: &mut App) -> Store<KeyValueStore<u32, Self>> {
        app.store(&KeyValueStore::json("passed-letters"))
    }

    /// Returns the place, or that before all letters.
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

    /// Passes a letter.
    pub(super) fn behind(&mut self, mut key: Vec<u8>) {
        // The first key above it.
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

    /// Goes back to a letter that arrives before the place.
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
