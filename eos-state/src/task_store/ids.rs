//! Ids that no row of the newest windows has.

use eos_protocol::state::StoreId;

use super::TaskStore;
use crate::StoreError;
use crate::overlay::{KeyHash, Table};
use crate::range::{Direction, KeyRange};

/// The length of the start of a window in a key, in bytes.
const START: usize = 8;

impl TaskStore {
    /// Returns whether a windowed store certainly has no row with the id of `key` in the window of `key` or in a later
    /// one. The id is the part of a key after the first 8 bytes, which are the start of the window. If false, the
    /// caller must read the rows.
    ///
    /// A filter of the newest windows gives the result, because a read of each missing row would take as long as that
    /// of an existing one. The filter is part of the [cache](Self::cached). Without a cache, the result is false.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn lacks_since(&self, store: StoreId, key: &[u8]) -> Result<bool, StoreError> {
        let slot = self.slot(store)?;
        let mut caches = self.caches.borrow_mut();
        let cache = &mut caches[slot];
        if cache.may_note_ids() {
            // From now on, each write is noted. Earlier writes of open transactions are in the tables.
            let last = self
                .backend
                .scan(store, &KeyRange::all(), Direction::Reverse);
            let last = self.poisoning(last)?;
            let scratch = self.scratch.borrow();
            let in_flight = self.in_flight.iter().flat_map(|it| it.stores());
            let in_flight = in_flight.filter(|it| it.id == store);
            let tables = [&scratch[slot], self.slots[slot].overlay.table()];
            let tables = tables
                .into_iter()
                .chain(in_flight.map(|it| it.overlay.table()));
            let open = tables.filter_map(Table::last_key);
            cache.note_ids_after(open.chain(last.entry().map(|(key, _)| key)).max());
        }
        let hash = self.id_hash(key);
        Ok(cache.ids().is_some_and(|ids| ids.lacks_since(hash, key)))
    }

    /// Notes the id of a written key, if its store notes ids.
    pub(super) fn note_id(&self, slot: usize, key: &[u8]) {
        if let Some(ids) = self.caches.borrow_mut()[slot].ids() {
            ids.note(self.id_hash(key), key);
        }
    }

    fn id_hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key.get(START..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;
    use crate::{CacheMemory, Load, MemoryBackend, StoreKind};

    const SEEN: StoreId = StoreId::windowed("seen");

    fn store(memory: usize) -> TaskStore {
        let backend = Box::new(MemoryBackend::new());
        let store = TaskStore::new(backend, [(SEEN, StoreKind::Point)]).unwrap();
        store.cached(&CacheMemory::new(memory))
    }

    fn key(window: u64, id: u32) -> Vec<u8> {
        [&window.to_be_bytes()[..], &id.to_be_bytes()].concat()
    }

    #[test]
    fn nearly_all_new_ids_are_recognised_and_none_without_memory() {
        for (memory, least) in [(1 << 20, 950), (0, 0)] {
            let mut store = store(memory);
            for id in 0..10_000 {
                store.lacks_since(SEEN, &key(7, id)).unwrap();
                store.put(SEEN, &key(8, id), b"").unwrap();
                store.keep_record();
                assert!(!store.lacks_since(SEEN, &key(8, id)).unwrap(), "{id}");
                assert!(!store.lacks_since(SEEN, &key(7, id)).unwrap(), "{id}");
            }
            let new = 10_000..11_000;
            let found = new.filter(|id| store.lacks_since(SEEN, &key(8, *id)).unwrap());
            let found = found.count();
            assert!(found >= least && (memory > 0 || found == 0), "{found}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(u64, u32),
        /// A write that stays if the record is dropped.
        Beside(u64, u32),
        Delete(u64, u32),
        Keep,
        Drop,
        Discard,
        Begin,
        End,
        Load(u64, u32),
        /// Another store takes half of the memory, and returns it.
        Share,
        Ask,
    }

    fn step() -> impl Strategy<Value = Step> {
        let (window, id) = (0_u64..12, 0_u32..60);
        prop_oneof![
            8 => (window.clone(), id.clone()).prop_map(|(window, id)| Step::Put(window, id)),
            2 => (window.clone(), id.clone()).prop_map(|(window, id)| Step::Beside(window, id)),
            1 => (window.clone(), id.clone()).prop_map(|(window, id)| Step::Delete(window, id)),
            4 => Just(Step::Keep),
            1 => Just(Step::Drop),
            1 => Just(Step::Discard),
            2 => Just(Step::Begin),
            2 => Just(Step::End),
            1 => (window, id).prop_map(|(window, id)| Step::Load(window, id)),
            1 => Just(Step::Share),
            4 => Just(Step::Ask),
        ]
    }

    proptest! {
        #[test]
        fn a_stored_id_is_never_taken_for_a_missing_one(
            steps in proptest::collection::vec(step(), 1..400),
        ) {
            let memory = CacheMemory::new(8 * 1024);
            let backend = Box::new(MemoryBackend::new());
            let store = TaskStore::new(backend, [(SEEN, StoreKind::Point)]).unwrap();
            let mut store = store.cached(&memory);
            let mut seq = 0;
            for step in steps {
                seq += 1;
                match step {
                    Step::Put(window, id) => store.put(SEEN, &key(window, id), b"1").unwrap(),
                    Step::Beside(window, id) => {
                        store.put_beside(SEEN, &key(window, id), b"1").unwrap();
                    }
                    Step::Delete(window, id) => store.delete(SEEN, &key(window, id)).unwrap(),
                    Step::Keep => store.keep_record(),
                    Step::Drop => store.drop_record(),
                    Step::Discard => store.discard(),
                    Step::Begin => {
                        store.keep_record();
                        store.begin_apply(at(seq), Vec::new()).unwrap();
                    }
                    Step::End => assert!(store.end_apply(true).is_ready()),
                    Step::Load(window, id) => {
                        store.discard();
                        assert!(store.end_apply(true).is_ready());
                        let mut load = Load::new();
                        load.write(SEEN, &key(window, id), Some(b"1"));
                        store.begin_load(load, at(seq)).unwrap();
                        assert!(store.end_apply(true).is_ready());
                    }
                    Step::Share => {
                        let backend = Box::new(MemoryBackend::new());
                        let other = TaskStore::new(backend, [(SEEN, StoreKind::Point)]).unwrap();
                        let _other = other.cached(&memory);
                        store.keep_to_cache_limit();
                    }
                    Step::Ask => {
                        for (window, id) in (0..12).flat_map(|it| (0..60).map(move |id| (it, id))) {
                            if store.lacks_since(SEEN, &key(window, id)).unwrap() {
                                for window in window..12 {
                                    let there = store.get(SEEN, &key(window, id), &mut Vec::new());
                                    prop_assert_eq!(there, Ok(false), "id {} in {}", id, window);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
