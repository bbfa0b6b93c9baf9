//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};
use uuid::Uuid;

use super::configs::TopicConfigs;
use super::topics::check_name;
use super::{Broker, Context, NODE, text};
use crate::log::PartitionLog;

/// An error code with its reason.
type Refused = (Error, String);

/// CreateTopics: from this version on, responses contain the number of partitions and the configurations.
const WITH_CONFIGS: i16 = 5;
/// DeleteTopics: from this version on, topics are named one by one, by name or id.
const BY_ID: i16 = 6;

impl Broker {
    pub(super) fn create_topics(
        &mut self,
        request: CreateTopicsRequest,
        context: &Context,
    ) -> CreateTopicsResponse {
        let mut names = BTreeSet::new();
        let twice: BTreeSet<String> = request
            .topics
            .iter()
            .filter(|topic| !names.insert(topic.name.to_string()))
            .map(|topic| topic.name.to_string())
            .collect();
        let mut answers = Vec::new();
        for topic in &request.topics {
            if twice.contains(topic.name.as_str()) {
                let known = |it: &CreatableTopicResult| it.name == topic.name;
                if !answers.iter().any(known) {
                    let why = "Duplicate topic name.".to_owned();
                    answers.push(refused(topic.name.clone(), (Error::InvalidRequest, why)));
                }
                continue;
            }
            let answer = match self.plan_topic(topic) {
                Ok((partitions, configs)) => {
                    let answer = CreatableTopicResult::default()
                        .with_name(topic.name.clone())
                        .with_topic_config_error_code(0);
                    let answer = if context.version >= WITH_CONFIGS {
                        answer
                            .with_num_partitions(partitions as i32)
                            .with_replication_factor(1)
                            .with_configs(Some(told(&configs)))
                    } else {
                        answer
                    };
                    if request.validate_only {
                        answer
                    } else {
                        let id = self.create_topic(&topic.name, partitions, configs);
                        answer.with_topic_id(id)
                    }
                }
                Err(why) => refused(topic.name.clone(), why),
            };
            answers.push(answer);
        }
        CreateTopicsResponse::default().with_topics(answers)
    }

