//! Many runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::coverage::Coverage;
use super::disks::{Disks, InMemory};
use super::run::{Outcome, Run};
use super::shape::Shape;
use super::without::check_defence;

/// Seeds to run.
#[derive(Debug, Clone)]
pub struct Seeds {
    /// The first one.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// How many are run at the same time, each on a thread of its own.
    pub threads: usize,
    /// The shape of all runs, instead of the one that each seed draws.
    pub shape: Option<Shape>,
    /// See [`Run::without`]. The first seed that finds it is the last one.
    pub without: Option<&'static str>,
}

/// What came of them.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many were run.
    pub seeds: u64,
    /// What went wrong on purpose, in all.
    pub faults: u64,
    /// With how few a run got away.
    pub least_faults: usize,
    /// How many records came.
    pub records: u64,
    /// The number of runs of each shape.
    pub shapes: BTreeMap<Shape, u64>,
    /// See [`Outcome::seen`].
    pub seen: BTreeMap<&'static str, u64>,
    /// With which errors workers ended, and how often.
    pub errors: BTreeMap<String, u32>,
    /// Virtual time.
    pub simulated: Duration,
    /// Real time.
    pub took: Duration,
    /// What was hit how often.
    pub coverage: Coverage,
    /// The runs that went wrong, by seed.
    pub violated: Vec<Outcome>,
}

impl Seeds {
    /// Runs them, with databases in memory.
    ///
    /// # Panics
    /// As [`Run::run`].
    #[must_use]
    pub fn run(&self) -> Summary {
        self.run_on(&InMemory)
    }

    /// Runs them, with databases on these disks.
    ///
    /// # Panics
    /// As [`Run::run`].
    #[must_use]
    pub fn run_on(&self, disks: &dyn Disks) -> Summary {
        // Once, and not on each thread.
        if let Some(Err(why)) = self.without.map(check_defence) {
            panic!("{why}");
        }
        let start = Instant::now();
        let (next, stop) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let mut all = Summary {
            least_faults: usize::MAX,
            ..Summary::default()
        };
        std::thread::scope(|scope| {
            let threads =
                (0..self.threads.max(1)).map(|_| scope.spawn(|| self.some(disks, &next, &stop)));
            let threads: Vec<_> = threads.collect();
            for thread in threads {
                match thread.join() {
                    Ok(some) => all.take_in(some),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        all.violated.sort_by_key(|outcome| outcome.run.seed);
        all.took = start.elapsed();
        all
    }

    /// What one thread gets to run.
    fn some(&self, disks: &dyn Disks, next: &AtomicU64, stop: &AtomicBool) -> Summary {
        let mut some = Summary {
            least_faults: usize::MAX,
            ..Summary::default()
        };
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.from + self.count {
                break;
            }
            let run = Run::of_seed(seed);
            let run = Run {
                shape: self.shape.unwrap_or(run.shape),
                without: self.without,
                ..run
            };
            let outcome = run.run_on(disks);
            some.seeds += 1;
            *some.shapes.entry(outcome.run.shape).or_default() += 1;
            some.faults += outcome.fired.len() as u64;
            some.least_faults = some.least_faults.min(outcome.fired.len());
            some.records += outcome.records as u64;
            some.simulated += Duration::from_millis(outcome.took_ms.unsigned_abs());
            some.coverage.add(&outcome.fired);
            for (what, times) in &outcome.seen {
                *some.seen.entry(what).or_default() += times;
            }
            for (error, times) in &outcome.errors {
                *some.errors.entry(error.clone()).or_default() += times;
            }
            if !outcome.violations.is_empty() {
                some.violated.push(outcome);
                if self.without.is_some() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        some
    }
}

impl Summary {
    fn take_in(&mut self, other: Summary) {
        self.seeds += other.seeds;
        for (shape, runs) in other.shapes {
            *self.shapes.entry(shape).or_default() += runs;
        }
        self.faults += other.faults;
        self.least_faults = self.least_faults.min(other.least_faults);
        self.records += other.records;
        self.simulated += other.simulated;
        for (what, times) in other.seen {
            *self.seen.entry(what).or_default() += times;
        }
        for (error, times) in other.errors {
            *self.errors.entry(error).or_default() += times;
        }
        self.coverage.merge(other.coverage);
        self.violated.extend(other.violated);
    }
}
