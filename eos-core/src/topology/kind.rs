//! The kinds of nodes, by the methods that declare them.

use std::ops::Range;
use std::time::Duration;

use eos_protocol::foreign::ForeignKind;
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
    /// The store of the results. Several nodes write it.
    Cogroup(usize),
    /// The store of the results. Several nodes write it.
    CogroupOrDelete(usize),
    /// Forwards the updates of these nodes. The store of the results, which it does not use.
    CogroupMerge(usize),
    /// The store of the topic's rows.
    Table(usize),
    /// The store of the rows.
    ToTable(usize),
    TableFilter,
    TableMap,
    /// The store of the rows.
    Stored(usize),
    /// One side of a join of two tables.
    TableJoin(JoinKind, Side),
    TableSelect,
    /// The left side of a foreign-key join: the store of its rows, and the output of the subscriptions.
    ForeignSubscribe(ForeignKind, usize, usize),
    /// The subscriptions of a foreign-key join: the store of the subscribers, and the output of the answers.
    ForeignAnswer(ForeignKind, usize, usize),
    /// The right side of a foreign-key join.
    ForeignUpdate {
        kind: ForeignKind,
        /// The store of the subscribers.
        rows: usize,
        /// The store of the updates that have not reached all of them.
        fan_out: usize,
        /// The output of the answers.
        output: usize,
    },
    /// The answers of a foreign-key join: the store of the left rows.
    ForeignResult(ForeignKind, usize),
    /// The store of the counts.
    TableCount(usize),
    /// The store of the results.
    TableReduce(usize),
    /// The store of the results.
    TableAggregate(usize),
    Join,
    LeftJoin,
    /// The joined global table.
    JoinGlobal(usize),
    /// The joined global table.
    LeftJoinGlobal(usize),
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
    /// The output of the node, which is a place in the app's ledger.
    ToPlace(usize),
    /// The first output of the node, and the number of consecutive outputs.
    Route(usize, usize),
}

fn table_join_method(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "join",
        JoinKind::Left => "left_join",
        JoinKind::Outer => "outer_join",
    }
}

