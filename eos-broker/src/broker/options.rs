//! The broker's options, with the names of Kafka's properties.

/// The prefix of the embedded broker's cluster ids. Digits fill it up to the length of Kafka's ids.
const CLUSTER: &str = "eos-embedded-";
const CLUSTER_DIGITS: u32 = 9;
/// The cluster id of incarnation 0.
const DEFAULT_CLUSTER_ID: &str = "eos-embedded-AAAAAAAAA";

/// The number of producer ids of each incarnation, as a power of two.
const PRODUCER_IDS: u32 = 32;
/// The sign, and two bits that keep the largest id far from the largest number.
const PRODUCER_ID_SPARE: u32 = 3;

/// The options of a broker. The defaults are those of a quick single node for tests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// `cluster.id`. The default is derived from the incarnation.
    pub cluster_id: String,
    /// The incarnation of the broker. The ids of members, topics and producers, and the default cluster id, are derived
    /// from it. So a client that outlives a broker does not mistake the next broker for it.
    ///
    /// The default is 0, so that runs can be repeated.
    pub incarnation: u64,
    /// `advertised.listeners`: the host in metadata responses.
    pub host: String,
    /// `advertised.listeners`: the port in metadata responses.
    pub port: u16,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `num.partitions`: the number of partitions of topics that are created without a number.
    pub num_partitions: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay_ms: i64,
    /// `group.min.session.timeout.ms`.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub group_max_session_timeout_ms: i32,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.topic.num.partitions`: the range of the offset partitions that are listed in a transaction.
    pub offsets_topic_num_partitions: i32,
    /// `transaction.max.timeout.ms`.
    pub transaction_max_timeout_ms: i32,
    /// `transaction.partition.verification.enable`.
    pub transaction_partition_verification: bool,
    /// The delay of markers after the response to EndTxn, in milliseconds.
    pub marker_delay_ms: i64,
    /// The delay between two markers of a transaction, in milliseconds. With 0, all of them are written at the same
    /// time.
    pub marker_spread_ms: i64,
    /// The limit of record bytes in the broker, above which it rejects records (`log.memory.max.bytes`).
    pub log_memory_max_bytes: usize,
    /// The limit of record bytes in a partition, above which it rejects records (`partition.memory.max.bytes`).
    pub partition_memory_max_bytes: usize,
    /// The maximum number of partitions in all topics (`partitions.max`).
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
    /// Returns the options with all values that are derived from the incarnation.
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

    /// Returns the first producer id to assign.
    pub(super) fn first_producer_id(&self) -> i64 {
        let block = folded(self.incarnation, 64 - PRODUCER_ID_SPARE - PRODUCER_IDS);
        (block << PRODUCER_IDS) as i64
    }

    /// Returns the broker properties of DescribeConfigs, by name.
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

/// Returns the low `bits` bits of a hash. Every bit of the number affects them.
fn folded(number: u64, bits: u32) -> u64 {
    let (mut rest, mut sum) = (number, 0);
    while rest != 0 {
        sum ^= rest;
        rest >>= bits;
    }
    sum & ((1 << bits) - 1)
}

/// Returns the last six bits as a digit of Kafka's ids, which are base 64.
fn digit(number: u64) -> char {
    char::from(match (number % 64) as u8 {
        it @ 0..26 => b'A' + it,
        it @ 26..52 => b'a' + it - 26,
        it @ 52..62 => b'0' + it - 52,
        62 => b'-',
        _ => b'_',
    })
}
