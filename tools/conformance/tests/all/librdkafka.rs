//! librdkafka on the embedded broker, end to end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eos_broker::EmbeddedKafka;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(20);

fn producer(kafka: &EmbeddedKafka, id: &str) -> Result<BaseProducer> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .set("transactional.id", id)
        .set("retry.backoff.ms", "10")
        .create()?;
    producer.init_transactions(PATIENCE)?;
    Ok(producer)
}

fn consumer(kafka: &EmbeddedKafka, group: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .set("group.id", group)
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .create()?)
}

fn send(producer: &BaseProducer, topic: &str, value: &str) -> Result<()> {
    let record = BaseRecord::<str, str>::to(topic).key("k").payload(value);
    producer.send(record).map_err(|(error, _)| error)?;
    Ok(())
}

/// Returns this number of values, in order.
fn take(consumer: &BaseConsumer, count: usize) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    let mut values = Vec::new();
    while values.len() < count {
        ensure!(Instant::now() < deadline, "only {values:?}");
        if let Some(message) = consumer.poll(Duration::from_millis(50)) {
            let message = message?;
            let value = message.payload().context("no value")?;
            values.push(String::from_utf8_lossy(value).into_owned());
        }
    }
    Ok(values)
}

#[test]
fn a_record_goes_through_in_a_transaction() -> Result<()> {
    let kafka = EmbeddedKafka::builder().topic("t", 1).start()?;
    let producer = producer(&kafka, "one")?;
    producer.begin_transaction()?;
    send(&producer, "t", "hello")?;
    producer.commit_transaction(PATIENCE)?;
    let consumer = consumer(&kafka, "readers")?;
    consumer.subscribe(&["t"])?;
    ensure!(take(&consumer, 1)? == ["hello"]);
    Ok(())
}

#[test]
fn aborted_records_are_not_read() -> Result<()> {
    let kafka = EmbeddedKafka::builder().topic("t", 1).start()?;
    let producer = producer(&kafka, "one")?;
    for (value, commit) in [("a", true), ("b", false), ("c", true)] {
        producer.begin_transaction()?;
        send(&producer, "t", value)?;
        producer.flush(PATIENCE)?;
        if commit {
            producer.commit_transaction(PATIENCE)?;
        } else {
            producer.abort_transaction(PATIENCE)?;
        }
    }
    let consumer = consumer(&kafka, "readers")?;
    consumer.subscribe(&["t"])?;
    ensure!(take(&consumer, 2)? == ["a", "c"]);
    Ok(())
}

#[test]
fn offsets_commit_with_the_records_that_they_led_to() -> Result<()> {
    let kafka = EmbeddedKafka::builder()
        .topic("in", 1)
        .topic("out", 1)
        .start()?;
    let feed = producer(&kafka, "feed")?;
    feed.begin_transaction()?;
    send(&feed, "in", "1")?;
    send(&feed, "in", "2")?;
    feed.commit_transaction(PATIENCE)?;
    let copy = producer(&kafka, "copy")?;
    for expected in [["1"], ["2"]] {
        // Each consumer stands for a separate process, which continues at the committed offset.
        let consumer = consumer(&kafka, "copiers")?;
        consumer.subscribe(&["in"])?;
        ensure!(take(&consumer, 1)? == expected);
        copy.begin_transaction()?;
        send(&copy, "out", expected[0])?;
        let position = consumer.position()?;
        let metadata = consumer.group_metadata().context("no group")?;
        copy.send_offsets_to_transaction(&next(&position)?, &metadata, PATIENCE)?;
        copy.commit_transaction(PATIENCE)?;
        consumer.unsubscribe();
    }
    let readers = consumer(&kafka, "readers")?;
    readers.subscribe(&["out"])?;
    ensure!(take(&readers, 2)? == ["1", "2"]);
    Ok(())
}

/// Returns the offsets to commit. A position is behind the last returned record, even if more records are fetched.
fn next(position: &TopicPartitionList) -> Result<TopicPartitionList> {
    let mut next = TopicPartitionList::new();
    for it in position.elements() {
        if let Offset::Offset(offset) = it.offset() {
            next.add_partition_offset(it.topic(), it.partition(), Offset::Offset(offset))?;
        }
    }
    Ok(next)
}

#[test]
fn a_second_producer_fences_the_first() -> Result<()> {
    let kafka = EmbeddedKafka::builder().topic("t", 1).start()?;
    let first = producer(&kafka, "one")?;
    first.begin_transaction()?;
    send(&first, "t", "zombie")?;
    first.flush(PATIENCE)?;
    let second = producer(&kafka, "one")?;
    ensure!(first.commit_transaction(PATIENCE).is_err(), "it is fenced");
    second.begin_transaction()?;
    send(&second, "t", "successor")?;
    second.commit_transaction(PATIENCE)?;
    let consumer = consumer(&kafka, "readers")?;
    consumer.subscribe(&["t"])?;
    ensure!(take(&consumer, 1)? == ["successor"]);
    Ok(())
}

#[test]
fn two_consumers_share_partitions_eagerly_and_cooperatively() -> Result<()> {
    for strategy in ["range", "cooperative-sticky"] {
        let kafka = EmbeddedKafka::builder().topic("t", 4).start()?;
        let member = || -> Result<BaseConsumer> {
            Ok(ClientConfig::new()
                .set("bootstrap.servers", kafka.bootstrap())
                .set("group.id", "g")
                .set("partition.assignment.strategy", strategy)
                .set("heartbeat.interval.ms", "100")
                .set("session.timeout.ms", "6000")
                .create()?)
        };
        let (one, two) = (member()?, member()?);
        one.subscribe(&["t"])?;
        settle(&[&one], &[4]).context(strategy)?;
        two.subscribe(&["t"])?;
        settle(&[&one, &two], &[2, 2]).context(strategy)?;
        drop(two);
        settle(&[&one], &[4]).context(strategy)?;
    }
    Ok(())
}

/// Polls until the consumers have these numbers of partitions.
fn settle(consumers: &[&BaseConsumer], counts: &[usize]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut seen = Vec::new();
        for consumer in consumers {
            if let Some(Err(error)) = consumer.poll(Duration::from_millis(20)) {
                return Err(error.into());
            }
            seen.push(consumer.assignment()?.count());
        }
        if seen == counts {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{seen:?}, expected {counts:?}");
    }
}
