//! Builders of requests for one topic or partition.
//!
//! All other fields have the defaults of Kafka's message definitions.

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, CreateTopicsRequest, EndTxnRequest,
    FetchRequest, GroupId, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, ProducerId, TopicName,
    TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::batch::ProducerIdentity;

/// The time that a broker may spend on a request that depends on other brokers, in milliseconds.
pub(crate) const BROKER_TIMEOUT_MS: i32 = 5_000;

/// A producer without an id yet, which InitProducerId assigns.
pub const NO_PRODUCER: ProducerIdentity = ProducerIdentity { id: -1, epoch: -1 };

/// Returns a string in the protocol's form.
pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Returns a topic name in the protocol's form.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Returns a group id in the protocol's form.
pub fn group_id(id: &str) -> GroupId {
    GroupId(text(id))
}

/// Returns a transactional id in the protocol's form.
pub fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// Metadata of these topics, or of all topics. It creates no topic.
pub fn metadata(topics: Option<&[&str]>) -> MetadataRequest {
    let named = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    MetadataRequest::default()
        .with_topics(topics.map(|names| names.iter().map(named).collect()))
        .with_allow_auto_topic_creation(false)
}

/// CreateTopics of one topic.
pub fn create_topic(
    name: &str,
    partitions: i32,
    replication: i16,
    configs: &[(&str, &str)],
) -> CreateTopicsRequest {
    let config = |(key, value): &(&str, &str)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(Some(text(value)))
    };
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(replication)
        .with_configs(configs.iter().map(config).collect());
    CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(BROKER_TIMEOUT_MS)
}

/// Produce to one partition.
pub fn produce(
    topic: &str,
    partition: i32,
    records: Bytes,
    id: Option<&str>,
    acks: i16,
) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(records));
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_transactional_id(id.map(transactional_id))
        .with_acks(acks)
        .with_timeout_ms(BROKER_TIMEOUT_MS)
        .with_topic_data(vec![topic])
}

/// Fetch from one partition, without a fetch session.
pub fn fetch(
    topic: &str,
    partition: i32,
    from: i64,
    isolation: i8,
    max_wait_ms: i32,
    max_bytes: i32,
) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(from)
        .with_partition_max_bytes(max_bytes);
    let topic = FetchTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_isolation_level(isolation)
        .with_topics(vec![topic])
}

/// ListOffsets of one partition.
pub fn list_offsets(
    topic: &str,
    partition: i32,
    timestamp: i64,
    isolation: i8,
) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(isolation)
        .with_topics(vec![topic])
}

/// OffsetCommit of one partition by a member of a generation. An administrator is `(-1, "")`.
pub fn offset_commit(
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
    by: (i32, &str),
) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text(metadata)));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(by.0)
        .with_member_id(text(by.1))
        .with_topics(vec![topic])
}

/// OffsetFetch of some partitions of a topic. With `stable`, the broker withholds offsets of open transactions
/// (KIP-447).
pub fn offset_fetch(
    group: &str,
    topic: &str,
    partitions: Vec<i32>,
    stable: bool,
) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(partitions);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(group_id(group))
        .with_topics(Some(vec![topic]));
    OffsetFetchRequest::default()
        .with_groups(vec![group])
        .with_require_stable(stable)
}

/// InitProducerId, for a new identity or for the successor of `known`.
pub fn init_producer_id(
    id: Option<&str>,
    transaction_timeout_ms: i32,
    known: ProducerIdentity,
) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(id.map(transactional_id))
        .with_transaction_timeout_ms(transaction_timeout_ms)
        .with_producer_id(ProducerId(known.id))
        .with_producer_epoch(known.epoch)
}

/// AddPartitionsToTxn by a client, which is limited to version 3.
pub fn add_partitions(
    id: &str,
    producer: ProducerIdentity,
    partitions: &[(&str, i32)],
) -> AddPartitionsToTxnRequest {
    let topics = partitions.iter().map(|(topic, partition)| {
        AddPartitionsToTxnTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![*partition])
    });
    AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional_id(id))
        .with_v3_and_below_producer_id(ProducerId(producer.id))
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(topics.collect())
}

/// AddOffsetsToTxn.
pub fn add_offsets(id: &str, producer: ProducerIdentity, group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_group_id(group_id(group))
}

/// TxnOffsetCommit of one partition. The producer is not a member of the group.
pub fn txn_offset_commit(
    id: &str,
    producer: ProducerIdentity,
    group: &str,
    (topic, partition): (&str, i32),
    offset: i64,
    metadata: &str,
) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text(metadata)));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_group_id(group_id(group))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_topics(vec![topic])
}

/// EndTxn.
pub fn end_txn(id: &str, producer: ProducerIdentity, commits: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(transactional_id(id))
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(producer.epoch)
        .with_committed(commits)
}
