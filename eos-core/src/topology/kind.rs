//! The kinds of nodes, by the methods that declare them.

use std::ops::Range;
use std::time::Duration;

use eos_protocol::joins::{JoinKind, Side};

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Map,
    TryMap,
    FilterMap,
    Filter,
    FlatMap,
    TryFlatMap,
    KeyBy,
    Rekey,
    WithoutWindows,
    Peek,
    Branch,
    /// The declaration of its calls.
    MapAsync(usize),
    Process,
    ProcessValues,
    ForEach,
    /// Drops all records.
    Ignore,
    /// The store of the counts.
    Count(usize),
    /// The store of the results.
    Reduce(usize),
    /// The store of the results.
    ReduceOrDelete(usize),
    /// The store of the results.
    Aggregate(usize),
    /// The store of the results.
    AggregateOrDelete(usize),
    /// The store of the topic's rows.
    Table(usize),
    /// The store of the joined table.
    Join(usize),
    /// The store of the joined table.
    LeftJoin(usize),
    /// The store of the results.
    PerCommit(usize),
    /// The store of the results.
    OnClose(usize),
    /// The deduplication store.
    Dedup(usize),
    /// The store of the high watermarks.
    DedupBySequence(usize),
    /// The store of the versions.
    Newest(usize),
    /// The store of the waiting records, and how long they wait.
    ReorderByTime(usize, Duration),
    /// An order by numbers.
    Reorder {
        /// The store of the waiting records.
        store: usize,
        /// The longest wait in stream time.
        held_back: Option<Duration>,
        /// Whether gaps become dead letters.
        needs_letters: bool,
    },
    /// The left side of a join of streams.
    JoinThis(JoinSide),
    /// The right side of a join of streams.
    JoinOther(JoinSide),
    /// A join of streams, behind both sides.
    JoinWithin(JoinSide),
    /// The output to the repartition topic.
    Repartition(usize),
    /// The output of the node.
    To(usize),
    /// The first output of the node, and the number of consecutive outputs.
    Route(usize, usize),
}

/// A join of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JoinSide {
    /// The store of the records.
    pub(crate) rows: usize,
    /// The store of the moments at which records go out alone, if they do.
    pub(crate) alone: Option<usize>,
    pub(crate) kind: JoinKind,
}

