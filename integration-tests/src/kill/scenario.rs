//! The settings of a run.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::plan::{self, Random, Step};

/// The guarantee of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Each record counts once.
    ExactlyOnce,
    /// The control: without transactions, the same faults must cause duplicates.
    AtLeastOnce,
}

/// The faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// This number of kills while records flow, and other faults in between.
    Kills(usize),
    /// Members join and leave in turn, one at a time.
    Churn {
        /// The time between two of these faults.
        every: Duration,
    },
}

/// The kind of membership in the consumer group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    /// Static members of the classic protocol: the default.
    Static,
    /// Dynamic members of the classic protocol.
    Dynamic,
    /// Members under KIP-848's protocol.
    Consumer,
}

impl Members {
    /// Returns the environment variables of the app.
    pub(super) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Members::Static => &[],
            // The partitions of a killed dynamic member move only once its session ends.
            Members::Dynamic => &[
                ("EOS_STATIC_MEMBERSHIP", "false"),
                ("EOS_SESSION_TIMEOUT_MS", "6000"),
            ],
            Members::Consumer => &[("EOS_GROUP_PROTOCOL", "consumer")],
        }
    }
}

/// The size and the faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Nodes of the cluster: 1 or 3.
    pub nodes: u8,
    /// Records of the input. More are sent while faults are still due.
    pub records: u64,
    /// Records per second.
    pub rate: u64,
    /// Partitions of every topic.
    pub partitions: i32,
    /// Processes of the app.
    pub processes: usize,
    /// Workers of each process.
    pub workers: u16,
    /// The faults.
    pub course: Course,
    /// The kind of membership of the processes.
    pub members: Members,
    /// The guarantee that the app is configured with.
    pub promise: Promise,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// The programs that a run needs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The app under test.
    pub app: PathBuf,
    /// The generator of the input.
    pub generator: PathBuf,
    /// The judge. It knows only the topics and the group of the app.
    pub judge: PathBuf,
}

impl Scenario {
    /// Returns a scenario with kills and other faults. Its size is that of every change, or the full one with
    /// `EOS_FULL=1`. `EOS_SEED` repeats a run.
    ///
    /// # Errors
    /// When `EOS_SEED` is not a number.
    pub fn kills(nodes: u8, promise: Promise) -> Result<Self> {
        let (records, rate, kills) = match is_full() {
            true => (1_200_000, 25_000, 30),
            false => (150_000, 20_000, 6),
        };
        Ok(Scenario {
            nodes,
            records,
            rate,
            partitions: 6,
            processes: 2,
            workers: 2,
            course: Course::Kills(kills),
            members: Members::Static,
            promise,
            seed: seed()?,
        })
    }

    /// Returns a scenario in which a process joins or leaves every three seconds. It takes 36 seconds, or five minutes
    /// with `EOS_FULL=1`.
    ///
    /// # Errors
    /// As [`Scenario::kills`].
    pub fn churn(members: Members) -> Result<Self> {
        let (seconds, rate) = if is_full() { (300, 5_000) } else { (36, 4_000) };
        Ok(Scenario {
            nodes: 1,
            records: seconds * rate,
            rate,
            partitions: 6,
            processes: 2,
            workers: 1,
            course: Course::Churn {
                every: Duration::from_secs(3),
            },
            members,
            promise: Promise::ExactlyOnce,
            seed: seed()?,
        })
    }

    /// Returns the duration of the input.
    pub(super) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.records as f64 / self.rate as f64)
    }

    /// Returns the schedule of the faults.
    pub(super) fn plan(&self, random: &mut Random) -> Vec<Step> {
        match self.course {
            Course::Kills(kills) => plan::kills(kills, self.span(), random),
            Course::Churn { every } => plan::churn(every, self.span(), random),
        }
    }

    pub(super) fn replication(&self) -> i16 {
        if self.nodes == 3 { 3 } else { 1 }
    }
}

fn is_full() -> bool {
    std::env::var("EOS_FULL").is_ok_and(|value| value == "1")
}

fn seed() -> Result<u64> {
    match std::env::var("EOS_SEED") {
        Ok(seed) => seed.parse().context("EOS_SEED is no number"),
        Err(_) => Ok(1),
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::ExactlyOnce => "exactly-once",
            Promise::AtLeastOnce => "at-least-once",
        })
    }
}
