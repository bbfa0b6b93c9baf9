//! The librdkafka settings of each client.
//!
//! The user's settings override our defaults, and the settings that correctness needs override both. The caller has
//! already checked which of the user's keys are allowed.

use std::time::Duration;

use eos_client::{GroupProtocol, ProducerSpec, SourceSpec};

/// The minimum of librdkafka's overhead per fetched record, in bytes.
const KEPT_BESIDE: usize = 448;
/// The time that a broker holds a fetch without new records, for a source of one topic.
const FETCH_WAIT: Duration = Duration::from_millis(100);
/// The same for a source that reads several topics.
///
/// A consumer has one fetch under way at a broker. While the busy partitions have enough prefetched records, the
/// consumer fetches only from the quiet partitions. The prefetched records of the busy ones must last until this fetch returns.
const FETCH_WAIT_SEVERAL_TOPICS: Duration = Duration::from_millis(25);
/// The maximum number of records in a producer's queue. A worker waits while the queue is full.
const QUEUE: usize = 60_000;

/// A librdkafka setting: its name and its value.
pub type Setting = (String, String);

/// The settings of all clients. Each source and producer adds more.
///
/// The caller has checked the user's properties: this crate rejects none. Settings that correctness needs override
/// them.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// `bootstrap.servers`.
    pub bootstrap: String,
    /// The user's properties of every client. The last one of a name counts.
    pub common: Vec<Setting>,
    /// The user's properties of consumers.
    pub consumer: Vec<Setting>,
    /// The user's properties of producers.
    pub producer: Vec<Setting>,
    /// Values that never appear in errors and log lines.
    pub secrets: Vec<String>,
    /// Removes a defence: producers do not record unanswered requests.
    #[cfg(feature = "failpoints")]
    pub without_quarantine: bool,
}

impl std::fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys only: the values include passwords, and the user may misspell a password's key.
        let keys = |settings: &[Setting]| settings.iter().map(|s| s.0.clone()).collect::<Vec<_>>();
        f.debug_struct("KafkaConfig")
            .field("bootstrap", &self.bootstrap)
            .field("common", &keys(&self.common))
            .field("consumer", &keys(&self.consumer))
            .field("producer", &keys(&self.producer))
            .finish_non_exhaustive()
    }
}

impl KafkaConfig {
    /// Returns whether producers record unanswered requests.
    pub(super) fn notes_unanswered(&self) -> bool {
        #[cfg(feature = "failpoints")]
        if self.without_quarantine {
            return false;
        }
        true
    }

    /// Returns the settings for queries about the cluster.
    pub(super) fn for_queries(&self, client_id: &str) -> Vec<Setting> {
        let mut all = Settings::beneath(self, client_id);
        // A broker that closes the connection on a query rejects it. That is logged.
        all.set("log.connection.close", true);
        all.add(&self.common);
        all.set("bootstrap.servers", &self.bootstrap);
        all.creates_no_topics();
        all.0
    }

    /// Returns the settings for a deletion of records, as [`Self::for_queries`], but without brokers.
    pub(super) fn for_deletions(&self, client_id: &str) -> Vec<Setting> {
        let mut all = Settings(self.for_queries(client_id));
        all.0.retain(|(key, _)| key != "bootstrap.servers");
        // Suppresses the notice of each such client that it has no brokers.
        all.set("log_level", 4);
        all.0
    }

    /// Returns the settings for queries of ends as a reader of all records: `ListOffsets` has the isolation level of
    /// its client (`rd_kafka_ListOffsetsRequest`), and a source's is read_committed.
    pub(super) fn for_lookups(&self, client_id: &str) -> Vec<Setting> {
        let mut all = Settings(self.for_queries(client_id));
        all.set("isolation.level", "read_uncommitted");
        all.0
    }

