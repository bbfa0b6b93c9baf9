//! The client distinguishes offsets that an open transaction holds from a slow or silent broker.

use std::time::Duration;

use eos_broker::EmbeddedKafka;
use eos_broker::faults::{Act, Rule};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;
use kafka_wire::{Client, TransactionalProducer};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a broker on which the offsets of group `app` for topic `in` are pending.
fn held() -> (EmbeddedKafka, TransactionalProducer) {
    let kafka = EmbeddedKafka::start().expect("a broker");
    let bootstrap = kafka.bootstrap();
    let mut client = Client::connect(&bootstrap, TIMEOUT).expect("a client");
    client.create_topic("in", 1, 1, &[]).expect("a topic");
    let mut app = TransactionalProducer::new(&bootstrap, "app", TIMEOUT).expect("a producer");
    app.send("in", 0, &[("k", "v")]).expect("sent");
    app.send_offset("app", "in", 0, 1).expect("sent");
    (kafka, app)
}

#[test]
fn held_offsets_are_none_however_slowly_their_coordinator_is_found() {
    let (kafka, _app) = held();
    let slow = Rule::on(ApiKey::FindCoordinator, Act::DelayAnswer(700));
    let slow = kafka.with(|broker, _| broker.add_fault(slow));
    let mut client = Client::connect(&kafka.bootstrap(), TIMEOUT).expect("a client");
    let patience = Duration::from_millis(100);
    let read = client.committed_unless_held("app", "in", patience);
    assert_eq!(read.expect("an answer"), None);
    assert!(
        kafka.with(|broker, _| broker.fired(slow)) >= 2,
        "asked before and after the patience"
    );
}

#[test]
fn the_last_answer_is_the_cause_when_the_time_is_over_while_asking_again() {
    let (kafka, _app) = held();
    let silent = Rule::on(ApiKey::FindCoordinator, Act::DropRequest).skip(1);
    let silent = kafka.with(|broker, _| broker.add_fault(silent));
    let mut client = Client::connect(&kafka.bootstrap(), Duration::from_secs(5)).expect("a client");
    let error = client.committed("app", "in").expect_err("they are held");
    let cause = error.downcast_ref::<ResponseError>();
    assert_eq!(
        cause,
        Some(&ResponseError::UnstableOffsetCommit),
        "{error:?}"
    );
    assert!(
        kafka.with(|broker, _| broker.fired(silent)) >= 1,
        "asked again in vain"
    );
}
