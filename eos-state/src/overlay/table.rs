//! A hash table from byte keys to byte values.
//!
//! The table does not remove single entries.
//!
//! The table has three vectors: one entry per key, which includes a short key and value; the bytes of long keys and
//! values; and the places of the entries by hash. It allocates nothing per entry, and nothing at all once the vectors
//! are large enough for a transaction. An overwritten value reuses its bytes if the new value fits, so a counter with
//! a thousand updates takes the room of one.

use std::hash::{BuildHasher, Hasher, RandomState};

use rustc_hash::FxHasher;

/// The hash of a key, computed once and passed from the scratch to the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(u32);

impl KeyHash {
    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

/// Hashes keys in the same way for all tables of one task.
///
/// Keys come from outside and the hash is a fast one, so each task draws a seed. No attacker can prepare a topic in
/// which all keys collide.
#[derive(Debug, Clone)]
pub(crate) struct KeyHasher {
    seed: usize,
}

impl KeyHasher {
    pub(crate) fn random() -> Self {
        Self {
            seed: RandomState::new().hash_one(0) as usize,
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = FxHasher::with_seed(self.seed);
        hasher.write(key);
        KeyHash((hasher.finish() >> 32) as u32)
    }
}

const TOMBSTONE: u32 = u32::MAX;
/// Vectors smaller than this are kept between transactions, regardless of their fill level.
const KEEP_BYTES: usize = 64 * 1024;

/// The maximum size of key and value together to be stored in the entry itself.
const SHORT: usize = 40;
/// Marks key and value as stored in the entry, instead of their place among the bytes.
const HERE: usize = usize::MAX;

/// The size of a cache line. A lookup of a short key and its value waits for memory once, and once for its slot.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Entry {
    /// The place of the key among the bytes; the value follows it.
    at: usize,
    key_len: u32,
    value_len: u32,
    /// Bytes reserved for the value. A later value that fits is written there.
    room: u32,
    hash: u32,
    short: [u8; SHORT],
}

/// A value, or the fact that the key was deleted.
pub(crate) type Written<'a> = Option<&'a [u8]>;

#[derive(Debug, Default)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The hash table, with linear probing. A free slot is 0. Otherwise, the bits of the [mask](Self::mask) are the number
    /// of the entry plus one. The other bits are those of the entry's hash. So a lookup rarely reads the entry of another
    /// key, which is often a cache miss. The length is a power of two. At most half of the slots are taken.
    slots: Vec<u32>,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the allocated bytes, used or not.
    pub(crate) fn room(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<Entry>();
        self.bytes.capacity() + entries + self.slots.len() * size_of::<u32>()
    }