    /// Returns the settings for a source.
    pub(super) fn for_source(&self, spec: &SourceSpec) -> Vec<Setting> {
        let mut all = Settings::beneath(self, &spec.client_id);
        // A fetch long-polls all partitions of a broker at once, so a newly assigned or sought partition waits for it.
        let wait = if spec.reads_several_topics {
            FETCH_WAIT_SEVERAL_TOPICS
        } else {
            FETCH_WAIT
        };
        all.set("fetch.wait.max.ms", wait.as_millis());
        // The default of 1 s is a 1 s gap whenever the prefetch limit was reached. The prefetched records of one of
        // many partitions are processed in a few milliseconds.
        all.set("fetch.queue.backoff.ms", 2);
        // The pause between two queries of an offset that an open transaction holds.
        all.set("retry.backoff.ms", 20);
        all.set("retry.backoff.max.ms", 200);
        all.set("max.poll.interval.ms", 300_000);
        all.set(
            "queued.max.messages.kbytes",
            (spec.prefetch / 1024).clamp(1, 2_097_151),
        );
        // The default is 100,000 per partition, and a megabyte per fetch of each, for any number of partitions.
        // librdkafka's overhead per record is more than a small record itself: 350 MiB for a dozen partitions.
        all.set("queued.min.messages", (spec.prefetch / KEPT_BESIDE).max(1));
        all.set(
            "max.partition.fetch.bytes",
            at_a_time(spec.prefetch, spec.restores),
        );
        all.add(&self.common);
        all.add(&self.consumer);

        all.set("bootstrap.servers", &self.bootstrap);
        all.set("group.id", &spec.group);
        match &spec.protocol {
            GroupProtocol::Classic {
                instance_id,
                session_timeout,
                heartbeat_interval,
            } => {
                all.set("group.protocol", "classic");
                if let Some(id) = instance_id {
                    all.set("group.instance.id", id);
                }
                all.set("session.timeout.ms", session_timeout.as_millis());
                all.set("heartbeat.interval.ms", heartbeat_interval.as_millis());
                // Incremental: a rebalance stops only the partitions that move. `assign` and `unassign` require it.
                all.set("partition.assignment.strategy", "cooperative-sticky");
            }
            // Always incremental. librdkafka rejects the settings that the brokers determine: session timeout,
            // heartbeat interval and strategy.
            GroupProtocol::Consumer => all.set("group.protocol", "consumer"),
        }
        all.set("isolation.level", "read_committed");
        all.set("enable.auto.commit", false);
        all.set("enable.auto.offset.store", false);
        // Enabled, it would lose a record at a rebalance: see `tail`.
        all.set("enable.partition.eof", false);
        // The runtime handles a missing offset, without a silent reset.
        all.set("auto.offset.reset", "error");
        all.creates_no_topics();
        all.0
    }

    /// Returns the settings for a producer.
    pub(super) fn for_producer(&self, spec: &ProducerSpec) -> Vec<Setting> {
        let mut all = Settings::beneath(self, &spec.client_id);
        // Commits flush. Until then larger batches are better than an early start.
        all.set("linger.ms", 20);
        all.set("batch.size", 1_000_000);
        all.set("batch.num.messages", 10_000);
        all.set("queue.buffering.max.kbytes", 256 * 1024);
        // The retry delay after CONCURRENT_TRANSACTIONS and other transient errors of the coordinator. The default of
        // 100 ms would slow down every commit with such an error.
        all.set("retry.backoff.ms", 10);
        all.set("retry.backoff.max.ms", 200);
        all.set("compression.type", "none");
        all.add(&self.common);
        all.add(&self.producer);

        all.set("bootstrap.servers", &self.bootstrap);
        all.creates_no_topics();
        all.set("enable.idempotence", true);
        // A worker waits when the queue is full. This limits not a transaction, but the overhead of unacknowledged
        // records, which is larger than small records themselves.
        all.set("queue.buffering.max.messages", QUEUE);
        // Delivered records are freed at their acknowledgement. Only failures are reported.
        all.set("delivery.report.only.error", true);
        let limits = || spec.batch_limits.iter().copied().flatten();
        // A batch of several records must fit into any of the topics …
        if let Some(least) = limits().min() {
            all.at_most("batch.size", least);
        }
        // … and a single one into its own, which the runtime has checked before it sends it.
        if let Some(most) = limits().max() {
            all.set("message.max.bytes", most.clamp(1000, 1_000_000_000));
        }
        all.set("socket.timeout.ms", spec.request_timeout.as_millis());
        // A missing output topic fails its records within their commit. The default of 30 s is longer than a commit:
        // each commit would be aborted and repeated.
        all.set(
            "topic.metadata.propagation.max.ms",
            spec.request_timeout.as_millis(),
        );
        if let Some(id) = &spec.transactional_id {
            // The last resort for `send_offsets`, if the reconnect of `CoordinatorWatch` does not help: idle connections
            // are closed, so that librdkafka looks up the coordinator again. The limit is longer than any request,
            // because librdkafka does not check for requests in flight (`rd_kafka_broker_idle_check`). 2 s are its
            // jitter.
            let idle = spec.request_timeout * 2 + Duration::from_secs(2);
            all.set("connections.max.idle.ms", idle.as_millis());
            all.set("transactional.id", id.as_str());
            all.set(
                "transaction.timeout.ms",
                spec.transaction_timeout.as_millis(),
            );
        }
        all.0
    }
}

