//! The graph of an app, as data, and its instances.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use eos_protocol::{Stage, StageId, TopicName, stages};

use super::node::{Entry, Node, Place};
use super::nodes::Decode;
use crate::topic::Topic;

type MakeNode = Box<dyn Fn() -> Box<dyn Node> + Send + Sync>;
type MakeEntry = Box<dyn Fn() -> Box<dyn Entry> + Send + Sync>;

/// A source or a node, while the graph is being built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeId {
    Source(usize),
    Node(usize),
}

struct SourceSpec {
    topic: TopicName,
    make: MakeEntry,
    child: Option<usize>,
}

struct NodeSpec {
    kind: &'static str,
    make: MakeNode,
    child: Option<usize>,
}

/// A topic that is written to, with its types erased.
pub(crate) struct OutputSpec {
    pub(crate) name: TopicName,
    pub(crate) topic: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for OutputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// The graph as it was declared. Children stand behind their parents.
pub(crate) struct Graph {
    /// Tells the handles of this app from those of another in the same process.
    token: u64,
    sources: Vec<SourceSpec>,
    nodes: Vec<NodeSpec>,
    outputs: Vec<OutputSpec>,
}

impl Graph {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            token,
            sources: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn source<K: 'static, V: 'static>(&mut self, topic: &Topic<K, V>) -> NodeId {
        let (name, topic) = (topic.name.clone(), topic.clone());
        let make: MakeEntry = Box::new(move || Box::new(Decode(topic.clone())));
        self.sources.push(SourceSpec {
            topic: name,
            make,
            child: None,
        });
        NodeId::Source(self.sources.len() - 1)
    }

    pub(crate) fn add(&mut self, parent: NodeId, kind: &'static str, make: MakeNode) -> NodeId {
        let at = self.nodes.len();
        self.nodes.push(NodeSpec {
            kind,
            make,
            child: None,
        });
        let slot = match parent {
            NodeId::Source(n) => self.sources.get_mut(n).map(|s| &mut s.child),
            NodeId::Node(n) => self.nodes.get_mut(n).map(|s| &mut s.child),
        };
        if let Some(child) = slot {
            *child = Some(at);
        }
        NodeId::Node(at)
    }

    /// A new output. Several may write to one topic.
    pub(crate) fn output<K: 'static, V: 'static>(&mut self, topic: &Topic<K, V>) -> usize {
        self.outputs.push(OutputSpec {
            name: topic.name.clone(),
            topic: Box::new(topic.clone()),
        });
        self.outputs.len() - 1
    }

    /// Checks the graph and cuts it into stages.
    pub(crate) fn build(self) -> Result<Topology, TopologyError> {
        if self.sources.is_empty() {
            return Err(TopologyError::Empty);
        }
        let names: Vec<TopicName> = self.sources.iter().map(|s| s.topic.clone()).collect();
        for name in names.iter().chain(self.outputs.iter().map(|o| &o.name)) {
            check_name(name)?;
        }
        for source in &self.sources {
            let mut end = ("source", source.child);
            while let Some(node) = end.1.and_then(|at| self.nodes.get(at)) {
                end = (node.kind, node.child);
            }
            if !matches!(end.0, "to" | "process") {
                return Err(TopologyError::Dangling {
                    topic: source.topic.clone(),
                    kind: end.0,
                });
            }
        }
        Ok(Topology {
            stages: stages(&names, &[]),
            graph: self,
        })
    }
}

/// Kafka's rule for topic names (`org.apache.kafka.common.internals.Topic#validate`).
fn check_name(name: &TopicName) -> Result<(), TopologyError> {
    let text = name.as_str();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fine = !text.is_empty() && text.len() <= 249 && text.chars().all(legal);
    if fine && text != "." && text != ".." {
        Ok(())
    } else {
        Err(TopologyError::TopicName {
            topic: name.clone(),
        })
    }
}

/// A graph that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// Nothing to do.
    #[error("the app has no source: begin with `app.source(&topic)`")]
    Empty,
    /// A chain ends in nothing.
    #[error(
        "the chain that reads {topic} ends in `{kind}`, so its records go nowhere: end it with \
         `.to(&topic)` or `.process(..)`"
    )]
    Dangling {
        /// The source's topic.
        topic: TopicName,
        /// The last node.
        kind: &'static str,
    },
    /// Kafka does not allow this name.
    #[error(
        "{topic:?} is no topic name: 1 to 249 letters, digits, dots, underscores and hyphens, and \
         neither \".\" nor \"..\""
    )]
    TopicName {
        /// The name.
        topic: TopicName,
    },
}

