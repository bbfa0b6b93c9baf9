//! The work, which is the same for every side that supports it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The store of the counts.
pub(crate) const COUNTS: &str = "counts";

/// The store of the ids.
pub(crate) const SEEN: &str = "seen";

/// The prefix of the line with the durations of the phases of a commit.
pub(crate) const PHASES: &str = "phases ";

/// The prefix of a line about a task whose restore begins, followed by the task.
pub(crate) const RESTORING: &str = "restoring ";

/// The prefix of a line about a restored task, followed by the number of records so far, the time in milliseconds, and
/// the task.
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
    /// Records with the id of an earlier one, one in ten, are dropped. The others are written.
    Dedup,
    /// Kept by key in three stores, a hundred bytes in each; nothing is written. eos alone has it.
    Stores,
    /// Counted by key and tumbling window; every update is written.
    Tumbling,
    /// Counted by key and hopping window; every record is in four windows, and every update is written.
    Hopping,
    /// Counted by key and session; every update is written, with a tombstone for each former session.
    Sessions,
    /// Counted by key and tumbling window; only the final count is written, when the window closes.
    OnClose,
    /// Each record sets the timer of its key to half an hour later, and is written. eos alone has it.
    Timers,
    /// Each record opens or extends a session of its key that closes after half an hour, and is written. eos alone has it.
    OpenSessions,
    /// A stream joined with a table that has a row for each of its records.
    StreamTable,
    /// Two streams: each pair within the reach is written.
    Inner,
    /// Two streams: each pair is written, and each left record without a pair.
    Left,
    /// Two tables: every update is written.
    TableTable,
    /// Two tables, by a foreign key: every update is written. A row of the right table has ten of the left one.
    Foreign,
    /// The same, but each row is written once. Left rows are orders, and each refers to a customer.
    Orders,
    /// The left records of two streams have two keys, and no pairs: each is written when it closes.
    HotKey,
    /// The same with as many keys as usual.
    ColdKeys,
    /// Inserted into a table of a database.
    Insert,
    /// Written into the row of the key: the last record of each key remains.
    Upsert,
    /// An update of the row of the key, by a statement for each record.
    Statements,
}

/// The works that write into a database.
pub(crate) const ROWS: [Work; 3] = [Work::Insert, Work::Upsert, Work::Statements];

/// The joins.
pub(crate) const JOINS: [Work; 8] = [
    Work::StreamTable,
    Work::Inner,
    Work::Left,
    Work::TableTable,
    Work::Foreign,
    Work::Orders,
    Work::HotKey,
    Work::ColdKeys,
];

/// The maximum time between two records of a pair.
pub(crate) const REACH: Duration = Duration::from_secs(5);
/// The same for [`Work::HotKey`] and [`Work::ColdKeys`].
pub(crate) const HOT_REACH: Duration = Duration::from_secs(15);

/// The works with windows and sessions.
pub(crate) const WINDOWS: [Work; 4] =
    [Work::Tumbling, Work::Hopping, Work::Sessions, Work::OnClose];

/// The length of a tumbling and of a hopping window, and the time for which an id counts as seen.
pub(crate) const WINDOW: Duration = Duration::from_secs(30);
/// The time between the starts of two hopping windows.
pub(crate) const ADVANCE: Duration = Duration::from_millis(7_500);
/// The inactivity gap of sessions.
pub(crate) const GAP: Duration = Duration::from_secs(10);
/// The time that windows and sessions stay open for late records.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// The time after which a pending timer or session is due. A broker refuses records of more than an hour ahead, so the
/// records that make them due have to be nearer.
pub(crate) const PENDING: Duration = Duration::from_secs(1_800);
/// The value of the record of a timer.
pub(crate) const FIRED: &str = "fired";

impl Work {
    /// Returns whether the work counts by key alone.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Work::Count | Work::CountPerCommit)
    }

    /// Returns whether the work counts by window or session.
    pub(crate) fn has_windows(self) -> bool {
        WINDOWS.contains(&self)
    }

    /// Returns whether the work joins two topics.
    pub(crate) fn joins(self) -> bool {
        JOINS.contains(&self)
    }

    /// Returns whether the work writes into a database.
    pub(crate) fn writes_rows(self) -> bool {
        ROWS.contains(&self)
    }

    /// Returns whether the records of the work have event times.
    pub(crate) fn has_event_times(self) -> bool {
        self.has_windows() || self == Work::Dedup || self.joins()
    }

    /// Returns whether the work has a store.
    pub(crate) fn keeps_state(self) -> bool {
        !matches!(self, Work::Pass | Work::Map) && !self.writes_rows()
    }

    /// Returns whether each update is written. Kafka Streams then has no cache. (In the work of orders, it would write each
    /// update with a cache, too, but it would be slower, and repeat the results of some orders.)
    pub(crate) fn writes_every_update(self) -> bool {
        matches!(
            self,
            Work::Count
                | Work::Tumbling
                | Work::Hopping
                | Work::Sessions
                | Work::TableTable
                | Work::Foreign
                | Work::Orders
        )
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Pass => "pass",
            Work::Map => "map",
            Work::Count => "count",
            Work::CountPerCommit => "count-per-commit",
            Work::Dedup => "dedup",
            Work::Stores => "stores",
            Work::Tumbling => "tumbling",
            Work::Hopping => "hopping",
            Work::Sessions => "sessions",
            Work::OnClose => "on-close",
            Work::Timers => "timers",
            Work::OpenSessions => "open-sessions",
            Work::StreamTable => "stream-table",
            Work::Inner => "inner",
            Work::Left => "left",
            Work::TableTable => "table-table",
            Work::Foreign => "foreign",
            Work::Orders => "orders",
            Work::HotKey => "hot-key",
            Work::ColdKeys => "cold-keys",
            Work::Insert => "insert",
            Work::Upsert => "upsert",
            Work::Statements => "statements",
        }
    }
}

/// A page view, as a user declares it. The fields have the order of the written JSON.
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
    /// Applies the map.
    pub(crate) fn with_slow(mut self) -> Self {
        self.slow = self.ms > 500;
        self
    }

    /// Returns whether the filter keeps the record.
    pub(crate) fn is_kept(&self) -> bool {
        !self.ms.is_multiple_of(10)
    }
}