/// Kafka Streams has one name for each side, whatever the kind (`KTableImpl`).
fn table_join_name(side: Side) -> &'static str {
    match side {
        Side::Left => "JOINTHIS",
        Side::Right => "JOINOTHER",
    }
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
            Self::Cogroup(_) => "cogroup",
            Self::CogroupOrDelete(_) => "cogroup_or_delete",
            Self::CogroupMerge(_) => "into_table",
            Self::Table(_) => "table",
            Self::ToTable(_) => "to_table",
            Self::TableFilter => "filter",
            Self::TableMap => "map",
            Self::Stored(_) => "stored",
            Self::TableJoin(kind, _) => table_join_method(kind),
            Self::TableSelect => "group_by",
            Self::ForeignSubscribe(kind, ..)
            | Self::ForeignAnswer(kind, ..)
            | Self::ForeignUpdate { kind, .. }
            | Self::ForeignResult(kind, _) => kind.method(),
            Self::TableCount(_) => "count",
            Self::TableReduce(_) => "reduce",
            Self::TableAggregate(_) => "aggregate",
            Self::Join => "join",
            Self::LeftJoin => "left_join",
            Self::JoinGlobal(_) => "join_global",
            Self::LeftJoinGlobal(_) => "left_join_global",
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
            Self::ToPlace(_) => "to_place",
            Self::Route(..) => "route",
        }
    }

    /// The outputs of the node.
    pub(crate) fn outputs(self) -> Range<usize> {
        match self {
            Self::To(output)
            | Self::ToPlace(output)
            | Self::Repartition(output)
            | Self::ForeignSubscribe(_, _, output)
            | Self::ForeignAnswer(_, _, output)
            | Self::ForeignUpdate { output, .. } => output..output + 1,
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

    /// Whether the results depend on the rows before a record. After a crash that keeps the new row and loses the result, a
    /// repetition of the record does not have that result again.
    pub(crate) fn compares_rows(self) -> bool {
        matches!(
            self,
            Self::TableFilter
                | Self::TableMap
                | Self::Stored(_)
                | Self::TableJoin(..)
                | Self::TableSelect
                | Self::ForeignSubscribe(..)
                | Self::JoinThis(_)
                | Self::JoinOther(_)
        )
    }

    /// Whether the node looks for records of another topic that have the same key.
    pub(crate) fn joins_by_key(self) -> bool {
        matches!(
            self,
            Self::Join
                | Self::LeftJoin
                | Self::TableJoin(..)
                | Self::ForeignUpdate { .. }
                | Self::ForeignSubscribe(..)
                | Self::JoinThis(_)
                | Self::JoinOther(_)
        )
    }

    /// Whether a user closure runs with a context: it may use stores and emit to outputs.
    pub(crate) fn has_context(self) -> bool {
        matches!(self, Self::Process | Self::ProcessValues | Self::ForEach)
    }

    /// The store that the node writes. Closures can only read it.
    pub(crate) fn own_store(self) -> Option<usize> {
        match self {
            Self::Table(store)
            | Self::ToTable(store)
            | Self::Stored(store)
            | Self::PerCommit(store)
            | Self::OnClose(store)
            | Self::Dedup(store)
            | Self::DedupBySequence(store)
            | Self::Newest(store)
            | Self::ReorderByTime(store, _)
            | Self::Reorder { store, .. } => Some(store),
            Self::JoinThis(join) | Self::JoinOther(join) => Some(join.rows),
            Self::ForeignSubscribe(_, store, _)
            | Self::ForeignAnswer(_, store, _)
            | Self::ForeignUpdate { rows: store, .. }
            | Self::ForeignResult(_, store) => Some(store),
            _ => self.aggregates(),
        }
    }

    /// Whether the node writes or queries this store.
    pub(crate) fn owns(self, store: usize) -> bool {
        let alone = match self {
            Self::JoinThis(join) | Self::JoinOther(join) => join.alone,
            Self::ForeignUpdate { fan_out, .. } => Some(fan_out),
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
            | Self::AggregateOrDelete(store)
            | Self::Cogroup(store)
            | Self::CogroupOrDelete(store)
            | Self::TableCount(store)
            | Self::TableReduce(store)
            | Self::TableAggregate(store) => Some(store),
            _ => None,
        }
    }

    /// Whether the node belongs to a table, so its name in Kafka Streams begins with `KTABLE`.
    pub(crate) fn is_of_a_table(self) -> bool {
        matches!(
            self,
            Self::Table(_)
                | Self::TableFilter
                | Self::TableMap
                | Self::Stored(_)
                | Self::TableJoin(..)
                | Self::TableSelect
                | Self::ForeignSubscribe(..)
                | Self::ForeignAnswer(..)
                | Self::ForeignUpdate { .. }
                | Self::ForeignResult(..)
                | Self::TableCount(_)
                | Self::TableReduce(_)
                | Self::TableAggregate(_)
        )
    }

    /// Whether the node belongs to a foreign-key join. Beside its exits, it may write to an internal topic.
    pub(crate) fn is_foreign(self) -> bool {
        matches!(
            self,
            Self::ForeignSubscribe(..)
                | Self::ForeignAnswer(..)
                | Self::ForeignUpdate { .. }
                | Self::ForeignResult(..)
        )
    }

    /// The global table that the node reads.
    pub(crate) fn global(self) -> Option<usize> {
        match self {
            Self::JoinGlobal(table) | Self::LeftJoinGlobal(table) => Some(table),
            _ => None,
        }
    }

    /// The number of exits.
    pub(crate) fn exits(self) -> usize {
        match self {
            Self::ForEach
            | Self::Ignore
            | Self::Repartition(_)
            | Self::To(_)
            | Self::ToPlace(_)
            | Self::Route(..) => 0,
            // They only write to an internal topic.
            Self::ForeignAnswer(..) | Self::ForeignUpdate { .. } => 0,
            Self::Branch => 2,
            _ => 1,
        }
    }

    /// The name of the node in Kafka Streams, or a name in the same style.
    pub(crate) fn streams_name(self) -> &'static str {
        match self {
            Self::Table(_) => "SOURCE",
            Self::ToTable(_) => "TOTABLE",
            Self::TableFilter => "FILTER",
            Self::TableMap => "MAPVALUES",
            Self::Stored(_) => "STORED",
            Self::TableJoin(_, side) => table_join_name(side),
            Self::TableSelect => "SELECT",
            Self::ForeignSubscribe(..) => "FK-JOIN-SUBSCRIPTION-REGISTRATION",
            Self::ForeignAnswer(..) | Self::ForeignUpdate { .. } => {
                "FK-JOIN-SUBSCRIPTION-PROCESSOR"
            }
            Self::ForeignResult(..) => "FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR",
            Self::TableCount(_) | Self::TableAggregate(_) => "AGGREGATE",
            Self::TableReduce(_) => "REDUCE",
            Self::Join | Self::JoinGlobal(_) => "JOIN",
            Self::LeftJoin | Self::LeftJoinGlobal(_) => "LEFTJOIN",
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
            Self::Cogroup(_) | Self::CogroupOrDelete(_) => "AGGREGATE",
            Self::CogroupMerge(_) => "MERGE",
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
            Self::Repartition(_) | Self::To(_) | Self::ToPlace(_) => "SINK",
        }
    }
}
