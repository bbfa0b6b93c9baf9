//! Error responses for each kind of request.

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, ApiVersionsResponse, BrokerId,
    DeleteGroupsResponse, DescribeGroupsResponse, DescribeTransactionsResponse, EndTxnResponse,
    FetchResponse, FindCoordinatorResponse, HeartbeatResponse, InitProducerIdResponse,
    JoinGroupResponse, LeaveGroupResponse, ListGroupsResponse, ListOffsetsResponse,
    ListTransactionsResponse, MetadataResponse, OffsetCommitResponse, OffsetDeleteResponse,
    OffsetFetchResponse, ProduceResponse, ProducerId, RequestKind, ResponseKind, SyncGroupResponse,
    TxnOffsetCommitResponse,
};

use crate::requests::text;

/// Builds a response with an error and no other result.
///
/// Returns `None` if the response has no error field, or the request has no response.
#[must_use]
pub fn refuse(request: &RequestKind, version: i16, code: i16) -> Option<ResponseKind> {
    let answer = match request {
        RequestKind::ApiVersions(_) => ApiVersionsResponse::default().with_error_code(code).into(),
        RequestKind::Metadata(it) => {
            let topics = it.topics.iter().flatten().map(|topic| {
                MetadataResponseTopic::default()
                    .with_name(topic.name.clone().or_else(|| Some(text("").into())))
                    .with_topic_id(topic.topic_id)
                    .with_error_code(code)
            });
            MetadataResponse::default()
                .with_controller_id(BrokerId(-1))
                .with_topics(topics.collect())
                .into()
        }
        RequestKind::Produce(it) if it.acks == 0 => return None,
        RequestKind::Produce(it) => {
            let topics = it.topic_data.iter().map(|topic| {
                let partitions = topic.partition_data.iter().map(|data| {
                    PartitionProduceResponse::default()
                        .with_index(data.index)
                        .with_base_offset(-1)
                        .with_error_code(code)
                });
                TopicProduceResponse::default()
                    .with_name(topic.name.clone())
                    .with_topic_id(topic.topic_id)
                    .with_partition_responses(partitions.collect())
            });
            ProduceResponse::default()
                .with_responses(topics.collect())
                .into()
        }
        RequestKind::Fetch(it) => {
            let topics = it.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|it| {
                    PartitionData::default()
                        .with_partition_index(it.partition)
                        .with_high_watermark(-1)
                        .with_error_code(code)
                        .with_records(Some(bytes::Bytes::new()))
                });
                FetchableTopicResponse::default()
                    .with_topic(topic.topic.clone())
                    .with_partitions(partitions.collect())
            });
            FetchResponse::default()
                .with_responses(topics.collect())
                .into()
        }
        RequestKind::ListOffsets(it) => {
            let topics = it.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|it| {
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(it.partition_index)
                        .with_offset(-1)
                        .with_timestamp(-1)
                        .with_error_code(code)
                });
                ListOffsetsTopicResponse::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            ListOffsetsResponse::default()
                .with_topics(topics.collect())
                .into()
        }
        RequestKind::FindCoordinator(_) if version < 4 => FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_node_id(BrokerId(-1))
            .with_port(-1)
            .into(),
        RequestKind::FindCoordinator(it) => {
            let all = it.coordinator_keys.iter().map(|key| {
                Coordinator::default()
                    .with_key(key.clone())
                    .with_node_id(BrokerId(-1))
                    .with_port(-1)
                    .with_error_code(code)
            });
            FindCoordinatorResponse::default()
                .with_coordinators(all.collect())
                .into()
        }
        RequestKind::JoinGroup(it) => JoinGroupResponse::default()
            .with_error_code(code)
            .with_protocol_name((version < 7).then(|| text("")))
            .with_member_id(it.member_id.clone())
            .into(),
        RequestKind::SyncGroup(_) => SyncGroupResponse::default().with_error_code(code).into(),
        RequestKind::Heartbeat(_) => HeartbeatResponse::default().with_error_code(code).into(),
        RequestKind::LeaveGroup(_) => LeaveGroupResponse::default().with_error_code(code).into(),
        RequestKind::OffsetCommit(it) => {
            let topics = it.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|it| {
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(it.partition_index)
                        .with_error_code(code)
                });
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_topic_id(topic.topic_id)
                    .with_partitions(partitions.collect())
            });
            OffsetCommitResponse::default()
                .with_topics(topics.collect())
                .into()
        }
        RequestKind::OffsetFetch(it) if version >= 8 => {
            let groups = it.groups.iter().map(|group| {
                OffsetFetchResponseGroup::default()
                    .with_group_id(group.group_id.clone())
                    .with_error_code(code)
            });
            OffsetFetchResponse::default()
                .with_groups(groups.collect())
                .into()
        }
        RequestKind::OffsetFetch(it) => {
            // Version 1 has an error field only at each partition.
            let topics = it.topics.iter().flatten().map(|topic| {
                let partitions = topic.partition_indexes.iter().map(|index| {
                    OffsetFetchResponsePartition::default()
                        .with_partition_index(*index)
                        .with_committed_offset(-1)
                        .with_metadata(Some(text("")))
                        .with_error_code(code)
                });
                OffsetFetchResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            OffsetFetchResponse::default()
                .with_error_code(code)
                .with_topics(topics.collect())
                .into()
        }
        RequestKind::InitProducerId(_) => InitProducerIdResponse::default()
            .with_error_code(code)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
            .into(),
        RequestKind::AddPartitionsToTxn(it) => {
            let topics = it.v3_and_below_topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|index| {
                    AddPartitionsToTxnPartitionResult::default()
                        .with_partition_index(*index)
                        .with_partition_error_code(code)
                });
                AddPartitionsToTxnTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_results_by_partition(partitions.collect())
            });
            AddPartitionsToTxnResponse::default()
                .with_results_by_topic_v3_and_below(topics.collect())
                .into()
        }
        RequestKind::AddOffsetsToTxn(_) => AddOffsetsToTxnResponse::default()
            .with_error_code(code)
            .into(),
        RequestKind::EndTxn(_) => EndTxnResponse::default().with_error_code(code).into(),
        RequestKind::TxnOffsetCommit(it) => {
            let topics = it.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|it| {
                    TxnOffsetCommitResponsePartition::default()
                        .with_partition_index(it.partition_index)
                        .with_error_code(code)
                });
                TxnOffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            TxnOffsetCommitResponse::default()
                .with_topics(topics.collect())
                .into()
        }
        RequestKind::OffsetDelete(_) => {
            OffsetDeleteResponse::default().with_error_code(code).into()
        }
        RequestKind::DescribeGroups(it) => {
            let groups = it.groups.iter().map(|id| {
                DescribedGroup::default()
                    .with_group_id(id.clone())
                    .with_error_code(code)
            });
            DescribeGroupsResponse::default()
                .with_groups(groups.collect())
                .into()
        }
        RequestKind::DeleteGroups(it) => {
            let groups = it.groups_names.iter().map(|id| {
                DeletableGroupResult::default()
                    .with_group_id(id.clone())
                    .with_error_code(code)
            });
            DeleteGroupsResponse::default()
                .with_results(groups.collect())
                .into()
        }
        RequestKind::DescribeTransactions(it) => {
            let states = it.transactional_ids.iter().map(|id| {
                TransactionState::default()
                    .with_transactional_id(id.clone())
                    .with_error_code(code)
            });
            DescribeTransactionsResponse::default()
                .with_transaction_states(states.collect())
                .into()
        }
        RequestKind::ListGroups(_) => ListGroupsResponse::default().with_error_code(code).into(),
        RequestKind::ListTransactions(_) => ListTransactionsResponse::default()
            .with_error_code(code)
            .into(),
        _ => return None,
    };
    Some(answer)
}
