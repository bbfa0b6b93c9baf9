//! A run, and its outcome.

use std::collections::BTreeMap;

use super::fault::{Fault, Place};
use super::shape::Shape;
use eos_testkit::rng::Rng;

/// How many faults are drawn at least.
pub(super) const FAULTS: usize = 6;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Run {
    /// Everything follows from it.
    pub seed: u64,
    /// What the app does.
    pub shape: Shape,
    /// How many faults are drawn.
    pub faults: usize,
    /// These and no others.
    pub plan: Option<Vec<Fault>>,
    /// Whether a trace is kept.
    pub traced: bool,
    /// The name of a defence to take away, to see whether a seed finds the loss. The names are those of the
    /// `failpoints` of `eos-core` (with the feature `failpoints`), `task_lock` of the disk, and `compaction` of
    /// Kafka.
    pub without: Option<&'static str>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Of which run.
    pub run: Run,
    /// What went wrong on purpose, in order.
    pub fired: Vec<Fault>,
    /// How often each place was passed.
    pub passed: BTreeMap<Place, u64>,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// With which errors workers ended, and how often.
    pub errors: BTreeMap<String, u32>,
    /// How often the behaviour that the shape covers has occurred, such as late records of windows.
    pub seen: BTreeMap<&'static str, u64>,
    /// How many records came.
    pub records: usize,
    /// Virtual milliseconds.
    pub took_ms: i64,
    /// What happened, if it was to be told.
    pub trace: Vec<String>,
}

impl Run {
    /// A run with a shape and a number of faults that follow from the seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Run {
        let mut rng = Rng::new(seed ^ 0x7368_6170_6500);
        let shape = Shape::drawn(&mut rng);
        Run {
            seed,
            shape,
            faults: FAULTS + rng.below(7),
            plan: None,
            traced: false,
            without: None,
        }
    }
}
