//! What is asked of a client, and what it reports.

use std::collections::BTreeMap;
use std::time::Duration;

use eos_protocol::state::TopicUuid;
use eos_protocol::{Guarantee, Offset, SeenTopic, TopicName, TopicPartition, TransactionalId};

use super::ClientError;

/// How a source is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// `group.id`.
    pub group: String,
    /// `client.id`.
    pub client_id: String,
    /// How it is a member of the group.
    pub protocol: GroupProtocol,
    /// How many bytes of keys and values one partition may have waiting here.
    pub prefetch: usize,
    /// Whether changelogs are read through it, too.
    pub restores: bool,
    /// The topics that it queries the brokers for now and then: see [`SourceEvent::Topics`].
    pub watched: Vec<TopicName>,
}

/// How a source is a member of its group (`group.protocol`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The classic protocol, with incremental rebalances (KIP-429).
    Classic {
        /// `group.instance.id`; `None` makes a dynamic member.
        instance_id: Option<String>,
        /// `session.timeout.ms`.
        session_timeout: Duration,
        /// `heartbeat.interval.ms`: how soon the member learns of a rebalance.
        heartbeat_interval: Duration,
    },
    /// KIP-848's: the brokers assign, and say how long a session is. There are no static members:
    /// the successor of one that was killed would be refused until its session ends
    /// (UNRELEASED_INSTANCE_ID).
    Consumer,
}

/// How a producer is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerSpec {
    /// `client.id`.
    pub client_id: String,
    /// `transactional.id`; `None` under [`Guarantee::AtLeastOnce`].
    pub transactional_id: Option<TransactionalId>,
    /// `transaction.timeout.ms`.
    pub transaction_timeout: Duration,
    /// `socket.timeout.ms`: at most half the commit deadline, for `send_offsets` ends only with
    /// its requests.
    pub request_timeout: Duration,
    /// The topics it writes to; [`Outgoing::topic`](super::Outgoing::topic) is an index into them.
    pub topics: Vec<TopicName>,
    /// The largest batch that each of these takes (`max.message.bytes`), if it is known.
    pub batch_limits: Vec<Option<usize>>,
}

impl ProducerSpec {
    /// What a producer of this kind is good for.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        match self.transactional_id {
            Some(_) => Guarantee::ExactlyOnce,
            None => Guarantee::AtLeastOnce,
        }
    }
}

/// Something that happened to a source.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// The group gave us these partitions; answered by [`Source::assign`](super::Source::assign).
    Assigned(Vec<TopicPartition>),
    /// The group wants these back; answered by [`Source::unassign`](super::Source::unassign).
    Revoked {
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// Whether the partitions are lost already: another member may own them.
        lost: bool,
    },
    /// An offset that we asked for does not exist (`auto.offset.reset=error`). The partition is fetched no
    /// more until it is sought or assigned.
    OutOfRange {
        /// The partition.
        partition: TopicPartition,
        /// The offset, if it is known: it may be one from before the partition was last sought or assigned.
        asked: Option<Offset>,
    },
    /// What the brokers report of the [watched](SourceSpec::watched) topics, those left out for which there was
    /// no answer. A source reports it every ten seconds or more often, and whenever a topic may have become
    /// another one. No record is handed out between such a report and the poll that takes it.
    Topics(Vec<(TopicName, Option<SeenTopic>)>),
    /// The consumer cannot go on.
    Failed(ClientError),
}

/// A group's committed offset for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset; `None` if the group has none.
    pub offset: Option<Offset>,
    /// The metadata beside it.
    pub metadata: String,
}

/// Where a partition begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetBounds {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset still there.
    pub first: Offset,
    /// The next offset that a reader of committed records has to wait for.
    pub end: Offset,
}

/// Where a partition begins and ends, for a restore.
///
/// The three are looked up side by side, not at one moment; `end` is never less than `stable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnds {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset still there.
    pub first: Offset,
    /// The last stable offset: where a reader of committed records ends.
    pub stable: Offset,
    /// The high watermark: where a reader of everything ends, open transactions included.
    pub end: Offset,
}

/// An offset on its way into a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: Offset,
    /// The transaction's name.
    pub metadata: String,
}

/// The group's view of a member, as the client has it at this moment: unchecked.
pub trait GroupMetadata {
    /// `generation.id`, or the member epoch; −1 without a member.
    fn generation_id(&self) -> i32;
    /// `member.id`; empty without a member.
    fn member_id(&self) -> &str;
}

/// Whether the brokers verify the transactions of clients that don't speak KIP-890
/// (`transaction.partition.verification.enable`, Kafka 3.6 and newer).
///
/// In ascending order: of several brokers the weakest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verification {
    /// They don't: switched off, or older than Kafka 3.6.
    Off,
    /// We may not ask (no permission to describe the broker).
    Unknown,
    /// They do.
    On,
}

/// What a cluster says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// `cluster.id`, if the cluster tells.
    pub cluster_id: Option<String>,
    /// The topics that were asked for; `None` for one that does not exist.
    pub topics: Vec<(TopicName, Option<TopicFacts>)>,
    /// The visible topics of the cluster. Empty unless a requested topic does not exist, and if no
    /// broker responded.
    pub others: Vec<TopicName>,
    /// See [`Verification`].
    pub verification: Verification,
    /// What the brokers allow.
    pub limits: BrokerLimits,
}

impl ClusterFacts {
    /// What is known of a topic; `None` if it does not exist or was not asked for.
    #[must_use]
    pub fn topic(&self, name: &TopicName) -> Option<&TopicFacts> {
        let mut topics = self.topics.iter();
        topics.find(|(topic, _)| topic == name)?.1.as_ref()
    }
}

/// What a cluster says of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicFacts {
    /// How many partitions it has.
    pub partitions: u32,
    /// How many replicas, of the partition that has fewest.
    pub replication: u32,
    /// Which of all topics of that name (KIP-516); `None` if the brokers don't tell.
    pub id: Option<TopicUuid>,
    /// What it is set to, inherited values among them; `None` if we may not ask.
    pub settings: Option<BTreeMap<String, String>>,
}

impl TopicFacts {
    /// What it is set to; `None` if there is no such setting, or we may not ask.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&str> {
        Some(self.settings.as_ref()?.get(key)?.as_str())
    }

    /// How large a batch may be, compressed, in bytes (`max.message.bytes`).
    #[must_use]
    pub fn max_message_bytes(&self) -> Option<u64> {
        self.setting("max.message.bytes")?.parse().ok()
    }
}

/// A topic to create, with as many replicas as the brokers give by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// How many partitions it gets.
    pub partitions: u32,
    /// What it is set to, beyond the brokers' defaults.
    pub settings: Vec<(String, String)>,
}

/// What brokers allow, the strictest of them; `None` if we may not ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// `transaction.max.timeout.ms`.
    pub max_transaction_timeout: Option<Duration>,
    /// `group.min.session.timeout.ms`, of the classic protocol.
    pub min_session_timeout: Option<Duration>,
    /// `group.max.session.timeout.ms`, of the classic protocol.
    pub max_session_timeout: Option<Duration>,
}
