//! A run, and its outcome.

use std::collections::BTreeMap;

use super::fault::{Fault, Place};
use super::shape::Shape;
use eos_testkit::rng::Rng;

/// The minimum number of drawn faults.
pub(super) const FAULTS: usize = 6;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The seed, which determines the whole run.
    pub seed: u64,
    /// The shape of the app.
    pub shape: Shape,
    /// The number of drawn faults.
    pub faults: usize,
    /// The faults of the run. If it is set, no faults are drawn.
    pub plan: Option<Vec<Fault>>,
    /// Whether a trace is kept.
    pub traced: bool,
    /// The name of a defence to remove, to check that a seed detects its absence. The names are those of the
    /// `failpoints` of `eos-core` (with the feature `failpoints`), `task_lock` of the disk, and `compaction` of Kafka.
    pub without: Option<&'static str>,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The run.
    pub run: Run,
    /// The faults that occurred, in order.
    pub fired: Vec<Fault>,
    /// The number of passes of each place.
    pub passed: BTreeMap<Place, u64>,
    /// The violations of guarantees.
    pub violations: Vec<String>,
    /// The number of workers that ended with each error.
    pub errors: BTreeMap<String, u32>,
    /// The number of occurrences of each behaviour that the shape covers, such as late records of windows.
    pub seen: BTreeMap<&'static str, u64>,
    /// The number of records.
    pub records: usize,
    /// The virtual duration, in milliseconds.
    pub took_ms: i64,
    /// The trace, if [`Run::traced`] is set.
    pub trace: Vec<String>,
}

impl Run {
    /// Returns a run whose shape and number of faults follow from the seed.
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
