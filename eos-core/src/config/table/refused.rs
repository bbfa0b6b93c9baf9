//! Properties that can't be set, with reasons and alternatives.
//!
//! They are required by the guarantee, have no effect here, or exist only in Java's clients or in Kafka Streams.

use super::{Clients, Property, fixed, refused};

const OFFSETS: &str =
    "the runtime commits offsets in its transactions, and nothing else may; delete it";
const TRANSACTIONS: &str = "every effect goes through the runtime's transactions; delete it";
const IDENTITY: &str = "it is derived from the app's name and the slot, so that a restart fences its predecessor; use \
     `App::new`, `slot` or `static.membership`";
const CALLBACK: &str = "it is a callback of the C library, not a text; delete it";
const RECORD_ERRORS: &str = "the program sets the error policy of each source; use `on_error`";
const NO_STANDBYS: &str =
    "there are no standby copies of state: a task that moves reads its changelog; delete it";
const NO_CACHE: &str = "there is no cache that delays updates; for the memory of the databases use \
                        `state.memory.bytes`";
const NO_WINDOWS: &str = "the program sets the size and the retention of windows; delete it";
const ENGINE: &str =
    "RocksDB is the only engine, and the runtime configures it; use `state.memory.bytes`";
const METRICS: &str =
    "metrics come from the runtime, not from plug-ins of the client; use `Handle::metrics`";
const TYPES: &str =
    "`Topic` carries the types of keys and values and how they are encoded; delete it";
const OBSOLETE: &str = "librdkafka ignores it; delete it";
const OLD_BROKERS: &str = "it is for brokers before Kafka 0.10, and Kafka 3.6 is the oldest that \
                           verifies transactions; delete it";
const TRUST: &str = "librdkafka reads PEM files, not Java's trust stores; use `ssl.ca.location`";
const KEYS: &str = "librdkafka reads PEM or PKCS#12 files; use `ssl.key.location` with \
                    `ssl.certificate.location`, or `ssl.keystore.location` with a PKCS#12 file";
const PLUGIN: &str = "Java classes can't be loaded; delete it";
const LOGIN: &str = "it is a setting of Java's login; use librdkafka's own `sasl.kerberos.*`";

/// Properties that the guarantee depends on.
#[rustfmt::skip] // A table: one row per line.
pub(super) const OWNED: &[Property] = &[
    fixed("retries", Clients::Producer, &["2147483647"], "a record is retried until its transaction ends; delete it"),
    fixed("message.send.max.retries", Clients::Producer, &["2147483647"], "a record is retried until its transaction ends; delete it"),
    fixed("enable.auto.commit", Clients::Consumer, &["false"], OFFSETS),
    fixed("auto.commit.enable", Clients::Consumer, &["false"], OFFSETS),
    refused("auto.commit.interval.ms", Clients::Consumer, "the runtime commits offsets in its transactions; use `commit.interval.ms`"),
    fixed("enable.auto.offset.store", Clients::Consumer, &["false"], OFFSETS),
    refused("offset.store.method", Clients::Consumer, OFFSETS),
    refused("offset.store.path", Clients::Consumer, OFFSETS),
    refused("offset.store.sync.interval.ms", Clients::Consumer, OFFSETS),
    fixed("isolation.level", Clients::Consumer, &["read_committed"], "apps read committed records only: uncommitted records may still be aborted; delete it"),
    fixed("enable.partition.eof", Clients::Consumer, &["false"], "with it librdkafka 2.12.1 skips a record if a rebalance happens at the end of a partition (librdkafka #4844); delete it"),
    fixed("allow.auto.create.topics", Clients::All, &["false"], "an automatically created topic has the broker's default partition count; delete it, and create topics before the start"),
    fixed("enable.idempotence", Clients::Producer, &["true"], TRANSACTIONS),
    fixed("enable.gapless.guarantee", Clients::Producer, &["false"], TRANSACTIONS),
    fixed("acks", Clients::Producer, &["all", "-1"], "transactions require that all in-sync replicas have a record; delete it"),
    fixed("request.required.acks", Clients::Producer, &["all", "-1"], "transactions require that all in-sync replicas have a record; delete it"),
    fixed("delivery.report.only.error", Clients::Producer, &["true"], TRANSACTIONS),
    fixed("queue.buffering.max.messages", Clients::Producer, &["60000"], "a worker waits while its producer's queue is full; use `queue.buffering.max.kbytes`"),
    refused("transactional.id", Clients::Producer, IDENTITY),
    fixed("transaction.two.phase.commit.enable", Clients::Producer, &["false"], TRANSACTIONS),
    refused("group.id", Clients::Consumer, IDENTITY),
    refused("group.instance.id", Clients::Consumer, IDENTITY),
    fixed("partition.assignment.strategy", Clients::Consumer, &["cooperative-sticky"], "rebalances are incremental, which only `cooperative-sticky` allows; delete it"),
    fixed("group.protocol.type", Clients::Consumer, &["consumer"], "the runtime's groups are groups of consumers; delete it"),
    refused("socket.timeout.ms", Clients::All, "it is derived from the deadline of a commit; use `transaction.timeout.ms`"),
    refused("message.timeout.ms", Clients::Producer, "a transaction's records live as long as the transaction; use `transaction.timeout.ms`"),
    refused("delivery.timeout.ms", Clients::Producer, "a transaction's records live as long as the transaction; use `transaction.timeout.ms`"),
    refused("partitioner", Clients::Producer, "keys are partitioned as by Java's producer, so that topics can be joined; delete it"),
    refused("sticky.partitioning.linger.ms", Clients::Producer, "the runtime chooses the partition of each record; delete it"),
    refused("client.id", Clients::All, IDENTITY),
    refused("metadata.broker.list", Clients::All, "use its other name, `bootstrap.servers`"),
    refused("topic.blacklist", Clients::All, "an app reads and writes the topics that it names; delete it"),
    fixed("statistics.interval.ms", Clients::All, &["0"], "nothing reads librdkafka's statistics; metrics come from the runtime; delete it"),
    fixed("log.queue", Clients::All, &["false"], "librdkafka's log goes to `tracing`; delete it"),
    refused("enabled_events", Clients::All, CALLBACK),
];

