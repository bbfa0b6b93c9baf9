//! The real environment: a monotonic clock and random numbers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use eos_protocol::Now;

use super::time_of_day::time_of_day;
use crate::worker::Env;

/// Returns the clock of this process, starting now, and random numbers seeded by the operating system.
pub(crate) fn real_world() -> Env {
    let start = Instant::now();
    let entropy = Entropy::new();
    Env::new(move || Now(start.elapsed()), move || entropy.next())
        .with_coarse_clock(coarse(start))
        .with_wall_clock(time_of_day)
}

/// Returns the same clock as of the kernel's last tick, at most some milliseconds ago. A read takes a quarter of the
/// time (5 ns instead of 20 ns), and happens for each record.
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

/// Random numbers for names and jitter: the standard library's randomly keyed SipHash of a counter.
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, io};

    /// All ways to read the time of day, in pieces because the test also searches this file.
    const WALL_CLOCKS: [&str; 3] = [
        concat!("System", "Time"),
        concat!("UNIX_", "EPOCH"),
        concat!("Clock", "Id::Realtime"),
    ];

    /// The only file that may read the time of day. All other code uses its functions. Positions on disk have such a time, and
    /// a difference in either direction makes them old.
    const EXCEPT: &str = "time_of_day.rs";

    /// The time of day may be hours off, and jump. The monotonic clock measures timeouts, intervals and back-offs.
    /// Record timestamps come from their producers.
    #[test]
    fn nothing_reads_the_time_of_day() {
        let core = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut read = 0;
        for sources in [core.join("src"), core.join("../eos-protocol/src")] {
            each_file(&sources, &mut |path, text| {
                read += 1;
                if path.ends_with(EXCEPT) {
                    return;
                }
                for clock in WALL_CLOCKS {
                    assert!(!text.contains(clock), "{clock} in {}", path.display());
                }
            })
            .unwrap();
        }
        assert!(read > 100, "{read} files");
    }

    fn each_file(dir: &Path, look: &mut impl FnMut(&Path, &str)) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                each_file(&path, look)?;
            } else {
                look(&path, &fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }
}
