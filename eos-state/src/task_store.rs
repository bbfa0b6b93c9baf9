//! All stores of one task: committed data below open writes.

mod applying;
mod due;
mod ids;
mod notes;

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use eos_protocol::Clock;
use eos_protocol::state::{Family, PerFamily, Position, StoreId};

use due::{Dated, DueStores};
pub use due::{DueItem, MomentOf, NextDue, SetItem};

use crate::StoreError;
use crate::backend::StoreBackend;
use crate::batch::Write;
use crate::cache::{CacheMemory, CommittedCache};
use crate::in_flight::InFlight;
use crate::overlay::{KeyHash, KeyHasher, Overlay, StoreKind, Table, Written};
use crate::range::{Direction, KeyRange};
use crate::reader::StateReader;
use crate::scan::Scan;

/// The size in bytes of a record batch without its key and value. It is the sum of the batch header, the largest
/// record overhead (`DefaultRecordBatch.RECORD_BATCH_OVERHEAD`, `DefaultRecord.MAX_RECORD_OVERHEAD`), and the store
/// id in the key.
const OVERHEAD: usize = 61 + 21 + 4;

/// The stores of one task, as its records read and write them.
///
/// There are four layers. A read returns the value of the first layer that has the key:
///
/// ```text
///   put, delete ─→ scratch    writes of this record       drop_record drops them
///                     │ keep_record
///                     ↓
///                  overlay    writes of this transaction  discard drops them
///                     │ begin_apply, once the commit is known
///                     ↓
///                  in flight  writes of the committed transaction, until the backend has them
///                     │ end_apply
///                     ↓
///                  backend    committed data, some of it in a cache
/// ```
///
/// No uncommitted data reaches the backend, so an abort costs nothing and no crash leaves a trace.
///
/// Records read and write through `&self`, so that a scan can stay open while its loop writes. Read values are copied
/// into a buffer of the caller.
///
/// # Errors
/// After a failure that [poisons](StoreError::poisons), every call returns that same failure until the backend is
/// opened again.
#[derive(Debug)]
pub struct TaskStore {
    backend: Box<dyn StoreBackend>,
    /// The stores by id, so that changes come in the order of changelog keys. If the task has an index of due stores and
    /// notes, their slots come first, in this order. Neither is in a changelog.
    slots: Vec<Slot>,
    /// One table for each slot.
    scratch: RefCell<Vec<Table>>,
    /// One cache for each slot.
    caches: RefCell<Vec<CommittedCache>>,
    /// Present if the task has due stores.
    due: Option<DueStores>,
    /// Whether the task has notes. Their slot follows that of the index, or is the first one.
    has_notes: bool,
    hasher: KeyHasher,
    poison: OnceCell<StoreError>,
    /// The committed transaction that the backend has not applied yet.
    in_flight: Option<Arc<InFlight>>,
    /// Cleared overlays, one for each slot, to reuse their memory.
    spare: Vec<Overlay>,
    defences: Defences,
}

/// The defences of a [`TaskStore`]. The simulation removes each, and must detect the violation.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Defences {
    /// Transactions are applied in order.
    pub applies_in_order: bool,
    /// Reads include a transaction that the backend has not applied yet.
    pub reads_in_flight: bool,
    /// A handled item is removed in the transaction of its effects.
    pub removes_handled: bool,
    /// An item that is set into the past is listed behind the mark.
    pub lists_behind_mark: bool,
    /// An abort forgets the bound below which no item is due.
    pub forgets_next_due: bool,
    /// A restore lists the items that it loads.
    pub lists_loaded: bool,
}

impl Defences {
    /// All defences.
    pub const ALL: Defences = Defences {
        applies_in_order: true,
        reads_in_flight: true,
        removes_handled: true,
        lists_behind_mark: true,
        forgets_next_due: true,
        lists_loaded: true,
    };
}

