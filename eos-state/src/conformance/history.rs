//! A reproducible history of a task.
//!
//! It defines the writes of transaction n, and the content of the stores after it.

use std::collections::BTreeMap;

use eos_protocol::state::StoreId;
use eos_protocol::{Clock, Timestamp};

use super::operation::STORES;
use super::{Violation, position, seq_of};
use crate::{Direction, KeyRange, StoreBackend, StoreError, StoreKind, TaskStore};

/// The due store of the history.
const DUE: StoreId = StoreId::from_be_bytes([0, 0, 0, 3]);

/// Every key of every store, with its value.
pub type Contents = BTreeMap<(StoreId, Vec<u8>), Vec<u8>>;

/// The maximum number of keys in a store.
const KEYS: u64 = 40;
const WRITES: u64 = 12;

/// Creates the transactions of the history, and computes their result.
#[derive(Debug, Clone, Copy, Default)]
pub struct History;

impl History {
    /// Performs the writes of transaction `seq`, and applies nothing.
    ///
    /// # Errors
    /// As the store's.
    pub fn write(self, store: &mut TaskStore, seq: u64) -> Result<(), StoreError> {
        for n in 0..WRITES {
            self.write_one(store, seq, n)?;
        }
        Ok(())
    }

    /// Writes transaction `seq` and applies it.
    ///
    /// # Errors
    /// As the store's.
    pub fn commit(self, store: &mut TaskStore, seq: u64) -> Result<(), StoreError> {
        self.write(store, seq)?;
        store.apply(&position(seq))
    }

    /// Returns the stores over an engine.
    ///
    /// # Errors
    /// As the store's.
    pub fn stores(self, backend: Box<dyn StoreBackend>) -> Result<TaskStore, StoreError> {
        let due = std::iter::once((DUE, StoreKind::Point));
        TaskStore::new(backend, STORES.into_iter().chain(due))?.with_due([(DUE, Clock::Stream)])
    }

    /// Returns the content of the stores after transaction `seq`.
    #[must_use]
    pub fn after(self, seq: u64) -> Contents {
        let mut contents = Contents::new();
        for (seq, n) in (1..=seq).flat_map(|seq| (0..WRITES).map(move |n| (seq, n))) {
            let (store, key, value) = one(seq, n);
            match value {
                Some(value) => contents.insert((store, key), value),
                None => contents.remove(&(store, key)),
            };
        }
        contents
    }

    /// Checks that the stores match their position. Returns the position's transaction, or 0 without one.
    ///
    /// # Errors
    /// The inner one if they do not match, the outer one if they can't be read.
    pub fn compare(self, store: &TaskStore) -> Result<Result<u64, Violation>, StoreError> {
        let found = contents(store)?;
        let seq = match store.position() {
            None => 0,
            Some(found) => match seq_of(found) {
                Some(seq) if *found == position(seq) => seq,
                _ => return Ok(Err(Violation(format!("{found:?} was never written")))),
            },
        };
        let expected = self.after(seq);
        Ok(if found == expected {
            Ok(seq)
        } else {
            Err(Violation(format!(
                "at {seq}: found {found:?}, expected {expected:?}"
            )))
        })
    }

    pub(super) fn write_one(
        self,
        store: &mut TaskStore,
        seq: u64,
        n: u64,
    ) -> Result<(), StoreError> {
        let (id, key, value) = one(seq, n);
        match value {
            Some(value) if id == DUE => store.put_due(id, &key, moment(&value), &value)?,
            None if id == DUE => drop(store.delete_due(id, &key)?),
            Some(value) => store.put(id, &key, &value)?,
            None => store.delete(id, &key)?,
        }
        store.keep_record();
        Ok(())
    }

    pub(super) const fn writes(self) -> u64 {
        WRITES
    }
}

/// Returns the whole content of the stores. The index of the due store determines its items.
///
/// # Errors
/// If it can't be read.
pub fn contents(store: &TaskStore) -> Result<Contents, StoreError> {
    let mut contents = Contents::new();
    for (id, _) in STORES {
        let mut scan = store.scan(id, &KeyRange::all(), Direction::Forward)?;
        while let Some((key, value)) = scan.next()? {
            contents.insert((id, key.to_vec()), value.to_vec());
        }
    }
    for place in store.listed_places(Clock::Stream)? {
        let mut value = Vec::new();
        let due = store.get_due(DUE, &place.key, &mut value)?;
        if due.is_none_or(|due| due < place.moment() || due != moment(&value)) {
            value = b"an entry without its item".to_vec();
        }
        contents.insert((DUE, place.key), value);
    }
    Ok(contents)
}

/// Returns the moment of a value of the due store.
fn moment(value: &[u8]) -> Timestamp {
    Timestamp(value.iter().map(|byte| i64::from(*byte)).sum())
}

/// Returns write `n` of transaction `seq`: one in five deletes, and every value identifies its write.
fn one(seq: u64, n: u64) -> (StoreId, Vec<u8>, Option<Vec<u8>>) {
    let drawn = mix(seq * WRITES + n);
    let stores = STORES.len() as u64 + 1;
    let store = STORES.get((drawn % stores) as usize);
    let store = store.map_or(DUE, |(id, _)| *id);
    let key = ((drawn >> 8) % KEYS).to_be_bytes().to_vec();
    let mut value = [seq.to_be_bytes(), n.to_be_bytes()].concat();
    value.resize(16 + (drawn >> 20) as usize % 40, b'.');
    (
        store,
        key,
        (drawn >> 32)
            .is_multiple_of(5)
            .then_some(())
            .map_or(Some(value), |()| None),
    )
}

/// Returns a pseudorandom number, the same one each time (SplitMix64).
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
