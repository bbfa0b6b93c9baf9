//! The destinations of requests: leaders, coordinators, or any broker.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use anyhow::{Context, Result};
use kafka_protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use kafka_protocol::messages::{DescribeQuorumRequest, FindCoordinatorRequest};

use super::Client;
use super::cluster::{ClusterMetadata, address};
use crate::connection::{Failure, check};
use crate::requests::{text, topic_name};

/// The destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node<'a> {
    /// The first broker that responds.
    Any,
    /// The broker with this id.
    Broker(i32),
    /// The leader of a partition.
    Leader(&'a str, i32),
    /// The coordinator of a consumer group.
    Group(&'a str),
    /// The coordinator of a transactional id.
    Transaction(&'a str),
}

/// The cached route to each node, which may be out of date.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The address of each broker.
    pub(super) brokers: BTreeMap<i32, String>,
    /// The leader of each partition of a topic.
    leaders: HashMap<String, Vec<Option<i32>>>,
    /// The coordinator of each group and transactional id.
    coordinators: HashMap<(i8, String), i32>,
}

/// The kinds of coordinators.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

impl Routes {
    /// Clears the leaders and coordinators, so that the next attempt requests them again.
    pub(crate) fn forget(&mut self) {
        self.leaders.clear();
        self.coordinators.clear();
    }
}

impl Client {
    /// Returns the leader of a partition. Requests it if it is not cached.
    pub(crate) fn leader(
        &mut self,
        topic: &str,
        partition: i32,
        deadline: Instant,
    ) -> Result<i32, Failure> {
        if !self.routes.leaders.contains_key(topic) {
            let cluster = self.metadata_of(Node::Any, &[topic], deadline)?;
            self.remember(&cluster);
        }
        let Some(leaders) = self.routes.leaders.get(topic) else {
            return Err(Failure::retry(format!(
                "topic {topic} does not exist: create it first"
            )));
        };
        match usize::try_from(partition).ok().and_then(|p| leaders.get(p)) {
            Some(Some(leader)) => Ok(*leader),
            Some(None) => Err(Failure::retry(format!("{topic}-{partition} has no leader"))),
            None => Err(Failure::Final(anyhow::anyhow!(
                "{topic} has {} partitions, there is no {partition}",
                leaders.len()
            ))),
        }
    }

    /// Returns the number of partitions of a topic.
    pub(crate) fn partitions(&mut self, topic: &str, deadline: Instant) -> Result<i32, Failure> {
        self.leader(topic, 0, deadline)?;
        Ok(self.routes.leaders.get(topic).map_or(0, Vec::len) as i32)
    }

    /// Caches the addresses of brokers and the leaders of partitions.
    pub(super) fn remember(&mut self, cluster: &ClusterMetadata) {
        for broker in &cluster.brokers {
            let address = broker.address();
            if self.routes.brokers.get(&broker.id) != Some(&address) {
                self.hang_up(broker.id);
                self.routes.brokers.insert(broker.id, address);
            }
        }
        for (topic, partitions) in &cluster.topics {
            let leaders = partitions.iter().map(|p| p.leader).collect();
            self.routes.leaders.insert(topic.clone(), leaders);
        }
    }

    /// Returns the broker that currently receives requests to this node: the leader or the coordinator.
    ///
    /// # Errors
    /// If no broker does in time. Always for [`Node::Any`], which is no specific broker.
    pub fn broker_of(&mut self, node: Node<'_>) -> Result<i32> {
        self.routes.forget();
        self.retry("find a broker", |client, deadline| {
            let found = client.locate(node, deadline)?;
            Ok(found.context("any broker will do: name a node")?)
        })
    }

    /// Returns the leader of the metadata quorum, which is the active controller (DescribeQuorum, KIP-595).
    ///
    /// # Errors
    /// If no broker returns one in time.
    pub fn controller(&mut self) -> Result<i32> {
        let partition = PartitionData::default().with_partition_index(0);
        let topic = TopicData::default()
            .with_topic_name(topic_name("__cluster_metadata"))
            .with_partitions(vec![partition]);
        let request = DescribeQuorumRequest::default().with_topics(vec![topic]);
        self.retry("find the controller", |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            check(answer.error_code, || "DescribeQuorum".to_owned())?;
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            let found = partitions
                .next()
                .context("response without the partition")?;
            check(found.error_code, || "__cluster_metadata".to_owned())?;
            match found.leader_id.0 {
                leader if leader >= 0 => Ok(leader),
                _ => Err(Failure::retry("the quorum has no leader")),
            }
        })
    }

    /// Returns the broker that receives the request, or `None` if any broker can.
    pub(super) fn locate(
        &mut self,
        to: Node<'_>,
        deadline: Instant,
    ) -> Result<Option<i32>, Failure> {
        match to {
            Node::Any => Ok(None),
            Node::Broker(id) => Ok(Some(id)),
            Node::Leader(topic, partition) => self.leader(topic, partition, deadline).map(Some),
            Node::Group(group) => self.coordinator(GROUP, group, deadline).map(Some),
            Node::Transaction(id) => self.coordinator(TRANSACTION, id, deadline).map(Some),
        }
    }

    fn coordinator(&mut self, kind: i8, key: &str, deadline: Instant) -> Result<i32, Failure> {
        let slot = (kind, key.to_owned());
        if let Some(broker) = self.routes.coordinators.get(&slot) {
            return Ok(*broker);
        }
        let request = FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text(key)]);
        let answer = self.exchange(Node::Any, &request, deadline)?;
        let found = answer
            .coordinators
            .first()
            .with_context(|| format!("no coordinator named for {key}"))?;
        check(found.error_code, || format!("coordinator of {key}"))?;
        let address = address(found.host.as_str(), found.port);
        if self.routes.brokers.get(&found.node_id.0) != Some(&address) {
            self.hang_up(found.node_id.0);
            self.routes.brokers.insert(found.node_id.0, address);
        }
        self.routes.coordinators.insert(slot, found.node_id.0);
        Ok(found.node_id.0)
    }
}
