//! The kinds of nodes, by the methods that declare them.

use std::ops::Range;

/// What a node does.
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
    Peek,
    Branch,
    Process,
    ProcessValues,
    ForEach,
    /// Its records are not wanted.
    Ignore,
    /// The store that the counts are kept in.
    Count(usize),
    /// The store that the results are kept in.
    Reduce(usize),
    /// The store that the results are kept in.
    ReduceOrDelete(usize),
    /// The store that the results are kept in.
    Aggregate(usize),
    /// The store that the results are kept in.
    AggregateOrDelete(usize),
    /// The store that the rows of a topic are kept in.
    Table(usize),
    /// The store of the table that is asked for a row.
    Join(usize),
    /// The store of the table that is asked for a row.
    LeftJoin(usize),
    /// The store that the results are kept in.
    PerCommit(usize),
    /// The output that leads to the tasks that go on.
    Repartition(usize),
    /// The output that it writes to.
    To(usize),
    /// The first of the outputs that it writes to, and how many follow each other from there.
    Route(usize, usize),
}

impl Kind {
    /// The method of a stream that declares it.
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
            Self::Peek => "peek",
            Self::Branch => "branch",
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
            Self::Repartition(_) => "repartition",
            Self::To(_) => "to",
            Self::Route(..) => "route",
        }
    }

    /// The outputs that it writes to.
    pub(crate) fn outputs(self) -> Range<usize> {
        match self {
            Self::To(output) | Self::Repartition(output) => output..output + 1,
            Self::Route(first, count) => first..first + count,
            _ => 0..0,
        }
    }

    /// Whether the records that it hands on may have other keys than the ones that it takes.
    pub(crate) fn changes_keys(self) -> bool {
        matches!(self, Self::KeyBy | Self::Rekey | Self::Process)
    }

    /// Whether a closure of the user's runs with a context: it may use stores and emit to outputs.
    pub(crate) fn has_context(self) -> bool {
        matches!(self, Self::Process | Self::ProcessValues | Self::ForEach)
    }

    /// The store that it keeps or asks, and no closure has a handle to.
    pub(crate) fn own_store(self) -> Option<usize> {
        match self {
            Self::Count(store)
            | Self::Reduce(store)
            | Self::ReduceOrDelete(store)
            | Self::Aggregate(store)
            | Self::AggregateOrDelete(store)
            | Self::Table(store)
            | Self::PerCommit(store) => Some(store),
            _ => self.joins(),
        }
    }

    /// The store of the table that it joins with.
    pub(crate) fn joins(self) -> Option<usize> {
        match self {
            Self::Join(store) | Self::LeftJoin(store) => Some(store),
            _ => None,
        }
    }

    /// How many streams leave it.
    pub(crate) fn exits(self) -> usize {
        match self {
            Self::ForEach | Self::Ignore | Self::Repartition(_) | Self::To(_) | Self::Route(..) => {
                0
            }
            Self::Branch => 2,
            _ => 1,
        }
    }

    /// What Kafka Streams calls it where it has the same; its way of naming where it has not.
    pub(crate) fn streams_name(self) -> &'static str {
        match self {
            Self::Table(_) => "SOURCE",
            Self::Join(_) => "JOIN",
            Self::LeftJoin(_) => "LEFTJOIN",
            Self::Map | Self::TryMap => "MAPVALUES",
            Self::FilterMap => "FILTERMAPVALUES",
            Self::Filter => "FILTER",
            Self::FlatMap | Self::TryFlatMap => "FLATMAPVALUES",
            Self::KeyBy => "KEY-SELECT",
            Self::Rekey => "MAP",
            Self::Peek => "PEEK",
            Self::Branch => "BRANCH",
            Self::Process | Self::ForEach => "PROCESSOR",
            Self::ProcessValues => "PROCESSVALUES",
            Self::Route(..) => "ROUTE",
            Self::Ignore => "IGNORE",
            Self::Count(_) | Self::Aggregate(_) | Self::AggregateOrDelete(_) => "AGGREGATE",
            Self::Reduce(_) | Self::ReduceOrDelete(_) => "REDUCE",
            Self::PerCommit(_) => "PER-COMMIT",
            Self::Repartition(_) | Self::To(_) => "SINK",
        }
    }
}
