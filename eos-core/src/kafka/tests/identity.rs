//! A topic that is made anew while it is read.

use eos_protocol::TopicName;
use eos_protocol::state::TopicUuid;
use xtask::wire::protocol::messages::{MetadataRequest, metadata_request::MetadataRequestTopic};
use xtask::wire::protocol::protocol::StrBytes;
use xtask::wire::{Client, Node};

use super::support::{Fixture, SLICE, partition, take, take_over, taken, until};
use crate::client::{Source, SourceEvent};

/// As the wire client sees it, which shares no code with librdkafka.
fn id(wire: &mut Client, topic: &TopicName) -> TopicUuid {
    let name = StrBytes::from_string(topic.as_str().to_owned());
    let asked = MetadataRequestTopic::default().with_name(Some(name.into()));
    let request = MetadataRequest::default().with_topics(Some(vec![asked]));
    let answer = wire.request(Node::Any, &request).unwrap();
    TopicUuid(answer.topics.first().unwrap().topic_id.as_u128())
}

#[test]
fn a_longer_log_under_the_same_name_is_told_of_and_not_read() {
    let Some(mut fixture) = Fixture::new("anew") else {
        return;
    };
    let topic = fixture.topic("in", 1);
    fixture.fill(&topic, 0, 5);
    let before = id(&mut fixture.wire, &topic);
    let mut source = fixture.source();
    source.subscribe(std::slice::from_ref(&topic)).unwrap();
    take_over(&mut source);
    let p0 = partition(&topic, 0);
    take(&mut source, &p0, 5);

    fixture.wire.delete_topic(topic.as_str()).unwrap();
    assert_eq!(fixture.topic("in", 1), topic);
    fixture.fill(&topic, 0, 50);
    let now = id(&mut fixture.wire, &topic);
    assert_ne!(before, now);
    let told = until("word of it", || {
        assert!(taken(&mut source, &p0, 10).is_empty(), "of the new one");
        let told = source.poll();
        if told.is_none() {
            source.wait(SLICE);
        }
        told
    });
    let expected = SourceEvent::Recreated { topic, before, now };
    assert_eq!(told, expected);
}
