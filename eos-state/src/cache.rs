//! A cache of recent committed values.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::new_windows::NewWindows;
use crate::overlay::{KeyHash, Table, Written};
use crate::range::KeyRange;

/// One of the two filters of new windows may use at most a 64th of a store's cache memory.
const FILTER_SHARE: usize = 64;
/// The maximum memory of one filter of new windows, in bytes.
const FILTER_BYTES: usize = 64 * 1024;
/// One of the two filters of ids may use at most a 32nd of a store's cache memory.
const IDS_SHARE: usize = 32;
/// The maximum memory of one filter of ids, in bytes: enough for 800,000 of them.
const IDS_BYTES: usize = 1024 * 1024;

/// A store may have the memory of this many parts. A generation of it moves at once, so the pause must stay short.
const MOST_PARTS: usize = 4;
/// A store grows above its part only while the stores leave a part unused, or an eighth of the memory if that is less.
const RESERVE_SHARE: usize = 8;

/// The number of keys whose slots are read before their rows are written.
const READ_AHEAD: u32 = 16;

/// Memory for recently read or written committed values, shared by the stores of a process. Each store may have an equal
/// part, which changes with the number of stores, and more while other stores leave memory unused. A store that has more
/// returns it at its next access, once the others need it. A full store takes unused memory in steps of half a part.
#[derive(Debug, Clone, Default)]
pub struct CacheMemory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bytes: usize,
    stores: Mutex<usize>,
    /// The size of one store's part, read for each record.
    part: AtomicUsize,
    /// The memory that all stores have, in bytes. It exceeds `bytes` until a store returns memory.
    used: AtomicUsize,
}

