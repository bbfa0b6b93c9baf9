//! The topology of an app: a graph of nodes.

mod aggregate;
mod call_checks;
mod calls;
mod chains;
mod changes;
mod checked;
mod checks;
mod checks_of_joins;
mod checks_of_order;
#[cfg(test)]
mod declaration_test;
mod dedup;
mod deleting;
mod describe;
#[cfg(test)]
mod describe_test;
mod error;
mod fault;
mod follower;
mod followers;
mod foreign_left;
mod foreign_right;
mod global_spec;
#[cfg(test)]
mod golden_joined_tables_test;
#[cfg(test)]
mod golden_tables_test;
#[cfg(test)]
mod golden_test;
mod graph;
mod guarantees;
mod internal;
mod join;
mod join_global;
mod join_within;
mod keep;
mod kept;
mod kind;
mod layout;
mod mixed;
mod node;
mod nodes;
mod output_spec;
mod per_commit;
mod place;
mod prepared_call;
mod process;
#[cfg(test)]
mod process_test;
#[cfg(test)]
mod promises_test;
mod reorder;
mod row_store;
mod rows_of;
mod scratch;
mod sequence;
mod sessions;
mod sliding;
#[cfg(test)]
mod stores_test;
mod table_group;
mod table_join;
mod table_steps;
#[cfg(test)]
mod table_test;
#[cfg(test)]
mod tests;
mod timed;
mod windowed;

pub(crate) use aggregate::Aggregate;
pub(crate) use calls::MapAsync;
pub(crate) use chains::{Chains, Source};
pub(crate) use changes::Readers;
pub(crate) use checked::Topology;
pub(crate) use dedup::{Buffers, Deduplicate, generation};
pub(crate) use deleting::AggregateOrDelete;
pub use describe::Description;
pub use error::{Mistake, TopologyError};
pub(crate) use fault::{DueOf, EncodeError, Fault, ROUNDS};
pub(crate) use follower::MadeOf;
pub(crate) use foreign_left::{
    ForeignEnds, ForeignKeyOf, ForeignResult, ForeignSubscribe, forget_right, result_of,
};
pub(crate) use foreign_right::{ForeignAnswer, ForeignUpdate};
pub(crate) use global_spec::GlobalSpec;
pub(crate) use graph::{Exit, Graph};
pub use guarantees::{Guarantees, Mermaid};
pub(crate) use internal::Purpose;
pub(crate) use join::Join;
pub(crate) use join_global::JoinGlobal;
pub(crate) use join_within::JoinWithin;
pub(crate) use keep::Keep;
pub use kept::Stores;
pub(crate) use kind::{JoinSide, Kind};
pub(crate) use node::{Entry, Forward, Moment, Next, Node, Raw};
pub(crate) use nodes::{Apply, Branch, Ignore, Look, Pass, Route, Write};
pub(crate) use output_spec::OutputSpec;
pub(crate) use per_commit::PerCommit;
pub(crate) use place::WritePlace;
pub(crate) use prepared_call::{CallSpec, PreparedCall};
pub(crate) use process::{Closure, End, Process, Records, Step, Values, ValuesClosure};
pub(crate) use reorder::{Late, ReorderByNumber, ReorderByTime, Repairs};
pub(crate) use rows_of::RowsOf;
pub(crate) use scratch::{Counts, Scratch};
pub(crate) use sequence::{MarkOf, NewestOf, Sequenced, VersionOf};
pub(crate) use sessions::SessionAggregate;
pub(crate) use sliding::SlidingAggregate;
pub(crate) use table_group::{AggregateChanges, NothingToSubtract, Regroup};
pub(crate) use table_join::TableJoin;
pub(crate) use table_steps::{KeepChanges, TableStep};
pub(crate) use timed::{Handler, Handlers, TickHandler, Ticks, Timed};
pub(crate) use windowed::{CopyBoth, OnClose, WindowedAggregate, WindowedPerCommit};
