//! Runs of many seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::coverage::Coverage;
use super::disks::{Disks, InMemory};
use super::run::{Outcome, Run};
use super::shape::Shape;
use super::without::check_defence;

/// A range of seeds to run.
#[derive(Debug, Clone)]
pub struct Seeds {
    /// The first seed.
    pub from: u64,
    /// The number of seeds.
    pub count: u64,
    /// The number of runs in parallel, each on its own thread.
    pub threads: usize,
    /// The shape of all runs, instead of the one that each seed draws.
    pub shape: Option<Shape>,
    /// See [`Run::without`]. The runs stop after the first seed that detects the missing defence.
    pub without: Option<&'static str>,
}

/// The summary of many runs.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// The number of runs.
    pub seeds: u64,
    /// The total number of faults.
    pub faults: u64,
    /// The smallest number of faults in a run.
    pub least_faults: usize,
    /// The total number of records.
    pub records: u64,
    /// The number of runs of each shape.
    pub shapes: BTreeMap<Shape, u64>,
    /// See [`Outcome::seen`].
    pub seen: BTreeMap<&'static str, u64>,
    /// The number of workers that ended with each error.
    pub errors: BTreeMap<String, u32>,
    /// The total virtual time.
    pub simulated: Duration,
    /// The real time.
    pub took: Duration,
    /// The number of hits of each place and kind.
    pub coverage: Coverage,
    /// The runs with violations, by seed.
    pub violated: Vec<Outcome>,
}

impl Seeds {
    /// Runs the seeds, with databases in memory.
    ///
    /// # Panics
    /// See [`Run::run`].
    #[must_use]
    pub fn run(&self) -> Summary {
        self.run_on(&InMemory)
    }

    /// Runs the seeds, with databases on these disks.
    ///
    /// # Panics
    /// See [`Run::run`].
    #[must_use]
    pub fn run_on(&self, disks: &dyn Disks) -> Summary {
        // Checked once, and not on each thread.
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

    /// Runs seeds on one thread.
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
