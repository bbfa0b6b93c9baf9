//! The shapes of the simulated apps.

use eos_testkit::rng::Rng;

/// The shape of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Two outputs, without state.
    Stateless,
    /// A count by key in a store.
    Counting,
    /// A count by another key than the input's, through a repartition topic.
    Repartitioned,
    /// A count by key and time window, with late records.
    Windowed,
    /// A stream that joins with a table of a sibling topic.
    Joined,
    /// Two topics that one task merges by time.
    Merged,
    /// Failed records are retried or skipped, closures take seconds, and counts are emitted once per commit.
    Skipping,
    /// As [`Skipping`](Self::Skipping), but records that fail permanently become dead letters.
    DeadLetters,
    /// As [`DeadLetters`](Self::DeadLetters), but the task pauses until a decision.
    Pausing,
    /// As [`Stateless`](Self::Stateless), but records may be repeated.
    AtLeastOnce,
    /// As [`Stateless`](Self::Stateless), but records may be lost and not repeated.
    AtMostOnce,
    /// As [`Counting`](Self::Counting), but records may be repeated and counted twice.
    CountedAtLeastOnce,
    /// Timers of stream time, set into the future and the past, moved and cancelled.
    Timers,
    /// Final results of windows, and of longer windows after them.
    OnClose,
    /// Sessions, with updates and with final results.
    Sessions,
    /// Deduplication by fixed and sliding windows, with records that fail after it.
    Dedup,
    /// Asynchronous calls that end in any order, fail, or take too long, in front of state.
    Async,
    /// Sequenced dead letters, replayed at any time and in any order.
    Parked,
    /// Deduplication by sequence numbers, and the guard of versions.
    Sequences,
    /// Records that wait for their time, and records that wait for the numbers before them.
    Reorder,
    /// Timers of the wall clock, which jumps, and ticks of both clocks.
    WallTimers,
    /// Rows that expire, read by records and by timers.
    Expiring,
    /// Sliding windows, with updates and with final results.
    Sliding,
    /// Final results of windows that close while the input is idle.
    Idle,
    /// Joins of two streams, with results alone.
    Joins,
    /// Tables with updates and tombstones: a filter, an outer join, and groups of its rows.
    Tables,
    /// Rows and positions in a ledger, which fails at random and is lost in part.
    Ledger,
    /// A join of two tables by a foreign key.
    Foreign,
    /// Two streams in one aggregate, followed by two joins of tables and a join with a global table.
    Cogroup,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 29] = [
        Shape::Stateless,
        Shape::Counting,
        Shape::Repartitioned,
        Shape::Windowed,
        Shape::Joined,
        Shape::Merged,
        Shape::Skipping,
        Shape::DeadLetters,
        Shape::Pausing,
        Shape::AtLeastOnce,
        Shape::AtMostOnce,
        Shape::CountedAtLeastOnce,
        Shape::Timers,
        Shape::OnClose,
        Shape::Sessions,
        Shape::Dedup,
        Shape::Async,
        Shape::Parked,
        Shape::Sequences,
        Shape::Reorder,
        Shape::WallTimers,
        Shape::Expiring,
        Shape::Sliding,
        Shape::Idle,
        Shape::Joins,
        Shape::Tables,
        Shape::Ledger,
        Shape::Foreign,
        Shape::Cogroup,
    ];

    /// Returns the weight in the draw.
    pub(crate) fn weight(self) -> usize {
        match self {
            Shape::Merged | Shape::Skipping | Shape::DeadLetters | Shape::Pausing => 1,
            Shape::Timers | Shape::OnClose | Shape::Sessions | Shape::Dedup | Shape::Parked => 1,
            Shape::Async | Shape::Sequences | Shape::Reorder | Shape::Joins => 1,
            Shape::Tables | Shape::Ledger | Shape::Foreign | Shape::Cogroup => 1,
            Shape::WallTimers | Shape::Expiring | Shape::Sliding | Shape::Idle => 1,
            // These shapes commit through the consumer.
            Shape::AtMostOnce | Shape::CountedAtLeastOnce => 2,
            Shape::Stateless | Shape::Windowed | Shape::Joined => 2,
            Shape::Counting | Shape::Repartitioned | Shape::AtLeastOnce => 3,
        }
    }

    /// Draws a shape.
    pub(crate) fn drawn(rng: &mut Rng) -> Shape {
        let all = Shape::ALL.into_iter();
        let all = all.flat_map(|shape| std::iter::repeat_n(shape, shape.weight()));
        let all: Vec<_> = all.collect();
        rng.of(&all).copied().unwrap_or(Shape::Counting)
    }

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Shape::Stateless => "stateless",
            Shape::Counting => "counting",
            Shape::Repartitioned => "repartitioned",
            Shape::Windowed => "windowed",
            Shape::Joined => "joined",
            Shape::Merged => "merged",
            Shape::Skipping => "skipping",
            Shape::DeadLetters => "dead_letters",
            Shape::Pausing => "pausing",
            Shape::AtLeastOnce => "at_least_once",
            Shape::AtMostOnce => "at_most_once",
            Shape::CountedAtLeastOnce => "counted_at_least_once",
            Shape::Timers => "timers",
            Shape::OnClose => "on_close",
            Shape::Sessions => "sessions",
            Shape::Dedup => "dedup",
            Shape::Async => "async",
            Shape::Parked => "parked",
            Shape::Sequences => "sequences",
            Shape::Reorder => "reorder",
            Shape::WallTimers => "wall_timers",
            Shape::Expiring => "expiring",
            Shape::Sliding => "sliding",
            Shape::Idle => "idle",
            Shape::Joins => "joins",
            Shape::Tables => "tables",
            Shape::Ledger => "ledger",
            Shape::Foreign => "foreign",
            Shape::Cogroup => "cogroup",
        }
    }

    /// Returns the shape of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Shape> {
        Shape::ALL.into_iter().find(|it| it.name() == name)
    }
}
