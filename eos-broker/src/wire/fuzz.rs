//! Seeded fuzzing from frames through the model to responses.
//!
//! The requests have the right shape and random values. Some contain record batches as clients send them, which random
//! bytes would never form. A batch is whole, or has changed bytes below a corrected checksum, so that it reaches the
//! log.
//!
//! `cargo xtask soak fuzz` runs it for ten minutes instead of five seconds. A failure names the seed, and
//! `EOS_FUZZ_SEED` repeats it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use kafka_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use kafka_protocol::messages::{ApiKey, RequestHeader, RequestKind, ResponseKind, TransactionalId};
use kafka_protocol::protocol::{Encodable, StrBytes};
use kafka_wire::requests::text;

use super::frame::{self, Frame};
use super::shape::Shape;
use super::shape::tests::{Seeded, write};
use crate::broker::{Api, Broker, BrokerOptions, Hold, Output, Request, SERVED, Ticket};
use crate::faults::{Act, Rule};
use crate::log::produced;

fn number(name: &str, default: u64) -> u64 {
    let said = std::env::var(name).ok();
    said.and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// Returns a broker with some data, and limits so small that requests reach them.
fn broker() -> Broker {
    let options = BrokerOptions {
        partitions_max: 50,
        log_memory_max_bytes: 20_000,
        auto_create_topics: true,
        ..BrokerOptions::default()
    };
    let mut broker = Broker::new(options);
    broker.add_topic("t", 2, &[]).expect("created");
    let compacted = [("cleanup.policy", "compact")];
    broker.add_topic("x", 1, &compacted).expect("created");
    broker
}

/// Returns a valid header of one of the served versions.
fn header(api: Api, random: &mut Seeded) -> (i16, BytesMut) {
    let version = api.min + random.below(api.max as u64 - api.min as u64 + 1) as i16;
    let mut bytes = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(api.key as i16)
        .with_request_api_version(version)
        .with_correlation_id(random.next() as i32)
        .with_client_id(Some(StrBytes::from_static_str("fuzz")))
        .encode(&mut bytes, api.key.request_header_version(version))
        .expect("a header");
    (version, bytes)
}

/// Returns a frame with a valid header and a body of the right shape, which may then be damaged.
fn frame_of(random: &mut Seeded) -> Bytes {
    let api = SERVED[random.below(SERVED.len() as u64) as usize];
    let (version, mut bytes) = header(api, random);
    let shape = Shape::of(api.key, version).expect("a shape");
    bytes.extend_from_slice(&write(&shape, random));
    match random.below(4) {
        // Unchanged: the structure is valid, the values are random.
        0 | 1 => {}
        2 => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        _ => {
            let length = random.below(bytes.len() as u64 + 1) as usize;
            bytes.truncate(length);
            for _ in 0..random.below(8) {
                bytes.put_u8(random.next() as u8);
            }
        }
    }
    bytes.freeze()
}

const TOPICS: [(&str, i32); 3] = [("t", 0), ("t", 1), ("x", 0)];

/// Returns a batch of a few records, of a producer that may exist. Half of the batches have changed bytes and a
/// corrected checksum.
fn batch_of(random: &mut Seeded) -> (Bytes, bool) {
    let is_transactional = random.below(2) == 0;
    let producer = (random.below(3) > 0).then(|| {
        let id = random.below(4) as i64;
        (id, random.below(3) as i16, random.below(12) as i32)
    });
    let keys = ["a", "b", "c"];
    let records: Vec<_> = (0..=random.below(3))
        .map(|_| {
            let key = keys[random.below(3) as usize];
            let value = (random.below(3) > 0).then_some("v");
            (key, value, random.below(5_000) as i64)
        })
        .collect();
    let whole = produced(producer, is_transactional, &records);
    if random.below(2) == 0 {
        return (whole, is_transactional);
    }
    let mut bytes = BytesMut::from(&whole[..]);
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        // Small values reach more code, because they are lengths and counts that are almost right.
        bytes[at] = match random.below(2) {
            0 => random.below(4) as u8,
            _ => random.next() as u8,
        };
    }
    kafka_wire::batch::seal(&mut bytes);
    (bytes.freeze(), is_transactional)
}

