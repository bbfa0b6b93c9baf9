//! The graph in words: Kafka Streams' format, and the guarantee of each edge.

use std::fmt;

use eos_protocol::{Guarantee, Stage, TopicName};

use super::graph::{Graph, NodeSpec, SourceSpec};
use super::kind::Kind;
use crate::error_policy::ErrorPolicy;

/// What an app does, for people and for tools. Made by [`App::describe`](crate::App::describe).
///
/// Displayed, it is the text of Kafka Streams' `TopologyDescription`, which its tools read.
/// [`guarantees`](Self::guarantees) tells what is promised on each edge instead.
///
/// The outputs that a closure emits to are known only when it runs, so each `process` shows all
/// handles that [`App::output`](crate::App::output) made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    guarantee: Guarantee,
    subtopologies: Vec<Subtopology>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Subtopology {
    topics: Vec<TopicName>,
    nodes: Vec<Described>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    name: String,
    role: Role,
    to: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    Source {
        topic: TopicName,
        policy: ErrorPolicy,
    },
    Processor,
    Sink {
        topic: TopicName,
    },
}

impl Graph {
    pub(crate) fn describe(&self, guarantee: Guarantee) -> Description {
        Description {
            guarantee,
            subtopologies: self.stages().iter().map(|s| self.subtopology(s)).collect(),
        }
    }

    fn subtopology(&self, stage: &Stage) -> Subtopology {
        let mut nodes = Vec::new();
        for source in stage.sources.iter().filter_map(|&at| self.sources.get(at)) {
            nodes.push(Described {
                name: source_name(source),
                role: Role::Source {
                    topic: source.topic.clone(),
                    policy: (*source.policy).clone(),
                },
                to: self.names([source.child, None]),
            });
        }
        let behind = self.behind(&stage.sources);
        let specs = behind.iter().filter_map(|&at| self.nodes.get(at));
        let mut emits = false;
        for node in specs {
            let topic = match node.kind {
                Kind::To(output) => self.outputs.get(output).map(|o| o.name.clone()),
                _ => None,
            };
            let process = node.kind == Kind::Process;
            emits |= process;
            nodes.push(Described {
                name: node_name(node),
                role: topic.map_or(Role::Processor, |topic| Role::Sink { topic }),
                to: if process {
                    self.emitted().map(|(name, _)| name).collect()
                } else {
                    self.names([node.child, node.rest])
                },
            });
        }
        if emits {
            nodes.extend(self.emitted().map(|(name, topic)| Described {
                name,
                role: Role::Sink { topic },
                to: Vec::new(),
            }));
        }
        Subtopology {
            topics: stage.topics.clone(),
            nodes,
        }
    }

    fn names(&self, nodes: [Option<usize>; 2]) -> Vec<String> {
        let nodes = nodes.into_iter().flatten();
        nodes
            .filter_map(|at| self.nodes.get(at))
            .map(node_name)
            .collect()
    }

    /// The outputs that closures may emit to.
    fn emitted(&self) -> impl Iterator<Item = (String, TopicName)> {
        self.outputs
            .iter()
            .filter_map(|o| Some((numbered("SINK", o.number?), o.name.clone())))
    }
}

fn source_name(source: &SourceSpec) -> String {
    numbered("SOURCE", source.number)
}

fn node_name(node: &NodeSpec) -> String {
    numbered(node.kind.streams_name(), node.number)
}

/// As Kafka Streams numbers what has no name.
fn numbered(kind: &str, number: usize) -> String {
    format!("KSTREAM-{kind}-{number:010}")
}

/// As `InternalTopologyBuilder.TopologyDescription#toString` writes it, odd spaces included.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Topologies:\n ")?;
        for (id, subtopology) in self.subtopologies.iter().enumerate() {
            writeln!(f, "  Sub-topology: {id}")?;
            for node in &subtopology.nodes {
                write!(f, "    ")?;
                match &node.role {
                    Role::Source { topic, .. } => {
                        writeln!(f, "Source: {} (topics: [{topic}])", node.name)?;
                    }
                    Role::Processor => writeln!(f, "Processor: {} (stores: [])", node.name)?,
                    Role::Sink { topic } => writeln!(f, "Sink: {} (topic: {topic})", node.name)?,
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
        Ok(())
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

impl Description {
    /// The guarantee of each edge, in words.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees<'_> {
        Guarantees(self)
    }
}

/// What is promised on each edge of an app. Made by [`Description::guarantees`].
#[derive(Debug, Clone, Copy)]
pub struct Guarantees<'d>(&'d Description);

impl fmt::Display for Guarantees<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description {
            guarantee,
            subtopologies,
        } = self.0;
        for (id, subtopology) in subtopologies.iter().enumerate() {
            let topics: Vec<&str> = subtopology.topics.iter().map(TopicName::as_str).collect();
            let siblings = if topics.len() > 1 {
                ", read together in order of time"
            } else {
                ""
            };
            writeln!(
                f,
                "Sub-topology: {id}, one task for each partition of {}{siblings}",
                topics.join(" and ")
            )?;
            for node in &subtopology.nodes {
                edges(f, node, *guarantee)?;
            }
        }
        Ok(())
    }
}

/// The edges between a node and topics or other nodes.
fn edges(f: &mut fmt::Formatter<'_>, node: &Described, guarantee: Guarantee) -> fmt::Result {
    let promise = match guarantee {
        Guarantee::ExactlyOnce => "exactly once",
        Guarantee::AtLeastOnce => "at least once",
    };
    if let Role::Source { topic, policy } = &node.role {
        let how = match guarantee {
            Guarantee::ExactlyOnce => "the offset commits in the transaction of the outputs",
            Guarantee::AtLeastOnce => {
                "the offset commits once the outputs are acknowledged, and a crash in between \
                 repeats them"
            }
        };
        writeln!(
            f,
            "  {topic} --> {}: {promise}; {how}; a record that fails {}",
            node.name,
            on_error(policy)
        )?;
        if let Some(dead_letters) = policy.dead_letter_topic() {
            writeln!(
                f,
                "  {} --> {dead_letters}: {promise}; only records that could not be processed{}",
                node.name,
                reading(guarantee)
            )?;
        }
    }
    for to in &node.to {
        writeln!(f, "  {} --> {to}: {promise}; in memory", node.name)?;
    }
    if let Role::Sink { topic } = &node.role {
        writeln!(
            f,
            "  {} --> {topic}: {promise}{}",
            node.name,
            reading(guarantee)
        )?;
    }
    Ok(())
}

/// The condition that a guarantee puts on readers.
fn reading(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::ExactlyOnce => "; for who reads with isolation.level=read_committed",
        Guarantee::AtLeastOnce => "; a crash or a rebalance may repeat records",
    }
}

fn on_error(policy: &ErrorPolicy) -> String {
    match policy {
        ErrorPolicy::Fail => "stops the worker".into(),
        ErrorPolicy::Skip => "is left out".into(),
        ErrorPolicy::DeadLetter(topic) => format!("goes to {topic}"),
        ErrorPolicy::Retry { max, then, .. } => {
            let then = on_error(then);
            format!("is tried again, {max} times at most, then {then}")
        }
    }
}
