//! FNV-1a (64 bit).
//!
//! The hash is short, the same everywhere, and not safe against malice.
//!
//! Each step is a bijection of the hash so far, so two inputs of one length that differ in a single byte never have
//! the same hash.

pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) const fn finish(&self) -> u64 {
        self.0
    }
}
