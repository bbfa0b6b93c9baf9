//! Tests of the cache of committed values.

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
        assert!(cache.young.room() + cache.old.room() <= 16 * 1024);
    }
    assert_eq!(cache.get(hasher.hash(&[0; 4]), &[0; 4]), None);
}

#[test]
fn keys_of_a_deleted_range_are_missing_and_others_stay() {
    let hasher = KeyHasher::random();
    let mut cache = CommittedCache::new(&CacheMemory::new(64 * 1024));
    let state = |cache: &mut CommittedCache, key: &[u8]| {
        let known = cache.get(hasher.hash(key), key);
        known.map(|value| value.map(<[u8]>::to_vec))
    };
    for key in [b"a1", b"a2", b"b1"] {
        cache.put(hasher.hash(key), key, Some(b"1"));
    }
    std::mem::swap(&mut cache.young, &mut cache.old);
    cache.put(hasher.hash(b"a2"), b"a2", Some(b"2"));
    cache.put(hasher.hash(b"b2"), b"b2", Some(b"2"));
    cache.delete(&KeyRange::prefix(b"a"));
    assert_eq!(state(&mut cache, b"a1"), Some(None));
    assert_eq!(state(&mut cache, b"a2"), Some(None));
    assert_eq!(state(&mut cache, b"b1"), Some(Some(b"1".to_vec())));
    assert_eq!(state(&mut cache, b"b2"), Some(Some(b"2".to_vec())));
    assert_eq!(state(&mut cache, b"a3"), None);
}

