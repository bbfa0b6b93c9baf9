//! The Kafka adapter: the one module that names librdkafka.
//!
//! It implements the [client traits](crate::client) and decides nothing: it reports what
//! librdkafka reports, codes and flags included, and `eos-protocol` says what follows.
//!
//! ```text
//! KafkaClient ──→ facts, create, delete ──→ inquiry: a client for a few questions
//!      ├─ KafkaSource ── committed, queries (bounds, ends, commit)     config: settings of each client
//!      │      ├───────── probe, tail, lookups: the end of each   log:    librdkafka → tracing
//!      │      └───────── identity: is it still the same topic?
//!      └─ KafkaProducer
//!             └────────────── ffi: safe types, all `unsafe` ──→ rdkafka::bindings
//! ```
//!
//! Both sides stand on the C library's interface itself: rdkafka's own types hide the group
//! metadata, the queues and the batch calls, cannot add interceptors, and flush for 100 ms where
//! 1 ms is enough.

mod committed;
mod config;
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
mod source;
mod tail;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

use eos_protocol::{Offset, TopicName, TopicPartition};

pub(crate) use config::KafkaConfig;
pub(crate) use producer::KafkaProducer;
pub(crate) use source::KafkaSource;

use crate::client::{Client, ClusterFacts, NewTopic, ProducerSpec, Result, SourceSpec};

/// A Kafka cluster, reached through librdkafka.
#[derive(Debug, Clone)]
pub(crate) struct KafkaClient {
    config: KafkaConfig,
}

impl KafkaClient {
    /// Connects to nothing yet: each source and each producer has connections of its own.
    #[must_use]
    pub(crate) fn new(config: KafkaConfig) -> Self {
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
