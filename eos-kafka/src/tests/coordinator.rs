//! A group's coordinator that is removed from the cluster.

use std::time::{Duration, Instant};

use eos_client::{Client, OffsetToCommit, Producer, ProducerSpec};
use eos_protocol::TransactionalId;

use super::support::{config_of, partition, ready, to_commit};
use crate::ffi::{self, Kind, MockCluster};
use crate::{KafkaClient, KafkaConfig, KafkaProducer};

/// Without a reconnect, librdkafka waits until it closes an idle connection: twice this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn a_coordinator_that_was_removed_is_replaced_within_seconds() {
    let config = config_of("127.0.0.1:1");
    let host = ffi::Client::new(Kind::Lookup, &config, &[]).unwrap();
    let cluster = MockCluster::new(&host, 3);
    cluster.create_topic(c"in");
    cluster.set_coordinator(c"transaction", c"removed", 1);
    cluster.set_coordinator(c"group", c"removed", 2);
    let client = KafkaClient::new(KafkaConfig {
        // The producer soon sees that the broker is no longer listed, and remembers the coordinator.
        producer: vec![
            ("topic.metadata.refresh.interval.ms".into(), "100".into()),
            ("metadata.max.age.ms".into(), "900000".into()),
        ],
        ..config_of(&cluster.bootstrap())
    });
    let mut producer = client
        .producer(&ProducerSpec {
            client_id: "removed".into(),
            transactional_id: Some(TransactionalId::new("removed")),
            transaction_timeout: Duration::from_secs(60),
            request_timeout: REQUEST_TIMEOUT,
            topics: vec!["out".into()],
            batch_limits: Vec::new(),
        })
        .unwrap();
    ready(|slice| producer.init(slice)).unwrap();
    let offsets = [to_commit(&partition(&"in".into(), 0), 1, "")];
    assert!(sent(&mut producer, &offsets) < Duration::from_secs(5));
    cluster.decommission(2);
    std::thread::sleep(Duration::from_secs(1));

    cluster.set_coordinator(c"group", c"removed", 3);
    let took = sent(&mut producer, &offsets);
    assert!(took > Duration::from_secs(1), "it did not wait: {took:?}");
    assert!(took < REQUEST_TIMEOUT / 2, "{took:?}");
    assert_eq!(producer.reconnects(), 1, "after {took:?}");
    assert!(!producer.unanswered());
}

/// Commits a transaction that has only offsets. Returns the time of `send_offsets`.
fn sent(producer: &mut KafkaProducer, offsets: &[OffsetToCommit]) -> Duration {
    producer.begin().unwrap();
    let since = Instant::now();
    let member = ffi::member_of(c"removed");
    ready(|slice| producer.send_offsets(offsets, &member, slice)).unwrap();
    let took = since.elapsed();
    ready(|slice| producer.commit(slice)).unwrap();
    took
}
