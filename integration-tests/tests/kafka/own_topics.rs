//! The app's own topics. The app creates and checks them before the first worker starts.

use anyhow::{Context, Result, bail, ensure};
use eos_core::errors::PreflightError;
use eos_core::run::StopMode;
use eos_core::{App, Error, KeyValueStore, Topic};
use kafka_launcher::for_tests;
use kafka_wire::protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_wire::protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_wire::protocol::messages::{DescribeConfigsRequest, MetadataRequest};
use kafka_wire::protocol::protocol::StrBytes;
use kafka_wire::{Client, Node};

use crate::common::{Case, ended, says};

/// The protocol's code for the resource type "topic".
const TOPIC: i8 = 2;

/// Returns an app that counts the words of `lines`.
pub(crate) fn counting(case: &Case, lines: &str) -> App {
    let mut app = case.app();
    app.source(&Topic::<String, String>::plain(lines))
        .key_by(|line: &String| line.clone())
        .repartition(&Topic::<String, String>::plain("words"))
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to(&Topic::plain(&case.output));
    app
}

/// Returns the ids and the numbers of partitions of existing topics.
fn ids(client: &mut Client, topics: &[&str]) -> Result<Vec<(String, usize)>> {
    let asked = topics.iter().map(|topic| {
        let name = StrBytes::from_string((*topic).to_owned());
        MetadataRequestTopic::default().with_name(Some(name.into()))
    });
    let request = MetadataRequest::default()
        .with_topics(Some(asked.collect()))
        .with_allow_auto_topic_creation(false);
    let answer = client.request(Node::Any, &request)?;
    let found = answer.topics.iter().filter(|topic| topic.error_code == 0);
    let found = found.map(|topic| (topic.topic_id.to_string(), topic.partitions.len()));
    let mut found: Vec<_> = found.collect();
    found.sort();
    Ok(found)
}

fn setting(client: &mut Client, topic: &str, key: &str) -> Result<String> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.request(Node::Any, &request)?;
    let mut configs = answer.results.iter().flat_map(|result| &result.configs);
    let value = configs.next().and_then(|config| config.value.clone());
    Ok(value.context("no such setting")?.to_string())
}

#[test]
fn the_apps_own_topics_are_made_once_and_one_that_was_changed_is_refused() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut case = Case::with_partitions(kafka.bootstrap(), "own-topics", 3)?;
    let words = format!("{}-words-repartition", case.app);
    let changelog = format!("{words}-changelog");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut running = counting(&case, &case.input).start_blocking(&case.bootstrap)?;
        running.handle().stop(StopMode::Leave);
        ended(&mut running)??;
        seen.push(ids(&mut case.client, &[&words, &changelog])?);
    }
    ensure!(seen[0] == seen[1], "{seen:?}");
    let partitions: Vec<_> = seen[0].iter().map(|(_, partitions)| *partitions).collect();
    ensure!(partitions == [3, 3], "{partitions:?}");
    for (topic, key, expected) in [
        (&words, "cleanup.policy", "delete"),
        (&words, "retention.ms", "-1"),
        (&words, "message.timestamp.type", "CreateTime"),
        (&changelog, "cleanup.policy", "compact"),
    ] {
        let value = setting(&mut case.client, topic, key)?;
        ensure!(value == expected, "{topic}: {key} is {value}");
    }

    case.client
        .configure_topic(&changelog, "cleanup.policy", "delete")?;
    let refused = case.failure_of(counting(&case, &case.input))?;
    let expected =
        format!("the changelog {changelog} has the wrong settings: cleanup.policy is delete");
    says(&refused, &[&expected])
}

#[test]
fn without_its_source_nothing_of_the_apps_own_is_made() -> Result<()> {
    let Some(kafka) = for_tests(1)? else {
        return Ok(());
    };
    let mut case = Case::new(kafka.bootstrap(), "no-source")?;
    let lines = format!("{}-missing", case.app);
    let refused = case.failure_of(counting(&case, &lines))?;
    let Error::Preflight(PreflightError::MissingTopics { topics, .. }) = &refused else {
        bail!("{refused:?}");
    };
    let names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
    ensure!(names == [lines.as_str()], "{names:?}");
    let words = format!("{}-words-repartition", case.app);
    let found = ids(&mut case.client, &[&words])?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}
