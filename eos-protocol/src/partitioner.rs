//! The partition of a key: Java's default partitioner, bit for bit.
//!
//! Java and this library write records of one key to the same partition, so they can be joined. Formula:
//! `org.apache.kafka.common.utils.Utils#murmur2` and `#toPositive`.

use crate::ids::Partition;

/// 32-bit MurmurHash2 with Kafka's seed.
#[must_use]
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;

    // Java's lengths are 32 bits wide.
    let mut hash = SEED ^ (data.len() as u32);
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (at, &byte) in tail.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a key among `count` partitions.
#[must_use]
pub fn partition_for(key: &[u8], count: u32) -> Partition {
    let positive = murmur2(key) & 0x7fff_ffff;
    Partition::new((positive % count.max(1)) as i32).unwrap_or(Partition::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `Utils.murmur2` and `Utils.toPositive(..) % count` in kafka-clients 4.3.1.
    #[test]
    fn hashes_and_partitions_are_javas() {
        let golden: [(&str, i32, i32, i32); 10] = [
            ("21", -973_932_308, 0, 40),
            ("foobar", -790_332_482, 0, 16),
            ("abc", 479_470_107, 3, 7),
            ("", 275_646_681, 3, 31),
            ("1", -1_993_445_489, 3, 9),
            ("a-little-bit-long-string", -985_981_536, 2, 12),
            ("Zürich", -1_551_140_815, 1, 33),
            ("EU/CH", -150_307_399, 1, 49),
            ("0123456789abcdef", 1_438_427_052, 0, 2),
            ("DE/Bayern", -1_235_917_658, 0, 40),
        ];
        for (key, hash, of_6, of_50) in golden {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key:?}");
            assert_eq!(partition_for(key.as_bytes(), 6).get(), of_6, "{key:?}");
            assert_eq!(partition_for(key.as_bytes(), 50).get(), of_50, "{key:?}");
        }
    }

    #[test]
    fn a_partition_is_always_in_range() {
        for count in [1, 2, 3, 6, 50, 1000] {
            for n in 0..1000u32 {
                let p = partition_for(&n.to_be_bytes(), count).get();
                assert!(p >= 0 && p < count as i32);
            }
        }
    }
}
