//! Out-of-band cluster access that bypasses the network.

use eos_client::Result;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, ResponseKind};
use kafka_wire::batch::{BatchBuilder, ProducerIdentity, Record, visible};
use kafka_wire::requests::{self, NO_PRODUCER};

use super::fabric::Fabric;
use super::requests::text;

/// A record to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written<'a> {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// An open transaction that [`Cluster::write_in_transaction`](super::Cluster::write_in_transaction) began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    id: String,
    producer: ProducerIdentity,
}

pub(super) fn produce(
    fabric: &mut Fabric,
    topic: &str,
    partition: i32,
    record: &Written<'_>,
) -> Result<i64, i16> {
    write(fabric, (topic, partition), record, None)
}

pub(super) fn write_in_transaction(
    fabric: &mut Fabric,
    id: &str,
    (topic, partition): (&str, i32),
    record: &Written<'_>,
) -> Result<(Transaction, i64), i16> {
    let request = requests::init_producer_id(Some(id), 600_000, NO_PRODUCER);
    let Some(ResponseKind::InitProducerId(answer)) = fabric.ask(request.into()) else {
        return Err(-1);
    };
    refused(answer.error_code)?;
    let transaction = Transaction {
        id: id.to_owned(),
        producer: ProducerIdentity {
            id: answer.producer_id.0,
            epoch: answer.producer_epoch,
        },
    };
    let request = requests::add_partitions(id, transaction.producer, &[(topic, partition)]);
    let Some(ResponseKind::AddPartitionsToTxn(answer)) = fabric.ask(request.into()) else {
        return Err(-1);
    };
    let results = answer.results_by_topic_v3_and_below.iter();
    let mut results = results.flat_map(|it| &it.results_by_partition);
    results.try_for_each(|it| refused(it.partition_error_code))?;
    let offset = write(fabric, (topic, partition), record, Some(&transaction))?;
    Ok((transaction, offset))
}

pub(super) fn end_transaction(
    fabric: &mut Fabric,
    transaction: &Transaction,
    commits: bool,
) -> Result<(), i16> {
    let request = requests::end_txn(&transaction.id, transaction.producer, commits);
    match fabric.ask(request.into()) {
        Some(ResponseKind::EndTxn(answer)) => refused(answer.error_code),
        _ => Err(-1),
    }
}

fn refused(code: i16) -> Result<(), i16> {
    match code {
        0 => Ok(()),
        code => Err(code),
    }
}

fn write(
    fabric: &mut Fabric,
    (topic, partition): (&str, i32),
    record: &Written<'_>,
    transaction: Option<&Transaction>,
) -> Result<i64, i16> {
    let mut batch = BatchBuilder::new(256);
    let headers = record.headers.iter();
    let headers = headers.map(|(name, value)| (*name, Some(*value)));
    batch.push(record.timestamp, record.key, record.value, headers);
    let batch = match transaction {
        Some(it) => batch.close(it.producer, 0, true),
        None => batch.close(NO_PRODUCER, -1, false),
    };
    let id = transaction.map(|it| &*it.id);
    let request = requests::produce(topic, partition, batch.into_bytes(), id, -1);
    let Some(ResponseKind::Produce(answer)) = fabric.ask(request.into()) else {
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

pub(super) fn read(fabric: &mut Fabric, topic: &str, partition: i32, from: i64) -> Vec<Record> {
    let mut records = Vec::new();
    fetch(fabric, topic, partition, from, i32::MAX, |fetched| {
        records.extend(fetched);
        true
    });
    records
}

pub(super) fn has_records(fabric: &mut Fabric, topic: &str, partition: i32, from: i64) -> bool {
    let mut found = false;
    fetch(fabric, topic, partition, from, 1, |fetched| {
        found = !fetched.is_empty();
        !found
    });
    found
}

/// Fetches records until `on_records` returns `false` or the partition ends.
fn fetch(
    fabric: &mut Fabric,
    topic: &str,
    partition: i32,
    from: i64,
    max_bytes: i32,
    mut on_records: impl FnMut(Vec<Record>) -> bool,
) {
    let (start, _) = bounds(fabric, topic, partition, -2, 0);
    let (end, _) = bounds(fabric, topic, partition, -1, 1);
    let mut next = start.max(from);
    while next < end {
        let request = requests::fetch(topic, partition, next, 1, 0, max_bytes);
        let Some(ResponseKind::Fetch(answer)) = fabric.ask(request.into()) else {
            return;
        };
        let before = next;
        let mut records = Vec::new();
        for data in answer.responses.into_iter().flat_map(|it| it.partitions) {
            match visible(data, next, |record| records.push(record)) {
                Ok(then) => next = then,
                Err(why) => panic!("{topic}-{partition} can't be read: {why}"),
            }
        }
        if !on_records(records) || next == before {
            return;
        }
    }
}

pub(super) fn ends(fabric: &mut Fabric, topic: &str, partition: i32) -> (i64, i64) {
    fabric.broker.ends_of(topic, partition).unwrap_or_default()
}

pub(super) fn begin(fabric: &mut Fabric, topic: &str, partition: i32) -> i64 {
    bounds(fabric, topic, partition, -2, 0).0
}

fn bounds(
    fabric: &mut Fabric,
    topic: &str,
    partition: i32,
    timestamp: i64,
    isolation: i8,
) -> (i64, i16) {
    let request = requests::list_offsets(topic, partition, timestamp, isolation);
    let Some(ResponseKind::ListOffsets(answer)) = fabric.ask(request.into()) else {
        return (0, -1);
    };
    let mut partitions = answer.topics.iter().flat_map(|it| &it.partitions);
    partitions
        .next()
        .map_or((0, -1), |it| (it.offset.max(0), it.error_code))
}

pub(super) fn committed(
    fabric: &mut Fabric,
    group: &str,
    topic: &str,
    partition: i32,
) -> Result<Option<i64>, i16> {
    let request = requests::offset_fetch(group, topic, vec![partition], true);
    let Some(ResponseKind::OffsetFetch(answer)) = fabric.ask(request.into()) else {
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

/// Commits an offset without a member.
pub(super) fn commit(
    fabric: &mut Fabric,
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<(), i16> {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_leader_epoch(-1)
        .with_committed_metadata(Some(text("")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(text(topic).into())
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(text(group).into())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let Some(ResponseKind::OffsetCommit(answer)) = fabric.ask(request.into()) else {
        return Err(-1);
    };
    let mut partitions = answer.topics.iter().flat_map(|it| &it.partitions);
    match partitions.next().map(|it| it.error_code) {
        Some(0) => Ok(()),
        code => Err(code.unwrap_or(-1)),
    }
}

pub(super) fn all_committed(fabric: &mut Fabric, group: &str, topic: &str) -> Vec<Option<i64>> {
    let all: Vec<i32> = (0..fabric.broker.partitions_of(topic)).collect();
    let mut offsets = vec![None; all.len()];
    let request = requests::offset_fetch(group, topic, all, true);
    let Some(ResponseKind::OffsetFetch(answer)) = fabric.ask(request.into()) else {
        return offsets;
    };
    let topics = answer.groups.iter().flat_map(|it| &it.topics);
    for it in topics.flat_map(|it| &it.partitions) {
        let known = it.error_code == 0 && it.committed_offset >= 0;
        let place = usize::try_from(it.partition_index).ok();
        if let Some(place) = place.and_then(|at| offsets.get_mut(at)) {
            *place = known.then_some(it.committed_offset);
        }
    }
    offsets
}