#[test]
fn a_smaller_limit_never_brings_back_a_former_value() {
    let (memory, hasher) = (CacheMemory::new(65_536), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    let hash = hasher.hash(b"k");
    cache.put(hasher.hash(b"other"), b"other", Some(&[0; 13_000]));
    cache.put(hash, b"k", Some(b"1"));
    cache.put(hash, b"k", Some(&[2; 32_000]));
    assert_eq!(cache.old.get(hash, b"k"), Some(Some(&b"1"[..])));
    let mut second = CommittedCache::new(&memory);
    fill(&mut second, &hasher);
    let limit = cache.limit();
    assert!(cache.young.room() > most_young(limit));
    assert!(cache.old.room() <= limit);
    assert_eq!(cache.get(hash, b"k"), None);
}

/// The values of a phase are long, and those of the next one are short.
#[test]
fn values_of_other_lengths_keep_to_the_limit_and_spare_a_used_value() {
    for (long, short) in [
        (1_000, Some(10)),
        (2_000, Some(20)),
        (220, None),
        (60, Some(5)),
    ] {
        let (memory, hasher) = (CacheMemory::new(1 << 20), KeyHasher::random());
        let mut cache = CommittedCache::new(&memory);
        let (hot, mut misses) = (hasher.hash(b"hot"), 0);
        for n in 0..130_000_u32 {
            let len = if n % 13_000 < 3_000 {
                Some(long)
            } else {
                short
            };
            let value = len.map(|len| vec![7; len]);
            let key = n.to_be_bytes();
            cache.put(hasher.hash(&key), &key, value.as_deref());
            assert!(held(&cache) <= memory.bytes(), "{long}: {}", held(&cache));
            if cache.get(hot, b"hot").is_none() {
                misses += 1;
                cache.put(hot, b"hot", Some(b"1"));
            }
        }
        assert!(misses <= 2, "{long}: {misses}");
    }
}

/// A deleted key stays deleted when the young generation moves into the vectors of the old one.
#[test]
fn a_deletion_survives_the_moves_of_its_generation() {
    let (memory, hasher) = (CacheMemory::new(64 * 1024), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    let hash = hasher.hash(b"gone");
    cache.put(hash, b"gone", Some(b"1"));
    cache.put(hash, b"gone", None);
    for n in 0..10_000_u32 {
        let key = n.to_be_bytes();
        cache.put(hasher.hash(&key), &key, Some(&[7; 60]));
        assert_eq!(cache.get(hash, b"gone"), Some(None), "{n}");
    }
}

/// The test reads all values in turn. All stay, because they need less than two thirds of the memory.
#[test]
fn values_that_fit_into_two_thirds_stay() {
    let (memory, hasher) = (CacheMemory::new(1 << 20), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    // An entry has 64 bytes, its key and value 130, and its slots up to 16. A vector may have a quarter of unused room.
    let keys = || (0..2_600_u32).map(u32::to_be_bytes);
    for round in 0..3 {
        for key in keys() {
            let hash = hasher.hash(&key);
            let expected = (round > 0).then_some(Some(&[7; 126][..]));
            assert_eq!(cache.get(hash, &key), expected, "{round}");
            cache.put(hash, &key, Some(&[7; 126]));
            assert!(held(&cache) <= memory.bytes());
        }
    }
}

/// The generations reuse their vectors.
#[test]
fn a_stream_of_new_values_allocates_no_new_memory() {
    let (memory, hasher) = (CacheMemory::new(1 << 20), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    let write = |cache: &mut CommittedCache, keys: std::ops::Range<u32>| {
        for key in keys.map(u32::to_be_bytes) {
            cache.put(hasher.hash(&key), &key, Some(&[7; 126]));
        }
        let mut rooms = [cache.young.room(), cache.old.room()];
        rooms.sort_unstable();
        rooms
    };
    let before = write(&mut cache, 0..20_000);
    for n in 2..20 {
        let rooms = write(&mut cache, n * 10_000..(n + 1) * 10_000);
        assert_eq!(rooms, before, "{n}");
    }
}

#[test]
fn a_large_value_does_not_take_the_room_of_later_ones() {
    let (memory, hasher) = (CacheMemory::new(108 * 1024), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    let large = vec![0; 60_000];
    cache.put(hasher.hash(b"large"), b"large", Some(&large));
    for n in 0..100_000_u32 {
        let key = n.to_be_bytes();
        cache.put(hasher.hash(&key), &key, Some(&[7; 16]));
        let known = cache.young.len() + cache.old.len();
        assert!(n < 1_000 || known > 200, "{known} after {n}");
    }
}

/// Writes more than fits into the memory.
fn fill(cache: &mut CommittedCache, hasher: &KeyHasher) {
    for n in 0..10_000_u32 {
        let key = n.to_be_bytes();
        cache.put(hasher.hash(&key), &key, Some(&[7; 16]));
    }
}

#[test]
fn a_store_has_the_memory_that_others_leave_unused() {
    let (memory, hasher) = (CacheMemory::new(64 * 1024), KeyHasher::random());
    let mut first = CommittedCache::new(&memory);
    fill(&mut first, &hasher);
    let alone = held(&first);
    assert!(alone > 32 * 1024 && alone <= 64 * 1024, "{alone}");
    // Empty stores need no memory.
    let mut others: Vec<_> = (0..3).map(|_| CommittedCache::new(&memory)).collect();
    first.keep_to_limit();
    assert_eq!(held(&first), alone);
    fill(&mut first, &hasher);
    assert!(held(&first) > alone / 2, "{} of {alone}", held(&first));
    // Each store may fill its part, and the first one returns the memory above its own part.
    for other in &mut others {
        fill(other, &hasher);
        let part = 16 * 1024;
        assert!(
            held(other) > part / 2 && held(other) <= part,
            "{}",
            held(other)
        );
    }
    first.keep_to_limit();
    let all = others.iter().chain([&first]).map(held).sum::<usize>();
    assert!(all <= memory.bytes(), "{all}");
    drop(others);
    fill(&mut first, &hasher);
    assert!(held(&first) > alone / 2);
}

/// A generation moves at once, so a store does not get all memory of a large cache.
#[test]
fn a_store_has_at_most_four_parts() {
    let (memory, hasher) = (CacheMemory::new(256 * 1024), KeyHasher::random());
    let mut first = CommittedCache::new(&memory);
    fill(&mut first, &hasher);
    let others: Vec<_> = (0..15).map(|_| CommittedCache::new(&memory)).collect();
    fill(&mut first, &hasher);
    let part = 16 * 1024;
    assert!(
        held(&first) > 2 * part && held(&first) <= MOST_PARTS * part,
        "{}",
        held(&first)
    );
    drop(others);
    fill(&mut first, &hasher);
    assert!(held(&first) > 8 * part, "{}", held(&first));
}

/// A store takes as many steps as its value needs.
#[test]
fn a_value_that_is_larger_than_a_part_stays_if_others_leave_the_memory_unused() {
    let (memory, hasher) = (CacheMemory::new(640 * 1024), KeyHasher::random());
    let mut stores: Vec<_> = (0..64).map(|_| CommittedCache::new(&memory)).collect();
    let (large, hash) = (vec![7; 15 * 1024], hasher.hash(b"large"));
    let store = &mut stores[0];
    store.put(hash, b"large", Some(&large));
    assert_eq!(store.get(hash, b"large"), Some(Some(&large[..])));
}

/// Stores fill, are emptied, appear and end in random order.
#[test]
fn all_stores_together_keep_to_the_memory() {
    for seed in 0..20 {
        let mut rng = seed;
        let mut random = |below: u64| {
            rng = splitmix(rng);
            rng % below
        };
        let (memory, hasher) = (CacheMemory::new(256 * 1024), KeyHasher::random());
        let mut stores: Vec<CommittedCache> = Vec::new();
        for n in 0..300_u32 {
            let count = stores.len() as u64;
            match random(10) {
                0 if count < 9 => stores.push(CommittedCache::new(&memory)),
                1 if count > 0 => drop(stores.remove(random(count) as usize)),
                2 if count > 0 => stores[random(count) as usize].clear(),
                _ if count > 0 => {
                    let store = &mut stores[random(count) as usize];
                    for m in 0..random(2_000) as u32 {
                        let key = [n.to_be_bytes(), m.to_be_bytes()].concat();
                        store.put(hasher.hash(&key), &key, Some(&[7; 40]));
                    }
                }
                _ => {}
            }
            for store in &mut stores {
                store.keep_to_limit();
            }
            let all = stores.iter().map(held).sum::<usize>();
            assert!(all <= memory.bytes(), "seed {seed}, step {n}: {all}");
            let used = memory.0.used.load(Ordering::Relaxed);
            assert!(used >= all, "seed {seed}, step {n}: {all} of {used}");
        }
        drop(stores);
        assert_eq!(memory.0.used.load(Ordering::Relaxed), 0);
    }
}

/// Each store writes more than the whole cache holds. If stores took memory from each other in turn, each would allocate new
/// vectors all the time.
#[test]
fn stores_that_write_only_new_keys_come_to_rest() {
    let (memory, hasher) = (CacheMemory::new(12 * 256 * 1024), KeyHasher::random());
    let mut stores: Vec<_> = (0..12).map(|_| CommittedCache::new(&memory)).collect();
    let (mut allocated, mut rng) = (0, 1);
    let mut full = Vec::new();
    for n in 0..12_000_u32 {
        if n == 4_000 {
            allocated = 0;
            full = stores.iter().map(held).collect();
        }
        rng = splitmix(rng);
        let store = &mut stores[(rng % 12) as usize];
        for m in 0..100_u32 {
            let before = held(store);
            let key = [n.to_be_bytes(), m.to_be_bytes()].concat();
            store.put(hasher.hash(&key), &key, Some(&[7; 100]));
            allocated += held(store).saturating_sub(before);
        }
    }
    let all = full.iter().sum::<usize>();
    assert!(all > memory.bytes() / 4 * 3, "{all}");
    // The values of these steps are about 25 times the size of the cache.
    assert_eq!(allocated, 0);
    assert_eq!(stores.iter().map(held).collect::<Vec<_>>(), full);
}

fn splitmix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// Returns the memory of its two generations, in bytes.
fn held(cache: &CommittedCache) -> usize {
    cache.young.room() + cache.old.room()
}

#[test]
fn memory_of_a_lone_cache_is_freed_on_any_access_when_others_need_it() {
    let (memory, hasher) = (CacheMemory::new(64 * 1024), KeyHasher::random());
    let filled = || {
        let mut cache = CommittedCache::new(&memory);
        fill(&mut cache, &hasher);
        assert!(held(&cache) > 17 * 1024);
        cache
    };
    let (key, value) = (9_999_u32.to_be_bytes(), Some(&[7; 16][..]));
    let hash = hasher.hash(&key);
    let late = |cache: &mut CommittedCache, act: &dyn Fn(&mut CommittedCache)| {
        let mut others: Vec<_> = (0..7).map(|_| CommittedCache::new(&memory)).collect();
        others.iter_mut().for_each(|other| fill(other, &hasher));
        let others_hold = others.iter().map(held).sum::<usize>();
        assert!(held(cache) + others_hold > memory.bytes());
        act(cache);
        let now = held(cache);
        assert!(
            now + others_hold <= memory.bytes(),
            "{now} and {others_hold}"
        );
    };
    late(&mut filled(), &|cache| {
        let _forgotten = cache.get(hash, &key);
    });
    late(&mut filled(), &|cache| cache.put(hash, &key, value));
    // It is neither read nor written.
    late(&mut filled(), &|cache| {
        cache.keep_to_limit();
    });
}

#[test]
fn reading_alone_keeps_to_the_limit() {
    let (memory, hasher) = (CacheMemory::new(64 * 1024), KeyHasher::random());
    let mut cache = CommittedCache::new(&memory);
    let keys = || (0..10_000_u32).map(u32::to_be_bytes);
    for key in keys() {
        cache.put(hasher.hash(&key), &key, Some(&[7; 16]));
    }
    let mut hits = 0;
    for key in keys().rev() {
        hits += usize::from(cache.get(hasher.hash(&key), &key) == Some(Some(&[7; 16])));
        let (held, limit) = (held(&cache), cache.limit());
        assert!(held < limit + 128, "{held} of {limit}");
    }
    assert!(hits > 100, "{hits}");
}

#[test]
fn a_value_written_later_hides_the_old_generation() {
    let hasher = KeyHasher::random();
    let mut cache = CommittedCache::new(&CacheMemory::new(1));
    cache.put(hasher.hash(b"k"), b"k", Some(b"1"));
    assert_eq!(held(&cache), 0, "that is none");
    cache = CommittedCache::new(&CacheMemory::new(2_000));
    let hash = hasher.hash(b"k");
    cache.put(hash, b"k", Some(b"1"));
    let mut fillers = (0..100_u8).map(|n| [n]);
    while cache.old.is_empty() {
        let filler = fillers.next().unwrap();
        cache.put(hasher.hash(&filler), &filler, Some(&[0; 100]));
    }
    cache.put(hash, b"k", None);
    assert_eq!(cache.get(hash, b"k"), Some(None));
}