/// Returns the fetch size of a partition, in bytes. Every response costs both sides some hundred microseconds. So with
/// few partitions it is a megabyte, as by default (docs/design/0030). It falls with the square of their number, because
/// with small records, most memory is in responses (docs/design/0026). If changelogs are also read, there are more
/// partitions than `prefetch` was calculated for.
fn at_a_time(prefetch: usize, restores: bool) -> usize {
    let kib = prefetch.min(4 << 20) / 1024;
    let most = if restores { kib * 64 } else { kib * kib / 16 };
    most.clamp(64 << 10, 1 << 20)
}

/// Settings in librdkafka's order: the last one of a key counts.
struct Settings(Vec<Setting>);

impl Settings {
    /// Returns the defaults of every client, which the user may override.
    fn beneath(_config: &KafkaConfig, client_id: &str) -> Self {
        let mut all = Self(Vec::new());
        all.set("client.id", client_id);
        // KIP-714 telemetry has no reader here, and its end delays the end of a client.
        all.set("enable.metrics.push", false);
        // Brokers close idle connections every ten minutes. That is not logged.
        all.set("log.connection.close", false);
        all.set("reconnect.backoff.max.ms", 1000);
        all
    }

    fn set(&mut self, key: &str, value: impl ToString) {
        self.0.push((key.to_owned(), value.to_string()));
    }

    /// Prevents the client from creating a deleted topic again. librdkafka's default for producers is `true`: each
    /// refresh of their metadata would make brokers create it (`auto.create.topics.enable`, on by default). Its
    /// partition count and retention would not be the intended ones.
    fn creates_no_topics(&mut self) {
        self.set("allow.auto.create.topics", false);
    }

    /// Lowers a number to the limit.
    fn at_most(&mut self, key: &str, limit: usize) {
        let set = self.0.iter().rev().find(|(name, _)| name == key);
        let now = set.and_then(|(_, value)| value.parse::<usize>().ok());
        if now.is_none_or(|now| now > limit) {
            self.set(key, limit);
        }
    }

    fn add(&mut self, settings: &[Setting]) {
        self.0.extend_from_slice(settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KafkaConfig {
        let setting = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        KafkaConfig {
            bootstrap: "broker:9092".into(),
            common: vec![setting("sasl.password", "hunter2")],
            consumer: vec![
                setting("fetch.wait.max.ms", "7"),
                setting("isolation.level", "read_uncommitted"),
            ],
            producer: vec![
                setting("linger.ms", "1"),
                setting("enable.idempotence", "false"),
            ],
            secrets: vec!["hunter2".into()],
            ..KafkaConfig::default()
        }
    }

    fn last<'a>(settings: &'a [Setting], key: &str) -> Option<&'a str> {
        settings
            .iter()
            .rev()
            .find(|s| s.0 == key)
            .map(|s| s.1.as_str())
    }

    #[test]
    fn the_user_tunes_a_source_but_never_what_exactly_once_rests_on() {
        let spec = SourceSpec {
            prefetch: 4 << 20,
            restores: false,
            reads_several_topics: false,
            watched: Vec::new(),
            group: "pricing".into(),
            client_id: "pricing-0".into(),
            protocol: GroupProtocol::Classic {
                instance_id: Some("pricing-a-0".into()),
                session_timeout: Duration::from_secs(30),
                heartbeat_interval: Duration::from_millis(500),
            },
        };
        let all = config().for_source(&spec);
        assert_eq!(last(&all, "fetch.wait.max.ms"), Some("7"));
        assert_eq!(last(&all, "isolation.level"), Some("read_committed"));
        assert_eq!(last(&all, "auto.offset.reset"), Some("error"));
        assert_eq!(last(&all, "group.instance.id"), Some("pricing-a-0"));
        assert_eq!(last(&all, "session.timeout.ms"), Some("30000"));
        assert_eq!(last(&all, "heartbeat.interval.ms"), Some("500"));
        assert_eq!(last(&all, "queued.max.messages.kbytes"), Some("4096"));
        assert_eq!(last(&all, "queued.min.messages"), Some("9362"));
        assert_eq!(last(&all, "max.partition.fetch.bytes"), Some("1048576"));
        assert_eq!(last(&all, "sasl.password"), Some("hunter2"));

        let protocol = GroupProtocol::Consumer;
        let all = config().for_source(&SourceSpec { protocol, ..spec });
        assert_eq!(last(&all, "group.protocol"), Some("consumer"));
        for broker_decides in [
            "group.instance.id",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "partition.assignment.strategy",
        ] {
            assert_eq!(last(&all, broker_decides), None, "{broker_decides}");
        }
    }

