//! The settings and the reports of a client.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_protocol::state::TopicUuid;
use eos_protocol::{Guarantee, Offset, SeenTopic, TopicName, TopicPartition, TransactionalId};

use super::ClientError;

/// The settings of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// `group.id`.
    pub group: String,
    /// `client.id`.
    pub client_id: String,
    /// The group protocol.
    pub protocol: GroupProtocol,
    /// The limit of prefetched keys and values of one partition, in bytes.
    pub prefetch: usize,
    /// Whether the source also reads changelogs.
    pub restores: bool,
    /// Whether the source reads several topics, apart from changelogs. A fetch from a topic without new records can delay
    /// the fetches from busy topics.
    pub reads_several_topics: bool,
    /// The topics that the source queries periodically: see [`SourceEvent::Topics`].
    pub watched: Vec<TopicName>,
}

/// The protocol of a group member (`group.protocol`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The classic protocol, with incremental rebalances (KIP-429).
    Classic {
        /// `group.instance.id`, or `None` for a dynamic member.
        instance_id: Option<String>,
        /// `session.timeout.ms`.
        session_timeout: Duration,
        /// `heartbeat.interval.ms`: the delay until the member detects a rebalance.
        heartbeat_interval: Duration,
    },
    /// The protocol of KIP-848: the brokers assign partitions and set the session timeout. There are no static members:
    /// the group would refuse the successor of a killed member until its session ends (UNRELEASED_INSTANCE_ID).
    Consumer,
}

/// The settings of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerSpec {
    /// `client.id`.
    pub client_id: String,
    /// `transactional.id`; `None` under [`Guarantee::AtLeastOnce`].
    pub transactional_id: Option<TransactionalId>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout: Duration,
    /// `socket.timeout.ms`: at most half the commit deadline, because `send_offsets` ends only with its requests.
    pub request_timeout: Duration,
    /// The output topics. [`Outgoing::topic`](super::Outgoing::topic) is an index into them.
    pub topics: Vec<TopicName>,
    /// The largest batch that each of these topics accepts in bytes (`max.message.bytes`), if it is known.
    pub batch_limits: Vec<Option<usize>>,
}

impl ProducerSpec {
    /// Returns the guarantee of a producer with these settings.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        match self.transactional_id {
            Some(_) => Guarantee::ExactlyOnce,
            None => Guarantee::AtLeastOnce,
        }
    }
}

/// An event of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// The group assigned these partitions. Respond with [`Source::assign`](super::Source::assign).
    Assigned(Vec<TopicPartition>),
    /// The group revokes these partitions. Respond with [`Source::unassign`](super::Source::unassign).
    Revoked {
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// Whether the partitions are lost already: another member may own them.
        lost: bool,
    },
    /// A requested offset does not exist (`auto.offset.reset=error`). The client does not fetch the partition until it
    /// is sought or assigned.
    OutOfRange {
        /// The partition.
        partition: TopicPartition,
        /// The offset, if it is known. It may date from before the last seek or assignment.
        asked: Option<Offset>,
    },
    /// The brokers' report on the [watched](SourceSpec::watched) topics, without the topics that got no response. A
    /// source reports it at least every ten seconds, and whenever a topic may have been replaced. No record is
    /// delivered between such a report and the poll that takes it.
    Topics(Vec<(TopicName, Option<SeenTopic>)>),
    /// These partitions start again from their committed offsets, because another writer moved the offsets, or they
    /// went back. Only clients whose offsets are outside of Kafka report it.
    Moved(Vec<TopicPartition>),
    /// The consumer failed permanently.
    Failed(ClientError),
}

/// A group's committed offset for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset; `None` if the group has none.
    pub offset: Option<Offset>,
    /// The metadata of the committed offset.
    pub metadata: String,
}

/// The beginning and the end of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetBounds {
    /// The partition.
    pub partition: TopicPartition,
    /// The log start offset.
    pub first: Offset,
    /// The next offset for a reader of committed records.
    pub end: Offset,
}

/// The beginning and the end of a partition, for a restore.
///
/// The three offsets are queried in parallel, not at one moment. `end` is never less than `stable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnds {
    /// The partition.
    pub partition: TopicPartition,
    /// The log start offset.
    pub first: Offset,
    /// The last stable offset: the end for a reader of committed records.
    pub stable: Offset,
    /// The high watermark: the end for a reader of all records, open transactions included.
    pub end: Offset,
}

/// An offset to commit in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: Offset,
    /// The metadata, which names the transaction.
    pub metadata: String,
}

/// The client's current view of a group member, unchecked.
pub trait GroupMetadata {
    /// `generation.id`, or the member epoch. −1 without a member.
    fn generation_id(&self) -> i32;
    /// `member.id`. Empty without a member.
    fn member_id(&self) -> &str;
}

/// Whether the brokers verify the transactions of clients without KIP-890 (`transaction.partition.verification.enable`,
/// Kafka 3.6 and newer).
///
/// In ascending order: of several brokers the weakest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verification {
    /// The brokers do not verify: it is switched off, or they are older than Kafka 3.6.
    Off,
    /// Unknown, because the client has no permission to describe the broker.
    Unknown,
    /// The brokers verify.
    On,
}

/// The facts of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// `cluster.id`, if the cluster reports it.
    pub cluster_id: Option<String>,
    /// The requested topics. `None` for a topic that does not exist.
    pub topics: Vec<(TopicName, Option<TopicFacts>)>,
    /// The visible topics of the cluster. Empty if all requested topics exist, and if no broker responded.
    pub others: Vec<TopicName>,
    /// Whether the brokers verify transactions.
    pub verification: Verification,
    /// The brokers' limits.
    pub limits: BrokerLimits,
}

impl ClusterFacts {
    /// Returns the facts of a topic. `None` if it does not exist or was not requested.
    #[must_use]
    pub fn topic(&self, name: &TopicName) -> Option<&TopicFacts> {
        let mut topics = self.topics.iter();
        topics.find(|(topic, _)| topic == name)?.1.as_ref()
    }
}

/// The facts of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicFacts {
    /// The number of partitions.
    pub partitions: u32,
    /// The lowest number of replicas of any partition.
    pub replication: u32,
    /// The topic id (KIP-516), or `None` if the brokers do not report it.
    pub id: Option<TopicUuid>,
    /// The settings, inherited values included. `None` without permission to read them.
    pub settings: Option<BTreeMap<String, String>>,
}

impl TopicFacts {
    /// Returns the value of a setting. `None` if there is no such setting, or without permission to read it.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        Some(self.settings.as_ref()?.get(key)?.as_str())
    }

    /// Returns the size limit of a compressed batch, in bytes (`max.message.bytes`).
    #[must_use]
    pub fn max_message_bytes(&self) -> Option<u64> {
        self.setting("max.message.bytes")?.parse().ok()
    }
}

/// A topic to create, with the brokers' default replication factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    /// The name.
    pub name: TopicName,
    /// The number of partitions.
    pub partitions: u32,
    /// The settings that differ from the brokers' defaults.
    pub settings: Vec<(String, String)>,
}

/// The limits of the strictest broker. `None` without permission to read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// `transaction.max.timeout.ms`.
    pub max_transaction_timeout: Option<Duration>,
    /// `group.min.session.timeout.ms`, of the classic protocol.
    pub min_session_timeout: Option<Duration>,
    /// `group.max.session.timeout.ms`, of the classic protocol.
    pub max_session_timeout: Option<Duration>,
}
