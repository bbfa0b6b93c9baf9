//! Whether the records of a repartition topic are the app's own.
//!
//! Two apps may have one topic: both `a` with the repartition `b-c` and `a-b` with `c` have `a-b-c-repartition`.
//! A task that writes such a topic commits its start before its first record (rule 10). So if the topic has
//! records and the group has no offset of the tasks that write it or read it, another app wrote them. Tasks
//! that write it look, too, before they start for the first time: afterwards their own offsets would prove it.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use eos_protocol::{
    MissingOffsets, Offset, Partition, Stage, Start, StartError, TaskId, TopicName, TopicPartition,
};

use super::starting::{ASK_AGAIN, Found, Resolving};
use super::{Worker, WorkerError};
use crate::client::{Client, OffsetBounds, Source};
use crate::failpoints::{self, Defence};

/// What is known of repartition topics with records.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// Their records are the group's own.
    own: BTreeSet<TopicName>,
    /// How often the group reported that it has no offset: see [`MissingOffsets`].
    missing: BTreeMap<TopicName, u32>,
}

impl<C: Client> Worker<C> {
    /// The partitions of the repartition topics that tasks write which start for the first time.
    pub(super) fn fed_by(&self, starts: &[Found]) -> Vec<TopicPartition> {
        let first = starts
            .iter()
            .filter(|found| matches!(found.start, Start::First { .. }));
        let topics: BTreeSet<TopicName> = first.flat_map(|found| self.fed(found.task)).collect();
        topics.iter().flat_map(|it| self.partitions(it)).collect()
    }

    /// Returns false while something is not known.
    pub(super) fn prove_repartitions(
        &mut self,
        resolving: &mut Resolving,
        bounds: &[OffsetBounds],
    ) -> Result<bool, WorkerError> {
        if failpoints::undefended(Defence::Foreign) {
            return Ok(true);
        }
        let now = self.env.now();
        for found in &resolving.starts {
            let Start::First { partitions, .. } = &found.start else {
                continue;
            };
            let fed: BTreeSet<TopicName> = self.fed(found.task).collect();
            let is_read = |it: &TopicPartition| {
                self.repartitions.contains(&it.topic) && partitions.contains(it)
            };
            let written = bounds.iter().filter(|log| log.end > Offset::ZERO);
            let written = written.map(|log| &log.partition);
            let concerned: BTreeMap<&TopicName, &TopicPartition> = written
                .filter(|it| is_read(it) || fed.contains(&it.topic))
                .map(|it| (&it.topic, it))
                .collect();
            for (topic, partition) in concerned {
                let proofs = &mut resolving.proofs;
                if proofs.own.contains(topic) {
                    continue;
                }
                let mut asked = self.writers_of(topic);
                asked.extend(self.partitions(topic));
                let slice = self.patience();
                let known = match self.source.committed(&asked, slice) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(known) => known.map_err(WorkerError::Client)?,
                };
                if known.iter().any(|committed| committed.offset.is_some()) {
                    proofs.own.insert(topic.clone());
                    continue;
                }
                // Those that are not stable yet may be what proves it.
                if known.len() < asked.len() {
                    resolving.not_before = Some(now.after(ASK_AGAIN));
                    return Ok(false);
                }
                let missing = proofs.missing.entry(topic.clone()).or_default();
                *missing += 1;
                if *missing < MissingOffsets::TRIES {
                    resolving.not_before = Some(now.after(MissingOffsets::PAUSE));
                    return Ok(false);
                }
                return Err(WorkerError::Start(StartError::ForeignRecords {
                    task: found.task,
                    group: self.spec.app.as_str().to_owned(),
                    partition: partition.clone(),
                }));
            }
        }
        Ok(true)
    }

    /// The repartition topics that this task writes.
    fn fed(&self, task: TaskId) -> impl Iterator<Item = TopicName> {
        let outputs = self.topology.outputs().iter().enumerate();
        outputs
            .filter(move |(at, output)| {
                let mut writers = self.topology.writers(*at);
                self.repartitions.contains(&output.name) && writers.any(|it| it.id == task.stage)
            })
            .map(|(_, output)| output.name.clone())
    }

    /// The partitions that drive the tasks that write this topic.
    fn writers_of(&self, topic: &TopicName) -> Vec<TopicPartition> {
        let outputs = self.topology.outputs().iter().enumerate();
        let outputs = outputs.filter(|(_, output)| output.name == *topic);
        let stages = outputs.flat_map(|(output, _)| self.topology.writers(output));
        let driving: BTreeSet<&TopicName> = stages.map(Stage::driving_topic).collect();
        let partitions = driving.into_iter().flat_map(|it| self.partitions(it));
        partitions.collect()
    }

    fn partitions(&self, topic: &TopicName) -> impl Iterator<Item = TopicPartition> {
        let count = self.spec.input_partitions.get(topic).copied();
        let numbers = 0..i32::try_from(count.unwrap_or(0)).unwrap_or(i32::MAX);
        let numbers = numbers.filter_map(|number| Partition::new(number).ok());
        let topic = topic.clone();
        numbers.map(move |number| TopicPartition::new(topic.clone(), number))
    }
}
