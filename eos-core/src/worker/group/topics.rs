//! Compares the app's topics with those of its start.
//!
//! The source reports the brokers' topics, and [`TopicWatch`] interprets the report.

use eos_protocol::{Now, SeenTopic, TopicGrown, TopicName, TopicRole, TopicWatch};

use super::Group;
use crate::topology::{Purpose, Topology};
use crate::worker::{WorkerError, WorkerSpec};

/// Returns the app's topics at its start.
pub(in crate::worker) fn watch(spec: &WorkerSpec, topology: &Topology) -> TopicWatch {
    let watch = TopicWatch::new(spec.app.clone());
    let mut watch = watch.in_ledger(topology.ledger().is_some());
    let mut add = |topic: &TopicName, role, partitions| {
        let id = spec.state.topic_ids.get(topic).copied();
        watch.add(topic.clone(), role, SeenTopic { id, partitions });
    };
    let internal = |output: usize| {
        let mut internals = topology.internals().iter();
        let found = internals.find(|internal| internal.output == output)?;
        Some(match found.purpose {
            Purpose::Repartition | Purpose::ForeignJoin => TopicRole::Repartition,
            Purpose::Changelog(..) => TopicRole::Changelog,
        })
    };
    let outputs = topology.outputs().iter().zip(&spec.output_partitions);
    // The outputs to a ledger are no topics.
    let outputs = outputs.filter(|_| topology.ledger().is_none());
    for (at, (output, &partitions)) in outputs.enumerate() {
        let role = internal(at).unwrap_or(match topology.is_dead_letter(at) {
            true => TopicRole::DeadLetter,
            false => TopicRole::Output,
        });
        add(&output.name, role, partitions);
    }
    for stage in topology.stages() {
        let writes_to = |at: usize| topology.writers(at).any(|writer| writer.id == stage.id);
        let repartitions = topology
            .internals()
            .iter()
            .any(|internal| internal.purpose.is_read_once() && writes_to(internal.output));
        let keyed =
            stage.topics.len() > 1 || repartitions || topology.stores_of(stage).next().is_some();
        for topic in &stage.topics {
            let role = match topic == stage.driving_topic() {
                true if keyed => TopicRole::KeyedInput,
                true => TopicRole::Input,
                false => TopicRole::Sibling,
            };
            if let Some(&partitions) = spec.input_partitions.get(topic) {
                add(topic, role, partitions);
            }
        }
    }
    watch
}

impl Group {
    /// Compares a report with the topics of the app's start. Returns the topics that may grow further.
    pub(in crate::worker) fn compare_topics(
        &mut self,
        now: Now,
        report: &[(TopicName, Option<SeenTopic>)],
    ) -> Result<Vec<TopicGrown>, WorkerError> {
        let compared = self.topics.compare(now, report);
        compared.map_err(|changed| WorkerError::TopicChanged(Box::new(changed)))
    }
}
