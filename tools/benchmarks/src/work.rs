//! The work: one record in, at most one record out. The same for every side.

use serde::{Deserialize, Serialize};

/// The store of the counts.
pub(crate) const COUNTS: &str = "counts";

/// The prefix of the line with the durations of the phases of a commit.
pub(crate) const PHASES: &str = "phases ";

/// The prefix of a line about a restore, followed by the number of records and the time in milliseconds.
pub(crate) const RESTORED: &str = "restored ";

/// The memory limit of all stores of a process, in bytes, in the benchmark of memory.
pub(crate) const MEMORY: u64 = 256 << 20;

/// What is done with each record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// Nothing: bytes in, bytes out.
    Pass,
    /// JSON is read, one field is set, one record in ten is dropped, JSON is written.
    Map,
    /// Counted by key, in a store; every update is written.
    Count,
    /// Counted by key; the last count of each key is written, once per commit. Kafka Streams does so as
    /// far as its cache reaches.
    CountPerCommit,
    /// Kept by key in three stores, a hundred bytes in each; nothing is written. eos alone has it.
    Stores,
}

impl Work {
    /// Whether it counts, in a store.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Work::Count | Work::CountPerCommit)
    }

    /// As the command line writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Pass => "pass",
            Work::Map => "map",
            Work::Count => "count",
            Work::CountPerCommit => "count-per-commit",
            Work::Stores => "stores",
        }
    }
}

/// A page view, the way a user declares it. The order of the fields is that of the written JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    pub(crate) user: String,
    pub(crate) page: String,
    pub(crate) ms: u32,
    pub(crate) seq: u64,
    pub(crate) pad: String,
    /// Not in the input.
    #[serde(default)]
    pub(crate) slow: bool,
}

impl View {
    /// The map.
    pub(crate) fn with_slow(mut self) -> Self {
        self.slow = self.ms > 500;
        self
    }

    /// The filter.
    pub(crate) fn is_kept(&self) -> bool {
        !self.ms.is_multiple_of(10)
    }
}
