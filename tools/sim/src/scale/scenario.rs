//! The events of a scale run, and their results.

use std::time::Duration;

use super::{Traffic, Work};

/// An event of a scale run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scenario {
    /// Half of the processes start at once, with no offsets and no state.
    Start,
    /// The other half joins at once.
    Double,
    /// No event, for comparison.
    Steady,
    /// All processes restart, one at a time.
    RollingRestart,
    /// A tenth of the processes dies at once and starts again with the contents of their disks.
    Crash,
    /// A tenth of the processes dies at once, with their disks.
    Loss,
    /// As many processes with empty disks join at once.
    Replacement,
}

impl Scenario {
    /// Returns the name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Start => "start",
            Scenario::Double => "doubling",
            Scenario::Steady => "steady",
            Scenario::RollingRestart => "rolling restart",
            Scenario::Crash => "crash of a tenth",
            Scenario::Loss => "loss of a tenth",
            Scenario::Replacement => "replacement",
        }
    }
}

/// The result of a scenario.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The event.
    pub scenario: Scenario,
    /// The number of running processes at the end.
    pub processes: usize,
    /// The time from the event until all partitions flowed without a break. `None` if they did not.
    pub settled: Option<Duration>,
    /// The duration of the scenario.
    pub took: Duration,
    /// The longest time from a record's arrival to its commit.
    pub longest_wait: Duration,
    /// The number of partitions in which a record was late.
    pub late_partitions: usize,
    /// The work of the processes.
    pub work: Work,
    /// The requests to the brokers.
    pub traffic: Traffic,
    /// The number of tasks of each process at the end.
    pub shares: Vec<usize>,
}
