//! Committed values that were read or written lately, so that hot keys never reach the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::overlay::{KeyHash, Table, Written};

/// Memory for committed values that were read or written lately, shared by the stores of a process: each
/// has an equal part of it, which grows and shrinks as others go and come.
#[derive(Debug, Clone, Default)]
pub struct CacheMemory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bytes: usize,
    stores: AtomicUsize,
}

impl CacheMemory {
    /// Memory of this many bytes. None at all by [`default`](Self::default).
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let stores = AtomicUsize::new(0);
        Self(Arc::new(Shared { bytes, stores }))
    }

    /// The number it was made from.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// The part of one store.
    fn part(&self) -> usize {
        self.0.bytes / self.0.stores.load(Ordering::Relaxed).max(1)
    }
}

/// Values of one store, and the knowledge that a key is not there.
///
/// Two generations: what is used goes into the young one; when that is full it becomes the old
/// one, and what nobody used since is forgotten with the one before. It only ever holds what is
/// committed, so an abort leaves it alone.
#[derive(Debug)]
pub(crate) struct CommittedCache {
    young: Table,
    old: Table,
    memory: CacheMemory,
}

impl CommittedCache {
    pub(crate) fn new(memory: &CacheMemory) -> Self {
        memory.0.stores.fetch_add(1, Ordering::Relaxed);
        Self {
            young: Table::new(),
            old: Table::new(),
            memory: memory.clone(),
        }
    }

    /// How large a generation may be. There are two, and a vector may have twice the room of what it
    /// holds.
    fn limit(&self) -> usize {
        self.memory.part() / 4
    }

    /// What is known about a key: a value, or that there is none.
    pub(crate) fn get(&mut self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        let number = match self.young.number(hash, key) {
            Some(number) => number,
            None => {
                let value = self.old.get(hash, key)?;
                self.young.write(hash, key, value).0
            }
        };
        Some(self.young.value(number))
    }

    /// Remembers what a key holds from now on.
    pub(crate) fn put(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) {
        let limit = self.limit();
        if limit == 0 {
            return;
        }
        if self.young.bytes() >= limit {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.write(hash, key, value);
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

impl Drop for CommittedCache {
    fn drop(&mut self) {
        self.memory.0.stores.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::KeyHasher;

    #[test]
    fn it_stays_inside_its_limit_and_keeps_what_is_used() {
        let hasher = KeyHasher::random();
        let mut cache = CommittedCache::new(&CacheMemory::new(16 * 1024));
        let hot = (hasher.hash(b"hot"), b"hot");
        cache.put(hot.0, hot.1, Some(b"1"));
        for n in 0..10_000_u32 {
            let key = n.to_be_bytes();
            cache.put(hasher.hash(&key), &key, Some(&[7; 16]));
            assert_eq!(cache.get(hot.0, hot.1), Some(Some(&b"1"[..])), "after {n}");
            assert!(cache.young.bytes() + cache.old.bytes() < 9 * 1024);
        }
        assert_eq!(cache.get(hasher.hash(&[0; 4]), &[0; 4]), None);
    }

    #[test]
    fn all_stores_share_one_memory() {
        let (memory, hasher) = (CacheMemory::new(64 * 1024), KeyHasher::random());
        let fill = |cache: &mut CommittedCache| {
            for n in 0..10_000_u32 {
                let key = n.to_be_bytes();
                cache.put(hasher.hash(&key), &key, Some(&[7; 16]));
            }
            cache.young.bytes() + cache.old.bytes()
        };
        let mut first = CommittedCache::new(&memory);
        let alone = fill(&mut first);
        assert!(alone > 17 * 1024 && alone < 33 * 1024, "{alone}");
        let others: Vec<_> = (0..3).map(|_| CommittedCache::new(&memory)).collect();
        let together = fill(&mut first);
        assert!(together < alone / 3, "{together} and {alone}");
        drop(others);
        assert!(fill(&mut first) > alone / 2);
    }

    #[test]
    fn a_value_written_later_hides_the_old_generation() {
        let hasher = KeyHasher::random();
        let mut cache = CommittedCache::new(&CacheMemory::new(3));
        assert_eq!(cache.limit(), 0, "that is none");
        cache = CommittedCache::new(&CacheMemory::new(800));
        let hash = hasher.hash(b"k");
        cache.put(hash, b"k", Some(b"1"));
        while cache.old.is_empty() {
            cache.put(hasher.hash(b"filler"), b"filler", Some(&[0; 200]));
            cache.put(hasher.hash(b"other"), b"other", None);
        }
        cache.put(hash, b"k", None);
        assert_eq!(cache.get(hash, b"k"), Some(None));
    }
}
