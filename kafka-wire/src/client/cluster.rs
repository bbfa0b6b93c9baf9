//! The metadata of a cluster.

use std::collections::BTreeMap;

use anyhow::Result;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_response::{MetadataResponse, MetadataResponseTopic};

use super::Client;
use super::routing::Node;
use crate::connection::{Failure, check};
use crate::requests;

/// The brokers, the controller and the topics at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterMetadata {
    /// The live brokers.
    pub brokers: Vec<Broker>,
    /// The controller, once one is elected. Under KRaft a broker names any live broker here.
    pub controller: Option<i32>,
    /// The partitions of each requested topic, in order. A topic that does not exist is absent.
    pub topics: BTreeMap<String, Vec<Partition>>,
}

/// A broker and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// The node id.
    pub id: i32,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: u16,
}

/// A partition and its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The number of the partition within its topic.
    pub id: i32,
    /// The broker that leads the partition, or `None` during an election.
    pub leader: Option<i32>,
    /// Every broker that holds a replica.
    pub replicas: Vec<i32>,
    /// The replicas that are in sync with the leader.
    pub in_sync: Vec<i32>,
}

impl Broker {
    /// `host:port`, or `[host]:port` for an IPv6 address.
    pub fn address(&self) -> String {
        address(&self.host, self.port)
    }
}

/// Brokers advertise an IPv6 address without brackets.
pub(super) fn address(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

impl Client {
    /// Returns the brokers, the controller and the given topics. `None` requests every topic.
    ///
    /// # Errors
    /// If no broker responds in time.
    pub fn metadata(&mut self, topics: Option<&[&str]>) -> Result<ClusterMetadata> {
        self.retry("read the cluster's metadata", |client, deadline| {
            let answer = client.exchange(Node::Any, &requests::metadata(topics), deadline)?;
            client.learn(answer)
        })
    }

    /// Returns one node's metadata of some topics, which may lag behind the other nodes.
    pub(super) fn metadata_of(
        &mut self,
        node: Node<'_>,
        topics: &[&str],
        deadline: std::time::Instant,
    ) -> Result<ClusterMetadata, Failure> {
        let answer = self.exchange(node, &requests::metadata(Some(topics)), deadline)?;
        understand(answer)
    }

    fn learn(&mut self, answer: MetadataResponse) -> Result<ClusterMetadata, Failure> {
        let cluster = understand(answer)?;
        self.remember(&cluster);
        Ok(cluster)
    }
}

fn understand(answer: MetadataResponse) -> Result<ClusterMetadata, Failure> {
    let brokers = answer.brokers.iter().map(|broker| Broker {
        id: broker.node_id.0,
        host: broker.host.to_string(),
        port: broker.port as u16,
    });
    let mut topics = BTreeMap::new();
    for topic in &answer.topics {
        let name = topic.name.as_ref().map_or("", |name| name.as_str());
        if topic.error_code == ResponseError::UnknownTopicOrPartition.code() {
            continue;
        }
        check(topic.error_code, || format!("topic {name}"))?;
        topics.insert(name.to_owned(), partitions(topic));
    }
    Ok(ClusterMetadata {
        brokers: brokers.collect(),
        controller: known(answer.controller_id.0),
        topics,
    })
}

fn partitions(topic: &MetadataResponseTopic) -> Vec<Partition> {
    let ids = |nodes: &[kafka_protocol::messages::BrokerId]| nodes.iter().map(|id| id.0).collect();
    let mut partitions: Vec<_> = topic
        .partitions
        .iter()
        .map(|partition| Partition {
            id: partition.partition_index,
            leader: known(partition.leader_id.0),
            replicas: ids(&partition.replica_nodes),
            in_sync: ids(&partition.isr_nodes),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.id);
    partitions
}

/// The protocol encodes "no broker" as -1.
fn known(id: i32) -> Option<i32> {
    (id >= 0).then_some(id)
}
