//! The partitions and names in a request, for rules.

use kafka_protocol::messages::RequestKind;

/// The partitions and names in a request.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(super) names: Vec<String>,
    /// `None` means the whole topic: each of its partitions.
    partitions: Vec<(String, Option<i32>)>,
    /// Whether the request concerns all topics and partitions.
    everywhere: bool,
}

/// The resource type of a topic in requests about configurations.
const TOPIC: i8 = 2;

impl About {
    pub(super) fn touches(&self, topic: &str, partition: Option<i32>) -> bool {
        let same = |index: Option<i32>| match (partition, index) {
            (Some(asked), Some(index)) => asked == index,
            _ => true,
        };
        let mut all = self.partitions.iter();
        self.everywhere || all.any(|(it, index)| it == topic && same(*index))
    }

    fn name(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    fn place(&mut self, topic: &str, partitions: impl Iterator<Item = i32>) {
        self.partitions
            .extend(partitions.map(|it| (topic.to_owned(), Some(it))));
    }

    fn topic(&mut self, topic: &str) {
        self.partitions.push((topic.to_owned(), None));
    }

    fn resource(&mut self, kind: i8, name: &str) {
        if kind == TOPIC {
            self.topic(name);
        }
    }

    pub(crate) fn of(request: &RequestKind) -> About {
        let mut about = About::default();
        match request {
            RequestKind::Produce(it) => {
                it.transactional_id.iter().for_each(|id| about.name(id));
                for topic in &it.topic_data {
                    about.place(&topic.name, topic.partition_data.iter().map(|it| it.index));
                }
            }
            RequestKind::Fetch(it) => {
                for topic in &it.topics {
                    about.place(&topic.topic, topic.partitions.iter().map(|it| it.partition));
                }
            }
            RequestKind::ListOffsets(it) => {
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::InitProducerId(it) => {
                it.transactional_id.iter().for_each(|id| about.name(id));
            }
            RequestKind::AddPartitionsToTxn(it) => {
                about.name(&it.v3_and_below_transactional_id);
                for topic in &it.v3_and_below_topics {
                    about.place(&topic.name, topic.partitions.iter().copied());
                }
            }
            RequestKind::AddOffsetsToTxn(it) => {
                about.name(&it.transactional_id);
                about.name(&it.group_id);
            }
            RequestKind::EndTxn(it) => about.name(&it.transactional_id),
            RequestKind::TxnOffsetCommit(it) => {
                about.name(&it.transactional_id);
                about.name(&it.group_id);
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::OffsetCommit(it) => {
                about.name(&it.group_id);
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::OffsetFetch(it) => {
                about.name(&it.group_id);
                about.everywhere = it.topics.is_none() && it.groups.is_empty();
                for topic in it.topics.iter().flatten() {
                    about.place(&topic.name, topic.partition_indexes.iter().copied());
                }
                for group in &it.groups {
                    about.name(&group.group_id);
                    about.everywhere |= group.topics.is_none();
                    for topic in group.topics.iter().flatten() {
                        about.place(&topic.name, topic.partition_indexes.iter().copied());
                    }
                }
            }
            RequestKind::OffsetDelete(it) => {
                about.name(&it.group_id);
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::DescribeGroups(it) => it.groups.iter().for_each(|id| about.name(id)),
            RequestKind::DeleteGroups(it) => {
                it.groups_names.iter().for_each(|id| about.name(id));
            }
            RequestKind::DescribeTransactions(it) => {
                it.transactional_ids.iter().for_each(|id| about.name(id));
            }
            RequestKind::JoinGroup(it) => about.name(&it.group_id),
            RequestKind::SyncGroup(it) => about.name(&it.group_id),
            RequestKind::Heartbeat(it) => about.name(&it.group_id),
            RequestKind::LeaveGroup(it) => about.name(&it.group_id),
            RequestKind::FindCoordinator(it) => {
                about.name(&it.key);
                it.coordinator_keys.iter().for_each(|key| about.name(key));
            }
            RequestKind::DeleteRecords(it) => {
                for topic in &it.topics {
                    let partitions = topic.partitions.iter().map(|it| it.partition_index);
                    about.place(&topic.name, partitions);
                }
            }
            RequestKind::OffsetForLeaderEpoch(it) => {
                for topic in &it.topics {
                    about.place(&topic.topic, topic.partitions.iter().map(|it| it.partition));
                }
            }
            RequestKind::DescribeProducers(it) => {
                for topic in &it.topics {
                    about.place(&topic.name, topic.partition_indexes.iter().copied());
                }
            }
            RequestKind::Metadata(it) => {
                about.everywhere = it.topics.is_none();
                let named = it.topics.iter().flatten().flat_map(|topic| &topic.name);
                named.for_each(|name| about.topic(name));
            }
            RequestKind::CreateTopics(it) => it.topics.iter().for_each(|it| about.topic(&it.name)),
            RequestKind::CreatePartitions(it) => {
                it.topics.iter().for_each(|it| about.topic(&it.name));
            }
            RequestKind::DeleteTopics(it) => {
                let named = it.topics.iter().flat_map(|topic| &topic.name);
                named
                    .chain(&it.topic_names)
                    .for_each(|name| about.topic(name));
            }
            RequestKind::DescribeConfigs(it) => {
                let all = it.resources.iter();
                all.for_each(|it| about.resource(it.resource_type, &it.resource_name));
            }
            RequestKind::AlterConfigs(it) => {
                let all = it.resources.iter();
                all.for_each(|it| about.resource(it.resource_type, &it.resource_name));
            }
            RequestKind::IncrementalAlterConfigs(it) => {
                let all = it.resources.iter();
                all.for_each(|it| about.resource(it.resource_type, &it.resource_name));
            }
            // The other requests contain no names. A test covers each served request.
            _ => {}
        }
        about
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
    use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
    use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
    use kafka_protocol::messages::create_topics_request::CreatableTopic;
    use kafka_protocol::messages::delete_records_request::{
        DeleteRecordsPartition, DeleteRecordsTopic,
    };
    use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
    use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
    use kafka_protocol::messages::describe_producers_request::TopicRequest;
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    use kafka_protocol::messages::incremental_alter_configs_request as incremental;
    use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
    use kafka_protocol::messages::offset_commit_request::{
        OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    };
    use kafka_protocol::messages::offset_delete_request::{
        OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
    };
    use kafka_protocol::messages::offset_fetch_request::{
        OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    };
    use kafka_protocol::messages::offset_for_leader_epoch_request::{
        OffsetForLeaderPartition, OffsetForLeaderTopic,
    };
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::txn_offset_commit_request::{
        TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    };
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::broker::SERVED;

    /// The names that an example request contains.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Place {
        Nowhere,
        /// The whole topic "t".
        Topic,
        /// Partition 3 of "t".
        Partition,
    }
    use Place::{Nowhere, Partition, Topic};

    fn s(text: &'static str) -> StrBytes {
        StrBytes::from_static_str(text)
    }

    fn t() -> TopicName {
        TopicName(s("t"))
    }

    fn g() -> GroupId {
        GroupId(s("g"))
    }

    fn x() -> TransactionalId {
        TransactionalId(s("x"))
    }

    /// Returns requests of one kind, in every form in which they can contain names.
    fn examples(key: ApiKey) -> Vec<(RequestKind, Place, Vec<&'static str>)> {
        let one = |request: RequestKind, place, names: &[&'static str]| {
            vec![(request, place, names.to_vec())]
        };
        match key {
            ApiKey::Produce => {
                let data = PartitionProduceData::default().with_index(3);
                let topic = TopicProduceData::default()
                    .with_name(t())
                    .with_partition_data(vec![data]);
                let request = ProduceRequest::default()
                    .with_transactional_id(Some(x()))
                    .with_topic_data(vec![topic]);
                one(request.into(), Partition, &["x"])
            }
            ApiKey::Fetch => {
                let partition = FetchPartition::default().with_partition(3);
                let topic = FetchTopic::default()
                    .with_topic(t())
                    .with_partitions(vec![partition]);
                let request = FetchRequest::default().with_topics(vec![topic]);
                one(request.into(), Partition, &[])
            }
            ApiKey::ListOffsets => {
                let partition = ListOffsetsPartition::default().with_partition_index(3);
                let topic = ListOffsetsTopic::default()
                    .with_name(t())
                    .with_partitions(vec![partition]);
                let request = ListOffsetsRequest::default().with_topics(vec![topic]);
                one(request.into(), Partition, &[])
            }
            ApiKey::OffsetForLeaderEpoch => {
                let partition = OffsetForLeaderPartition::default().with_partition(3);
                let topic = OffsetForLeaderTopic::default()
                    .with_topic(t())
                    .with_partitions(vec![partition]);
                let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
                one(request.into(), Partition, &[])
            }
            ApiKey::DeleteRecords => {
                let partition = DeleteRecordsPartition::default().with_partition_index(3);
                let topic = DeleteRecordsTopic::default()
                    .with_name(t())
                    .with_partitions(vec![partition]);
                let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
                one(request.into(), Partition, &[])
            }
            ApiKey::DescribeProducers => {
                let topic = TopicRequest::default()
                    .with_name(t())
                    .with_partition_indexes(vec![3]);
                let request = DescribeProducersRequest::default().with_topics(vec![topic]);
                one(request.into(), Partition, &[])
            }
            ApiKey::Metadata => {
                let topic = MetadataRequestTopic::default().with_name(Some(t()));
                let request = MetadataRequest::default().with_topics(Some(vec![topic]));
                one(request.into(), Topic, &[])
            }
            ApiKey::CreateTopics => {
                let topic = CreatableTopic::default().with_name(t());
                let request = CreateTopicsRequest::default().with_topics(vec![topic]);
                one(request.into(), Topic, &[])
            }
            ApiKey::CreatePartitions => {
                let topic = CreatePartitionsTopic::default().with_name(t());
                let request = CreatePartitionsRequest::default().with_topics(vec![topic]);
                one(request.into(), Topic, &[])
            }
            ApiKey::DeleteTopics => {
                let topic = DeleteTopicState::default().with_name(Some(t()));
                let new = DeleteTopicsRequest::default().with_topics(vec![topic]);
                let old = DeleteTopicsRequest::default().with_topic_names(vec![t()]);
                let both = [new, old].into_iter();
                both.map(|it| (it.into(), Topic, vec![])).collect()
            }
            ApiKey::DescribeConfigs => {
                let of = |kind, name| {
                    let resource = DescribeConfigsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(s(name));
                    DescribeConfigsRequest::default().with_resources(vec![resource])
                };
                vec![
                    (of(2, "t").into(), Topic, vec![]),
                    (of(4, "t").into(), Nowhere, vec![]),
                ]
            }
            ApiKey::AlterConfigs => {
                let of = |kind, name| {
                    let resource = AlterConfigsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(s(name));
                    AlterConfigsRequest::default().with_resources(vec![resource])
                };
                vec![
                    (of(2, "t").into(), Topic, vec![]),
                    (of(4, "t").into(), Nowhere, vec![]),
                ]
            }
            ApiKey::IncrementalAlterConfigs => {
                let of = |kind, name| {
                    let resource = incremental::AlterConfigsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(s(name));
                    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
                };
                vec![
                    (of(2, "t").into(), Topic, vec![]),
                    (of(4, "t").into(), Nowhere, vec![]),
                ]
            }
            ApiKey::InitProducerId => {
                let request = InitProducerIdRequest::default().with_transactional_id(Some(x()));
                one(request.into(), Nowhere, &["x"])
            }
            ApiKey::AddPartitionsToTxn => {
                let topic = AddPartitionsToTxnTopic::default()
                    .with_name(t())
                    .with_partitions(vec![3]);
                let request = AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(x())
                    .with_v3_and_below_topics(vec![topic]);
                one(request.into(), Partition, &["x"])
            }
            ApiKey::AddOffsetsToTxn => {
                let request = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(x())
                    .with_group_id(g());
                one(request.into(), Nowhere, &["x", "g"])
            }
            ApiKey::EndTxn => {
                let request = EndTxnRequest::default().with_transactional_id(x());
                one(request.into(), Nowhere, &["x"])
            }
            ApiKey::DescribeTransactions => {
                let request = DescribeTransactionsRequest::default();
                let request = request.with_transactional_ids(vec![x()]);
                one(request.into(), Nowhere, &["x"])
            }
            ApiKey::TxnOffsetCommit => {
                let partition = TxnOffsetCommitRequestPartition::default();
                let topic = TxnOffsetCommitRequestTopic::default()
                    .with_name(t())
                    .with_partitions(vec![partition.with_partition_index(3)]);
                let request = TxnOffsetCommitRequest::default()
                    .with_transactional_id(x())
                    .with_group_id(g())
                    .with_topics(vec![topic]);
                one(request.into(), Partition, &["x", "g"])
            }
            ApiKey::OffsetCommit => {
                let partition = OffsetCommitRequestPartition::default().with_partition_index(3);
                let topic = OffsetCommitRequestTopic::default()
                    .with_name(t())
                    .with_partitions(vec![partition]);
                let request = OffsetCommitRequest::default()
                    .with_group_id(g())
                    .with_topics(vec![topic]);
                one(request.into(), Partition, &["g"])
            }
            ApiKey::OffsetFetch => {
                let topic = OffsetFetchRequestTopic::default()
                    .with_name(t())
                    .with_partition_indexes(vec![3]);
                let old = OffsetFetchRequest::default()
                    .with_group_id(g())
                    .with_topics(Some(vec![topic]));
                let topic = OffsetFetchRequestTopics::default()
                    .with_name(t())
                    .with_partition_indexes(vec![3]);
                let group = OffsetFetchRequestGroup::default()
                    .with_group_id(g())
                    .with_topics(Some(vec![topic]));
                let new = OffsetFetchRequest::default().with_groups(vec![group]);
                let both = [old, new].into_iter();
                both.map(|it| (it.into(), Partition, vec!["g"])).collect()
            }
            ApiKey::OffsetDelete => {
                let partition = OffsetDeleteRequestPartition::default().with_partition_index(3);
                let topic = OffsetDeleteRequestTopic::default()
                    .with_name(t())
                    .with_partitions(vec![partition]);
                let request = OffsetDeleteRequest::default()
                    .with_group_id(g())
                    .with_topics(vec![topic]);
                one(request.into(), Partition, &["g"])
            }
            ApiKey::JoinGroup => {
                let request = JoinGroupRequest::default().with_group_id(g());
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::SyncGroup => {
                let request = SyncGroupRequest::default().with_group_id(g());
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::Heartbeat => {
                let request = HeartbeatRequest::default().with_group_id(g());
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::LeaveGroup => {
                let request = LeaveGroupRequest::default().with_group_id(g());
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::DescribeGroups => {
                let request = DescribeGroupsRequest::default().with_groups(vec![g()]);
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::DeleteGroups => {
                let request = DeleteGroupsRequest::default().with_groups_names(vec![g()]);
                one(request.into(), Nowhere, &["g"])
            }
            ApiKey::FindCoordinator => {
                let old = FindCoordinatorRequest::default().with_key(s("g"));
                let new = FindCoordinatorRequest::default().with_coordinator_keys(vec![s("g")]);
                let both = [old, new].into_iter();
                both.map(|it| (it.into(), Nowhere, vec!["g"])).collect()
            }
            // They contain no names.
            ApiKey::ApiVersions => one(ApiVersionsRequest::default().into(), Nowhere, &[]),
            ApiKey::DescribeCluster => one(DescribeClusterRequest::default().into(), Nowhere, &[]),
            ApiKey::ListGroups => one(ListGroupsRequest::default().into(), Nowhere, &[]),
            ApiKey::ListTransactions => {
                one(ListTransactionsRequest::default().into(), Nowhere, &[])
            }
            other => panic!("{other:?} is served: what does it name?"),
        }
    }

    #[test]
    fn all_names_in_a_served_request_are_found() {
        let mut missed = Vec::new();
        for api in SERVED {
            for (request, place, names) in examples(api.key) {
                let about = About::of(&request);
                let touches = |partition| about.touches("t", partition);
                let found = (touches(None), touches(Some(3)), touches(Some(4)));
                let expected = match place {
                    Nowhere => (false, false, false),
                    Topic => (true, true, true),
                    Partition => (true, true, false),
                };
                let named = names
                    .iter()
                    .all(|name| about.names.iter().any(|it| it == name));
                if found != expected || !named {
                    missed.push(api.key);
                }
                assert!(!about.touches("u", None), "{:?}", api.key);
                assert!(!about.names.iter().any(|it| it == "other"), "{:?}", api.key);
            }
        }
        assert_eq!(missed, [], "rules that name something never match these");
    }

    #[test]
    fn a_request_for_all_topics_is_a_request_for_each() {
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(g())
            .with_topics(None);
        let all: [RequestKind; 3] = [
            MetadataRequest::default().with_topics(None).into(),
            OffsetFetchRequest::default().with_topics(None).into(),
            OffsetFetchRequest::default()
                .with_groups(vec![group])
                .into(),
        ];
        for request in all {
            let about = About::of(&request);
            assert!(about.touches("t", Some(3)), "{request:?}");
        }
        let none = MetadataRequest::default().with_topics(Some(Vec::new()));
        assert!(!About::of(&none.into()).touches("t", None));
    }
}
