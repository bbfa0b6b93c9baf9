//! The real world: a monotonic clock and random numbers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use eos_protocol::{Now, Timestamp};

use crate::worker::Env;

/// The clock of this process, started now, and numbers seeded by the operating system.
pub(crate) fn real_world() -> Env {
    let start = Instant::now();
    let entropy = Entropy::new();
    Env::new(move || Now(start.elapsed()), move || entropy.next())
        .with_coarse_clock(coarse(start))
        .with_wall_clock(time_of_day)
}

/// Only positions on disk are stamped with it; everything else goes by the monotonic clock.
fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The same clock as of the kernel's last tick, some milliseconds ago at most: a quarter of the
/// price (5 ns against 20 ns), and it is read for each record.
#[cfg(target_os = "linux")]
fn coarse(_: Instant) -> impl Fn() -> Now + Send + Sync + 'static {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    let read = || {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(time.tv_sec.unsigned_abs(), nanos)
    };
    let start = read();
    move || Now(read().saturating_sub(start))
}

#[cfg(not(target_os = "linux"))]
fn coarse(start: Instant) -> impl Fn() -> Now + Send + Sync + 'static {
    move || Now(start.elapsed())
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
