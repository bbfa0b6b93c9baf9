//! Shared code of the scenarios.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use eos_client::{
    Client, ClientError, CommittedOffset, GroupProtocol, Headers, Message, OffsetBounds,
    OffsetToCommit, Outgoing, Producer, ProducerSpec, Records, Result, Source, SourceEvent,
    SourceSpec,
};
use eos_protocol::{
    ErrorClass, Offset, Partition, Timestamp, TopicName, TopicPartition, TransactionalId,
};
use kafka_launcher::{self as kafka, Provided};
use kafka_wire as wire;

use crate::ffi::KafkaRecords;
use crate::{KafkaClient, KafkaConfig, KafkaProducer, KafkaSource};

/// The longest wait before a test fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a session or a transaction whose end no test waits for. It is longer than a stall of the
/// machine and than the creation of the group's own topic.
pub(super) const OUTLASTS: Duration = Duration::from_secs(60);

/// Returns one broker for all scenarios that run at the same time.
fn shared_kafka() -> Option<Arc<Provided>> {
    static SHARED: Mutex<Weak<Provided>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(kafka::for_tests(1).unwrap()?);
    *shared = Arc::downgrade(&started);
    Some(started)
}

/// The longest time of one blocking call.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// A broker, and names that no other scenario uses.
pub(super) struct Fixture {
    pub(super) client: KafkaClient,
    pub(super) wire: wire::Client,
    pub(super) bootstrap: String,
    pub(super) protocol: GroupProtocol,
    name: String,
    /// The last scenario that runs at the same time stops the broker.
    _kafka: Arc<Provided>,
}

impl Fixture {
    /// Returns `None` without a Kafka, after printing the missing part.
    pub(super) fn new(scenario: &str) -> Option<Self> {
        Self::speaking(dynamic(), scenario)
    }

    /// Returns a fixture whose members use this protocol.
    pub(super) fn speaking(protocol: GroupProtocol, scenario: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let kafka = shared_kafka()?;
        let bootstrap = kafka.bootstrap().to_owned();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Some(Self {
            client: client_of(&bootstrap),
            wire: wire::Client::connect(&bootstrap, PATIENCE).unwrap(),
            bootstrap,
            protocol,
            name: format!("{scenario}-{}-{count}", std::process::id()),
            _kafka: kafka,
        })
    }

    pub(super) fn topic(&mut self, suffix: &str, partitions: i32) -> TopicName {
        let name = format!("{}-{suffix}", self.name);
        // The timestamps of its records are decades old: without this the broker deletes them at its first check, half
        // a minute after its start.
        let keep = [("retention.ms", "-1")];
        let created = self.wire.create_topic(&name, partitions, 1, &keep);
        created.unwrap();
        name.as_str().into()
    }

    /// Creates an input with ten records, and an output.
    pub(super) fn topics(&mut self) -> (TopicName, TopicName) {
        let input = self.topic("in", 1);
        self.fill(&input, 0, 10);
        (input, self.topic("out", 1))
    }

    pub(super) fn group(&self) -> String {
        format!("{}-group", self.name)
    }

    /// Writes records `0..count`, as text, into one partition.
    pub(super) fn fill(&self, topic: &TopicName, partition: i32, count: i64) {
        let mut producer = wire::Producer::new(&self.bootstrap).unwrap();
        let topic = topic.as_str();
        for n in 0..count {
            let value = n.to_string();
            let (key, value, time) = (Some(&b"k"[..]), Some(value.as_bytes()), 1000 + n);
            let sent = producer.send(topic, partition, key, value, &[], time);
            sent.unwrap();
        }
        producer.flush().unwrap();
    }

    pub(super) fn source(&self) -> KafkaSource {
        self.client.source(&self.source_spec()).unwrap()
    }

    pub(super) fn source_spec(&self) -> SourceSpec {
        SourceSpec {
            group: self.group(),
            client_id: self.name.clone(),
            protocol: self.protocol.clone(),
            prefetch: 4 << 20,
            restores: false,
            reads_several_topics: false,
            watched: Vec::new(),
        }
    }

    /// Returns a member that has no partitions yet.
    pub(super) fn subscriber(&self, topic: &TopicName) -> KafkaSource {
        subscribed(&self.client, &self.source_spec(), topic)
    }

    /// Returns a member that owns its partitions.
    pub(super) fn reader(&self, topic: &TopicName) -> KafkaSource {
        let mut source = self.subscriber(topic);
        take_over(&mut source);
        source
    }

    /// Returns a producer that has fenced its predecessor.
    #[track_caller]
    pub(super) fn producer(&self, topics: &[&TopicName]) -> KafkaProducer {
        let mut producer = self.client.producer(&self.producer_spec(topics)).unwrap();
        ready(|slice| producer.init(slice)).unwrap();
        producer
    }

    /// Like [`Fixture::producer`], with an open transaction.
    #[track_caller]
    pub(super) fn begun(&self, topics: &[&TopicName]) -> KafkaProducer {
        let mut producer = self.producer(topics);
        producer.begin().unwrap();
        producer
    }

