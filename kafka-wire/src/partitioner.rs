//! Kafka's default partitioner, implemented a second time on purpose.
//!
//! The generator and `eos kafka produce` place keys with this partitioner. So the tests compare the framework's
//! partitioner with an implementation that shares no code with it.

/// Returns the partition that Java's default partitioner selects for a key.
pub fn partition(key: &[u8], partitions: i32) -> i32 {
    let positive = murmur2(key) & 0x7fff_ffff;
    positive as i32 % partitions
}

/// Returns the MurmurHash2 with Kafka's seed, over little-endian words.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = word
            .iter()
            .rev()
            .fold(0, |k, byte| k << 8 | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let last = tail
            .iter()
            .rev()
            .fold(0, |k, byte| k << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of Kafka's UtilsTest.
    #[test]
    fn agrees_with_kafka() {
        for (key, hash) in [
            ("21", -973932308),
            ("foobar", -790332482),
            ("a-little-bit-long-string", -985981536),
            ("a-little-bit-longer-string", -1486304829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58897971,
            ),
            ("abc", 479470107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }

    #[test]
    fn partitions_are_never_negative() {
        assert_eq!(partition(b"21", 7), (-973932308i32 & 0x7fff_ffff) % 7);
    }
}