/// Properties of librdkafka that have no effect here.
#[rustfmt::skip]
pub(super) const IDLE: &[Property] = &[
    refused("socket.blocking.max.ms", Clients::All, OBSOLETE),
    refused("topic.metadata.refresh.fast.cnt", Clients::All, OBSOLETE),
    refused("reconnect.backoff.jitter.ms", Clients::All, "librdkafka ignores it; use `reconnect.backoff.ms` and `reconnect.backoff.max.ms`"),
    refused("produce.offset.report", Clients::Producer, OBSOLETE),
    refused("queuing.strategy", Clients::Producer, "records of a partition stay in order; delete it"),
    refused("consume.callback.max.messages", Clients::Consumer, CALLBACK),
    fixed("api.version.request", Clients::All, &["true"], OLD_BROKERS),
    refused("api.version.fallback.ms", Clients::All, OLD_BROKERS),
    refused("broker.version.fallback", Clients::All, OLD_BROKERS),
    refused("ssl.engine.location", Clients::All, "OpenSSL 3 has providers instead of engines; use `ssl.providers`"),
    refused("ssl.engine.id", Clients::All, "OpenSSL 3 has providers instead of engines; use `ssl.providers`"),
    refused("builtin.features", Clients::All, "it reports the build options of librdkafka; use the features `ssl` and `gssapi` of this crate"),
    refused("internal.termination.signal", Clients::All, "the program handles signals; delete it"),
    refused("client.software.name", Clients::All, "it identifies the client library to the brokers; delete it"),
    refused("client.software.version", Clients::All, "it identifies the client library to the brokers; delete it"),
    refused("metadata.request.timeout.ms", Clients::All, OBSOLETE),
    refused("enable.sparse.connections", Clients::All, "librdkafka connects to the brokers that it needs; delete it"),
    refused("enable_sasl_queue", Clients::All, CALLBACK),
    refused("test.mock.num.brokers", Clients::All, "librdkafka's mock brokers have no transactions; delete it"),
    refused("test.mock.broker.rtt", Clients::All, "librdkafka's mock brokers have no transactions; delete it"),
    refused("error_cb", Clients::All, CALLBACK),
    refused("throttle_cb", Clients::All, CALLBACK),
    refused("stats_cb", Clients::All, CALLBACK),
    refused("log_cb", Clients::All, CALLBACK),
    refused("background_event_cb", Clients::All, CALLBACK),
    refused("socket_cb", Clients::All, CALLBACK),
    refused("connect_cb", Clients::All, CALLBACK),
    refused("closesocket_cb", Clients::All, CALLBACK),
    refused("open_cb", Clients::All, CALLBACK),
    refused("resolve_cb", Clients::All, CALLBACK),
    refused("opaque", Clients::All, CALLBACK),
    refused("default_topic_conf", Clients::All, CALLBACK),
    refused("ssl_key", Clients::All, "it is set from memory; use `ssl.key.pem`"),
    refused("ssl_certificate", Clients::All, "it is set from memory; use `ssl.certificate.pem`"),
    refused("ssl_ca", Clients::All, "it is set from memory; use `ssl.ca.pem`"),
    refused("ssl_engine_callback_data", Clients::All, CALLBACK),
    refused("ssl.certificate.verify_cb", Clients::All, CALLBACK),
    refused("oauthbearer_token_refresh_cb", Clients::All, CALLBACK),
    refused("interceptors", Clients::All, CALLBACK),
    refused("consume_cb", Clients::Consumer, CALLBACK),
    refused("rebalance_cb", Clients::Consumer, CALLBACK),
    refused("offset_commit_cb", Clients::Consumer, CALLBACK),
    refused("dr_cb", Clients::Producer, CALLBACK),
    refused("dr_msg_cb", Clients::Producer, CALLBACK),
    refused("partitioner_cb", Clients::Producer, CALLBACK),
    refused("msg_order_cmp", Clients::Producer, CALLBACK),
];

