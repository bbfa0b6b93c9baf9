//! Numbers that follow from the number of a record.

/// Returns the event time of a record in milliseconds since the base: ten records per millisecond, and up to two
/// seconds out of order.
pub(crate) fn event_ms(seq: u64) -> i64 {
    const DISORDER: u64 = 2_000;
    let ms = seq / 10 + mixed(!seq) % DISORDER;
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// SplitMix64's finaliser. Maps similar numbers to unrelated ones.
pub(crate) fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
