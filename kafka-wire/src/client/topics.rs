//! Creation and deletion of topics, partitions and records.

use std::time::Instant;

use anyhow::{Result, anyhow};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsRequest, CreatePartitionsTopic,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicsRequest;

use super::Client;
use super::routing::Node;
use crate::connection::{Failure, check};
use crate::requests::{self, BROKER_TIMEOUT_MS, topic_name};

impl Client {
    /// Creates a topic unless it exists, and waits until every broker has a leader for each partition.
    ///
    /// # Errors
    /// If the broker rejects the request, if the topic exists with another number of partitions, or if leaders are not
    /// elected in time.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: i32,
        replication: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let request = requests::create_topic(name, partitions, replication, configs);
        let what = format!("create topic {name}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            answer.topics.iter().try_for_each(|topic| {
                if topic.error_code == ResponseError::TopicAlreadyExists.code() {
                    return Ok(());
                }
                let why = topic.error_message.as_ref().map_or("", |why| why.as_str());
                // All live brokers may be fenced for a moment, as after a stall.
                if topic.error_code == ResponseError::InvalidReplicationFactor.code()
                    && why.contains("fenced")
                {
                    return Err(Failure::retry(format!("{name}: {why}")));
                }
                check(topic.error_code, || format!("{name}: {why}"))
            })
        })?;
        self.retry(&what, |client, deadline| {
            client.seen_by_all(name, partitions, deadline)
        })
    }

    /// Deletes a topic if it exists, and waits until no broker lists it.
    ///
    /// # Errors
    /// If the broker rejects the request, or the topic is not deleted in time.
    pub fn delete_topic(&mut self, name: &str) -> Result<()> {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(name)])
            .with_timeout_ms(BROKER_TIMEOUT_MS);
        let what = format!("delete topic {name}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            answer.responses.iter().try_for_each(|topic| {
                if topic.error_code == ResponseError::UnknownTopicOrPartition.code() {
                    return Ok(());
                }
                check(topic.error_code, || name.to_owned())
            })
        })?;
        self.routes.forget();
        self.retry(&what, |client, deadline| {
            client.gone_from_all(name, deadline)
        })
    }

    /// Adds partitions to a topic, up to `partitions`, and waits until every broker has a leader for each.
    ///
    /// # Errors
    /// If the broker rejects the request, or leaders are not elected in time.
    pub fn grow_topic(&mut self, name: &str, partitions: i32) -> Result<()> {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name(name))
            .with_count(partitions)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(BROKER_TIMEOUT_MS);
        let what = format!("grow topic {name}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            let mut results = answer.results.iter();
            results.try_for_each(|result| check(result.error_code, || name.to_owned()))
        })?;
        self.routes.forget();
        let count = usize::try_from(partitions)?;
        self.retry(&what, |client, deadline| {
            for broker in client.broker_ids(deadline)? {
                let seen = client.metadata_of(Node::Broker(broker), &[name], deadline)?;
                let partitions = seen.topics.get(name).map_or(&[][..], Vec::as_slice);
                if partitions.len() < count || partitions.iter().any(|p| p.leader.is_none()) {
                    return Err(Failure::retry(format!(
                        "broker {broker} sees too few leaders"
                    )));
                }
            }
            Ok(())
        })
    }

    /// Deletes the records of a partition below offset `before`, like retention.
    ///
    /// # Errors
    /// If `before` lies above the high watermark, or the leader rejects the request.
    pub fn delete_records(&mut self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let partitions = vec![
            DeleteRecordsPartition::default()
                .with_partition_index(partition)
                .with_offset(before),
        ];
        let request = DeleteRecordsRequest::default()
            .with_topics(vec![
                DeleteRecordsTopic::default()
                    .with_name(topic_name(topic))
                    .with_partitions(partitions),
            ])
            .with_timeout_ms(BROKER_TIMEOUT_MS);
        let what = format!("delete records of {topic}-{partition} before {before}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Leader(topic, partition), &request, deadline)?;
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|p| check(p.error_code, || format!("{topic}-{partition}")))
        })
    }

    fn seen_by_all(&mut self, name: &str, expected: i32, deadline: Instant) -> Result<(), Failure> {
        for broker in self.broker_ids(deadline)? {
            let seen = self.metadata_of(Node::Broker(broker), &[name], deadline)?;
            let partitions = seen.topics.get(name).map_or(&[][..], Vec::as_slice);
            if !partitions.is_empty() && partitions.len() != expected as usize {
                return Err(Failure::Final(anyhow!(
                    "it exists with {} partitions, not {expected}: delete it or use another name",
                    partitions.len()
                )));
            }
            if partitions.is_empty() || partitions.iter().any(|p| p.leader.is_none()) {
                return Err(Failure::retry(format!(
                    "broker {broker} sees no leader yet"
                )));
            }
        }
        Ok(())
    }

    fn gone_from_all(&mut self, name: &str, deadline: Instant) -> Result<(), Failure> {
        for broker in self.broker_ids(deadline)? {
            let seen = self.metadata_of(Node::Broker(broker), &[name], deadline)?;
            if seen.topics.contains_key(name) {
                return Err(Failure::retry(format!("broker {broker} still knows it")));
            }
        }
        Ok(())
    }

    /// Returns the ids of the live brokers, and caches their addresses.
    pub(super) fn broker_ids(&mut self, deadline: Instant) -> Result<Vec<i32>, Failure> {
        let cluster = self.metadata_of(Node::Any, &[], deadline)?;
        self.remember(&cluster);
        Ok(cluster.brokers.iter().map(|broker| broker.id).collect())
    }
}
