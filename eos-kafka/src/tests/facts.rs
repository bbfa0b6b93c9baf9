//! The facts of a cluster.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use eos_client::{BrokerLimits, Client, Verification};
use eos_protocol::{CallSite, ErrorClass, code};

use super::support::{Fixture, PATIENCE, assert_quick, client_of, config_of, until};
use crate::KafkaClient;

#[test]
fn topics_are_counted_and_a_missing_one_is_not_created() {
    let Some(mut fixture) = Fixture::new("facts") else {
        return;
    };
    let there = fixture.topic("there", 3);
    let missing = format!("{there}-missing").as_str().into();
    let asked = [there.clone(), missing, there.clone()];
    for _ in 0..2 {
        let facts = fixture.client.facts(&asked, PATIENCE).unwrap();
        let [first, second, third] = &asked;
        let names: Vec<_> = facts.topics.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [first, second, third]);
        let of = |name| facts.topic(name).map(|t| (t.partitions, t.replication));
        assert_eq!((of(first), of(second)), (Some((3, 1)), None));
        // The topic that may have been intended is among them.
        assert!(facts.others.contains(first), "{:?}", facts.others);
        assert!(!facts.others.contains(second));
        assert_eq!(facts.verification, Verification::On);
        assert!(facts.cluster_id.is_some_and(|id| !id.is_empty()));
    }
}

#[test]
fn without_a_broker_the_error_says_why_and_no_more() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    // A stalled machine may not have tried to connect in so short a time, and reports that. Then the test waits longer.
    let mut within = Duration::from_millis(1500);
    let error = loop {
        let start = Instant::now();
        let error = client_of(&address).facts(&[], within).unwrap_err();
        let took = start.elapsed();
        assert!(took < within + PATIENCE / 2, "{took:?}");
        if !error.text.contains("no usable response") || within > PATIENCE / 4 {
            break error;
        }
        within *= 4;
    };
    assert_eq!(
        (error.call, error.class()),
        (CallSite::Facts, ErrorClass::Retriable),
        "{error}"
    );
    let expected = format!("Connect to ipv4#{address} failed: Connection refused");
    assert!(error.text.ends_with(&expected), "{error}");
}

#[test]
fn a_port_on_which_something_else_listens_fails_in_time_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = Instant::now();
    let error = client_of(&address)
        .facts(&[], Duration::from_secs(1))
        .unwrap_err();
    assert_quick(start);
    assert!(error.text.contains(&address), "{error}");
}

#[test]
fn settings_of_brokers_and_topics_are_returned() {
    let Some(mut fixture) = Fixture::new("limits") else {
        return;
    };
    let small = format!("{}-small", fixture.group());
    let set = [("max.message.bytes", "12345")];
    fixture.wire.create_topic(&small, 1, 1, &set).unwrap();
    let (small, plain) = (small.as_str().into(), fixture.topic("plain", 1));
    let missing = format!("{plain}-missing").as_str().into();
    let asked = [small, plain, missing];
    let facts = fixture.client.facts(&asked, PATIENCE).unwrap();
    let [small, plain, missing] = asked;
    let of = |name| facts.topic(name);
    assert_eq!(of(&small).unwrap().max_message_bytes(), Some(12345));
    // Kafka's defaults.
    let plain = of(&plain).unwrap();
    assert_eq!(plain.max_message_bytes(), Some(1_048_588));
    assert_eq!(plain.setting("cleanup.policy"), Some("delete"));
    assert_eq!(plain.setting("no.such.setting"), None);
    assert_eq!(of(&missing), None);
    let ms = |ms| Some(Duration::from_millis(ms));
    let limits = BrokerLimits {
        max_transaction_timeout: ms(900_000),
        // Kafka's default is 6000; the tests' brokers allow less.
        min_session_timeout: ms(1000),
        max_session_timeout: ms(1_800_000),
    };
    assert_eq!(facts.limits, limits);
}

#[test]
fn a_topic_that_is_made_again_has_another_id() {
    let Some(mut fixture) = Fixture::new("ids") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    let id = |fixture: &Fixture| {
        let facts = fixture.client.facts(std::slice::from_ref(&topic), PATIENCE);
        facts.unwrap().topic(&topic).map(|topic| topic.id)
    };
    let first = until("topic", || id(&fixture)).unwrap();
    assert_eq!(id(&fixture), Some(Some(first)), "it stays");
    fixture.wire.delete_topic(topic.as_str()).unwrap();
    until("end of it", || id(&fixture).is_none().then_some(()));
    fixture.topic("in", 1);
    let second = until("topic", || id(&fixture)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn rejected_credentials_are_reported_at_once_and_not_shown() {
    let Some(fixture) = Fixture::new("credentials") else {
        return;
    };
    let mut config = config_of(&fixture.bootstrap);
    for (key, value) in [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "me"),
        ("sasl.password", "hunter2"),
    ] {
        config.common.push((key.into(), value.into()));
    }
    config.secrets.push("hunter2".into());
    let start = Instant::now();
    let error = KafkaClient::new(config).facts(&[], PATIENCE).unwrap_err();
    assert_eq!(error.fault.code, code::LOCAL_AUTHENTICATION, "{error}");
    assert_quick(start);
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn what_librdkafka_does_not_take_is_an_error_of_the_configuration_without_the_secret() {
    for (key, value) in [
        ("debug", "https://me:hunter2@host"),
        ("sasl.oauthbearer.method", "password=hunter2"),
        ("sasl.password", "hunter2\0"),
    ] {
        let mut config = config_of("h:1");
        config.common.push((key.into(), value.into()));
        config.secrets.push(value.into());
        let error = KafkaClient::new(config).facts(&[], PATIENCE).unwrap_err();
        assert_eq!(error.call, CallSite::Create, "{error}");
        assert!(error.text.contains(key), "{error}");
        assert!(!error.text.contains("hunter2"), "{error}");
    }
}
