//! The app's own topics, made and checked before the first worker starts.

use std::sync::Arc;
use std::time::Duration;

use eos_protocol::TopicName;
use kafka_launcher::{ClusterOptions, own_for_tests};
use kafka_wire as wire;
use kafka_wire::{Operation, Resource};

use super::support::{Fixture, PATIENCE, client_of};
use crate::client::Client;
use crate::config::Settings;
use crate::runtime::preflight;
use crate::topology::Topology;
use crate::{App, KeyValueStore, PreflightError, Topic};

/// Counts the words of `lines`.
fn counting(app: &str, lines: &TopicName, out: &TopicName) -> Arc<Topology> {
    let mut app = App::new(app);
    app.source(&Topic::<String, String>::plain(lines.as_str()))
        .key_by(|line: &String| line.clone())
        .repartition(&Topic::<String, String>::plain("words"))
        .group_by_key()
        .count(&KeyValueStore::plain("counts"))
        .to(&Topic::plain(out.as_str()));
    app.check().unwrap()
}

#[test]
fn the_apps_own_topics_are_made_once_and_one_that_was_changed_is_refused() {
    let Some(mut fixture) = Fixture::new("own-topics") else {
        return;
    };
    let (lines, out) = (fixture.topic("lines", 3), fixture.topic("out", 1));
    let app = fixture.group();
    let topology = counting(&app, &lines, &out);
    let settings = Settings::new(&app);
    let check = || preflight(&fixture.client, &topology, &settings, &fixture.bootstrap);
    let words = TopicName::new(format!("{app}-words-repartition"));
    let changelog = TopicName::new(format!("{app}-words-repartition-changelog"));

    let first = check().unwrap();
    let second = check().unwrap();
    assert_eq!(first.inputs[&words], 3);
    assert!(first.cluster.is_some());
    for topic in [&lines, &words, &changelog] {
        assert_eq!(first.ids[topic], second.ids[topic], "{topic}");
    }
    let outputs = topology.outputs().iter().position(|o| o.name == changelog);
    let at = outputs.unwrap();
    assert_eq!(first.outputs[at], 3);
    // Kafka's defaults.
    assert_eq!(first.limits[at], Some(1_048_588));
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(first.delete_retention[at], Some(day));

    let asked = [words.clone(), changelog.clone()];
    let facts = fixture.client.facts(&asked, PATIENCE).unwrap();
    let set = |topic, key| facts.topic(topic).and_then(|t| t.setting(key));
    assert_eq!(set(&words, "cleanup.policy"), Some("delete"));
    assert_eq!(set(&words, "retention.ms"), Some("-1"));
    assert_eq!(set(&words, "message.timestamp.type"), Some("CreateTime"));
    assert_eq!(set(&changelog, "cleanup.policy"), Some("compact"));

    let mut wire = wire::Client::connect(&fixture.bootstrap, PATIENCE).unwrap();
    wire.configure_topic(changelog.as_str(), "cleanup.policy", "delete")
        .unwrap();
    let refused = check().unwrap_err().to_string();
    let expected =
        format!("the changelog {changelog} is not as it has to be: cleanup.policy is delete");
    assert!(refused.starts_with(&expected), "{refused}");
}

#[test]
fn without_its_source_nothing_of_the_apps_own_is_made() {
    let Some(mut fixture) = Fixture::new("no-source") else {
        return;
    };
    let out = fixture.topic("out", 1);
    let (app, lines) = (fixture.group(), format!("{out}-missing").as_str().into());
    let topology = counting(&app, &lines, &out);
    let refused = preflight(
        &fixture.client,
        &topology,
        &Settings::new(&app),
        &fixture.bootstrap,
    );
    match refused.unwrap_err() {
        PreflightError::MissingTopics { topics, .. } => {
            let names: Vec<_> = topics.iter().map(|topic| topic.name.clone()).collect();
            assert_eq!(names, [lines]);
        }
        other => panic!("{other}"),
    }
    let words = TopicName::new(format!("{app}-words-repartition"));
    let facts = fixture.client.facts(std::slice::from_ref(&words), PATIENCE);
    assert_eq!(facts.unwrap().topic(&words), None);
}

#[test]
fn a_right_that_is_missing_is_named_with_the_command_that_gives_it() {
    let options = ClusterOptions::default()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true");
    let Some(cluster) = own_for_tests(&options).unwrap() else {
        return;
    };
    let bootstrap = cluster.bootstrap().to_owned();
    let mut wire = wire::Client::connect(&bootstrap, PATIENCE).unwrap();
    for topic in ["lines", "out"] {
        wire.create_topic(topic, 1, 1, &[]).unwrap();
    }
    let topology = counting("a", &"lines".into(), &"out".into());
    let settings = Settings::new("a");
    let check = || preflight(&client_of(&bootstrap), &topology, &settings, &bootstrap);

    wire.deny(Resource::Cluster, Operation::Create).unwrap();
    wire.deny(Resource::Topic("a-words-repartition"), Operation::Create)
        .unwrap();
    let refused = check().unwrap_err().to_string();
    assert!(
        refused.contains("--operation Create --topic a-words-repartition;"),
        "{refused}"
    );
    // Rights are the same in a moment, everywhere.
    wire.allow(Resource::Topic("a-words-repartition")).unwrap();
    wire.allow(Resource::Cluster).unwrap();
    super::support::until("topic", || check().ok());
}
