//! What is done at a cluster from outside, at once and past the network.

use eos_core::client::Result;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, ListOffsetsRequest, OffsetFetchRequest, ProduceRequest, ResponseKind,
};
use kafka_wire::batch::{BatchBuilder, ProducerIdentity, Record, visible};

use super::queries::text;
use super::world::World;

/// A record to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written<'a> {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [(&'a str, &'a [u8])],
}

pub(super) fn produce(
    world: &mut World,
    topic: &str,
    partition: i32,
    record: &Written<'_>,
) -> Result<i64, i16> {
    const NOBODY: ProducerIdentity = ProducerIdentity { id: -1, epoch: -1 };
    let mut batch = BatchBuilder::new(256);
    let headers = record.headers.iter();
    let headers = headers.map(|(name, value)| (*name, Some(*value)));
    batch.push(record.timestamp, record.key, record.value, headers);
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(batch.close(NOBODY, -1, false).into_bytes()));
    let topic = TopicProduceData::default()
        .with_name(text(topic).into())
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1_000)
        .with_topic_data(vec![topic]);
    let Some(ResponseKind::Produce(answer)) = world.ask(request.into()) else {
        return Err(-1);
    };
    let mut partitions = answer
        .responses
        .iter()
        .flat_map(|it| &it.partition_responses);
    let answer = partitions.next().ok_or(-1_i16)?;
    match answer.error_code {
        0 => Ok(answer.base_offset),
        error => Err(error),
    }
}

pub(super) fn read(world: &mut World, topic: &str, partition: i32, from: i64) -> Vec<Record> {
    let (start, _) = bounds(world, topic, partition, -2, 0);
    let (end, _) = bounds(world, topic, partition, -1, 1);
    let mut records = Vec::new();
    let mut next = start.max(from);
    while next < end {
        let asked = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(next)
            .with_partition_max_bytes(i32::MAX);
        let asked = FetchTopic::default()
            .with_topic(text(topic).into())
            .with_partitions(vec![asked]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_max_bytes(i32::MAX)
            .with_isolation_level(1)
            .with_session_epoch(-1)
            .with_topics(vec![asked]);
        let Some(ResponseKind::Fetch(answer)) = world.ask(request.into()) else {
            return records;
        };
        let before = next;
        for data in answer.responses.into_iter().flat_map(|it| it.partitions) {
            match visible(data, next, |record| records.push(record)) {
                Ok(then) => next = then,
                Err(why) => panic!("{topic}-{partition} can't be read: {why}"),
            }
        }
        if next == before {
            break;
        }
    }
    records
}

pub(super) fn ends(world: &mut World, topic: &str, partition: i32) -> (i64, i64) {
    let (stable, _) = bounds(world, topic, partition, -1, 1);
    let (high, _) = bounds(world, topic, partition, -1, 0);
    (stable, high)
}

pub(super) fn begin(world: &mut World, topic: &str, partition: i32) -> i64 {
    bounds(world, topic, partition, -2, 0).0
}

fn bounds(
    world: &mut World,
    topic: &str,
    partition: i32,
    timestamp: i64,
    isolation: i8,
) -> (i64, i16) {
    let asked = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let asked = ListOffsetsTopic::default()
        .with_name(text(topic).into())
        .with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(vec![asked]);
    let Some(ResponseKind::ListOffsets(answer)) = world.ask(request.into()) else {
        return (0, -1);
    };
    let mut partitions = answer.topics.iter().flat_map(|it| &it.partitions);
    partitions
        .next()
        .map_or((0, -1), |it| (it.offset.max(0), it.error_code))
}

pub(super) fn committed(
    world: &mut World,
    group: &str,
    topic: &str,
    partition: i32,
) -> Result<Option<i64>, i16> {
    let asked = OffsetFetchRequestTopics::default()
        .with_name(text(topic).into())
        .with_partition_indexes(vec![partition]);
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(text(group).into())
        .with_member_epoch(-1)
        .with_topics(Some(vec![asked]));
    let request = OffsetFetchRequest::default()
        .with_require_stable(true)
        .with_groups(vec![asked]);
    let Some(ResponseKind::OffsetFetch(answer)) = world.ask(request.into()) else {
        return Err(-1);
    };
    let topics = answer.groups.iter().flat_map(|it| &it.topics);
    let mut partitions = topics.flat_map(|it| &it.partitions);
    match partitions.next() {
        Some(it) if it.error_code != 0 => Err(it.error_code),
        Some(it) => Ok((it.committed_offset >= 0).then_some(it.committed_offset)),
        None => Ok(None),
    }
}
