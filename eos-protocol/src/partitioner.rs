//! Which partition a key belongs to: Java's default partitioner, bit for bit.
//!
//! Records of one key that Java and this library write land in the same partition, so they can be
//! joined. Formula: `org.apache.kafka.common.utils.Utils#murmur2` and `#toPositive`.

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

    /// The first eight are Kafka's own (`UtilsTest#testMurmur2`); the rest are what
    /// kafka-clients 4.3.1 answered.
    #[test]
    fn hashes_are_javas() {
        let golden: [(&[u8], i32); 8] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
            (b"1", -1_993_445_489),
        ];
        for (key, hash) in golden {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
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