    pub(super) fn producer_spec(&self, topics: &[&TopicName]) -> ProducerSpec {
        ProducerSpec {
            client_id: self.name.clone(),
            transactional_id: Some(TransactionalId::new(self.name.as_str())),
            transaction_timeout: OUTLASTS,
            request_timeout: Duration::from_secs(10),
            topics: topics.iter().map(|&topic| topic.clone()).collect(),
            batch_limits: Vec::new(),
        }
    }
}

pub(super) fn subscribed(
    client: &KafkaClient,
    spec: &SourceSpec,
    topic: &TopicName,
) -> KafkaSource {
    let mut source = client.source(spec).unwrap();
    source.subscribe(std::slice::from_ref(topic)).unwrap();
    source
}

/// Returns a dynamic member under the classic protocol.
pub(super) fn dynamic() -> GroupProtocol {
    classic(None, OUTLASTS)
}

/// Returns a member under the classic protocol. Short heartbeats report a rebalance soon, even in a long session.
pub(super) fn classic(instance_id: Option<String>, session_timeout: Duration) -> GroupProtocol {
    GroupProtocol::Classic {
        instance_id,
        session_timeout,
        heartbeat_interval: Duration::from_millis(300),
    }
}

pub(super) fn client_of(bootstrap: &str) -> KafkaClient {
    KafkaClient::new(config_of(bootstrap))
}

pub(super) fn config_of(bootstrap: &str) -> KafkaConfig {
    KafkaConfig {
        bootstrap: bootstrap.to_owned(),
        ..KafkaConfig::default()
    }
}

pub(super) fn partition(topic: &TopicName, number: i32) -> TopicPartition {
    TopicPartition::new(topic.as_str(), Partition::new(number).unwrap())
}

pub(super) fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

pub(super) fn to_commit(partition: &TopicPartition, at: i64, metadata: &str) -> OffsetToCommit {
    let metadata = metadata.to_owned();
    OffsetToCommit {
        partition: partition.clone(),
        offset: offset(at),
        metadata,
    }
}

/// Retries until the attempt returns a value, for at most [`PATIENCE`].
#[track_caller]
pub(super) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "still no {what} after {PATIENCE:?}"
        );
    }
}

/// Waits until the condition is true, for at most [`PATIENCE`].
#[track_caller]
pub(super) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}

/// Repeats a call while it is pending, and after retriable errors.
#[track_caller]
pub(super) fn ready<T>(mut call: impl FnMut(Duration) -> Poll<Result<T>>) -> Result<T> {
    until("answer", || match call(SLICE) {
        Poll::Pending => None,
        Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => None,
        Poll::Ready(answer) => Some(answer),
    })
}

/// Returns the next event of the group.
#[track_caller]
pub(super) fn event(source: &mut KafkaSource) -> SourceEvent {
    until("event", || match source.poll() {
        Some(SourceEvent::Topics(_)) => None,
        None => {
            source.wait(SLICE);
            None
        }
        event => event,
    })
}

/// Waits for an assignment, without assigning it.
#[track_caller]
pub(super) fn assigned(source: &mut KafkaSource) -> Vec<TopicPartition> {
    match event(source) {
        SourceEvent::Assigned(partitions) => partitions,
        other => panic!("not an assignment: {other:?}"),
    }
}

/// Waits for an assignment, and assigns it from the committed offsets, or from 0.
#[track_caller]
pub(super) fn take_over(source: &mut KafkaSource) -> Vec<TopicPartition> {
    let partitions = assigned(source);
    resume(source, &partitions);
    partitions
}

/// Assigns these partitions from their committed offsets, or from 0.
#[track_caller]
pub(super) fn resume(source: &mut KafkaSource, partitions: &[TopicPartition]) {
    let committed = committed(source, partitions);
    let start = |c: &CommittedOffset| (c.partition.clone(), c.offset.unwrap_or(Offset::ZERO));
    source
        .assign(&committed.iter().map(start).collect::<Vec<_>>())
        .unwrap();
}

#[track_caller]
pub(super) fn committed(source: &mut KafkaSource, of: &[TopicPartition]) -> Vec<CommittedOffset> {
    if of.is_empty() {
        return Vec::new();
    }
    ready(|slice| source.committed(of, slice)).unwrap()
}

/// Returns a committed offset of the group.
pub(super) fn committed_at(of: &TopicPartition, at: i64, metadata: &str) -> CommittedOffset {
    CommittedOffset {
        partition: of.clone(),
        offset: Some(offset(at)),
        metadata: metadata.into(),
    }
}

#[track_caller]
pub(super) fn bounds(source: &mut KafkaSource, of: &TopicPartition) -> OffsetBounds {
    let bounds = ready(|slice| source.bounds(std::slice::from_ref(of), slice)).unwrap();
    bounds.into_iter().next().unwrap()
}

