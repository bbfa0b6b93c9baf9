//! Queries for cluster metadata, and changes of topics.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_client::{
    BrokerLimits, ClientError, ClusterFacts, NewTopic, Result, TopicFacts, Verification,
};
use eos_protocol::state::TopicUuid;
use eos_protocol::{CallSite, Offset, Partition, TopicName, TopicPartition};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, MetadataRequest, ResponseKind,
};

use super::errors::plain;
use super::fabric::Fabric;
use super::requests::{by_topic, text};

/// TOPIC_ALREADY_EXISTS.
const ALREADY_EXISTS: i16 = 36;
/// `ConfigResource.Type.TOPIC`.
const TOPIC: i8 = 2;

pub(super) fn facts(fabric: &mut Fabric, topics: &[TopicName]) -> ClusterFacts {
    let names = topics
        .iter()
        .map(|it| MetadataRequestTopic::default().with_name(Some(text(it.as_str()).into())));
    let request = MetadataRequest::default()
        .with_topics(Some(names.collect()))
        .with_allow_auto_topic_creation(false);
    let mut found = BTreeMap::new();
    let mut cluster_id = None;
    if let Some(ResponseKind::Metadata(answer)) = fabric.ask(request.into()) {
        cluster_id = answer.cluster_id.map(|it| it.to_string());
        for topic in answer.topics.into_iter().filter(|it| it.error_code == 0) {
            let name = topic.name.map(|it| it.to_string()).unwrap_or_default();
            let facts = TopicFacts {
                partitions: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
                replication: 1,
                id: Some(TopicUuid(topic.topic_id.as_u128())),
                settings: settings(fabric, &name),
            };
            found.insert(name, facts);
        }
    }
    let options = fabric.broker.options();
    let limit = |ms: i32| Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    ClusterFacts {
        cluster_id,
        others: Vec::new(),
        verification: if options.transaction_partition_verification {
            Verification::On
        } else {
            Verification::Off
        },
        limits: BrokerLimits {
            max_transaction_timeout: limit(options.transaction_max_timeout_ms),
            min_session_timeout: limit(options.group_min_session_timeout_ms),
            max_session_timeout: limit(options.group_max_session_timeout_ms),
        },
        topics: topics
            .iter()
            .map(|it| (it.clone(), found.remove(it.as_str())))
            .collect(),
    }
}

fn settings(fabric: &mut Fabric, topic: &str) -> Option<BTreeMap<String, String>> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        // All of them: the default is an empty list.
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let Some(ResponseKind::DescribeConfigs(answer)) = fabric.ask(request.into()) else {
        return None;
    };
    let configs = answer.results.into_iter().flat_map(|it| it.configs);
    let pairs = configs.filter_map(|it| Some((it.name.to_string(), it.value?.to_string())));
    Some(pairs.collect())
}

pub(super) fn create(fabric: &mut Fabric, topics: &[NewTopic]) -> Vec<(TopicName, Result<()>)> {
    let creatable = topics.iter().map(|it| {
        let configs = it.settings.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
        });
        CreatableTopic::default()
            .with_name(text(it.name.as_str()).into())
            .with_num_partitions(i32::try_from(it.partitions).unwrap_or(i32::MAX))
            .with_replication_factor(-1)
            .with_configs(configs.collect())
    });
    let request = CreateTopicsRequest::default().with_topics(creatable.collect());
    let answer = match fabric.ask(request.into()) {
        Some(ResponseKind::CreateTopics(answer)) => answer.topics,
        _ => Vec::new(),
    };
    let outcome = |name: &TopicName| {
        let found = answer.iter().find(|it| *it.name.0 == *name.as_str());
        match found.map_or(0, |it| it.error_code) {
            0 | ALREADY_EXISTS => Ok(()),
            error => {
                let why = found.and_then(|it| it.error_message.as_deref());
                let mut failed = plain(CallSite::CreateTopics, error);
                if let Some(why) = why {
                    failed = ClientError {
                        text: why.to_owned(),
                        ..failed
                    };
                }
                Err(failed)
            }
        }
    };
    topics
        .iter()
        .map(|it| (it.name.clone(), outcome(&it.name)))
        .collect()
}

/// Deletes a topic.
pub(super) fn delete_topic(fabric: &mut Fabric, name: &str) -> Result<(), String> {
    let topic = DeleteTopicState::default().with_name(Some(text(name).into()));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(1_000);
    let Some(ResponseKind::DeleteTopics(answer)) = fabric.ask(request.into()) else {
        return Err("no response to DeleteTopics".into());
    };
    match answer.responses.first() {
        Some(found) if found.error_code == 0 => Ok(()),
        Some(found) => Err(plain(CallSite::CreateTopics, found.error_code).text),
        None => Err(format!("the response does not name the topic {name}")),
    }
}

/// Deletes a topic, and creates it again with the same partition count and settings.
pub(super) fn recreate_topic(fabric: &mut Fabric, name: &str) -> Result<(), String> {
    let partitions = u32::try_from(fabric.broker.partitions_of(name)).unwrap_or(0);
    let settings = settings(fabric, name).unwrap_or_default();
    delete_topic(fabric, name)?;
    let topic = NewTopic {
        name: name.into(),
        partitions,
        settings: settings.into_iter().collect(),
    };
    let made = create(fabric, &[topic]).pop();
    let made = made.map_or(Ok(()), |(_, outcome)| outcome);
    made.map_err(|error| error.to_string())
}

/// Raises the partition count of a topic to `partitions`.
pub(super) fn grow_topic(fabric: &mut Fabric, name: &str, partitions: i32) -> Result<(), String> {
    let topic = CreatePartitionsTopic::default()
        .with_name(text(name).into())
        .with_count(partitions)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(1_000);
    let Some(ResponseKind::CreatePartitions(answer)) = fabric.ask(request.into()) else {
        return Err("no response to CreatePartitions".into());
    };
    match answer.results.first() {
        Some(found) if found.error_code == 0 => Ok(()),
        Some(found) => Err(found
            .error_message
            .as_deref()
            .unwrap_or_default()
            .to_owned()),
        None => Err(format!("the response does not name the topic {name}")),
    }
}

pub(super) fn delete(
    fabric: &mut Fabric,
    before: &[(TopicPartition, Offset)],
) -> Vec<(TopicPartition, Result<Offset>)> {
    let topics = by_topic(before.iter().cloned()).into_iter();
    let topics = topics.map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(number, offset)| {
            DeleteRecordsPartition::default()
                .with_partition_index(number)
                .with_offset(offset.get())
        });
        DeleteRecordsTopic::default()
            .with_name(text(&topic).into())
            .with_partitions(partitions.collect())
    });
    let request = DeleteRecordsRequest::default()
        .with_topics(topics.collect())
        .with_timeout_ms(1_000);
    let mut answers = Vec::new();
    if let Some(ResponseKind::DeleteRecords(answer)) = fabric.ask(request.into()) {
        for topic in answer.topics {
            for it in topic.partitions {
                let Ok(number) = Partition::new(it.partition_index) else {
                    continue;
                };
                let partition = TopicPartition::new(&*topic.name.0, number);
                let outcome = match it.error_code {
                    0 => Ok(Offset::new(it.low_watermark).unwrap_or(Offset::ZERO)),
                    error => Err(plain(CallSite::DeleteRecords, error)),
                };
                answers.push((partition, outcome));
            }
        }
    }
    answers
}