/// Returns a request that writes or reads an existing topic, as bytes like any other request.
fn records_of(random: &mut Seeded) -> Bytes {
    let (name, partition) = TOPICS[random.below(3) as usize];
    let topic = text(name).into();
    let mut bytes = BytesMut::new();
    let header = |key: ApiKey, version, bytes: &mut BytesMut| {
        RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_client_id(Some(StrBytes::from_static_str("fuzz")))
            .encode(bytes, key.request_header_version(version))
            .expect("a header");
    };
    if random.below(4) > 0 {
        let (records, is_transactional) = batch_of(random);
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(records));
        let data = TopicProduceData::default()
            .with_name(topic)
            .with_partition_data(vec![data]);
        header(ApiKey::Produce, 9, &mut bytes);
        ProduceRequest::default()
            .with_transactional_id(is_transactional.then(|| TransactionalId(text("x"))))
            .with_acks(-1)
            .with_topic_data(vec![data])
            .encode(&mut bytes, 9)
            .expect("a request");
    } else {
        let asked = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(random.below(40) as i64)
            .with_partition_max_bytes(random.below(2_000) as i32);
        let asked = FetchTopic::default()
            .with_topic(topic)
            .with_partitions(vec![asked]);
        header(ApiKey::Fetch, 11, &mut bytes);
        FetchRequest::default()
            .with_max_bytes(10_000)
            .with_isolation_level(random.below(2) as i8)
            .with_topics(vec![asked])
            .encode(&mut bytes, 11)
            .expect("a request");
    }
    bytes.freeze()
}

/// Applies a random event to a broker: a test's call, or a fault.
fn happening(random: &mut Seeded, broker: &mut Broker, now: i64) {
    match random.below(6) {
        0 => {
            broker.compact(now);
        }
        1 => broker.apply_retention(now),
        2 => broker.hold_markers(match random.below(3) {
            0 => Hold::All,
            1 => Hold::Partition("t".into(), random.below(2) as i32),
            _ => Hold::Group("g".into()),
        }),
        3 => broker.release_markers(now),
        _ => {
            let api = SERVED[random.below(SERVED.len() as u64) as usize];
            let wait = random.below(200) as i64;
            let act = match random.below(8) {
                // A delayed deletion would look as if a log had lost its end.
                0 if api.key == ApiKey::DeleteTopics => return,
                0 => Act::DelayRequest(wait),
                1 => Act::DelayAnswer(wait),
                2 => Act::DropRequest,
                3 => Act::DropAnswer,
                4 => Act::Duplicate,
                5 => Act::Refuse(ResponseError::NotCoordinator),
                6 => Act::DisconnectBefore,
                _ => Act::DisconnectAfter,
            };
            let rule = Rule::on(api.key, act)
                .skip(random.below(2))
                .times(1 + random.below(3));
            broker.add_fault(match random.below(3) {
                0 => rule.topic("t"),
                1 => rule.name("g"),
                _ => rule,
            });
        }
    }
}

/// Returns the end offsets of the topics' logs.
fn ends(broker: &Broker) -> Vec<Option<i64>> {
    let ends = TOPICS.map(|(topic, partition)| broker.end_offset(topic, partition));
    ends.into()
}

