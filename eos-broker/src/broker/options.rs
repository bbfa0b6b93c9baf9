//! What may be chosen about the broker; names are those of Kafka's broker properties.

/// What names the embedded broker in a cluster id; as many digits follow as make it as long as Kafka's.
const CLUSTER: &str = "eos-embedded-";
const CLUSTER_DIGITS: u32 = 9;
/// The cluster id of incarnation 0.
const DEFAULT_CLUSTER_ID: &str = "eos-embedded-AAAAAAAAA";

/// How many producer ids each incarnation has for itself, as a power of two.
const PRODUCER_IDS: u32 = 32;
/// Sign, and two bits that keep the largest id far from the largest number.
const PRODUCER_ID_SPARE: u32 = 3;

/// How a broker behaves. The defaults are those of a quick single node for tests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// `cluster.id`. What is left at its default is made of the incarnation.
    pub cluster_id: String,
    /// Which life of the broker this is: ids of members, topics and producers, and the default cluster id,
    /// are made of it, so that a client that outlives a broker does not take its successor for it.
    ///
    /// 0 by default: runs can be repeated.
    pub incarnation: u64,
    /// `advertised.listeners`: the host that clients are told.
    pub host: String,
    /// `advertised.listeners`: the port that clients are told.
    pub port: u16,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `num.partitions`: of topics that are created without a number.
    pub num_partitions: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay_ms: i64,
    /// `group.min.session.timeout.ms`.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub group_max_session_timeout_ms: i32,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.topic.num.partitions`: how offsets are named among a transaction's partitions.
    pub offsets_topic_num_partitions: i32,
    /// `transaction.max.timeout.ms`.
    pub transaction_max_timeout_ms: i32,
    /// `transaction.partition.verification.enable`.
    pub transaction_partition_verification: bool,
    /// How long markers take after EndTxn was answered, in milliseconds.
    pub marker_delay_ms: i64,
    /// How long after one marker of a transaction the next one is written, in milliseconds. At 0 all of them are
    /// written at one moment.
    pub marker_spread_ms: i64,
    /// How many bytes of records the broker holds before it refuses more (`log.memory.max.bytes`).
    pub log_memory_max_bytes: usize,
    /// How many bytes of records a partition holds before it refuses more
    /// (`partition.memory.max.bytes`).
    pub partition_memory_max_bytes: usize,
    /// How many partitions there may be in all (`partitions.max`).
    pub partitions_max: usize,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        BrokerOptions {
            cluster_id: DEFAULT_CLUSTER_ID.into(),
            incarnation: 0,
            host: "127.0.0.1".into(),
            port: 9092,
            auto_create_topics: false,
            num_partitions: 1,
            group_initial_rebalance_delay_ms: 0,
            group_min_session_timeout_ms: 1_000,
            group_max_session_timeout_ms: 1_800_000,
            offset_metadata_max_bytes: 4_096,
            offsets_topic_num_partitions: 4,
            transaction_max_timeout_ms: 900_000,
            transaction_partition_verification: true,
            marker_delay_ms: 0,
            marker_spread_ms: 0,
            log_memory_max_bytes: 2 << 30,
            partition_memory_max_bytes: 1 << 30,
            partitions_max: 10_000,
        }
    }
}

impl BrokerOptions {
    /// The options with everything that follows from the incarnation.
    pub(super) fn incarnate(mut self) -> BrokerOptions {
        if self.cluster_id == DEFAULT_CLUSTER_ID {
            let number = folded(self.incarnation, 6 * CLUSTER_DIGITS);
            let digits = (0..CLUSTER_DIGITS)
                .rev()
                .map(|it| digit(number >> (6 * it)));
            self.cluster_id = CLUSTER.chars().chain(digits).collect();
        }
        self
    }

    /// The first producer id that is given out.
    pub(super) fn first_producer_id(&self) -> i64 {
        let block = folded(self.incarnation, 64 - PRODUCER_ID_SPARE - PRODUCER_IDS);
        (block << PRODUCER_IDS) as i64
    }

    /// The broker properties that DescribeConfigs shows, by name.
    pub(crate) fn properties(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "advertised.listeners",
                format!("PLAINTEXT://{}:{}", self.host, self.port),
            ),
            (
                "auto.create.topics.enable",
                self.auto_create_topics.to_string(),
            ),
            ("broker.id", super::NODE.to_string()),
            ("default.replication.factor", "1".into()),
            ("delete.topic.enable", "true".into()),
            (
                "group.initial.rebalance.delay.ms",
                self.group_initial_rebalance_delay_ms.to_string(),
            ),
            (
                "group.max.session.timeout.ms",
                self.group_max_session_timeout_ms.to_string(),
            ),
            (
                "group.min.session.timeout.ms",
                self.group_min_session_timeout_ms.to_string(),
            ),
            (
                "log.memory.max.bytes",
                self.log_memory_max_bytes.to_string(),
            ),
            ("message.max.bytes", "1048588".into()),
            ("min.insync.replicas", "1".into()),
            ("node.id", super::NODE.to_string()),
            ("num.partitions", self.num_partitions.to_string()),
            (
                "offset.metadata.max.bytes",
                self.offset_metadata_max_bytes.to_string(),
            ),
            ("offsets.retention.minutes", "10080".into()),
            (
                "offsets.topic.num.partitions",
                self.offsets_topic_num_partitions.to_string(),
            ),
            (
                "partition.memory.max.bytes",
                self.partition_memory_max_bytes.to_string(),
            ),
            ("partitions.max", self.partitions_max.to_string()),
            (
                "transaction.max.timeout.ms",
                self.transaction_max_timeout_ms.to_string(),
            ),
            (
                "transaction.partition.verification.enable",
                self.transaction_partition_verification.to_string(),
            ),
        ]
    }
}

/// As many low bits, on which every bit of the number has a say.
fn folded(number: u64, bits: u32) -> u64 {
    let (mut rest, mut sum) = (number, 0);
    while rest != 0 {
        sum ^= rest;
        rest >>= bits;
    }
    sum & ((1 << bits) - 1)
}

/// The last six bits as a digit of Kafka's ids, which are base 64.
fn digit(number: u64) -> char {
    char::from(match (number % 64) as u8 {
        it @ 0..26 => b'A' + it,
        it @ 26..52 => b'a' + it - 26,
        it @ 52..62 => b'0' + it - 52,
        62 => b'-',
        _ => b'_',
    })
}
