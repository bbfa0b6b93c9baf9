//! The description of the graph, in Kafka Streams' format.

use std::fmt;

use eos_protocol::{Guarantee, Stage, TopicName};

use super::graph::{Graph, NodeSpec, SourceSpec};
use super::kept::Kept;
use super::kind::Kind;
use super::output_spec::OutputSpec;
use crate::error_policy::ErrorPolicy;

/// The description of an app, for people and tools. Returned by [`App::describe`](crate::App::describe).
///
/// `Display` writes the text of Kafka Streams' `TopologyDescription`, which its tools read.
/// [`guarantees`](Self::guarantees) lists the guarantee of each edge, and [`mermaid`](Self::mermaid) draws the graph.
///
/// The outputs of a closure are known only at run time. So each `process` shows all handles of
/// [`App::output`](crate::App::output), and the stores that it received by
/// [`Stream::with_store`](crate::Stream::with_store). A dead-letter topic is a sink behind its source. Kafka Streams
/// has no such node, and no node of its own is named `KSTREAM-DEADLETTERS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub(super) guarantee: Guarantee,
    /// The name of the app's ledger.
    pub(super) ledger: Option<String>,
    pub(super) subtopologies: Vec<Subtopology>,
    /// The global tables.
    pub(super) globals: Vec<Global>,
    /// Topics that closures may write to and the app reads.
    pub(super) fed: Vec<TopicName>,
    /// The stores.
    pub(super) kept: Vec<Kept>,
    /// The warnings about sequences that a repartition topic mixes.
    pub(super) mixed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subtopology {
    pub(super) topics: Vec<TopicName>,
    pub(super) nodes: Vec<Described>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) role: Role,
    /// What the node promises about its results, if it is more than that each record is processed.
    pub(super) promise: Option<String>,
    /// The number of next nodes with the promise, which are the first ones. Others receive late records.
    pub(super) promised: usize,
    /// The names of the next nodes.
    pub(super) to: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Source {
        topic: TopicName,
        policy: ErrorPolicy,
        /// Whether the time of a record comes from its key and value.
        has_own_time: bool,
    },
    Processor {
        /// The stores that the node may use.
        stores: Vec<Used>,
    },
    Sink {
        topic: TopicName,
        /// Whether only failed records arrive here.
        dead_letters: bool,
    },
}

/// A global table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Global {
    pub(super) name: String,
    pub(super) topic: TopicName,
    /// Whether records that can't be decoded are skipped.
    pub(super) skips: bool,
    number: usize,
    /// The names of the joins with it.
    pub(super) joins: Vec<String>,
}

/// A store of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) name: String,
    /// The changelog, if the node changes the store.
    pub(super) changelog: Option<TopicName>,
    /// Whether the node may read rows of all keys, not only that of the record.
    pub(super) of_all_keys: bool,
}

impl Graph {
    pub(crate) fn describe(&self, guarantee: Guarantee) -> Description {
        Description {
            guarantee,
            ledger: self.ledger.as_ref().map(|ledger| ledger.name()),
            subtopologies: self.stages().iter().map(|s| self.subtopology(s)).collect(),
            globals: self.described_globals(),
            fed: self.fed(),
            kept: self.kept(),
            mixed: self.mixed_sequences().collect(),
        }
    }

    /// Returns the topics that closures may write to and the app reads.
    fn fed(&self) -> Vec<TopicName> {
        let emitted = self.outputs.iter().filter(|output| output.number.is_some());
        let is_read = |name: &TopicName| self.sources.iter().any(|source| source.topic == *name);
        let fed = emitted
            .map(|output| &output.name)
            .filter(|name| is_read(name));
        fed.cloned().collect()
    }

    fn described_globals(&self) -> Vec<Global> {
        let globals = self.globals.iter().enumerate();
        let described = globals.map(|(at, table)| {
            let joins = self.nodes.iter();
            let joins = joins.filter(|node| node.kind.global() == Some(at));
            Global {
                name: table.name.to_string(),
                topic: table.topic.clone(),
                skips: table.skips(),
                number: table.number,
                joins: joins.map(node_name).collect(),
            }
        });
        described.collect()
    }

