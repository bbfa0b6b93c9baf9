//! The app's internal topics and their required settings.

mod unfit;

use std::collections::BTreeMap;

use eos_protocol::state::Family;
use eos_protocol::{Stage, TopicName};

use crate::client::{ClusterFacts, NewTopic, TopicFacts};
use crate::topology::{Purpose, Topology};

pub use unfit::{UncreatedTopic, Unfit, UnfitTopic};
pub(super) use unfit::{told, told_uncreated};

/// The requirements of an internal topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Internal {
    pub(super) name: TopicName,
    pub(super) purpose: Purpose,
    pub(super) partitions: u32,
    /// The topic with the same number of partitions.
    pub(super) like: TopicName,
}

/// Returns all internal topics, derived from the partition counts of external topics.
pub(super) fn plan(topology: &Topology, facts: &ClusterFacts) -> Vec<Internal> {
    let widths = Widths::of(topology, facts);
    let internals = topology.internals().iter().filter_map(|internal| {
        let name = topology.outputs().get(internal.output)?.name.clone();
        let (partitions, like) = match internal.purpose {
            Purpose::Repartition | Purpose::ForeignJoin => widths.0.get(&name)?.clone(),
            Purpose::Changelog(stage, _) => {
                let driving = topology.stage(stage)?.driving_topic();
                (widths.0.get(driving)?.0, driving.clone())
            }
        };
        Some(Internal {
            name,
            purpose: internal.purpose,
            partitions,
            like,
        })
    });
    internals.collect()
}

/// The required number of partitions by topic, each with the topic that determines it.
struct Widths(BTreeMap<TopicName, (u32, TopicName)>);

impl Widths {
    fn of(topology: &Topology, facts: &ClusterFacts) -> Self {
        let repartitions = repartitions(topology);
        let inputs = topology.stages().iter().flat_map(|stage| &stage.topics);
        let given = inputs
            .filter(|topic| !repartitions.contains_key(topic))
            .filter_map(|topic| Some((topic, facts.topic(topic)?.partitions)));
        let mut widths = Self(
            given
                .map(|(topic, count)| (topic.clone(), (count, topic.clone())))
                .collect(),
        );
        // A chain of repartitions is resolved from its beginning, which is an external topic: each round resolves at
        // least one more stage.
        for _ in topology.stages() {
            for stage in topology.stages() {
                widths.resolve(stage, topology, &repartitions);
            }
        }
        widths
    }

    /// Resolves the repartition topics that a stage reads. All input topics of a stage have the same number of
    /// partitions, and external topics can't be changed.
    fn resolve(
        &mut self,
        stage: &Stage,
        topology: &Topology,
        repartitions: &BTreeMap<TopicName, Option<usize>>,
    ) {
        let known = stage.topics.iter().find_map(|topic| self.0.get(topic));
        let Some(width) = known
            .cloned()
            .or_else(|| self.widest_writer(stage, topology, repartitions))
        else {
            return;
        };
        for topic in &stage.topics {
            self.0.entry(topic.clone()).or_insert_with(|| width.clone());
        }
    }

    /// Returns the highest partition count of the topics that drive the writers of a stage. `None` while one of them is
    /// unknown.
    fn widest_writer(
        &self,
        stage: &Stage,
        topology: &Topology,
        repartitions: &BTreeMap<TopicName, Option<usize>>,
    ) -> Option<(u32, TopicName)> {
        let outputs = stage
            .topics
            .iter()
            .filter_map(|topic| *repartitions.get(topic)?);
        let writers = outputs.flat_map(|output| topology.writers(output));
        let others = writers.filter(|writer| writer.id != stage.id);
        let widths: Option<Vec<_>> = others
            .map(|writer| self.0.get(writer.driving_topic()))
            .collect();
        let widths = widths?.into_iter();
        widths.max_by_key(|(width, _)| *width).cloned()
    }
}

/// Returns the topics that the app writes and reads once, with the outputs whose writers decide their width.
fn repartitions(topology: &Topology) -> BTreeMap<TopicName, Option<usize>> {
    let internals = topology.internals().iter();
    let repartitions = internals.filter(|internal| internal.purpose.is_read_once());
    let named = repartitions.filter_map(|internal| {
        let output = topology.outputs().get(internal.output)?;
        // The tables of a foreign-key join decide the width of its topics, not their writers.
        let decides = internal.purpose == Purpose::Repartition;
        Some((output.name.clone(), decides.then_some(internal.output)))
    });
    named.collect()
}

impl Internal {
    /// Returns the required settings.
    fn settings(&self) -> &'static [(&'static str, &'static str)] {
        match self.purpose {
            // Deleted once read, never by age or size: the source of these records is already consumed.
            Purpose::Repartition | Purpose::ForeignJoin => &[
                ("cleanup.policy", "delete"),
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
                ("message.timestamp.type", "CreateTime"),
            ],
            Purpose::Changelog(_, Family::Plain) => &[("cleanup.policy", "compact")],
            // `delete` allows DeleteRecords. With deletion by age, the live windows of replayed history would disappear
            // within a second.
            Purpose::Changelog(_, Family::Windowed) => &[
                ("cleanup.policy", "compact,delete"),
                ("retention.ms", "-1"),
                ("retention.bytes", "-1"),
            ],
        }
    }

    /// Returns the role of the topic in messages.
    fn role(&self) -> &'static str {
        match self.purpose {
            Purpose::Repartition => "repartition topic",
            Purpose::ForeignJoin => "topic of a foreign-key join",
            Purpose::Changelog(_, Family::Plain) => "changelog",
            Purpose::Changelog(_, Family::Windowed) => "windowed changelog",
        }
    }

    /// Returns the topic to create.
    pub(super) fn to_create(&self) -> NewTopic {
        let settings = self.settings().iter();
        NewTopic {
            name: self.name.clone(),
            partitions: self.partitions,
            settings: settings
                .map(|&(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Returns the differences of the existing topic from the requirements, or `None`. Values without read permission
    /// count as correct.
    pub(super) fn unfit(&self, found: &TopicFacts) -> Option<UnfitTopic> {
        let mut wrong = Vec::new();
        if found.partitions != self.partitions {
            wrong.push(Unfit::Partitions {
                has: found.partitions,
                must: self.partitions,
                like: self.like.clone(),
            });
        }
        for &(key, must) in self.settings() {
            match found.setting(key) {
                Some(has) if !same(has, must) => wrong.push(Unfit::Setting {
                    key,
                    has: has.to_owned(),
                    must,
                }),
                _ => {}
            }
        }
        (!wrong.is_empty()).then(|| UnfitTopic {
            name: self.name.clone(),
            role: self.role(),
            holds_state: !self.purpose.is_read_once(),
            wrong,
        })
    }
}

/// Whether two values are the same. The order of lists, such as policies, does not matter.
fn same(has: &str, must: &str) -> bool {
    let parts = |list: &str| {
        let mut parts: Vec<String> = list.split(',').map(|part| part.trim().to_owned()).collect();
        parts.sort();
        parts
    };
    parts(has) == parts(must)
}

#[cfg(test)]
mod tests;
