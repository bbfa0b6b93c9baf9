//! What every part of a worker reads.

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

/// Settings, clocks, topology and meter of a worker. The parts borrow it, and note on it that a broker
/// answered; only the worker itself changes the rest.
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

    /// This moment on both clocks.
    pub(super) fn moment(&self) -> Moment {
        let now = self.env.now();
        let brokers = self.brokers.get().at(now);
        Moment { now, brokers }
    }

    /// The time that deadlines for brokers run on: it stands still while no broker answers.
    pub(super) fn broker_time(&self) -> Now {
        self.moment().brokers
    }

    /// A broker answered a query.
    pub(super) fn broker_answered(&self) {
        let (mut brokers, now) = (self.brokers.get(), self.env.now());
        brokers.answered(now);
        self.brokers.set(brokers);
        self.meter.responded(now);
    }

    /// The consumer reported an error. Returns the one with which the worker ends; `None` if the consumer goes on.
    pub(super) fn consumer_failed(&self, error: ClientError) -> Option<WorkerError> {
        if error.class() == ErrorClass::Retriable {
            tracing::debug!(worker = %self.spec.id, %error, "the consumer goes on");
            return None;
        }
        Some(error::from_client(self.spec.identity.as_str(), error))
    }

    /// How many partitions an input topic has; 0 if it is none.
    pub(super) fn width(&self, topic: &TopicName) -> u32 {
        let count = self.spec.input_partitions.get(topic);
        count.copied().unwrap_or(0)
    }

    /// The partitions of an input topic.
    pub(super) fn partitions(
        &self,
        topic: &TopicName,
    ) -> impl Iterator<Item = TopicPartition> + use<C> {
        let numbers = 0..i32::try_from(self.width(topic)).unwrap_or(i32::MAX);
        let numbers = numbers.filter_map(|number| Partition::new(number).ok());
        let topic = topic.clone();
        numbers.map(move |number| TopicPartition::new(topic.clone(), number))
    }

    /// The topics of the changelogs of a stage.
    pub(super) fn changelog_digests(&self, stage: &Stage) -> PerFamily<Option<TopicDigest>> {
        let outputs = self.topology.changelogs(stage.id);
        outputs.map(|output| {
            let topic = &self.topology.outputs().get(output?)?.name;
            self.spec.state.topic_ids.get(topic)?.digest()
        })
    }
}
