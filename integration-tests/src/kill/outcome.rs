//! The outcome of a run: its faults, and the verdict of the judge.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// A kill that hit a running stream.
#[derive(Debug, Clone)]
pub struct Kill {
    /// Records in the input at the time of the kill.
    pub input: i64,
    /// Committed records in the output at the time of the kill.
    pub committed: i64,
    /// Whether records were being sent at the time of the kill.
    pub flowing: bool,
    /// The time until each partition had new committed output. Unknown for a kill at the end of the input.
    pub recovery: Option<Duration>,
}

/// The numbers of other faults than kills.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fault {
    /// Kills of processes that had just been started.
    pub killed_in_start: usize,
    /// Rolling restarts.
    pub rolled: usize,
    /// Processes that joined.
    pub joined: usize,
    /// Processes that left.
    pub left: usize,
    /// Processes that ended by SIGTERM for good.
    pub retired: usize,
    /// Processes that were killed for good.
    pub vanished: usize,
    /// The longest time from a signal to the end of a process that left, retired or vanished.
    pub slowest_parting: Duration,
}

/// The moves of partitions that the processes logged. Each counts the times that a worker got or returned partitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rebalances {
    /// The number of assignments to a worker.
    pub assigned: usize,
    /// The number of revocations from a worker.
    pub revoked: usize,
}

/// The result of the judge program.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Its exit code: 0 if clean, 1 if violated, 2 if the run could not be judged.
    pub code: Option<i32>,
    /// Its JSON.
    pub verdict: Value,
}

impl Judged {
    /// Returns the number of violations of a kind.
    pub fn count(&self, violation: &str) -> Option<u64> {
        self.verdict["violations"][violation]["count"].as_u64()
    }
}

/// The outcome of a finished run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The records sent.
    pub records: u64,
    /// The kills, in order.
    pub kills: Vec<Kill>,
    /// The other faults.
    pub faults: Fault,
    /// The rebalances after the faults.
    pub rebalances: Rebalances,
    /// Processes started in all.
    pub started: usize,
    /// The time from the first record to the last fault or record.
    pub flowed: Duration,
    /// The time from the last fault or record until everything was committed.
    pub caught_up: Duration,
    /// The result of the judge.
    pub judged: Judged,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            killed_in_start,
            rolled,
            joined,
            left,
            retired,
            vanished,
            slowest_parting,
        } = self.faults;
        let Rebalances { assigned, revoked } = self.rebalances;
        writeln!(
            f,
            "{} records in {:.1?}, caught up after {:.1?}; {} kills while records flowed, \
             {killed_in_start} in start-up, {rolled} rolling restarts, {joined} joined, {left} left, \
             {retired} retired, {vanished} vanished (slowest {slowest_parting:.1?}); \
             {} processes started; partitions assigned {assigned} times, revoked {revoked} times",
            self.records,
            self.flowed,
            self.caught_up,
            self.kills.len(),
            self.started
        )?;
        let mut known: Vec<Duration> = self.kills.iter().filter_map(|k| k.recovery).collect();
        known.sort_unstable();
        if let (Some(median), Some(longest)) = (known.get(known.len() / 2), known.last()) {
            writeln!(
                f,
                "from SIGKILL to new committed output in every partition: median {median:.2?}, \
                 longest {longest:.2?} of {}",
                known.len()
            )?;
        }
        let counts = [
            "lost",
            "doubled",
            "reordered",
            "foreign",
            "torn",
            "aborted",
            "offsets",
            "open",
            "hanging",
        ];
        let counts = counts.map(|kind| format!("{kind} {}", self.judged.count(kind).unwrap_or(0)));
        let code = self.judged.code.unwrap_or(-1);
        write!(f, "judge: exit code {code}: {}", counts.join(", "))
    }
}