/// Properties of Java's clients that librdkafka does not have.
#[rustfmt::skip]
pub(super) const JAVA: &[Property] = &[
    refused("key.serializer", Clients::Producer, TYPES),
    refused("value.serializer", Clients::Producer, TYPES),
    refused("key.deserializer", Clients::Consumer, TYPES),
    refused("value.deserializer", Clients::Consumer, TYPES),
    refused("max.poll.records", Clients::Consumer, "records are taken from the queues one by one; use `queued.max.messages.kbytes` to limit waiting records"),
    refused("fetch.max.wait.ms", Clients::Consumer, "librdkafka calls it `fetch.wait.max.ms`"),
    refused("default.api.timeout.ms", Clients::All, "each call has its own deadline, derived from `transaction.timeout.ms`; use that property"),
    refused("exclude.internal.topics", Clients::Consumer, "an app reads the topics that it names; delete it"),
    refused("buffer.memory", Clients::Producer, "librdkafka calls it `queue.buffering.max.kbytes`, in KiB"),
    refused("max.block.ms", Clients::Producer, "a full queue is flushed, within the commit's deadline; delete it"),
    refused("max.request.size", Clients::Producer, "librdkafka calls it `message.max.bytes`"),
    refused("send.buffer.bytes", Clients::All, "librdkafka calls it `socket.send.buffer.bytes`"),
    refused("receive.buffer.bytes", Clients::All, "librdkafka calls it `socket.receive.buffer.bytes`"),
    refused("socket.connection.setup.timeout.max.ms", Clients::All, "librdkafka has one timeout for both; use `socket.connection.setup.timeout.ms`"),
    refused("partitioner.class", Clients::Producer, "keys are partitioned as by Java's default partitioner; delete it"),
    fixed("partitioner.ignore.keys", Clients::Producer, &["false"], "keys are partitioned as by Java's default partitioner; delete it"),
    fixed("partitioner.adaptive.partitioning.enable", Clients::Producer, &["false"], "the runtime chooses the partition of each record; delete it"),
    refused("partitioner.availability.timeout.ms", Clients::Producer, "the runtime chooses the partition of each record; delete it"),
    refused("interceptor.classes", Clients::All, PLUGIN),
    refused("metric.reporters", Clients::All, METRICS),
    refused("metrics.num.samples", Clients::All, METRICS),
    refused("metrics.recording.level", Clients::All, METRICS),
    refused("metrics.sample.window.ms", Clients::All, METRICS),
    refused("auto.include.jmx.reporter", Clients::All, METRICS),
    refused("security.providers", Clients::All, PLUGIN),
    refused("sasl.jaas.config", Clients::All, "librdkafka has no JAAS; use `sasl.username` with `sasl.password`, `sasl.kerberos.*` or `sasl.oauthbearer.*`"),
    refused("sasl.client.callback.handler.class", Clients::All, PLUGIN),
    refused("sasl.login.callback.handler.class", Clients::All, PLUGIN),
    refused("sasl.login.class", Clients::All, PLUGIN),
    refused("sasl.login.connect.timeout.ms", Clients::All, LOGIN),
    refused("sasl.login.read.timeout.ms", Clients::All, LOGIN),
    refused("sasl.login.refresh.buffer.seconds", Clients::All, LOGIN),
    refused("sasl.login.refresh.min.period.seconds", Clients::All, LOGIN),
    refused("sasl.login.refresh.window.factor", Clients::All, LOGIN),
    refused("sasl.login.refresh.window.jitter", Clients::All, LOGIN),
    refused("sasl.login.retry.backoff.ms", Clients::All, LOGIN),
    refused("sasl.login.retry.backoff.max.ms", Clients::All, LOGIN),
    refused("sasl.kerberos.ticket.renew.jitter", Clients::All, LOGIN),
    refused("sasl.kerberos.ticket.renew.window.factor", Clients::All, LOGIN),
    refused("ssl.truststore.location", Clients::All, TRUST),
    refused("ssl.truststore.password", Clients::All, TRUST),
    refused("ssl.truststore.type", Clients::All, TRUST),
    refused("ssl.truststore.certificates", Clients::All, "librdkafka calls it `ssl.ca.pem`"),
    refused("ssl.trustmanager.algorithm", Clients::All, PLUGIN),
    refused("ssl.keymanager.algorithm", Clients::All, PLUGIN),
    refused("ssl.keystore.type", Clients::All, KEYS),
    refused("ssl.keystore.key", Clients::All, "librdkafka calls it `ssl.key.pem`"),
    refused("ssl.keystore.certificate.chain", Clients::All, "librdkafka calls it `ssl.certificate.pem`"),
    refused("ssl.protocol", Clients::All, "OpenSSL chooses the newest version that both sides support; delete it"),
    refused("ssl.enabled.protocols", Clients::All, "OpenSSL chooses the newest version that both sides support; delete it"),
    refused("ssl.provider", Clients::All, "librdkafka calls OpenSSL's `ssl.providers`"),
    refused("ssl.engine.factory.class", Clients::All, PLUGIN),
    refused("ssl.secure.random.implementation", Clients::All, PLUGIN),
    refused("compression.gzip.level", Clients::Producer, "librdkafka calls it `compression.level`"),
    refused("compression.lz4.level", Clients::Producer, "librdkafka calls it `compression.level`"),
    refused("compression.zstd.level", Clients::Producer, "librdkafka calls it `compression.level`"),
];

