//! The real world: a monotonic clock and random numbers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use eos_protocol::Now;

use crate::worker::Env;

/// The clock of this process, started now, and numbers seeded by the operating system.
pub(crate) fn real_world() -> Env {
    let start = Instant::now();
    let entropy = Entropy::new();
    Env::new(move || Now(start.elapsed()), move || entropy.next())
}

/// Random enough for names and jitter: the standard library's randomly keyed SipHash of a counter.
#[derive(Debug)]
pub(crate) struct Entropy {
    keys: RandomState,
    counter: AtomicU64,
}

impl Entropy {
    pub(crate) fn new() -> Self {
        Self {
            keys: RandomState::new(),
            counter: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.write_u32(std::process::id());
        hasher.finish()
    }
}