/// Runs one broker with this number of frames.
fn life(seed: u64, frames: u32, seen: &mut HashMap<(ApiKey, bool), u64>, appended: &mut u64) {
    let mut random = Seeded(seed);
    let mut broker = broker();
    let mut asked: HashMap<Ticket, (ApiKey, i16)> = HashMap::new();
    let mut now = 1_000;
    for index in 0..frames {
        now += random.below(50) as i64;
        let before = ends(&broker);
        if random.below(20) == 0 {
            happening(&mut random, &mut broker, now);
        }
        let bytes = match random.below(3) {
            0 => records_of(&mut random),
            _ => frame_of(&mut random),
        };
        let mut cuts = false;
        let outputs = match frame::decode(bytes) {
            Ok(Frame::Request(request)) => {
                let ticket = Ticket(u64::from(index));
                asked.insert(ticket, (request.key, request.version));
                // Deleted or recreated topics lose their logs.
                cuts = matches!(
                    request.body,
                    RequestKind::DeleteTopics(_) | RequestKind::CreateTopics(_)
                );
                let mut step = Request::new(ticket, request.version, request.body);
                step.client_id = request.client_id;
                assert_eq!(step.key(), Some(request.key), "faults are found by it");
                broker.step(step, now)
            }
            Ok(Frame::TooNew { .. }) | Err(_) => broker.advance(now),
        };
        for output in outputs {
            let (key, version) = asked.remove(&output.ticket()).expect("one response");
            if let Output::Answer(_, body) = output {
                if let ResponseKind::Produce(answer) = &body {
                    let of_topics = answer.responses.iter();
                    let mut partitions = of_topics.flat_map(|it| &it.partition_responses);
                    *appended += u64::from(partitions.any(|it| it.error_code == 0));
                }
                let bytes = frame::encode(key, version, 1, &body);
                let ok = bytes.is_ok();
                *seen.entry((key, ok)).or_default() += 1;
                assert!(ok, "seed {seed}: {key:?} {version}: {bytes:?} of {body:?}");
            }
        }
        let after = ends(&broker);
        let fell = before.iter().zip(&after).any(|(b, a)| a < b);
        assert!(
            !fell || cuts,
            "seed {seed}: ends {before:?}, then {after:?}"
        );
    }
    assert!(
        asked.len() < 2_000,
        "seed {seed}: {} are never answered",
        asked.len()
    );
}

#[test]
fn nothing_that_comes_over_the_wire_panics_or_has_an_answer_that_cannot_be_sent() {
    let seconds = number("EOS_FUZZ_SECONDS", 5);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = number("EOS_FUZZ_SEED", 1);
    let (mut seen, mut appended) = (HashMap::new(), 0);
    let mut lives = 0;
    while lives < 20 || Instant::now() < end {
        life(seed, 3_000, &mut seen, &mut appended);
        seed += 1;
        lives += 1;
    }
    let answered: u64 = seen.values().sum();
    println!("{lives} brokers, {answered} answers, {appended} batches appended");
    assert!(
        appended > 10 * lives,
        "{appended} batches in {lives} brokers came as far as a log"
    );
    for api in SERVED {
        assert!(
            seen.contains_key(&(api.key, true)),
            "{:?} was never answered",
            api.key
        );
    }
}

#[test]
fn bytes_without_any_structure_are_refused() {
    let mut random = Seeded(99);
    let refused = |front: &[u8], random: &mut Seeded| {
        let length = random.below(200) as usize;
        let noise = (0..length).map(|_| random.next() as u8);
        let bytes: Vec<u8> = front.iter().copied().chain(noise).collect();
        let decoded = frame::decode(Bytes::from(bytes));
        let is_refused = decoded.is_err();
        if let Ok(Frame::Request(request)) = decoded {
            // The random bytes are a valid request by chance. It must not crash the broker.
            let request = Request::new(Ticket(0), request.version, request.body);
            broker().step(request, 0);
        }
        usize::from(is_refused)
    };
    let (mut without, mut behind) = (0, 0);
    for _ in 0..20_000 {
        without += refused(&[], &mut random);
        let api = SERVED[random.below(SERVED.len() as u64) as usize];
        behind += refused(&header(api, &mut random).1, &mut random);
    }
    assert!(without >= 19_900, "{without} of 20000 without a header");
    assert!(behind >= 18_000, "{behind} of 20000 behind a right header");
}
