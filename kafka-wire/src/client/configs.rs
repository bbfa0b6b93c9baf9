//! Configuration changes of topics and running brokers.

use anyhow::Result;
use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use super::Client;
use super::routing::Node;
use crate::connection::{Failure, check};
use crate::requests::text;

/// The protocol's codes of "topic" and "broker".
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

impl Client {
    /// Sets a property of a topic, and waits until every broker returns the new value.
    ///
    /// # Errors
    /// If the brokers reject the value, or do not respond in time.
    pub fn configure_topic(&mut self, topic: &str, key: &str, value: &str) -> Result<()> {
        let what = format!("set {key}={value} of {topic}");
        self.configure(&what, (TOPIC, topic), key, value)?;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configuration_keys(Some(vec![text(key)]));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        self.retry(&what, |client, deadline| {
            for broker in client.broker_ids(deadline)? {
                let answer = client.exchange(Node::Broker(broker), &request, deadline)?;
                let mut results = answer.results.iter();
                results.try_for_each(|it| check(it.error_code, || topic.to_owned()))?;
                let mut configs = answer.results.iter().flat_map(|it| &it.configs);
                if !configs.any(|it| it.value.as_deref() == Some(value)) {
                    return Err(Failure::retry(format!(
                        "broker {broker} returns another {key}"
                    )));
                }
            }
            Ok(())
        })
    }

    /// Sets a dynamic property of all brokers. A property that is set for a single broker, or only in its file, is
    /// independent of it.
    ///
    /// # Errors
    /// See [`Client::configure_topic`].
    pub fn configure_brokers(&mut self, key: &str, value: &str) -> Result<()> {
        // The empty name means all brokers.
        let what = format!("set {key}={value} of all brokers");
        self.configure(&what, (BROKER, ""), key, value)
    }

    fn configure(
        &mut self,
        what: &str,
        (kind, name): (i8, &str),
        key: &str,
        value: &str,
    ) -> Result<()> {
        let config = AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(0) // set
            .with_value(Some(text(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        self.retry(what, |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            let mut results = answer.responses.iter();
            results.try_for_each(|result| check(result.error_code, || what.to_owned()))
        })
    }
}
