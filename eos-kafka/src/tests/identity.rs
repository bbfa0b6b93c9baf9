//! A topic that is created again, or grows, during reading.

use std::sync::Arc;
use std::time::Duration;

use eos_client::{Source, SourceEvent, SourceSpec};
use eos_protocol::state::TopicUuid;
use eos_protocol::{SeenTopic, TopicName};
use kafka_wire::protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_wire::protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_wire::protocol::messages::{CreatePartitionsRequest, MetadataRequest};
use kafka_wire::protocol::protocol::StrBytes;
use kafka_wire::{Client, Node};

use super::support::{
    Fixture, PATIENCE, SLICE, config_of, partition, subscribed, take, take_over, taken, until,
};
use crate::KafkaSource;
use crate::ffi::{self, Kind};
use crate::identity::Identities;
use crate::wake::Wake;

/// Returns the topic id as seen by the wire client, which shares no code with librdkafka.
fn id(wire: &mut Client, topic: &TopicName) -> TopicUuid {
    let name = StrBytes::from_string(topic.as_str().to_owned());
    let asked = MetadataRequestTopic::default().with_name(Some(name.into()));
    let request = MetadataRequest::default().with_topics(Some(vec![asked]));
    let answer = wire.request(Node::Any, &request).unwrap();
    TopicUuid(answer.topics.first().unwrap().topic_id.as_u128())
}

/// Returns a consumer that watches this topic, and has taken its first records.
fn reader(fixture: &Fixture, topic: &TopicName, taken: usize) -> KafkaSource {
    let spec = SourceSpec {
        watched: vec![topic.clone()],
        ..fixture.source_spec()
    };
    let mut source = subscribed(&fixture.client, &spec, topic);
    take_over(&mut source);
    take(&mut source, &partition(topic, 0), taken);
    source
}

/// Waits for a report that differs from the known one.
fn report(source: &mut KafkaSource, topic: &TopicName, known: SeenTopic) -> SeenTopic {
    until("a report of a change", || {
        let event = source.poll();
        if event.is_none() {
            source.wait(SLICE);
        }
        match event? {
            SourceEvent::Topics(topics) => {
                let found = topics.into_iter().find(|(name, _)| name == topic);
                found?.1.filter(|seen| *seen != known)
            }
            _ => None,
        }
    })
}

#[test]
fn a_longer_log_under_the_same_name_is_reported_and_not_read() {
    let Some(mut fixture) = Fixture::new("recreated-longer") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    fixture.fill(&topic, 0, 5);
    let before = id(&mut fixture.wire, &topic);
    let mut source = reader(&fixture, &topic, 5);

    fixture.wire.delete_topic(topic.as_str()).unwrap();
    assert_eq!(fixture.topic("in", 1), topic);
    fixture.fill(&topic, 0, 50);
    let now = id(&mut fixture.wire, &topic);
    assert_ne!(before, now);
    let p0 = partition(&topic, 0);
    let reported = until("a report of the new one", || {
        assert!(taken(&mut source, &p0, 10).is_empty(), "of the new one");
        let event = source.poll();
        if event.is_none() {
            source.wait(SLICE);
        }
        match event? {
            SourceEvent::Topics(topics) => topics
                .into_iter()
                .filter_map(|(_, seen)| seen)
                .find(|seen| seen.id != Some(before)),
            _ => None,
        }
    });
    let wanted = SeenTopic {
        id: Some(now),
        partitions: 1,
    };
    assert_eq!(reported, wanted);
}

#[test]
fn partitions_that_are_added_are_reported() {
    let Some(mut fixture) = Fixture::new("grown") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    fixture.fill(&topic, 0, 1);
    let id = Some(id(&mut fixture.wire, &topic));
    let mut source = reader(&fixture, &topic, 1);
    let name = StrBytes::from_string(topic.as_str().to_owned());
    let more = CreatePartitionsTopic::default()
        .with_name(name.into())
        .with_count(3)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![more])
        .with_timeout_ms(5000);
    let answer = fixture.wire.request(Node::Any, &request).unwrap();
    assert_eq!(answer.results.first().unwrap().error_code, 0);
    let known = SeenTopic { id, partitions: 1 };
    let found = report(&mut source, &topic, known);
    assert_eq!(found, SeenTopic { id, partitions: 3 });
}

/// The response to the query is a Metadata response itself, and must not cause the next query.
#[test]
fn a_response_that_comes_behind_the_answer_causes_another_query() {
    let Some(mut fixture) = Fixture::new("behind") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    let config = config_of(&fixture.bootstrap);
    let settings = config.for_source(&fixture.source_spec());
    let client = ffi::Client::new(Kind::Consumer, &config, &settings).unwrap();
    let wake = Arc::new(Wake::default());
    let mut identities = Identities::of(std::slice::from_ref(&topic));
    let report = |identities: &mut Identities| {
        until("a report", || {
            let report = identities.look(&client, &wake);
            if report.is_none() {
                wake.wait(SLICE);
            }
            report
        })
    };
    // Waits until the response is here, and leaves it in the queue.
    let query = |identities: &mut Identities| {
        client.topic_names(PATIENCE).unwrap();
        assert!(identities.hold(&client), "news");
        wake.wait(Duration::ZERO);
        assert!(identities.look(&client, &wake).is_none());
        wake.wait(PATIENCE);
    };
    report(&mut identities);
    // The client refreshes its metadata periodically, above all at its start.
    until("an answer that is all", || {
        query(&mut identities);
        report(&mut identities);
        (!identities.hold(&client)).then_some(())
    });
    query(&mut identities);
    client.topic_names(PATIENCE).unwrap();
    report(&mut identities);
    assert!(identities.hold(&client), "it may name another id");
    report(&mut identities);
}
