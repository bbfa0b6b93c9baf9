//! Detects another app's records in a repartition topic.
//!
//! Two apps may have the same topic: both `a` with the repartition `b-c` and `a-b` with `c` have `a-b-c-repartition`. A
//! task that writes such a topic commits its start before its first record (rule 10). So if the topic has records and
//! the group has no offset of the tasks that write or read it, another app wrote them. Writing tasks check before their
//! first start, because their own offsets would count as proof afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::Duration;

use eos_protocol::{
    MissingOffsets, Offset, Stage, Start, StartError, TaskId, TopicName, TopicPartition,
};

use super::resolving::{Found, QUERY_PAUSE, Resolving};
use crate::client::{Client, OffsetBounds, Source};
use crate::rules;
use crate::worker::WorkerError;
use crate::worker::shared::Shared;

/// Returns the repartition partitions that first-starting tasks write.
pub(super) fn fed_by<C>(shared: &Shared<C>, starts: &[Found]) -> Vec<TopicPartition> {
    let first = starts
        .iter()
        .filter(|found| matches!(found.start, Start::First { .. }));
    let topics: BTreeSet<TopicName> = first.flat_map(|found| fed(shared, found.task)).collect();
    topics.iter().flat_map(|it| shared.partitions(it)).collect()
}

/// Checks the repartition topics. Returns false while a response is missing.
pub(super) fn prove_repartitions<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    resolving: &mut Resolving,
    bounds: &[OffsetBounds],
    slice: Duration,
) -> Result<bool, WorkerError> {
    if !rules::proves_repartitions() {
        return Ok(true);
    }
    let now = shared.now();
    for found in &resolving.starts {
        let Start::First { partitions, .. } = &found.start else {
            continue;
        };
        let fed: BTreeSet<TopicName> = fed(shared, found.task).collect();
        let is_read = |it: &TopicPartition| {
            shared.topology.is_repartition(&it.topic) && partitions.contains(it)
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
            let mut asked = writers_of(shared, topic);
            asked.extend(shared.partitions(topic));
            let known = match source.committed(&asked, slice) {
                Poll::Pending => return Ok(false),
                Poll::Ready(known) => known.map_err(WorkerError::Client)?,
            };
            shared.broker_answered();
            if known.iter().any(|committed| committed.offset.is_some()) {
                proofs.own.insert(topic.clone());
                continue;
            }
            // The offsets that are not stable yet may be the proof.
            if known.len() < asked.len() {
                resolving.not_before = Some(now.after(QUERY_PAUSE));
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
                group: shared.spec.app.as_str().to_owned(),
                partition: partition.clone(),
            }));
        }
    }
    Ok(true)
}

/// Returns the repartition topics that this task writes.
fn fed<C>(shared: &Shared<C>, task: TaskId) -> impl Iterator<Item = TopicName> {
    let topology = &shared.topology;
    let outputs = topology.outputs().iter().enumerate();
    let fed = outputs.filter(move |(at, output)| {
        let mut writers = topology.writers(*at);
        topology.is_repartition(&output.name) && writers.any(|it| it.id == task.stage)
    });
    fed.map(|(_, output)| output.name.clone())
}

/// Returns the driving partitions of the tasks that write this topic.
fn writers_of<C>(shared: &Shared<C>, topic: &TopicName) -> Vec<TopicPartition> {
    let outputs = shared.topology.outputs().iter().enumerate();
    let outputs = outputs.filter(|(_, output)| output.name == *topic);
    let stages = outputs.flat_map(|(output, _)| shared.topology.writers(output));
    let driving: BTreeSet<&TopicName> = stages.map(Stage::driving_topic).collect();
    let partitions = driving.into_iter().flat_map(|it| shared.partitions(it));
    partitions.collect()
}