#[derive(Debug)]
struct Slot {
    id: StoreId,
    overlay: Overlay,
    /// The largest record batch that the changelog accepts, in bytes.
    limit: usize,
    /// The overlay's entries by key, after the first query. Every write invalidates it.
    sorted: Option<Arc<Vec<u32>>>,
    /// The clock of its items, if it is a due store.
    clock: Option<Clock>,
    /// The store whose rows are items of this one, if any.
    dated: Option<Dated>,
}

/// The keys of one store that the open transaction has changed so far, in order. Created by [`TaskStore::changed`].
#[derive(Debug)]
pub struct Changed {
    slot: usize,
    order: Arc<Vec<u32>>,
    at: usize,
}

impl Changed {
    /// Returns the next key with its last value. `None` after the last key, and once the transaction has ended.
    pub fn next<'a>(&mut self, of: &'a TaskStore) -> Option<Write<'a>> {
        let number = *self.order.get(self.at)?;
        let slot = of.slots.get(self.slot)?;
        self.at += 1;
        ((number as usize) < slot.overlay.table().len()).then(|| slot.entry(number))
    }
}

impl TaskStore {
    /// Returns the stores of a task over their committed data.
    ///
    /// # Errors
    /// [`StoreError::SameId`] if two stores share an id.
    pub fn new(
        backend: Box<dyn StoreBackend>,
        stores: impl IntoIterator<Item = (StoreId, StoreKind)>,
    ) -> Result<Self, StoreError> {
        let mut slots: Vec<Slot> = (stores.into_iter())
            .map(|(id, kind)| Slot::new(id, kind))
            .collect();
        slots.sort_by_key(|slot| slot.id.to_be_bytes());
        if let Some(pair) = slots.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(StoreError::SameId { store: pair[0].id });
        }
        let scratch = slots.iter().map(|_| Table::new()).collect();
        let none = CacheMemory::default();
        let caches = slots.iter().map(|_| CommittedCache::new(&none));
        let caches = caches.collect();
        Ok(Self {
            backend,
            slots,
            scratch: RefCell::new(scratch),
            caches: RefCell::new(caches),
            due: None,
            has_notes: false,
            hasher: KeyHasher::random(),
            poison: OnceCell::new(),
            in_flight: None,
            spare: Vec::new(),
            defences: Defences::ALL,
        })
    }

    /// Caches recently read or written committed values, in memory shared with other tasks. Reads by key use the
    /// cache; scans do not. [Scanned](StoreKind::Scanned) stores have no cache.
    #[must_use]
    pub fn cached(mut self, memory: &CacheMemory) -> Self {
        let none = CacheMemory::default();
        let caches = self.slots.iter().map(|slot| {
            if slot.id.is_reserved() || slot.overlay.kind() == StoreKind::Scanned {
                // Records never read the index or the notes by key, and rarely read a scanned store by key.
                return CommittedCache::new(&none);
            }
            let cache = CommittedCache::new(memory);
            match slot.id.is_windowed() {
                true => cache.windowed(),
                false => cache,
            }
        });
        self.caches = RefCell::new(caches.collect());
        self
    }

    /// Refuses writes that are too large for a changelog. `limits` is `max.message.bytes` of each changelog, if
    /// known.
    #[must_use]
    pub fn limited(mut self, limits: &PerFamily<Option<usize>>) -> Self {
        for slot in &mut self.slots {
            slot.limit = limits.get(slot.id.family()).unwrap_or(usize::MAX);
        }
        self
    }

    /// Sets the active defences.
    #[doc(hidden)]
    #[must_use]
    pub fn defended(mut self, defences: Defences) -> Self {
        self.defences = defences;
        self
    }

    /// Evicts cached values for which other stores need the memory now. A store evicts at each read or write by itself;
    /// this call is for idle ones.
    pub fn keep_to_cache_limit(&mut self) {
        for cache in self.caches.get_mut() {
            cache.keep_to_limit();
        }
    }

    /// Returns the stores that have a committed key, in the order of their ids, even if the task does not have them.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn held(&self) -> Result<Vec<StoreId>, StoreError> {
        self.healthy()?;
        self.poisoning(self.backend.stores())
    }

    /// Returns whether the task has this store.
    #[must_use]
    pub fn has(&self, store: StoreId) -> bool {
        self.stores().iter().any(|slot| slot.id == store)
    }

    /// Reads one key. Returns true if it exists; `value` then holds its value.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn get(&self, store: StoreId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        let slot = self.slot(store)?;
        let hash = self.hasher.hash(key);
        if let Some(there) = self.known(slot, hash, key, value) {
            return Ok(there);
        }
        self.read_through(slot, hash, key, value)
    }

    /// Reads one key below the writes of the current record, which may still be dropped.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn get_kept(
        &self,
        store: StoreId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let slot = self.slot(store)?;
        let hash = self.hasher.hash(key);
        if let Some(there) = self.known_below(slot, hash, key, value) {
            return Ok(there);
        }
        self.read_through(slot, hash, key, value)
    }

    /// Reads a key that is in none of the upper layers.
    fn read_through(
        &self,
        slot: usize,
        hash: KeyHash,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let id = self.slots[slot].id;
        let there = self.poisoning(self.backend.get(id, key, value))?;
        let read = there.then_some(&value[..]);
        let mut caches = self.caches.borrow_mut();
        let cache = &mut caches[slot];
        cache.put(hash, key, read);
        if cache.needs_last_key() {
            // The scan may miss a transaction in flight. `end_apply` notes the keys of that transaction.
            let last = self.backend.scan(id, &KeyRange::all(), Direction::Reverse);
            let last = self.poisoning(last)?;
            cache.begin_after(last.entry().map(|(key, _)| key));
        }
        Ok(there)
    }

    /// Reads many keys of one store at once, and calls `found` once for each, with its index.
    ///
    /// Keys known without the engine come first; the engine looks up the others together. Before the records of a
    /// batch are processed, this call brings the values that they will read into the [cache](Self::cached).
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn multi_get(
        &self,
        store: StoreId,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let slot = self.slot(store)?;
        let (mut missing, mut places) = (Vec::new(), Vec::new());
        let mut value = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            match self.known(slot, self.hasher.hash(key), key, &mut value) {
                Some(there) => found(place, there.then_some(&value)),
                None => {
                    missing.push(*key);
                    places.push(place);
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut each = |i: usize, value: Option<&[u8]>| {
            let key = missing[i];
            self.caches.borrow_mut()[slot].put(self.hasher.hash(key), key, value);
            found(places[i], value);
        };
        self.poisoning(self.backend.multi_get(store, &missing, &mut each))
    }

    /// Writes a value for the current record.
    ///
    /// # Errors
    /// If the store is unknown or poisoned, or key or value are too large for the
    /// [changelog](Self::limited).
    pub fn put(&self, store: StoreId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.write(store, key, Some(value))
    }

    /// Deletes a key for the current record. Deleting a missing key is not an error.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, store: StoreId, key: &[u8]) -> Result<(), StoreError> {
        self.write(store, key, None)
    }

    /// Reads a range in order. Writes may continue meanwhile; the scan shows the range at its beginning.
    ///
    /// # Errors
    /// If the engine can't read.
    pub fn scan(
        &self,
        store: StoreId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Scan<'_>, StoreError> {
        let slot = self.slot(store)?;
        self.scan_slot(slot, range, direction)
    }

    fn scan_slot(
        &self,
        slot: usize,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Scan<'_>, StoreError> {
        self.scan_below(slot, &self.scratch.borrow()[slot], range, direction)
    }

    /// Scans a slot below these writes of the current record.
    fn scan_below(
        &self,
        slot: usize,
        scratch: &Table,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<Scan<'_>, StoreError> {
        let Slot { id, overlay, .. } = &self.slots[slot];
        let committed = self.poisoning(self.backend.scan(*id, range, direction))?;
        Ok(Scan::new(
            scratch,
            (overlay.table(), overlay.scan(range, direction)),
            self.readable().map(|in_flight| (in_flight, slot)),
            committed,
            (range, direction),
            &self.poison,
        ))
    }

    /// Keeps the writes of a successful record: they join the transaction.
    pub fn keep_record(&mut self) {
        for (table, slot) in self.scratch.get_mut().iter_mut().zip(&mut self.slots) {
            if table.is_empty() {
                continue;
            }
            for number in table.numbers() {
                let (hash, key) = (table.hash(number), table.key(number));
                slot.overlay.write(hash, key, table.value(number));
            }
            table.clear();
            slot.sorted = None;
        }
    }

    /// Writes a value for the transaction, even if the current record fails.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_beside(
        &mut self,
        store: StoreId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let at = self.slot(store)?;
        check_size("key", key)?;
        check_size("value", value)?;
        let hash = self.hasher.hash(key);
        self.note_id(at, key);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.overlay.write(hash, key, Some(value));
            slot.sorted = None;
        }
        Ok(())
    }

    /// Drops the writes of a failed record.
    pub fn drop_record(&mut self) {
        self.forget_due_of_record();
        for table in self.scratch.get_mut() {
            if !table.is_empty() {
                table.clear();
            }
        }
    }

    /// Returns the size in bytes of the open transaction's writes. Too many bytes cause an early commit.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.overlay.bytes()).sum()
    }

    /// Returns whether the transaction wrote to a store of this family.
    #[must_use]
    pub fn touched(&self, family: Family) -> bool {
        (self.stores().iter())
            .any(|slot| slot.id.family() == family && !slot.overlay.table().is_empty())
    }

    /// Returns the transaction's writes to the stores of this family: the last write to each key, in the order of store
    /// and key. They go to the changelog.
    pub fn changes(&mut self, family: Family) -> impl Iterator<Item = Write<'_>> {
        self.slots.iter_mut().for_each(|slot| drop(slot.sorted()));
        let stores = self.stores().iter();
        stores
            .filter(move |slot| slot.id.family() == family)
            .flat_map(Slot::writes)
    }

    /// Returns the keys of one store that the transaction has changed so far, in order. During the iteration, other
    /// stores may be written.
    ///
    /// # Errors
    /// If the store is unknown or poisoned.
    pub fn changed(&mut self, store: StoreId) -> Result<Changed, StoreError> {
        let slot = self.slot(store)?;
        let order = self.slots[slot].sorted();
        Ok(Changed { slot, order, at: 0 })
    }

    /// Drops all writes of the aborted transaction and of its last record.
    pub fn discard(&mut self) {
        self.drop_record();
        self.clear();
        self.forget_due();
    }

    /// Returns the position of the committed data; `None` before the first write.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.backend.position()
    }

    /// Returns the reader of the committed data, for other threads. `None` if the engine has no snapshots.
    #[must_use]
    pub fn reader(&self) -> Option<StateReader> {
        self.backend.reader()
    }

    /// Returns the bytes in the engine's memory and its log only.
    #[must_use]
    pub fn bytes_unflushed(&self) -> u64 {
        self.backend.bytes_unflushed()
    }

    /// Moves those bytes out of memory. May wait for the disk.
    ///
    /// # Errors
    /// If the engine can't write.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.healthy()?;
        let flushed = self.backend.flush();
        self.poisoning(flushed)
    }

    /// Returns the failure that poisoned the store.
    #[must_use]
    pub fn poison(&self) -> Option<&StoreError> {
        self.poison.get()
    }

    /// Fails every further call with the error of an unreadable row, because the task can't go on without the row.
    pub fn unreadable(&self, store: &Arc<str>, found: impl Into<Arc<str>>) -> StoreError {
        let error = StoreError::Row {
            store: Arc::clone(store),
            found: found.into(),
        };
        self.poison.get_or_init(|| error).clone()
    }

    fn write(&self, store: StoreId, key: &[u8], value: Written<'_>) -> Result<(), StoreError> {
        let slot = self.slot(store)?;
        check_size("key", key)?;
        check_size("value", value.unwrap_or_default())?;
        let limit = self.slots.get(slot).map_or(usize::MAX, |slot| slot.limit);
        let bytes = OVERHEAD + key.len() + value.map_or(0, <[u8]>::len);
        if bytes > limit {
            return Err(StoreError::Oversize {
                store,
                bytes,
                limit,
            });
        }
        let hash = self.hasher.hash(key);
        self.scratch.borrow_mut()[slot].write(hash, key, value);
        self.note_id(slot, key);
        Ok(())
    }

    /// Returns whether a key exists, if that is known without the engine. `value` then holds its value.
    fn known(&self, slot: usize, hash: KeyHash, key: &[u8], value: &mut Vec<u8>) -> Option<bool> {
        if let Some(written) = self.scratch.borrow()[slot].get(hash, key) {
            return Some(take(written, value));
        }
        self.known_below(slot, hash, key, value)
    }

    /// The same, below the writes of the current record.
    fn known_below(
        &self,
        slot: usize,
        hash: KeyHash,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Option<bool> {
        let mut take = |written: Written<'_>| take(written, value);
        if let Some(written) = self.slots[slot].overlay.get(hash, key) {
            return Some(take(written));
        }
        let in_flight = self.readable();
        if let Some(written) = in_flight.and_then(|in_flight| in_flight.get(slot, hash, key)) {
            return Some(take(written));
        }
        self.caches.borrow_mut()[slot].get(hash, key).map(take)
    }

    /// Returns the transaction in flight, unless its defence is removed.
    fn readable(&self) -> Option<&InFlight> {
        let in_flight = self.in_flight.as_deref();
        in_flight.filter(|_| self.defences.reads_in_flight)
    }

    /// Returns the index of a store, if the store is healthy.
    fn slot(&self, store: StoreId) -> Result<usize, StoreError> {
        self.healthy()?;
        let stores = self.stores();
        let at = (stores.iter().position(|slot| slot.id == store))
            .ok_or(StoreError::UnknownStore { store })?;
        Ok(at + self.slots.len() - stores.len())
    }

    /// Returns the stores of the task, without the index and the notes.
    fn stores(&self) -> &[Slot] {
        let reserved = usize::from(self.due.is_some()) + usize::from(self.has_notes);
        self.slots.get(reserved..).unwrap_or_default()
    }

    /// Inserts the slot of the index or of the notes.
    fn insert_reserved(&mut self, at: usize, id: StoreId, kind: StoreKind) {
        self.slots.insert(at, Slot::new(id, kind));
        self.scratch.get_mut().insert(at, Table::new());
        let cache = CommittedCache::new(&CacheMemory::default());
        self.caches.get_mut().insert(at, cache);
    }

    fn healthy(&self) -> Result<(), StoreError> {
        match self.poison.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn poisoning<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result
            && error.poisons()
        {
            // The first failure is the cause; later failures are its consequence.
            let _ = self.poison.set(error.clone());
        }
        result
    }

    fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.overlay.clear();
            slot.sorted = None;
        }
    }
}