    fn subtopology(&self, stage: &Stage) -> Subtopology {
        let mut nodes = Vec::new();
        for source in stage.sources.iter().filter_map(|&at| self.sources.get(at)) {
            let letters = dead_letters(source);
            nodes.push(Described {
                name: source_name(source),
                role: Role::Source {
                    topic: source.topic.clone(),
                    policy: (*source.policy).clone(),
                    has_own_time: source.time.is_some(),
                },
                promise: None,
                promised: 0,
                to: self
                    .names(&source.out.children)
                    .chain(letters.iter().map(|(name, _)| name.clone()))
                    .collect(),
            });
            nodes.extend(letters.map(|(name, topic)| Described {
                name,
                role: Role::Sink {
                    topic: topic.clone(),
                    dead_letters: true,
                },
                promise: None,
                promised: 0,
                to: Vec::new(),
            }));
        }
        let behind = self.behind(&stage.sources);
        let specs = behind.iter().filter_map(|&at| self.nodes.get(at));
        let mut emits = false;
        for node in specs {
            let mut outputs = node.kind.outputs().filter_map(|at| self.outputs.get(at));
            let routes: Vec<Described> = match node.kind {
                _ if node.kind.is_foreign() => {
                    outputs.by_ref().map(|output| route(node, output)).collect()
                }
                Kind::Route(..) => outputs.by_ref().map(|output| route(node, output)).collect(),
                _ => Vec::new(),
            };
            let mut to: Vec<String> = self.names(&node.out.children).collect();
            let promised = to.len();
            to.extend(self.names(&node.rest.children));
            to.extend(routes.iter().map(|sink| sink.name.clone()));
            if node.kind.has_context() {
                emits = true;
                to.extend(self.emitted().map(|(name, _)| name));
            }
            nodes.push(Described {
                name: node_name(node),
                role: match outputs.next() {
                    Some(output) => sink(output.name.clone()),
                    None => Role::Processor {
                        stores: self.used(stage, node),
                    },
                },
                promise: self.promise(stage, node),
                promised,
                to,
            });
            nodes.extend(routes);
        }
        if emits {
            nodes.extend(self.emitted().map(|(name, topic)| Described {
                name,
                role: sink(topic),
                promise: None,
                promised: 0,
                to: Vec::new(),
            }));
        }
        Subtopology {
            topics: stage.topics.clone(),
            nodes,
        }
    }

    fn names(&self, nodes: &[usize]) -> impl Iterator<Item = String> {
        nodes
            .iter()
            .filter_map(|&at| self.nodes.get(at))
            .map(node_name)
    }

    /// Returns the stores that a node may use: its own store, or the stores of its closure.
    fn used(&self, stage: &Stage, node: &NodeSpec) -> Vec<Used> {
        let kind = node.kind;
        let used = self.stores_of(stage).filter(|(at, _)| {
            if kind.has_context() {
                node.stores.contains(at)
            } else {
                kind.owns(*at) || node.reads.contains(at)
            }
        });
        used.map(|(at, store)| {
            let reads_table = kind.has_context() && self.is_kept_by_a_node(at);
            let reads_only =
                kind.own_store() != Some(at) && (node.reads.contains(&at) || reads_table);
            Used {
                name: store.name.to_string(),
                changelog: (!reads_only)
                    .then(|| TopicName::new(self.changelog_name(stage, store.id.family()))),
                of_all_keys: reads_table,
            }
        })
        .collect()
    }

    /// Whether a store has the rows of a table, which closures can't change.
    fn is_kept_by_a_node(&self, store: usize) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.kind.owns(store))
    }

    /// Returns the outputs that closures may emit to.
    fn emitted(&self) -> impl Iterator<Item = (String, TopicName)> {
        self.outputs
            .iter()
            .filter_map(|o| Some((numbered("SINK", o.number?), o.name.clone())))
    }
}

fn source_name(source: &SourceSpec) -> String {
    numbered("SOURCE", source.number)
}

