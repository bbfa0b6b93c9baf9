//! Metrics of inputs with another producer's open transaction.

use std::task::Poll;
use std::time::Duration;

use eos_client::{Client, Headers, Outgoing, Producer, ProducerSpec, Result};
use eos_core::{App, PlainTopic, Topic};
use eos_protocol::{Partition, TransactionalId};
use eos_testkit::TestDriver;
use eos_testkit::client::{Cluster, ModelProducer};

fn lines() -> PlainTopic<String, String> {
    Topic::plain("lines")
}

fn copying() -> App {
    let mut app = App::new("a");
    app.source(&lines()).to(&Topic::plain("copies"));
    app
}

/// Repeats a call until it is ready.
pub(crate) fn ready<T>(cluster: &Cluster, mut call: impl FnMut() -> Poll<Result<T>>) -> T {
    for _ in 0..1_000 {
        if let Poll::Ready(answer) = call() {
            return answer.unwrap();
        }
        cluster.pass(cluster.now() + 1);
    }
    panic!("no response within a second of the broker's time");
}

/// Another producer with an open transaction of `records` records in a topic.
pub(crate) fn foreign(cluster: &Cluster, topic: &str, records: usize) -> ModelProducer {
    let spec = ProducerSpec {
        client_id: "foreign".to_owned(),
        transactional_id: Some(TransactionalId::new("foreign")),
        transaction_timeout: Duration::from_secs(600),
        request_timeout: Duration::from_secs(10),
        topics: vec![topic.into()],
        batch_limits: Vec::new(),
    };
    let mut producer = cluster.producer(&spec).unwrap();
    ready(cluster, || producer.init(Duration::ZERO));
    producer.begin().unwrap();
    write(cluster, &mut producer, records);
    producer
}

fn write(cluster: &Cluster, producer: &mut ModelProducer, records: usize) {
    let record = Outgoing {
        topic: 0,
        partition: Partition::ZERO,
        timestamp: None,
        key: Some(b"k"),
        value: Some(b"undecided"),
        headers: &Headers::new(),
    };
    for _ in 0..records {
        ready(cluster, || producer.send(&record));
    }
    ready(cluster, || producer.flush(Duration::ZERO));
}

/// The next offset, the lag and the held-back offsets of the only input.
fn input(driver: &TestDriver) -> (i64, Option<u64>, Option<u64>) {
    let metrics = driver.metrics().unwrap();
    let input = metrics.workers[0].tasks[0].inputs[0].clone();
    (input.next.get(), input.lag, input.held_back)
}

#[test]
fn what_a_foreign_transaction_holds_back_is_lag_until_it_is_decided() {
    const LOOK: Duration = Duration::from_secs(2);
    let mut driver = TestDriver::new(copying());
    driver.pipe(&lines(), "k", "1");
    driver.advance_wall_clock(LOOK);
    assert_eq!(input(&driver), (1, Some(0), Some(0)));

    let cluster = driver.cluster().clone();
    let mut producer = foreign(&cluster, "lines", 2);
    driver.advance_wall_clock(LOOK);
    assert_eq!(input(&driver), (1, Some(2), Some(2)));
    // Later records of any producer wait, too.
    driver.pipe(&lines(), "k", "2");
    write(&cluster, &mut producer, 1);
    driver.advance_wall_clock(LOOK);
    assert_eq!(input(&driver), (1, Some(4), Some(4)));

    ready(&cluster, || producer.abort(Duration::ZERO));
    driver.advance_wall_clock(LOOK);
    // The marker at the end and the aborted records before it are not lag.
    assert_eq!(input(&driver), (4, Some(0), Some(0)));
    assert_eq!(driver.count(&Topic::<String, String>::plain("copies")), 2);
}
