//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as Changed;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::configs::TopicConfigs;
use super::topics::check_name;
use super::{Broker, NODE, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// The source of a value, as Kafka's number.
const OF_TOPIC: i8 = 1;
const OF_FILE: i8 = 4;
const DEFAULT: i8 = 5;

type Refused = (Error, String);

impl Broker {
    pub(super) fn describe_configs(
        &self,
        request: DescribeConfigsRequest,
    ) -> DescribeConfigsResponse {
        let synonyms = request.include_synonyms;
        let results = request.resources.into_iter().map(|resource| {
            let answer = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            let kind = resource.resource_type;
            match self.configs_of(kind, &resource.resource_name, synonyms) {
                Ok(mut configs) => {
                    if let Some(keys) = resource.configuration_keys {
                        configs.retain(|it| keys.contains(&it.name));
                    }
                    answer.with_configs(configs)
                }
                Err((error, why)) => answer
                    .with_error_code(error.code())
                    .with_error_message(Some(text(&why))),
            }
        });
        DescribeConfigsResponse::default().with_results(results.collect())
    }

    fn configs_of(
        &self,
        kind: i8,
        name: &str,
        synonyms: bool,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
        let result = |name: &str, value: &str, source: i8| {
            let own = DescribeConfigsSynonym::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
                .with_source(source);
            DescribeConfigsResourceResult::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
                .with_config_source(source)
                .with_synonyms(if synonyms { vec![own] } else { Vec::new() })
        };
        match kind {
            TOPIC => {
                check_name(name).map_err(|why| (Error::InvalidTopicException, why))?;
                let topic = self.topics.get(name).ok_or_else(|| {
                    let why = "This server does not host this topic-partition.";
                    (Error::UnknownTopicOrPartition, why.to_owned())
                })?;
                let all = topic.configs().all().map(|(name, value, is_default)| {
                    let source = if is_default { DEFAULT } else { OF_TOPIC };
                    result(name, value, source).with_config_type(TopicConfigs::type_of(name))
                });
                Ok(all.collect())
            }
            BROKER if name.is_empty() => Ok(Vec::new()),
            BROKER if name == NODE.to_string() => {
                let all = self.options.properties().into_iter();
                let all =
                    all.map(|(name, value)| result(name, &value, OF_FILE).with_read_only(true));
                Ok(all.collect())
            }
            BROKER => Err((
                Error::InvalidRequest,
                format!(
                    "Unexpected broker id, expected {NODE} or empty string, but received {name}"
                ),
            )),
            _ => Err((
                Error::InvalidRequest,
                format!("Unsupported resource type: {kind}"),
            )),
        }
    }

    pub(super) fn alter_configs(&mut self, request: AlterConfigsRequest) -> AlterConfigsResponse {
        let mut answers = Vec::new();
        for resource in request.resources {
            // A configuration that is not in the request is reset to its default.
            let changed = self.own_configs(resource.resource_type, &resource.resource_name);
            let changed = changed.and_then(|_| {
                let mut fresh = TopicConfigs::default();
                for config in &resource.configs {
                    let set = fresh.set(&config.name, config.value.as_deref());
                    set.map_err(|why| (Error::InvalidConfig, why))?;
                }
                Ok(fresh)
            });
            let result = self.reconfigure(&resource.resource_name, changed, request.validate_only);
            let (error, why) = told(result);
            answers.push(
                AlterConfigsResourceResponse::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name)
                    .with_error_code(error)
                    .with_error_message(why),
            );
        }
        AlterConfigsResponse::default().with_responses(answers)
    }

    pub(super) fn change_configs(
        &mut self,
        request: IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let mut answers = Vec::new();
        for resource in request.resources {
            let own = self.own_configs(resource.resource_type, &resource.resource_name);
            let changed = own.and_then(|mut configs| {
                for change in &resource.configs {
                    change_one(&mut configs, change)?;
                }
                Ok(configs)
            });
            let result = self.reconfigure(&resource.resource_name, changed, request.validate_only);
            let (error, why) = told(result);
            answers.push(
                Changed::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name)
                    .with_error_code(error)
                    .with_error_message(why),
            );
        }
        IncrementalAlterConfigsResponse::default().with_responses(answers)
    }

    /// Returns the configurations of a topic. Those of the broker are fixed when it starts.
    fn own_configs(&self, kind: i8, name: &str) -> Result<TopicConfigs, Refused> {
        if kind != TOPIC {
            let why = "the embedded broker's own configuration is fixed: set it at start";
            return Err((Error::InvalidRequest, why.into()));
        }
        check_name(name).map_err(|why| (Error::InvalidTopicException, why))?;
        let topic = self.topics.get(name).ok_or_else(|| {
            let why = format!("The topic '{name}' does not exist.");
            (Error::UnknownTopicOrPartition, why)
        })?;
        Ok(topic.configs().clone())
    }

    fn reconfigure(
        &mut self,
        name: &str,
        changed: Result<TopicConfigs, Refused>,
        validate_only: bool,
    ) -> Result<(), Refused> {
        let configs = changed?;
        if let Some(topic) = self.topics.get_mut(name)
            && !validate_only
        {
            topic.configure(configs);
        }
        Ok(())
    }
}

fn change_one(configs: &mut TopicConfigs, change: &AlterableConfig) -> Result<(), Refused> {
    let value = change.value.as_deref();
    let changed = match (change.config_operation, value) {
        (0, Some(value)) => configs.set(&change.name, Some(value)),
        (1, _) => configs.set(&change.name, None),
        (2, Some(value)) => configs.change_list(&change.name, value, true),
        (3, Some(value)) => configs.change_list(&change.name, value, false),
        (0 | 2 | 3, None) => {
            let why = format!("Null value not supported for : {}", change.name.as_str());
            return Err((Error::InvalidRequest, why));
        }
        (other, _) => Err(format!("Unknown operation type {other}")),
    };
    changed.map_err(|why| (Error::InvalidConfig, why))
}

fn told(result: Result<(), Refused>) -> (i16, Option<StrBytes>) {
    match result {
        Ok(()) => (0, None),
        Err((error, why)) => (error.code(), Some(text(&why))),
    }
}