/// Handles the events of all members until each owns a partition and the assignment is stable.
#[track_caller]
pub(super) fn settle(members: &mut [(&mut KafkaSource, &mut Vec<TopicPartition>)], total: usize) {
    let mut quiet = Instant::now();
    let start = Instant::now();
    loop {
        for (source, owned) in &mut *members {
            match source.poll() {
                Some(SourceEvent::Assigned(new)) => {
                    resume(source, &new);
                    owned.extend(new);
                    quiet = Instant::now();
                }
                Some(SourceEvent::Revoked { partitions, .. }) => {
                    source.unassign(&partitions).unwrap();
                    owned.retain(|p| !partitions.contains(p));
                    quiet = Instant::now();
                }
                Some(other) => panic!("{other:?}"),
                None => source.wait(Duration::from_millis(5)),
            }
        }
        let owned: usize = members.iter().map(|(_, owned)| owned.len()).sum();
        let all_own = members.iter().all(|(_, owned)| !owned.is_empty());
        if owned == total && all_own && quiet.elapsed() > Duration::from_millis(500) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "it does not settle: {owned} of {total}"
        );
    }
}

/// Takes exactly `count` records of a partition.
#[track_caller]
pub(super) fn take(source: &mut KafkaSource, from: &TopicPartition, count: usize) -> Vec<Taken> {
    let mut records = Vec::new();
    until("records", || {
        match source.poll() {
            None | Some(SourceEvent::Topics(_)) => {}
            Some(event) => panic!("while waiting for records: {event:?}"),
        }
        records.extend(taken(source, from, count - records.len()));
        if records.len() < count {
            source.wait(SLICE);
        }
        (records.len() == count).then_some(())
    });
    records
}

/// A copied record.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) offset: Offset,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Headers,
}

/// Takes at most `max` fetched records.
pub(super) fn taken(source: &mut KafkaSource, from: &TopicPartition, max: usize) -> Vec<Taken> {
    let mut batch = KafkaRecords::default();
    source.take(from, max, &mut batch).unwrap();
    let mut taken = Vec::new();
    while let Some(record) = batch.first() {
        taken.push(Taken {
            offset: record.offset(),
            timestamp: record.timestamp(),
            key: record.key().map(Into::into),
            value: record.value().map(Into::into),
            headers: record.headers(),
        });
        batch.drop_first();
    }
    taken
}

pub(super) fn offsets(records: &[Taken]) -> Vec<i64> {
    records.iter().map(|record| record.offset.get()).collect()
}

/// Returns the code of a fatal error.
#[track_caller]
pub(super) fn fatal_code(error: &ClientError) -> i32 {
    assert!(error.fault.fatal, "{error:?}");
    error.fault.code
}

#[track_caller]
pub(super) fn assert_class(error: &ClientError, class: ErrorClass) {
    assert_eq!(error.class(), class, "{error:?}");
}

/// Checks that a wait ended well before its deadline.
#[track_caller]
pub(super) fn assert_quick(since: Instant) {
    let took = since.elapsed();
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[track_caller]
pub(super) fn send(producer: &mut KafkaProducer, topic: usize, partition: i32, value: &str) {
    let record = Outgoing {
        topic,
        partition: Partition::new(partition).unwrap(),
        timestamp: None,
        key: Some(b"k"),
        value: Some(value.as_bytes()),
        headers: &Headers::new(),
    };
    ready(|_| producer.send(&record)).unwrap();
}

/// Sends the offsets, flushes and commits.
pub(super) fn commit(
    source: &mut KafkaSource,
    producer: &mut KafkaProducer,
    offsets: &[OffsetToCommit],
) -> Result<()> {
    let member = source.member()?;
    ready(|slice| producer.send_offsets(offsets, &member, slice))?;
    ready(|slice| producer.flush(slice))?;
    // In one call, as workers do it: a producer that has to be called again counts as unanswered.
    ready(|_| producer.commit(PATIENCE / 2))
}

/// Closes the source, and responds to its events.
#[track_caller]
pub(super) fn close(mut source: KafkaSource) -> Duration {
    let start = Instant::now();
    ready(|slice| {
        match source.poll() {
            Some(SourceEvent::Revoked { partitions, .. }) => source.unassign(&partitions)?,
            Some(SourceEvent::Assigned(_)) => source.assign(&[])?,
            _ => {}
        }
        source.close(slice)
    })
    .unwrap();
    drop(source);
    start.elapsed()
}

/// Waits until readers of committed records find exactly these values in a topic. (The coordinator responds before the
/// transaction markers are in every partition.)
#[track_caller]
pub(super) fn expect(wire: &mut wire::Client, topic: &TopicName, values: &[&str]) {
    let start = Instant::now();
    while read(wire, topic) != values {
        let found = read(wire, topic);
        assert!(
            start.elapsed() < PATIENCE,
            "in {topic}: {found:?} instead of {values:?}"
        );
    }
}

/// Returns the values of a topic for readers of committed records, as text.
pub(super) fn read(wire: &mut wire::Client, topic: &TopicName) -> Vec<String> {
    let mut all = Vec::new();
    wire.read_all(
        topic.as_str(),
        wire::Isolation::ReadCommitted,
        |_, record| {
            let value = record.value.as_deref().unwrap_or_default();
            all.push(String::from_utf8_lossy(value).into_owned());
        },
    )
    .unwrap();
    all
}