    #[test]
    fn a_source_of_several_topics_has_a_short_fetch_wait() {
        let of = |reads_several_topics| {
            let all = KafkaConfig::default().for_source(&SourceSpec {
                group: "pricing".into(),
                client_id: "pricing-0".into(),
                protocol: GroupProtocol::Consumer,
                prefetch: 4 << 20,
                restores: true,
                reads_several_topics,
                watched: Vec::new(),
            });
            last(&all, "fetch.wait.max.ms").map(str::to_owned)
        };
        assert_eq!(of(false).as_deref(), Some("100"));
        assert_eq!(of(true).as_deref(), Some("25"));
    }

    #[test]
    fn little_is_fetched_at_a_time_of_each_of_many_partitions() {
        let of = |partitions: usize, restores| at_a_time((24 << 20) / partitions, restores) >> 10;
        assert_eq!(
            [1, 6, 12, 24, 96].map(|n| of(n, false)),
            [1024, 1024, 256, 64, 64]
        );
        assert_eq!(
            [1, 6, 12, 24, 96].map(|n| of(n, true)),
            [256, 256, 128, 64, 64]
        );
        for restores in [false, true] {
            let falling = (1..100).map(|n| of(n, restores)).collect::<Vec<_>>();
            assert!(falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
            assert_eq!(at_a_time(0, restores), 64 << 10);
        }
        assert_eq!(at_a_time(usize::MAX, false), 1 << 20);
    }

    #[test]
    fn a_producer_without_a_transactional_id_is_idempotent_all_the_same() {
        let spec = ProducerSpec {
            client_id: "pricing-0".into(),
            transactional_id: None,
            transaction_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(2),
            topics: Vec::new(),
            batch_limits: Vec::new(),
        };
        let all = config().for_producer(&spec);
        assert_eq!(last(&all, "enable.idempotence"), Some("true"));
        assert_eq!(last(&all, "linger.ms"), Some("1"));
        assert_eq!(last(&all, "transactional.id"), None);
        let spec = ProducerSpec {
            transactional_id: Some("t".into()),
            ..spec
        };
        let all = config().for_producer(&spec);
        assert_eq!(last(&all, "transactional.id"), Some("t"));
        assert_eq!(last(&all, "socket.timeout.ms"), Some("2000"));
        assert_eq!(last(&all, "connections.max.idle.ms"), Some("6000"));
        assert_eq!(
            last(&all, "topic.metadata.propagation.max.ms"),
            Some("2000")
        );
    }

    #[test]
    fn batches_fit_into_the_strictest_topic_and_records_into_their_own() {
        let spec = ProducerSpec {
            client_id: "pricing-0".into(),
            transactional_id: None,
            transaction_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(2),
            topics: Vec::new(),
            batch_limits: vec![Some(20_000), None, Some(5_000_000)],
        };
        let all = config().for_producer(&spec);
        assert_eq!(last(&all, "batch.size"), Some("20000"));
        assert_eq!(last(&all, "message.max.bytes"), Some("5000000"));
    }

    #[test]
    fn values_are_never_printed() {
        let printed = format!("{:?}", config());
        assert!(
            printed.contains("sasl.password") && !printed.contains("hunter2"),
            "{printed}"
        );
    }

    #[test]
    fn no_client_has_brokers_create_a_topic_that_is_gone() {
        let source = SourceSpec {
            group: "pricing".into(),
            client_id: "pricing-0".into(),
            protocol: GroupProtocol::Consumer,
            prefetch: 4 << 20,
            restores: true,
            reads_several_topics: true,
            watched: Vec::new(),
        };
        let producer = ProducerSpec {
            client_id: "pricing-0".into(),
            transactional_id: None,
            transaction_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(2),
            topics: Vec::new(),
            batch_limits: Vec::new(),
        };
        let mut config = config();
        let allow = ("allow.auto.create.topics".to_owned(), "true".to_owned());
        config.common.push(allow.clone());
        config.consumer.push(allow.clone());
        config.producer.push(allow);
        for all in [
            config.for_source(&source),
            config.for_producer(&producer),
            config.for_queries("q"),
            config.for_deletions("d"),
            config.for_lookups("l"),
        ] {
            assert_eq!(last(&all, "allow.auto.create.topics"), Some("false"));
        }
    }
}