/// Properties of Kafka Streams.
#[rustfmt::skip]
pub(super) const STREAMS: &[Property] = &[
    refused("default.key.serde", Clients::Runtime, TYPES),
    refused("default.value.serde", Clients::Runtime, TYPES),
    refused("default.timestamp.extractor", Clients::Runtime, "the time of a record is its timestamp in Kafka; delete it"),
    refused("default.deserialization.exception.handler", Clients::Runtime, RECORD_ERRORS),
    refused("deserialization.exception.handler", Clients::Runtime, RECORD_ERRORS),
    refused("default.production.exception.handler", Clients::Runtime, RECORD_ERRORS),
    refused("production.exception.handler", Clients::Runtime, RECORD_ERRORS),
    refused("processing.exception.handler", Clients::Runtime, RECORD_ERRORS),
    refused("errors.dead.letter.queue.topic.name", Clients::Runtime, RECORD_ERRORS),
    refused("buffered.records.per.partition", Clients::Runtime, "use `queued.max.messages.kbytes`"),
    refused("input.buffer.max.bytes", Clients::Runtime, "use `queued.max.messages.kbytes`, which is per partition"),
    refused("poll.ms", Clients::Runtime, "a worker wakes when a record arrives; delete it"),
    refused("task.timeout.ms", Clients::Runtime, "each call has its own deadline, derived from `transaction.timeout.ms`; use that property"),
    fixed("topology.optimization", Clients::Runtime, &["none"], "the topology runs as declared; delete it"),
    refused("upgrade.from", Clients::Runtime, "it is for upgrades of Kafka Streams; delete it"),
    refused("application.server", Clients::Runtime, "stores can't be queried from outside; delete it"),
    fixed("num.standby.replicas", Clients::Runtime, &["0"], NO_STANDBYS),
    refused("replication.factor", Clients::Runtime, "topics that the app creates have the brokers' `default.replication.factor`; delete it, and set that property on the brokers"),
    refused("statestore.cache.max.bytes", Clients::Runtime, NO_CACHE),
    refused("cache.max.bytes.buffering", Clients::Runtime, NO_CACHE),
    refused("acceptable.recovery.lag", Clients::Runtime, NO_STANDBYS),
    refused("max.warmup.replicas", Clients::Runtime, NO_STANDBYS),
    refused("probing.rebalance.interval.ms", Clients::Runtime, NO_STANDBYS),
    refused("rocksdb.config.setter", Clients::Runtime, ENGINE),
    refused("default.dsl.store", Clients::Runtime, ENGINE),
    refused("dsl.store.suppliers.class", Clients::Runtime, ENGINE),
    refused("windowstore.changelog.additional.retention.ms", Clients::Runtime, NO_WINDOWS),
    refused("window.size.ms", Clients::Runtime, NO_WINDOWS),
    refused("ensure.explicit.internal.resource.naming", Clients::Runtime, "the program names everything that the app creates; delete it"),
    refused("log.summary.interval.ms", Clients::Runtime, METRICS),
    refused("built.in.metrics.version", Clients::Runtime, METRICS),
    refused("client.supplier", Clients::Runtime, PLUGIN),
];