impl Kind {
    /// The name of the stream method that declares the node.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::TryMap => "try_map",
            Self::FilterMap => "filter_map",
            Self::Filter => "filter",
            Self::FlatMap => "flat_map",
            Self::TryFlatMap => "try_flat_map",
            Self::KeyBy => "key_by",
            Self::Rekey => "rekey",
            Self::WithoutWindows => "without_windows",
            Self::Peek => "peek",
            Self::Branch => "branch",
            Self::MapAsync(_) => "map_async",
            Self::Process => "process",
            Self::ProcessValues => "process_values",
            Self::ForEach => "for_each",
            Self::Ignore => "ignore",
            Self::Count(_) => "count",
            Self::Reduce(_) => "reduce",
            Self::ReduceOrDelete(_) => "reduce_or_delete",
            Self::Aggregate(_) => "aggregate",
            Self::AggregateOrDelete(_) => "aggregate_or_delete",
            Self::Table(_) => "table",
            Self::Join(_) => "join",
            Self::LeftJoin(_) => "left_join",
            Self::PerCommit(_) => "emit_per_commit",
            Self::OnClose(_) => "emit_on_close",
            Self::Dedup(_) => "dedup",
            Self::DedupBySequence(_) => "dedup_by_sequence",
            Self::Newest(_) => "newest",
            Self::ReorderByTime(..) => "reorder_by_time",
            Self::Reorder { .. } => "reorder_by",
            Self::JoinThis(join) | Self::JoinOther(join) | Self::JoinWithin(join) => {
                join.kind.method()
            }
            Self::Repartition(_) => "repartition",
            Self::To(_) => "to",
            Self::Route(..) => "route",
        }
    }

    /// The outputs of the node.
    pub(crate) fn outputs(self) -> Range<usize> {
        match self {
            Self::To(output) | Self::Repartition(output) => output..output + 1,
            Self::Route(first, count) => first..first + count,
            _ => 0..0,
        }
    }

    /// Whether the forwarded records may have other keys than the received ones.
    pub(crate) fn changes_keys(self) -> bool {
        matches!(self, Self::KeyBy | Self::Rekey | Self::Process)
    }

    /// Whether the node may come before asynchronous calls in their stage: it forwards each record by one exit, and uses
    /// neither context nor store.
    pub(crate) fn may_precede_calls(self) -> bool {
        matches!(
            self,
            Self::Map
                | Self::TryMap
                | Self::FilterMap
                | Self::Filter
                | Self::FlatMap
                | Self::TryFlatMap
                | Self::KeyBy
                | Self::Rekey
                | Self::WithoutWindows
                | Self::Peek
        )
    }

    /// Whether the node leaves out a record that it has seen before.
    pub(crate) fn leaves_out_repeated(self) -> bool {
        matches!(
            self,
            Self::Dedup(_)
                | Self::DedupBySequence(_)
                | Self::Newest(_)
                | Self::ReorderByTime(..)
                | Self::Reorder { .. }
        )
    }

    /// Whether a user closure runs with a context: it may use stores and emit to outputs.
    pub(crate) fn has_context(self) -> bool {
        matches!(self, Self::Process | Self::ProcessValues | Self::ForEach)
    }

    /// The store that the node writes or queries. Closures can only read it.
    pub(crate) fn own_store(self) -> Option<usize> {
        match self {
            Self::Table(store)
            | Self::PerCommit(store)
            | Self::OnClose(store)
            | Self::Dedup(store)
            | Self::DedupBySequence(store)
            | Self::Newest(store)
            | Self::ReorderByTime(store, _)
            | Self::Reorder { store, .. } => Some(store),
            Self::JoinThis(join) | Self::JoinOther(join) => Some(join.rows),
            _ => self.aggregates().or_else(|| self.joins()),
        }
    }

    /// Whether the node writes or queries this store.
    pub(crate) fn owns(self, store: usize) -> bool {
        let alone = match self {
            Self::JoinThis(join) | Self::JoinOther(join) => join.alone,
            _ => None,
        };
        self.own_store() == Some(store) || alone == Some(store)
    }

    /// The store of the results that the node aggregates.
    pub(crate) fn aggregates(self) -> Option<usize> {
        match self {
            Self::Count(store)
            | Self::Reduce(store)
            | Self::ReduceOrDelete(store)
            | Self::Aggregate(store)
            | Self::AggregateOrDelete(store) => Some(store),
            _ => None,
        }
    }

    /// The store of the joined table.
    pub(crate) fn joins(self) -> Option<usize> {
        match self {
            Self::Join(store) | Self::LeftJoin(store) => Some(store),
            _ => None,
        }
    }

    /// The number of exits.
    pub(crate) fn exits(self) -> usize {
        match self {
            Self::ForEach | Self::Ignore | Self::Repartition(_) | Self::To(_) | Self::Route(..) => {
                0
            }
            Self::Branch => 2,
            _ => 1,
        }
    }

    /// The name of the node in Kafka Streams, or a name in the same style.
    pub(crate) fn streams_name(self) -> &'static str {
        match self {
            Self::Table(_) => "SOURCE",
            Self::Join(_) => "JOIN",
            Self::LeftJoin(_) => "LEFTJOIN",
            Self::Map | Self::TryMap => "MAPVALUES",
            Self::FilterMap => "FILTERMAPVALUES",
            Self::Filter => "FILTER",
            Self::FlatMap | Self::TryFlatMap => "FLATMAPVALUES",
            Self::KeyBy | Self::WithoutWindows => "KEY-SELECT",
            Self::Rekey => "MAP",
            Self::Peek => "PEEK",
            Self::Branch => "BRANCH",
            Self::MapAsync(_) => "MAPVALUES-ASYNC",
            Self::Process | Self::ForEach => "PROCESSOR",
            Self::ProcessValues => "PROCESSVALUES",
            Self::Route(..) => "ROUTE",
            Self::Ignore => "IGNORE",
            Self::Count(_) | Self::Aggregate(_) | Self::AggregateOrDelete(_) => "AGGREGATE",
            Self::Reduce(_) | Self::ReduceOrDelete(_) => "REDUCE",
            Self::PerCommit(_) => "PER-COMMIT",
            Self::OnClose(_) => "SUPPRESS",
            Self::Dedup(_) | Self::DedupBySequence(_) => "DEDUP",
            Self::Newest(_) => "NEWEST",
            Self::ReorderByTime(..) | Self::Reorder { .. } => "REORDER",
            Self::JoinThis(join) => match join.kind.emits_alone(Side::Right) {
                true => "OUTERTHIS",
                false => "JOINTHIS",
            },
            Self::JoinOther(join) => match join.kind.emits_alone(Side::Left) {
                true => "OUTEROTHER",
                false => "JOINOTHER",
            },
            Self::JoinWithin(_) => "MERGE",
            Self::Repartition(_) | Self::To(_) => "SINK",
        }
    }
}