/// Returns the sink of a source's dead letters, and its topic.
fn dead_letters(source: &SourceSpec) -> Option<(String, &TopicName)> {
    let topic = source.policy.dead_letter_topic()?;
    Some((numbered("DEADLETTERS", source.number), topic))
}

/// Returns the sink of one of the topics of `route`.
fn route(node: &NodeSpec, output: &OutputSpec) -> Described {
    Described {
        name: format!("{}-{}", numbered("SINK", node.number), output.name),
        role: sink(output.name.clone()),
        promise: None,
        promised: 0,
        to: Vec::new(),
    }
}

fn sink(topic: TopicName) -> Role {
    Role::Sink {
        topic,
        dead_letters: false,
    }
}

fn node_name(node: &NodeSpec) -> String {
    let of = match node.kind {
        Kind::Cogroup(_) | Kind::CogroupOrDelete(_) | Kind::CogroupMerge(_) => "COGROUPKSTREAM",
        kind if kind.is_of_a_table() => "KTABLE",
        _ => "KSTREAM",
    };
    format!("{of}-{}-{:010}", node.kind.streams_name(), node.number)
}

/// Returns the numbered name that Kafka Streams gives to an unnamed node.
fn numbered(kind: &str, number: usize) -> String {
    format!("KSTREAM-{kind}-{number:010}")
}

/// The format of `InternalTopologyBuilder.TopologyDescription#toString`, odd spaces included.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Topologies:\n ")?;
        for (id, subtopology) in self.subtopologies.iter().enumerate() {
            writeln!(f, "  Sub-topology: {id}")?;
            for node in &subtopology.nodes {
                write!(f, "    ")?;
                match &node.role {
                    Role::Source {
                        topic,
                        has_own_time,
                        ..
                    } => {
                        let time = if *has_own_time { ", time: time_by" } else { "" };
                        writeln!(f, "Source: {} (topics: [{topic}]{time})", node.name)?;
                    }
                    Role::Processor { stores } => {
                        let mut stores: Vec<&str> = stores.iter().map(|s| &s.name[..]).collect();
                        // Both stores of a join have its name.
                        stores.dedup();
                        let stores = stores.join(", ");
                        writeln!(f, "Processor: {} (stores: [{stores}])", node.name)?;
                    }
                    Role::Sink { topic, .. } => match &self.ledger {
                        Some(ledger) => {
                            writeln!(f, "Sink: {} ({topic}, {ledger})", node.name)?;
                        }
                        None => writeln!(f, "Sink: {} (topic: {topic})", node.name)?,
                    },
                }
                let from = subtopology
                    .nodes
                    .iter()
                    .filter(|n| n.to.contains(&node.name));
                let from: Vec<&str> = from.map(|n| n.name.as_str()).collect();
                let to: Vec<&str> = node.to.iter().map(String::as_str).collect();
                if !matches!(node.role, Role::Sink { .. }) {
                    writeln!(f, "      --> {}", list(&to))?;
                }
                if !matches!(node.role, Role::Source { .. }) {
                    writeln!(f, "      <-- {}", list(&from))?;
                }
            }
            f.write_str("\n")?;
        }
        let first = self.subtopologies.len();
        for (id, table) in self.globals.iter().enumerate() {
            table.write(f, first + id)?;
        }
        Ok(())
    }
}

impl Global {
    /// The format of `InternalTopologyBuilder.GlobalStore#toString`.
    fn write(&self, f: &mut fmt::Formatter<'_>, id: usize) -> fmt::Result {
        let source = numbered("SOURCE", self.number);
        let rows = format!("KTABLE-SOURCE-{:010}", self.number + 1);
        writeln!(
            f,
            "  Sub-topology: {id} for global store (will not generate tasks)"
        )?;
        writeln!(f, "    Source: {source} (topics: [{}])", self.topic)?;
        writeln!(f, "      --> {rows}")?;
        writeln!(f, "    Processor: {rows} (stores: [{}])", self.name)?;
        writeln!(f, "      --> none\n      <-- {source}\n")
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}