/// A checked graph.
pub(crate) struct Topology {
    stages: Vec<Stage>,
    graph: Graph,
}

impl Topology {
    pub(crate) fn token(&self) -> u64 {
        self.graph.token
    }

    pub(crate) fn stages(&self) -> &[Stage] {
        &self.stages
    }

    pub(crate) fn stage(&self, id: StageId) -> Option<&Stage> {
        self.stages.get(usize::from(id.0))
    }

    pub(crate) fn outputs(&self) -> &[OutputSpec] {
        &self.graph.outputs
    }

    pub(crate) fn output_names(&self) -> Vec<TopicName> {
        self.graph.outputs.iter().map(|o| o.name.clone()).collect()
    }

    /// Fresh nodes for one task of a stage.
    pub(crate) fn instantiate(&self, stage: &Stage) -> Chains {
        let mut chains = Chains {
            inputs: Vec::new(),
            places: Vec::new(),
        };
        chains.inputs.resize_with(stage.topics.len(), Vec::new);
        for &at in &stage.sources {
            let Some(source) = self.graph.sources.get(at) else {
                continue;
            };
            let first = source.child.map(|_| chains.places.len());
            let mut next = source.child;
            while let Some(node) = next.and_then(|n| self.graph.nodes.get(n)) {
                let child = node.child.map(|_| chains.places.len() + 1);
                chains.places.push(Place {
                    node: (node.make)(),
                    child,
                });
                next = node.child;
            }
            let input = stage.topics.iter().position(|t| *t == source.topic);
            if let Some(entries) = input.and_then(|i| chains.inputs.get_mut(i)) {
                entries.push(((source.make)(), first));
            }
        }
        chains
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

/// Where records enter, and the place of the node that comes first.
type Source = (Box<dyn Entry>, Option<usize>);

/// The nodes of one task.
pub(crate) struct Chains {
    /// By input: where its records enter, and the node that comes first.
    pub(crate) inputs: Vec<Vec<Source>>,
    pub(crate) places: Vec<Place>,
}

#[cfg(test)]
mod tests {
    use crate::{App, Topic};

    fn error(declare: impl FnOnce(&mut App)) -> String {
        let mut app = App::new("a");
        declare(&mut app);
        app.check().unwrap_err().to_string()
    }

    #[test]
    fn a_graph_that_makes_no_sense_says_what_is_missing() {
        let topic = Topic::<String, String>::plain("t");
        assert!(error(|_| {}).contains("app.source(&topic)"));
        let dangling = error(|app| {
            let _unfinished = app.source(&topic).map(|v| v.len());
        });
        assert!(dangling.contains("ends in `map`"), "{dangling}");
        let name = error(|app| app.source(&topic).to(&Topic::plain("white space")));
        assert!(name.contains("\"white space\" is no topic name"), "{name}");
    }

    #[test]
    fn chains_on_one_topic_are_one_stage_and_others_are_their_own() {
        let mut app = App::new("a");
        let (a, b) = (
            Topic::<String, String>::plain("a"),
            Topic::<String, String>::plain("b"),
        );
        app.source(&a).to(&b);
        app.source(&b).filter(|v| !v.is_empty()).to(&a);
        app.source(&a).map(|v| v).to(&b);
        let topology = app.check().unwrap();
        assert_eq!(topology.stages().len(), 2);
        let chains = topology.instantiate(&topology.stages()[0]);
        assert_eq!(
            (
                chains.inputs.len(),
                chains.inputs[0].len(),
                chains.places.len()
            ),
            (1, 2, 3)
        );
        assert_eq!(chains.inputs[0][1].1, Some(1));
        assert_eq!(chains.places[1].child, Some(2));
    }
}
