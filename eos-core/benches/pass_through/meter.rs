//! Time and CPU over the middle of a run.

use std::time::{Duration, Instant};

/// Watches a run go by, from one commit to the next.
pub(crate) struct Meter {
    total: u64,
    start: Option<Moment>,
    end: Option<Moment>,
    commits: u32,
    committing: Duration,
}

#[derive(Clone, Copy)]
struct Moment {
    records: u64,
    time: Instant,
    cpu: Duration,
}

/// What came out.
pub(crate) struct Measured {
    records: u64,
    wall: Duration,
    cpu: Duration,
    /// How many commits fell into the time that counts.
    pub(crate) commits: u32,
    committing: Duration,
}

impl Meter {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            start: None,
            end: None,
            commits: 0,
            committing: Duration::ZERO,
        }
    }

    /// So many records are through by now. If this is the moment after a commit: how long it took.
    pub(crate) fn passed(&mut self, records: u64, commit: Option<Duration>) {
        let now = || Moment {
            records,
            time: Instant::now(),
            cpu: process_cpu(),
        };
        if self.start.is_none() {
            if records * 10 >= self.total {
                self.start = Some(now());
            }
        } else if self.end.is_none() {
            if let Some(took) = commit {
                self.commits += 1;
                self.committing += took;
            }
            if records * 10 >= self.total * 9 {
                self.end = Some(now());
            }
        }
    }

    /// # Panics
    /// If the run was too short to have a middle.
    pub(crate) fn measured(&self) -> Measured {
        let (Some(start), Some(end)) = (self.start, self.end) else {
            panic!("too few commits to measure anything: use more records");
        };
        Measured {
            records: end.records - start.records,
            wall: end.time - start.time,
            cpu: end.cpu - start.cpu,
            commits: self.commits,
            committing: self.committing,
        }
    }
}

impl Measured {
    pub(crate) fn records_per_second(&self) -> f64 {
        self.records as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn cpu_us_per_record(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.records as f64
    }

    pub(crate) fn commit_ms_mean(&self) -> f64 {
        self.committing.as_secs_f64() * 1e3 / f64::from(self.commits.max(1))
    }
}

/// User and system time of all threads of this process.
#[allow(unsafe_code)] // The C library's call.
fn process_cpu() -> Duration {
    // SAFETY: a valid pointer to a plain structure, which all-zero bytes are a value of.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.cast_unsigned())
            + Duration::from_micros(t.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
