//! A consumer that is dropped before its close has ended.

use std::time::{Duration, Instant};

use eos_broker::EmbeddedKafka;
use eos_broker::faults::{Act, Rule};
use eos_client::{Client, Source, SourceSpec};
use eos_protocol::TopicName;
use kafka_wire::protocol::messages::ApiKey;

use super::support::{SLICE, client_of, dynamic, take_over, until};

/// librdkafka waits five seconds for the response. A worker that drops its source does not wait.
#[test]
fn an_abandoned_close_waits_for_its_answer_on_another_thread() {
    let kafka = EmbeddedKafka::builder().topic("in", 1).start().unwrap();
    let lost = Rule::on(ApiKey::LeaveGroup, Act::DropRequest);
    let lost = kafka.with(|broker, _| broker.add_fault(lost));
    let spec = SourceSpec {
        group: "leaving".into(),
        client_id: "leaving".into(),
        protocol: dynamic(),
        prefetch: 4 << 20,
        restores: false,
        reads_several_topics: false,
        watched: Vec::new(),
    };
    let mut source = client_of(&kafka.bootstrap()).source(&spec).unwrap();
    source.subscribe(&[TopicName::new("in")]).unwrap();
    take_over(&mut source);

    assert!(source.close(SLICE).is_pending());
    let start = Instant::now();
    drop(source);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    until("LeaveGroup", || {
        std::thread::sleep(SLICE);
        (kafka.with(|broker, _| broker.fired(lost)) > 0).then_some(())
    });
}