/// Copies a written value. Returns false for a deletion.
fn take(written: Written<'_>, value: &mut Vec<u8>) -> bool {
    value.clear();
    value.extend_from_slice(written.unwrap_or_default());
    written.is_some()
}

impl Slot {
    fn new(id: StoreId, kind: StoreKind) -> Self {
        Self {
            id,
            overlay: Overlay::new(kind),
            limit: usize::MAX,
            sorted: None,
            clock: None,
            dated: None,
        }
    }

    fn sorted(&mut self) -> Arc<Vec<u32>> {
        let sorted = &mut self.sorted;
        Arc::clone(sorted.get_or_insert_with(|| Arc::new(self.overlay.sorted())))
    }

    fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        let sorted = self.sorted.iter().flat_map(|order| order.iter());
        sorted.map(move |number| self.entry(*number))
    }

    fn entry(&self, number: u32) -> Write<'_> {
        let table = self.overlay.table();
        Write {
            store: self.id,
            key: table.key(number),
            value: table.value(number),
        }
    }
}

fn check_size(what: &'static str, bytes: &[u8]) -> Result<(), StoreError> {
    // The largest length marks a deleted key in the overlay.
    if bytes.len() >= u32::MAX as usize {
        return Err(StoreError::TooLarge {
            what,
            bytes: bytes.len(),
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "task_store_test.rs"]
mod tests;