    /// Creates a topic, like CreateTopics.
    ///
    /// # Errors
    /// Kafka's errors: an invalid name, an existing topic, or an invalid configuration.
    pub fn add_topic(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Result<(), String> {
        let configs = configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
        });
        let topic = CreatableTopic::default()
            .with_name(TopicName(text(name)))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.collect());
        let (partitions, configs) = self.plan_topic(&topic).map_err(|(_, why)| why)?;
        self.create_topic(name, partitions, configs);
        Ok(())
    }

    /// Sets a topic's configuration, like IncrementalAlterConfigs.
    ///
    /// # Errors
    /// Kafka's errors: no such topic, no such configuration, or an invalid value.
    pub fn configure_topic(&mut self, topic: &str, name: &str, value: &str) -> Result<(), String> {
        let Some(topic) = self.topics.get_mut(topic) else {
            return Err(format!("Topic '{topic}' does not exist."));
        };
        let mut configs = topic.configs().clone();
        configs.set(name, Some(value))?;
        topic.configure(configs);
        Ok(())
    }

    fn plan_topic(&self, topic: &CreatableTopic) -> Result<(usize, TopicConfigs), Refused> {
        let name = topic.name.as_str();
        check_name(name).map_err(|why| (Error::InvalidTopicException, why))?;
        if self.topics.contains_key(name) {
            return Err((
                Error::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        let manual = !topic.assignments.is_empty();
        if manual && (topic.num_partitions != -1 || topic.replication_factor != -1) {
            let why = "A manual partition assignment was specified, but numPartitions or \
                       replicationFactor was not set to -1.";
            return Err((Error::InvalidRequest, why.into()));
        }
        let partitions = match topic.num_partitions {
            _ if manual => topic.assignments.len() as i32,
            -1 => self.options.num_partitions,
            number if number < 1 => {
                let why = "Number of partitions was set to an invalid non-positive value.";
                return Err((Error::InvalidPartitions, why.into()));
            }
            number => number,
        };
        match topic.replication_factor {
            1 | -1 => {}
            number if number < 1 => {
                let why =
                    "Replication factor must be larger than 0, or -1 to use the default value.";
                return Err((Error::InvalidReplicationFactor, why.into()));
            }
            number => {
                let why = format!(
                    "Unable to replicate the partition {number} time(s): The target replication \
                     factor of {number} cannot be reached because only 1 broker(s) are registered."
                );
                return Err((Error::InvalidReplicationFactor, why));
            }
        }
        let foreign = |ids: &[kafka_protocol::messages::BrokerId]| {
            ids.len() != 1 || ids.iter().any(|id| id.0 != NODE)
        };
        if topic.assignments.iter().any(|it| foreign(&it.broker_ids)) {
            let why = format!("The only broker that replicas can be assigned to is {NODE}.");
            return Err((Error::InvalidReplicaAssignment, why));
        }
        let partitions = self.check_partitions(partitions)?;
        let mut configs = TopicConfigs::default();
        for config in &topic.configs {
            let value = config.value.as_deref();
            configs
                .set(&config.name, value)
                .map_err(|why| (Error::InvalidConfig, why))?;
        }
        Ok((partitions, configs))
    }

    /// Checks the limit of partitions, because even empty partitions take memory.
    fn check_partitions(&self, more: i32) -> Result<usize, Refused> {
        let (more, limit) = (more as usize, self.options.partitions_max);
        if self.partition_count() + more > limit {
            return Err((
                Error::PolicyViolation,
                format!("the embedded broker has at most partitions.max={limit}: raise the limit"),
            ));
        }
        Ok(more)
    }

    pub(super) fn delete_topics(
        &mut self,
        request: DeleteTopicsRequest,
        context: &Context,
    ) -> DeleteTopicsResponse {
        let mut answers = Vec::new();
        for name in request.topic_names {
            answers.push(self.delete_named(name));
        }
        for topic in request.topics {
            let answer = match topic.name {
                Some(name) => self.delete_named(name),
                None => {
                    let mut all = self.topics.iter();
                    let found = all.find(|(_, it)| it.id == topic.topic_id);
                    match found.map(|(name, _)| TopicName(text(name))) {
                        Some(name) => self.delete_named(name),
                        None => DeletableTopicResult::default()
                            .with_name(None)
                            .with_topic_id(topic.topic_id)
                            .with_error_code(Error::UnknownTopicId.code()),
                    }
                }
            };
            answers.push(answer);
        }
        self.recount_bytes();
        self.answer_fetches(context.now);
        debug_assert!(context.version >= BY_ID || answers.iter().all(|it| it.name.is_some()));
        DeleteTopicsResponse::default().with_responses(answers)
    }

    fn delete_named(&mut self, name: TopicName) -> DeletableTopicResult {
        let gone = self.topics.remove(name.as_str());
        self.topic_changes += u64::from(gone.is_some());
        let answer = DeletableTopicResult::default();
        match gone {
            Some(topic) => {
                for group in self.groups.values_mut() {
                    group.offsets.forget_topic(&name);
                }
                answer.with_name(Some(name)).with_topic_id(topic.id)
            }
            None => answer
                .with_name(Some(name))
                .with_topic_id(Uuid::nil())
                .with_error_code(Error::UnknownTopicOrPartition.code()),
        }
    }

    pub(super) fn create_partitions(
        &mut self,
        request: CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let mut answers = Vec::new();
        for topic in request.topics {
            let planned = self.plan_partitions(&topic.name, topic.count);
            let answer = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
            answers.push(match planned {
                Ok(more) => {
                    if let Some(topic) = self.topics.get_mut(topic.name.as_str())
                        && !request.validate_only
                    {
                        let fresh = (0..more).map(|_| PartitionLog::default());
                        topic.partitions.extend(fresh);
                    }
                    answer
                }
                Err((error, why)) => answer
                    .with_error_code(error.code())
                    .with_error_message(Some(text(&why))),
            });
        }
        CreatePartitionsResponse::default().with_results(answers)
    }

    fn plan_partitions(&self, name: &str, count: i32) -> Result<usize, Refused> {
        let Some(topic) = self.topics.get(name) else {
            let why = "This server does not host this topic-partition.";
            return Err((Error::UnknownTopicOrPartition, why.into()));
        };
        let has = topic.partitions.len() as i32;
        if count == has {
            let why = format!("Topic already has {has} partition(s).");
            return Err((Error::InvalidPartitions, why));
        }
        if count < has {
            let why = format!(
                "The topic {name} currently has {has} partition(s); {count} would not be an increase."
            );
            return Err((Error::InvalidPartitions, why));
        }
        self.check_partitions(count - has)
    }
}

fn refused(name: TopicName, (error, why): Refused) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(name)
        .with_error_code(error.code())
        .with_error_message(Some(text(&why)))
}

fn told(configs: &TopicConfigs) -> Vec<CreatableTopicConfigs> {
    let all = configs.all().map(|(name, value, is_default)| {
        CreatableTopicConfigs::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
            .with_config_source(if is_default { 5 } else { 1 })
    });
    all.collect()
}
