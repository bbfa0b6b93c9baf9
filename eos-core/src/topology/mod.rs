//! What an application computes: a graph of nodes, built once, instantiated for each task.

mod graph;
mod node;
mod nodes;
mod scratch;

pub use graph::TopologyError;
pub(crate) use graph::{Chains, Graph, NodeId, OutputSpec, Topology};
pub(crate) use node::{Fault, Next, Node, Raw};
pub(crate) use nodes::{Filter, FlatMap, Map, Process, Write};
pub(crate) use scratch::Scratch;
