//! The data that all parts of a worker read.

use std::cell::Cell;
use std::sync::Arc;

use eos_protocol::state::{PerFamily, TopicDigest};
use eos_protocol::{
    BrokerTime, ErrorClass, Moment, Now, Partition, Stage, TopicName, TopicPartition,
};

use super::error::{self, WorkerError};
use super::spec::{Env, WorkerSpec};
use crate::client::ClientError;
use crate::metrics::WorkerMeter;
use crate::topology::Topology;

/// The settings, clocks, topology and meter of a worker. The parts borrow it, and record broker responses in it. Only
/// the worker changes the rest.
pub(super) struct Shared<C> {
    pub(super) spec: WorkerSpec,
    pub(super) env: Env,
    pub(super) topology: Arc<Topology>,
    pub(super) client: Arc<C>,
    pub(super) meter: Arc<WorkerMeter>,
    /// Whether tasks write to topics that other tasks read.
    pub(super) has_repartitions: bool,
    brokers: Cell<BrokerTime>,
}

impl<C> Shared<C> {
    pub(super) fn new(
        spec: WorkerSpec,
        env: Env,
        topology: Arc<Topology>,
        client: Arc<C>,
        meter: Arc<WorkerMeter>,
    ) -> Self {
        let brokers = Cell::new(BrokerTime::new(env.now()));
        meter.responded(env.now());
        let has_repartitions = topology.repartitions().next().is_some();
        Self {
            has_repartitions,
            spec,
            env,
            topology,
            client,
            meter,
            brokers,
        }
    }

    pub(super) fn now(&self) -> Now {
        self.env.now()
    }

    /// Returns the current time of both clocks.
    pub(super) fn moment(&self) -> Moment {
        let now = self.env.now();
        let brokers = self.brokers.get().at(now);
        Moment { now, brokers }
    }

    /// Returns the time for broker deadlines. It stands still while no broker responds.
    pub(super) fn broker_time(&self) -> Now {
        self.moment().brokers
    }

    /// Records a response of a broker.
    pub(super) fn broker_answered(&self) {
        let (mut brokers, now) = (self.brokers.get(), self.env.now());
        brokers.answered(now);
        self.brokers.set(brokers);
        self.meter.responded(now);
    }

    /// Classifies an error of the consumer. Returns the error that stops the worker, or `None` if the consumer
    /// continues.
    pub(super) fn consumer_failed(&self, error: ClientError) -> Option<WorkerError> {
        if error.class() == ErrorClass::Retriable {
            tracing::debug!(worker = %self.spec.id, %error, "a call of the consumer failed; continuing");
            return None;
        }
        Some(error::from_client(self.spec.identity.as_str(), error))
    }

    /// Returns the number of partitions of an input topic, or 0 for other topics.
    pub(super) fn width(&self, topic: &TopicName) -> u32 {
        let count = self.spec.input_partitions.get(topic);
        count.copied().unwrap_or(0)
    }

    /// Returns the partitions of an input topic.
    pub(super) fn partitions(
        &self,
        topic: &TopicName,
    ) -> impl Iterator<Item = TopicPartition> + use<C> {
        let numbers = 0..i32::try_from(self.width(topic)).unwrap_or(i32::MAX);
        let numbers = numbers.filter_map(|number| Partition::new(number).ok());
        let topic = topic.clone();
        numbers.map(move |number| TopicPartition::new(topic.clone(), number))
    }

    /// Returns the topic digests of a stage's changelogs.
    pub(super) fn changelog_digests(&self, stage: &Stage) -> PerFamily<Option<TopicDigest>> {
        let outputs = self.topology.changelogs(stage.id);
        outputs.map(|output| {
            let topic = &self.topology.outputs().get(output?)?.name;
            self.spec.state.topic_ids.get(topic)?.digest()
        })
    }
}
