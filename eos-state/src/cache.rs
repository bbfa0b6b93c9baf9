//! Committed values that were read or written lately, so that hot keys never reach the engine.

use crate::overlay::{KeyHash, Table, Written};

/// Values of one store, and the knowledge that a key is not there.
///
/// Two generations: what is used goes into the young one; when that is full it becomes the old
/// one, and what nobody used since is forgotten with the one before. It only ever holds what is
/// committed, so an abort leaves it alone.
#[derive(Debug)]
pub(crate) struct CommittedCache {
    young: Table,
    old: Table,
    /// Of each generation.
    limit: usize,
}

impl CommittedCache {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            young: Table::new(),
            old: Table::new(),
            limit: bytes / 2,
        }
    }

    /// What is known about a key: a value, or that there is none.
    pub(crate) fn get(&mut self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        if self.limit == 0 {
            return None;
        }
        if self.young.get(hash, key).is_none() {
            let value = self.old.get(hash, key)?;
            self.young.write(hash, key, value);
        }
        self.young.get(hash, key)
    }

    /// Remembers what a key holds from now on.
    pub(crate) fn put(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) {
        if self.limit == 0 {
            return;
        }
        if self.young.bytes() >= self.limit {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::KeyHasher;

    #[test]
    fn it_stays_inside_its_limit_and_keeps_what_is_used() {
        let hasher = KeyHasher::random();
        let mut cache = CommittedCache::new(8 * 1024);
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
    fn a_value_written_later_hides_the_old_generation() {
        let hasher = KeyHasher::random();
        let mut cache = CommittedCache::new(1);
        assert_eq!(cache.limit, 0, "that is none");
        cache = CommittedCache::new(400);
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