    /// Returns whether the table has at most `limit` allocated bytes after the write of a key and a value. `len` is the
    /// length of both, in bytes.
    pub(crate) fn fits(&self, len: usize, limit: usize) -> bool {
        let mut room = self.room();
        if self.entries.len() == self.entries.capacity() {
            room += more(self.entries.capacity(), 4) * size_of::<Entry>();
        }
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            room += self.slots.len().max(16) * size_of::<u32>();
        }
        if len > SHORT && self.bytes.len() + len > self.bytes.capacity() {
            room += more(self.bytes.capacity(), len);
        }
        room <= limit
    }

    /// Returns whether this table, once it is cleared, takes the entries of another one without new memory, and one
    /// more entry with a key and a value of `len` bytes.
    pub(crate) fn can_take(&self, other: &Self, len: usize) -> bool {
        let entries = other.entries.len() + 1;
        entries <= self.entries.capacity()
            && entries * 2 <= self.slots.len()
            && other.bytes.len() + len <= self.bytes.capacity()
    }

    /// Returns whether a key is there with enough room for this value.
    pub(crate) fn takes_in_place(&self, hash: KeyHash, key: &[u8], value: Written<'_>) -> bool {
        let room = |number| self.entries[number as usize].room as usize;
        let len = value.map_or(0, <[u8]>::len);
        self.find(hash, key).is_ok_and(|number| len <= room(number))
    }

    /// Returns the bytes in use: keys, values and their index.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * (size_of::<Entry>() + 2 * size_of::<u32>())
    }

    pub(crate) fn get(&self, hash: KeyHash, key: &[u8]) -> Option<Written<'_>> {
        let entry = self.find(hash, key).ok()?;
        Some(self.value(entry))
    }

    /// Returns the number of a key's entry.
    pub(crate) fn number(&self, hash: KeyHash, key: &[u8]) -> Option<u32> {
        self.find(hash, key).ok()
    }

    /// Writes a value or a deletion. Returns the entry's number, and whether it is new.
    ///
    /// Key and value are shorter than `u32::MAX`: the task store has checked this.
    pub(crate) fn write(&mut self, hash: KeyHash, key: &[u8], value: Written<'_>) -> (u32, bool) {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        match self.find(hash, key) {
            Ok(number) => {
                self.overwrite(number, value);
                (number, false)
            }
            Err(slot) => {
                let number = self.entries.len() as u32;
                let written = value.unwrap_or_default();
                let len = key.len() + written.len();
                let mut entry = Entry {
                    at: HERE,
                    key_len: key.len() as u32,
                    value_len: value.map_or(TOMBSTONE, |v| v.len() as u32),
                    room: 0,
                    hash: hash.0,
                    short: [0; SHORT],
                };
                if len <= SHORT {
                    entry.room = (SHORT - key.len()) as u32;
                    entry.short[..key.len()].copy_from_slice(key);
                    entry.short[key.len()..len].copy_from_slice(written);
                } else {
                    entry.at = self.bytes.len();
                    entry.room = written.len() as u32;
                    self.reserve_bytes(len);
                    self.bytes.extend_from_slice(key);
                    self.bytes.extend_from_slice(written);
                }
                let capacity = self.entries.capacity();
                if self.entries.len() == capacity {
                    self.entries.reserve_exact(more(capacity, 4));
                }
                self.entries.push(entry);
                self.slots[slot] = slot_content(number, hash.0, self.mask());
                (number, true)
            }
        }
    }

    pub(crate) fn key(&self, number: u32) -> &[u8] {
        let entry = &self.entries[number as usize];
        &self.bytes_of(entry)[..entry.key_len as usize]
    }

    pub(crate) fn value(&self, number: u32) -> Written<'_> {
        let entry = &self.entries[number as usize];
        (entry.value_len != TOMBSTONE).then(|| {
            let behind = &self.bytes_of(entry)[entry.key_len as usize..];
            &behind[..entry.value_len as usize]
        })
    }

    /// Returns the bytes of the key, the value and the room reserved behind it.
    fn bytes_of<'a>(&'a self, entry: &'a Entry) -> &'a [u8] {
        match entry.at {
            HERE => &entry.short,
            at => &self.bytes[at..],
        }
    }

    pub(crate) fn hash(&self, number: u32) -> KeyHash {
        KeyHash(self.entries[number as usize].hash)
    }

    /// Iterates over the numbers of all entries.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.entries.len() as u32
    }

    /// Returns the highest key, deleted or not.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.numbers().map(|number| self.key(number)).max()
    }

    /// Returns the numbers of the entries that match `wanted`, in the order of their keys.
    pub(crate) fn sorted(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let mut numbers: Vec<u32> = (self.numbers())
            .filter(|number| wanted(self.key(*number)))
            .collect();
        let common = self.common_prefix(&numbers);
        // Twelve key bytes after the common prefix, then the number of the entry. The sort compares integers. Keys are read
        // only for equal bytes.
        let mut order: Vec<u128> = (numbers.iter())
            .map(|&number| first_bytes(&self.key(number)[common..]) | u128::from(number))
            .collect();
        order.sort_unstable();
        let number = |entry: u128| entry as u32;
        for equal in order.chunk_by_mut(|a, b| a >> u32::BITS == b >> u32::BITS) {
            if equal.len() > 1 {
                equal.sort_unstable_by(|a, b| self.key(number(*a)).cmp(self.key(number(*b))));
            }
        }
        numbers.clear();
        numbers.extend(order.into_iter().map(number));
        numbers
    }

    /// Returns the length of the longest common prefix of these keys.
    fn common_prefix(&self, numbers: &[u32]) -> usize {
        let Some(first) = numbers.first().map(|number| self.key(*number)) else {
            return 0;
        };
        numbers.iter().fold(first.len(), |common, number| {
            let pairs = self.key(*number).iter().zip(&first[..common]);
            pairs.take_while(|(a, b)| a == b).count()
        })
    }

    /// Marks the keys that match as deleted.
    pub(crate) fn delete(&mut self, matches: impl Fn(&[u8]) -> bool) {
        for number in self.numbers() {
            if matches(self.key(number)) {
                self.overwrite(number, None);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.entries.len() * 8 < self.slots.len() {
            // One large record must not make every later small one pay for its slots.
            for number in 0..self.entries.len() {
                let slot = self.slot_of(number as u32);
                self.slots[slot] = 0;
            }
        } else {
            self.slots.fill(0);
        }
        let (bytes, entries) = (self.bytes.len(), self.entries.len());
        self.bytes.clear();
        self.entries.clear();
        // Vectors that grew in a burst are shrunk once they are far too large.
        if self.bytes.capacity() > KEEP_BYTES && bytes < self.bytes.capacity() / 8 {
            self.bytes.shrink_to((bytes * 2).max(KEEP_BYTES));
        }
        let entry_bytes = self.entries.capacity() * size_of::<Entry>();
        if entry_bytes > KEEP_BYTES && entries < self.entries.capacity() / 8 {
            self.entries.shrink_to(entries * 2);
            self.slots = vec![0; (entries * 4).next_power_of_two().max(16)];
        }
    }

    /// Reads the slots and the entries of keys that will be looked up next.
    ///
    /// A lookup has two reads of memory that depend on each other. The reads of several keys overlap here.
    pub(crate) fn read_ahead(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        if self.slots.is_empty() {
            return;
        }
        let mask = self.mask();
        let numbers = hashes.map(|hash| self.slots[(hash.0 & mask) as usize] & mask);
        let slots = numbers.clone().fold(0, u32::wrapping_add);
        let entries =
            numbers.filter_map(|number| self.entries.get(number.wrapping_sub(1) as usize));
        let read = entries.fold(slots, |read, entry| read.wrapping_add(entry.hash));
        std::hint::black_box(read);
    }

    /// Returns the entry of this key, or its free slot.
    fn find(&self, hash: KeyHash, key: &[u8]) -> Result<u32, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mask = self.mask();
        let mut slot = hash.0 & mask;
        // The loop ends: at most half of the slots are taken.
        loop {
            let found = self.slots[slot as usize];
            if found == 0 {
                return Err(slot as usize);
            }
            if (found ^ hash.0) & !mask == 0 {
                let number = (found & mask) - 1;
                if self.entries[number as usize].hash == hash.0 && self.key(number) == key {
                    return Ok(number);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    fn slot_of(&self, number: u32) -> usize {
        let mask = self.mask();
        let hash = self.entries[number as usize].hash;
        let wanted = slot_content(number, hash, mask);
        let mut slot = hash & mask;
        while self.slots[slot as usize] != wanted {
            slot = (slot + 1) & mask;
        }
        slot as usize
    }

    /// Returns the mask for the bits of a hash that are the index of a slot. The table must have slots.
    fn mask(&self) -> u32 {
        (self.slots.len() - 1) as u32
    }

    fn overwrite(&mut self, number: u32, value: Written<'_>) {
        let entry = &mut self.entries[number as usize];
        let Some(value) = value else {
            entry.value_len = TOMBSTONE;
            return;
        };
        let (len, key_len) = (value.len() as u32, entry.key_len as usize);
        if len > entry.room {
            self.reserve_bytes(key_len + value.len());
            let entry = &mut self.entries[number as usize];
            let at = self.bytes.len();
            match entry.at {
                HERE => self.bytes.extend_from_slice(&entry.short[..key_len]),
                before => self.bytes.extend_from_within(before..before + key_len),
            }
            self.bytes.extend_from_slice(value);
            (entry.at, entry.room, entry.value_len) = (at, len, len);
        } else {
            let bytes = match entry.at {
                HERE => &mut entry.short[..],
                at => &mut self.bytes[at..],
            };
            bytes[key_len..][..value.len()].copy_from_slice(value);
            entry.value_len = len;
        }
    }

    /// Makes room for `len` more bytes of keys and values.
    fn reserve_bytes(&mut self, len: usize) {
        let capacity = self.bytes.capacity();
        if self.bytes.len() + len > capacity {
            self.bytes.reserve_exact(more(capacity, len));
        }
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(16);
        self.slots.clear();
        self.slots.resize(len, 0);
        let mask = self.mask();
        for (number, entry) in self.entries.iter().enumerate() {
            let mut slot = entry.hash & mask;
            while self.slots[slot as usize] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot as usize] = slot_content(number as u32, entry.hash, mask);
        }
    }
}

/// Returns the growth of a full vector that needs room for `len` more elements. Vectors do not double, because the
/// cache counts unused room.
fn more(capacity: usize, len: usize) -> usize {
    (capacity / 4).max(len)
}

/// Returns the content of an entry's slot.
fn slot_content(number: u32, hash: u32, mask: u32) -> u32 {
    (hash & !mask) | (number + 1)
}

/// Returns the first twelve bytes in an order-preserving form. The last four bytes of the result are 0.
fn first_bytes(key: &[u8]) -> u128 {
    let mut first = [0; 16];
    let len = key.len().min(12);
    first[..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_counter_takes_the_room_of_one_value() {
        let (hasher, mut table) = (KeyHasher::random(), Table::new());
        table.write(hasher.hash(b"k"), b"k", Some(&[0; 8]));
        let bytes = table.bytes();
        for n in 0..1000u64 {
            table.write(hasher.hash(b"k"), b"k", Some(&n.to_be_bytes()));
        }
        assert_eq!(table.bytes(), bytes);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn what_is_short_lies_in_its_entry_until_it_grows() {
        let (hasher, mut table) = (KeyHasher::random(), Table::new());
        let hash = hasher.hash(b"key");
        for len in [0, 5, SHORT - 3] {
            table.write(hash, b"key", Some(&vec![1; len]));
            assert!(table.bytes.is_empty(), "{len}");
        }
        table.write(hash, b"key", Some(&[2; SHORT - 2]));
        assert_eq!(table.bytes.len(), SHORT + 1);
        table.write(hash, b"key", Some(b"3"));
        assert_eq!(table.get(hash, b"key"), Some(Some(&b"3"[..])));
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let (hasher, mut table) = (KeyHasher::random(), Table::new());
        for n in 0..100_000u64 {
            let key = n.to_be_bytes();
            table.write(hasher.hash(&key), &key, Some(&[7; 64]));
        }
        let entries = table.entries.capacity();
        let full = (table.bytes.capacity(), table.slots.len());
        table.clear();
        table.write(hasher.hash(b"k"), b"k", Some(b"v"));
        table.clear();
        assert!(table.bytes.capacity() < full.0 / 4 && table.slots.len() < full.1 / 4);
        assert!(table.entries.capacity() < entries / 4);
        table.write(hasher.hash(b"k"), b"k", Some(b"v"));
        assert_eq!(table.get(hasher.hash(b"k"), b"k"), Some(Some(&b"v"[..])));
    }

    proptest! {
        #[test]
        fn the_table_is_a_map(
            rounds in proptest::collection::vec(
                proptest::collection::vec(
                    (
                        // Some keys differ only behind the bytes that `sorted` compares first.
                        prop_oneof![
                            proptest::collection::vec(0u8..4, 0..3),
                            proptest::collection::vec(0u8..2, 13..16),
                            proptest::collection::vec(0u8..2, 1..3)
                                .prop_map(|end| [&[7; 13][..], &end].concat()),
                        ],
                        // The lengths cover entries with and without inline bytes, and the limit.
                        proptest::option::of(prop_oneof![
                            proptest::collection::vec(any::<u8>(), 0..6),
                            proptest::collection::vec(any::<u8>(), 34..44),
                            proptest::collection::vec(any::<u8>(), 90..100),
                        ]),
                    ),
                    0..80,
                ),
                1..5,
            ),
        ) {
            let (hasher, mut table) = (KeyHasher::random(), Table::new());
            for writes in rounds {
                table.clear();
                let mut model = HashMap::new();
                for (key, value) in &writes {
                    let (number, new) = table.write(hasher.hash(key), key, value.as_deref());
                    prop_assert_eq!(table.key(number), &key[..]);
                    prop_assert_eq!(new, model.insert(key, value).is_none());
                }
                prop_assert_eq!(table.len(), model.len());
                for (key, value) in &model {
                    prop_assert_eq!(table.get(hasher.hash(key), key), Some(value.as_deref()));
                }
                prop_assert_eq!(table.get(hasher.hash(b"absent"), b"absent"), None);
                let keys: Vec<&[u8]> =
                    table.sorted(|_| true).into_iter().map(|n| table.key(n)).collect();
                prop_assert!(keys.is_sorted() && keys.len() == model.len());
            }
        }
    }
}
