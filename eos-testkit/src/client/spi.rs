//! The [`Client`] of `eos-core` on a [`Cluster`].

use std::time::Duration;

use eos_client::{Client, ClusterFacts, NewTopic, ProducerSpec, Result, SourceSpec};
use eos_protocol::{Offset, TopicName, TopicPartition};

use super::cluster::Cluster;
use super::facts;
use super::producer::ModelProducer;
use super::source::ModelSource;

impl Client for Cluster {
    type Source = ModelSource;
    type Producer = ModelProducer;

    fn facts(&self, topics: &[TopicName], _: Duration) -> Result<ClusterFacts> {
        Ok(self.with(|world| facts::facts(&mut world.fabric, topics)))
    }

    fn create_topics(
        &self,
        topics: &[NewTopic],
        _: Duration,
    ) -> Result<Vec<(TopicName, Result<()>)>> {
        Ok(self.with(|world| facts::create(&mut world.fabric, topics)))
    }

    fn delete_records(
        &self,
        before: &[(TopicPartition, Offset)],
        _: Duration,
    ) -> Result<Vec<(TopicPartition, Result<Offset>)>> {
        Ok(self.with(|world| facts::delete(&mut world.fabric, before)))
    }

    fn source(&self, spec: &SourceSpec) -> Result<ModelSource> {
        Ok(ModelSource::new(self.clone(), spec))
    }

    fn producer(&self, spec: &ProducerSpec) -> Result<ModelProducer> {
        Ok(ModelProducer::new(self.clone(), spec))
    }
}
