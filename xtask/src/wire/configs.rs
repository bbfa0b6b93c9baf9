//! Changing the configuration of a topic.

use anyhow::Result;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use super::client::Client;
use super::failure::check;
use super::routing::{Node, text};

/// As the protocol writes "topic".
const TOPIC: i8 = 2;

impl Client {
    /// Sets a property of a topic.
    ///
    /// # Errors
    /// When the brokers refuse the value, or don't answer in time.
    pub fn configure_topic(&mut self, topic: &str, key: &str, value: &str) -> Result<()> {
        let config = AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(0) // set
            .with_value(Some(text(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let what = format!("set {key}={value} of {topic}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            let mut results = answer.responses.iter();
            results.try_for_each(|result| check(result.error_code, || topic.to_owned()))
        })
    }
}
