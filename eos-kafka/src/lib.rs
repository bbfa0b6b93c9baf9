//! The Kafka client of eos, on librdkafka.
//!
//! It implements the traits of [`eos_client`] and makes no decisions: it reports librdkafka's results with codes and
//! flags, and `eos-protocol` decides. `eos-core` uses it with the feature `kafka`. Programs that use `eos-core` do not
//! need this crate.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use eos_client::Client;
//! use eos_kafka::{KafkaClient, KafkaConfig};
//!
//! let mut config = KafkaConfig::default();
//! config.bootstrap = "localhost:9092".into();
//! let facts = KafkaClient::new(config).facts(&["orders".into()], Duration::from_secs(5))?;
//! println!("{:?}", facts.topics);
//! # Ok::<(), eos_client::ClientError>(())
//! ```
//!
//! # Inside
//! ```text
//! KafkaClient ──→ facts, create, delete ──→ inquiry: a client for a few questions
//!      ├─ KafkaSource ── committed, queries (bounds, ends, commit)     config: settings of each client
//!      │      ├───────── probe, tail, lookups: the end of each   log:    librdkafka → tracing
//!      │      └───────── identity: is it still the same topic?
//!      └─ KafkaProducer
//!             └────────────── ffi: safe types, all `unsafe` ──→ rdkafka::bindings
//! ```
//!
//! Source and producer call the C library directly. rdkafka's own types hide the group metadata, the queues and the
//! batch calls. They cannot add interceptors, and they flush for 100 ms where 1 ms is enough.

mod committed;
mod config;
mod coordinator_watch;
mod create;
mod delete;
mod facts;
mod ffi;
mod group;
mod identity;
mod inquiry;
mod log;
mod lookups;
mod probe;
mod producer;
mod queries;
mod secrets;
mod source;
mod tail;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

use eos_client::{Client, ClusterFacts, NewTopic, ProducerSpec, Result, SourceSpec};
use eos_protocol::{Offset, TopicName, TopicPartition};

pub use config::{KafkaConfig, Setting};
pub use ffi::{KafkaMessage, KafkaRecords, Member};
pub use producer::KafkaProducer;
pub use source::KafkaSource;

/// A Kafka cluster, reached through librdkafka.
#[derive(Debug, Clone)]
pub struct KafkaClient {
    config: KafkaConfig,
}

impl KafkaClient {
    /// Creates a client without a connection. Each source and each producer has its own connections.
    #[must_use]
    pub fn new(config: KafkaConfig) -> Self {
        Self { config }
    }
}

impl Client for KafkaClient {
    type Source = KafkaSource;
    type Producer = KafkaProducer;

    fn facts(&self, topics: &[TopicName], within: Duration) -> Result<ClusterFacts> {
        facts::facts(&self.config, topics, within)
    }

    fn create_topics(
        &self,
        topics: &[NewTopic],
        within: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>> {
        create::create_topics(&self.config, topics, within)
    }

    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        within: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
        delete::delete_records(&self.config, before, within)
    }

    fn source(&self, spec: &SourceSpec) -> Result<KafkaSource> {
        KafkaSource::new(&self.config, spec)
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<KafkaProducer> {
        KafkaProducer::new(&self.config, spec)
    }
}

/// Returns the names of all properties of librdkafka that have a default value.
#[must_use]
pub fn property_names() -> Vec<String> {
    ffi::property_names()
}

/// Checks a value of a property.
///
/// # Errors
/// The reason why librdkafka does not accept it.
pub fn check_property(key: &str, value: &str) -> std::result::Result<(), String> {
    ffi::check_property(key, value).map_err(|failure| failure.text)
}