impl CacheMemory {
    /// Returns a cache of this many bytes. The [`default`](Self::default) has none.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (stores, part) = (Mutex::new(0), AtomicUsize::new(bytes));
        let used = AtomicUsize::new(0);
        Self(Arc::new(Shared {
            bytes,
            stores,
            part,
            used,
        }))
    }

    /// Returns the configured size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the size of one store's part, in bytes.
    fn part(&self) -> usize {
        self.0.part.load(Ordering::Relaxed)
    }

    /// Records that the memory of a store has changed from `before` to `after`.
    fn resize(&self, before: usize, after: usize) {
        if after > before {
            self.0.used.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.0.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Returns the maximum memory of a store that has `own` bytes: its part, and more up to `most` while the other stores
    /// leave memory unused.
    fn limit(&self, own: usize, most: usize) -> usize {
        let (part, used) = (self.part(), self.0.used.load(Ordering::Relaxed));
        let free = (own + self.0.bytes).saturating_sub(used);
        free.min(most).max(part)
    }

    /// Returns `most` plus half a part if the stores leave enough memory unused, and `most` otherwise.
    ///
    /// If a store took all unused memory at once, stores that write only new keys would take memory from each other in turn,
    /// and drop their values each time. So some memory is left for the others.
    fn extended(&self, most: usize) -> usize {
        let (part, used) = (self.part(), self.0.used.load(Ordering::Relaxed));
        match self.0.bytes.saturating_sub(used) >= part.min(self.0.bytes / RESERVE_SHARE) {
            true => (most + part / 2).min(part.saturating_mul(MOST_PARTS)),
            false => most,
        }
    }

    fn now_has(&self, change: impl FnOnce(usize) -> usize) {
        let mut stores = self.0.stores.lock().unwrap_or_else(PoisonError::into_inner);
        *stores = change(*stores);
        let part = self.0.bytes / (*stores).max(1);
        self.0.part.store(part, Ordering::Relaxed);
    }
}

/// Committed values of one store, and its known missing keys.
///
/// The cache has two generations. Used entries go into the young one. It may have two thirds of the memory, unused room
/// included. A full young generation becomes the old one, and a new young one begins in the remaining memory. Once both
/// fill the memory, the cache drops the old generation and its unused entries. It copies the young one into the vectors
/// of the old one. The cache holds only committed values, so an abort does not change it.
///
/// Every value that the engine receives passes [`put`](Self::put) or is followed by [`clear`](Self::clear). So a
/// windowed store knows which keys of its new windows are missing.
#[derive(Debug)]
pub(crate) struct CommittedCache {
    young: Table,
    old: Table,
    /// The missing keys of new windows, for windowed stores only.
    new_windows: Option<NewWindows>,
    /// The ids of new windows, including those of open transactions. `None` before the first query for an id. An id is
    /// a key without the start of its window.
    ids: Option<NewWindows>,
    memory: CacheMemory,
    /// The bytes of this store that `memory` counts.
    counted: usize,
    /// The bytes that this store may have if the other stores leave them unused: its part or more. They grow when the store is
    /// full, and fall to the part once other stores need the memory.
    most: usize,
}

impl CommittedCache {
    pub(crate) fn new(memory: &CacheMemory) -> Self {
        memory.now_has(|stores| stores + 1);
        Self {
            young: Table::new(),
            old: Table::new(),
            new_windows: None,
            ids: None,
            memory: memory.clone(),
            counted: 0,
            most: 0,
        }
    }

    /// Recognises missing keys of new windows. Keys of the store begin with the start of a window.
    #[must_use]
    pub(crate) fn windowed(mut self) -> Self {
        self.new_windows = (self.memory.bytes() > 0).then(NewWindows::default);
        self
    }

    /// Returns whether [`begin_after`](Self::begin_after) has to be called.
    pub(crate) fn needs_last_key(&self) -> bool {
        let windows = self.new_windows.as_ref();
        windows.is_some_and(|windows| !windows.is_known())
    }

    /// Recognises missing keys of windows after that of `last`, the last key in the engine.
    pub(crate) fn begin_after(&mut self, last: Option<&[u8]>) {
        let bytes = self.filter_bytes();
        if let Some(windows) = &mut self.new_windows {
            windows.begin_after(last, bytes);
        }
    }

    /// Returns the ids of new windows.
    pub(crate) fn ids(&mut self) -> Option<&mut NewWindows> {
        self.ids.as_mut()
    }

    /// Returns whether the store has no filter of ids yet, and has memory for one.
    pub(crate) fn may_note_ids(&self) -> bool {
        self.ids.is_none() && self.memory.part() > 0
    }

    /// Notes ids from now on. `last`: the last key that the engine has or may get from open transactions.
    pub(crate) fn note_ids_after(&mut self, last: Option<&[u8]>) {
        let mut ids = NewWindows::default();
        ids.begin_after(last, self.ids_bytes());
        self.ids = Some(ids);
    }

    /// Returns the memory of one of the two filters of ids.
    fn ids_bytes(&self) -> usize {
        (self.memory.part() / IDS_SHARE).min(IDS_BYTES)
    }

    /// Returns the maximum memory of both generations together.
    fn limit(&mut self) -> usize {
        let filters = [&self.new_windows, &self.ids];
        let filters: usize = filters.into_iter().flatten().map(NewWindows::bytes).sum();
        let own = filters + self.young.room() + self.old.room();
        if own != self.counted {
            self.memory.resize(self.counted, own);
            self.counted = own;
        }
        // The part changes with the number of stores. No store has to return memory for that alone.
        let part = self.memory.part();
        self.most = self.most.clamp(part, part.saturating_mul(MOST_PARTS));
        self.memory.limit(own, self.most).saturating_sub(filters)
    }

    /// Returns the memory of one of the two filters of new windows.
    fn filter_bytes(&self) -> usize {
        (self.memory.part() / FILTER_SHARE).min(FILTER_BYTES)
    }

    /// Shrinks to the memory that the other stores leave, but not below its part, and returns the maximum memory of both
    /// generations.
    pub(crate) fn keep_to_limit(&mut self) -> usize {
        let filter = self.filter_bytes();
        if let Some(windows) = &mut self.new_windows
            && windows.bytes() > 2 * filter.max(NewWindows::LEAST)
        {
            *windows = NewWindows::default();
        }
        let filter = self.ids_bytes();
        self.ids
            .take_if(|ids| ids.bytes() > 2 * filter.max(NewWindows::LEAST));
        let limit = self.limit();
        let all = self.young.room() + self.old.room();
        if self.young.room() <= most_young(limit) && all <= limit {
            return limit;
        }
        self.most = 0;
        let limit = self.limit();
        // A cleared table would keep its memory. The old generation may have former values of keys in the young one, so
        // the young one is never dropped alone.
        if self.young.room() > most_young(limit) {
            self.young = Table::new();
        }
        self.old = Table::new();
        // The memory is counted again.
        self.limit();
        limit
    }

    /// Returns whether an entry with this length fits into the young generation, beside the old one.
    fn has_room(&self, len: usize, limit: usize) -> bool {
        let beside_old = limit.saturating_sub(self.old.room());
        self.young.fits(len, beside_old.min(most_young(limit)))
    }

    /// Makes room for an entry with this length in the young generation.
    fn make_room(&mut self, len: usize, mut limit: usize) {
        if self.has_room(len, limit) {
            return;
        }
        loop {
            let extended = self.memory.extended(self.most);
            if extended <= self.most {
                break;
            }
            self.most = extended;
            limit = self.limit();
            if self.has_room(len, limit) {
                return;
            }
        }
        if !self.young.fits(len, most_young(limit)) {
            std::mem::swap(&mut self.young, &mut self.old);
            // `clear` frees the vectors of an empty table.
            if !self.young.is_empty() {
                self.young.clear();
            }
            if !self.has_room(len, limit) {
                self.young = Table::new();
            }
        } else if !self.old.is_empty() && self.old.can_take(&self.young, len) {
            // The old generation has the memory that the young one needs. Copies into its vectors cost less than new vectors.
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
            for number in self.old.numbers() {
                let (hash, key) = (self.old.hash(number), self.old.key(number));
                self.young.write(hash, key, self.old.value(number));
            }
            self.old.clear();
        }
        if !self.has_room(len, limit) {
            self.old = Table::new();
        }
    }

    /// Returns the known state of a key: a value or a missing key. `None` if it is unknown.
    pub(crate) fn get(&mut self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        let limit = self.keep_to_limit();
        if let Some(number) = self.young.number(hash, key) {
            return Some(self.young.value(number));
        }
        let Some(value) = self.old.get(hash, key) else {
            let windows = self.new_windows.as_ref();
            return windows.filter(|it| it.lacks(hash, key)).map(|_| None);
        };
        let len = key.len() + value.map_or(0, <[u8]>::len);
        if self.has_room(len, limit) {
            let (number, _) = self.young.write(hash, key, value);
            return Some(self.young.value(number));
        }
        // `make_room` may drop the old generation, so copy the value first.
        let value = value.map(<[u8]>::to_vec);
        self.make_room(len, limit);
        let (number, _) = self.young.write(hash, key, value.as_deref());
        Some(self.young.value(number))
    }

    /// Stores the new state of a key.
    pub(crate) fn put(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) {
        let limit = self.keep_to_limit();
        if let Some(windows) = self.new_windows.as_mut().filter(|_| value.is_some()) {
            windows.note(hash, key);
        }
        if most_young(limit) == 0 {
            return;
        }
        let len = key.len() + value.map_or(0, <[u8]>::len);
        if !self.has_room(len, limit) && !self.young.takes_in_place(hash, key, value) {
            self.make_room(len, limit);
        }
        // Write even a value above the limit, because the old generation may have a former value.
        self.young.write(hash, key, value);
    }

    /// Stores the new states of all keys of a table.
    pub(crate) fn put_all(&mut self, table: &Table) {
        for number in table.numbers() {
            if number % READ_AHEAD == 0 {
                let next = (number..table.len() as u32).take(READ_AHEAD as usize);
                self.young.read_ahead(next.map(|number| table.hash(number)));
            }
            self.put(table.hash(number), table.key(number), table.value(number));
        }
    }

    /// Marks the cached keys in a range as missing. Other keys stay unknown.
    pub(crate) fn delete(&mut self, range: &KeyRange) {
        for generation in [&mut self.young, &mut self.old] {
            generation.delete(|key| range.contains(key));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.forget_windows();
    }

    fn forget_windows(&mut self) {
        if let Some(windows) = &mut self.new_windows {
            *windows = NewWindows::default();
        }
        self.ids = None;
    }
}

/// Returns the maximum memory of the young generation, in bytes. `limit` is that of both generations.
fn most_young(limit: usize) -> usize {
    limit / 3 * 2
}

impl Drop for CommittedCache {
    fn drop(&mut self) {
        self.memory.resize(self.counted, 0);
        self.memory.now_has(|stores| stores.saturating_sub(1));
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod cache_test;
