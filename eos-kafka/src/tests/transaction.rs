//! One consumer and one producer.

use std::time::{Duration, Instant};

use eos_client::{Change, Client, Headers, OffsetBounds, Outgoing, Producer, Source, SourceEvent};
use eos_protocol::{Partition, Timestamp, TopicPartition, code};
use kafka_wire::{End, Isolation, TransactionalProducer};

use super::support::{
    Fixture, PATIENCE, assert_quick, assigned, bounds, close, commit, committed, committed_at,
    config_of, event, expect, offset, offsets, partition, read, ready, send, subscribed, take,
    take_over, taken, to_commit, until,
};
use crate::ffi::KafkaRecords;
use crate::{KafkaClient, KafkaConfig, KafkaProducer, KafkaSource};

#[test]
fn records_and_offsets_commit_together_and_metadata_comes_back() {
    let Some(mut fixture) = Fixture::new("commit") else {
        return;
    };
    let (input, output) = (fixture.topic("in", 2), fixture.topic("out", 1));
    fixture.fill(&input, 0, 10);
    let mut source = fixture.source();
    let mut producer = fixture.producer(&[&output]);

    source.subscribe(std::slice::from_ref(&input)).unwrap();
    let mut partitions = assigned(&mut source);
    partitions.sort();
    let (p0, p1) = (partition(&input, 0), partition(&input, 1));
    assert_eq!(partitions, [p0.clone(), p1.clone()]);
    for first in committed(&mut source, &partitions) {
        assert_eq!((first.offset, first.metadata.as_str()), (None, ""));
    }
    let bounds = ready(|slice| source.bounds(&partitions, slice)).unwrap();
    let expected = [(&p0, 10), (&p1, 0)].map(|(partition, end)| OffsetBounds {
        partition: partition.clone(),
        first: offset(0),
        end: offset(end),
    });
    assert_eq!(bounds, expected);
    source
        .assign(&[(p0.clone(), offset(3)), (p1.clone(), offset(0))])
        .unwrap();

    let records = take(&mut source, &p0, 4);
    assert_eq!(
        offsets(&records),
        [3, 4, 5, 6],
        "from the offset that we gave, not the group's"
    );
    assert_eq!(records[0].value.as_deref(), Some(b"3".as_slice()));
    assert_eq!(records[0].timestamp, Some(Timestamp(1003)));
    producer.begin().unwrap();
    for record in &records {
        let value = record.value.as_deref().unwrap();
        send(&mut producer, 0, 0, std::str::from_utf8(value).unwrap());
    }
    drop(records);
    let visible = read(&mut fixture.wire, &output);
    assert_eq!(visible, [""; 0], "nothing is visible yet");
    let name = "v1;layout=7;seq=1;nonce=é";
    let done = [to_commit(&p0, 7, name), to_commit(&p1, 0, name)];
    commit(&mut source, &mut producer, &done).unwrap();

    expect(&mut fixture.wire, &output, &["3", "4", "5", "6"]);
    let expected = [committed_at(&p0, 7, name), committed_at(&p1, 0, name)];
    assert_eq!(committed(&mut source, &[p0, p1]), expected);
    assert!(!producer.unanswered());
    drop(producer);
    assert!(close(source) < PATIENCE / 2);
}

#[test]
fn an_abort_leaves_nothing_and_a_seek_redelivers_from_its_offset() {
    let Some(mut fixture) = Fixture::new("abort") else {
        return;
    };
    let (input, output) = (fixture.topic("in", 1), fixture.topic("out", 3));
    fixture.fill(&input, 0, 5000);
    let mut source = fixture.source();
    let mut producer = fixture.producer(&[&output]);
    source.subscribe(std::slice::from_ref(&input)).unwrap();
    take_over(&mut source);
    let p0 = partition(&input, 0);

    producer.begin().unwrap();
    take(&mut source, &p0, 100);
    for n in 0..3000 {
        send(&mut producer, 0, n % 3, "aborted");
    }
    let start = Instant::now();
    ready(|slice| producer.abort(slice)).unwrap();
    assert_quick(start);
    // Thousands of later records are prefetched by now. None of them may be delivered.
    ready(|slice| source.seek(&[(p0.clone(), offset(10))], slice)).unwrap();
    assert_eq!(offsets(&take(&mut source, &p0, 3)), [10, 11, 12]);

    producer.begin().unwrap();
    send(&mut producer, 0, 0, "kept");
    commit(&mut source, &mut producer, &[to_commit(&p0, 13, "")]).unwrap();
    expect(&mut fixture.wire, &output, &["kept"]);
    close(source);
}

#[test]
fn keys_values_headers_and_times_arrive_as_they_were_sent() {
    let Some(mut fixture) = Fixture::new("fidelity") else {
        return;
    };
    // A batch is read in place or from its decompressed copy, and headers are found in either.
    for compression in ["none", "gzip", "lz4", "snappy"] {
        fixture.client = KafkaClient::new(KafkaConfig {
            producer: vec![("compression.type".into(), compression.into())],
            ..config_of(&fixture.bootstrap)
        });
        fidelity(&mut fixture, compression);
    }
}

fn fidelity(fixture: &mut Fixture, compression: &str) {
    let topic = fixture.topic(compression, 2);
    let mut producer = fixture.begun(&[&topic]);
    let mut headers = Headers::new();
    headers.push("trace", Some(b"1"));
    headers.push("trace", None);
    headers.push("empty", Some(b""));
    let none = Headers::new();
    let plain = Outgoing {
        topic: 0,
        partition: Partition::new(1).unwrap(),
        timestamp: Some(Timestamp(1_700_000_000_123)),
        key: Some(b"key"),
        value: Some(b"value"),
        headers: &headers,
    };
    let of = |key, value, headers| Outgoing {
        key,
        value,
        headers,
        ..plain
    };
    let (null, empty) = (None, Some(&b""[..]));
    let all = [
        plain,
        of(null, null, &none),
        of(empty, empty, &none),
        Outgoing {
            timestamp: None,
            headers: &none,
            ..plain
        },
        // An empty value, and a null one, with headers behind them.
        of(plain.key, empty, &headers),
        of(plain.key, null, &headers),
    ];
    for record in &all {
        ready(|_| producer.send(record)).unwrap();
    }
    ready(|slice| producer.flush(slice)).unwrap();
    ready(|slice| producer.commit(slice)).unwrap();

    let mut spec = fixture.source_spec();
    spec.group = format!("{}-{compression}", fixture.group());
    let mut source = subscribed(&fixture.client, &spec, &topic);
    take_over(&mut source);
    let got = take(&mut source, &partition(&topic, 1), all.len());
    for (sent, got) in all.iter().zip(&got) {
        let pair = (got.key.as_deref(), got.value.as_deref());
        assert_eq!(pair, (sent.key, sent.value));
        assert_eq!(got.headers, *sent.headers);
    }
    assert_eq!(got[0].timestamp, plain.timestamp);
    assert!(got[3].timestamp > plain.timestamp, "the client's own time");
    close(source);
}

/// More changes than the producer's queue takes, with values that are null or empty among them.
#[test]
fn changes_arrive_in_order_however_many_calls_they_take() {
    let Some(mut fixture) = Fixture::new("changes") else {
        return;
    };
    const COUNT: u32 = 65_000;
    let topic = fixture.topic("changelog", 2);
    let mut producer = fixture.begun(&[&topic]);
    let (keys, at): (Vec<_>, _) = (
        (0..COUNT).map(u32::to_be_bytes).collect(),
        Partition::new(1),
    );
    let value = |number: usize| match number % 3 {
        0 => None,
        1 => Some(&b""[..]),
        _ => Some(&b"value"[..]),
    };
    let changes: Vec<_> = (keys.iter().enumerate())
        .map(|(number, key)| Change {
            key,
            value: value(number),
        })
        .collect();
    let (mut sent, mut calls) = (0, 0);
    while sent < changes.len() {
        let copied = producer
            .send_changes(0, at.unwrap(), &changes[sent..])
            .unwrap();
        (sent, calls) = (sent + copied, calls + 1);
        ready(|slice| producer.flush(slice)).unwrap();
    }
    assert!(calls > 1, "the queue was never full");
    ready(|slice| producer.commit(slice)).unwrap();

    let mut source = subscribed(&fixture.client, &fixture.source_spec(), &topic);
    take_over(&mut source);
    let got = take(&mut source, &partition(&topic, 1), changes.len());
    for (change, got) in changes.iter().zip(&got) {
        assert_eq!(got.key.as_deref(), Some(change.key));
        assert_eq!(got.value.as_deref(), change.value);
        assert!(got.timestamp.is_some() && got.headers.is_empty());
    }
    close(source);
}

#[test]
fn refused_changes_have_the_error_of_a_refused_record() {
    let Some(mut fixture) = Fixture::new("refused-changes") else {
        return;
    };
    let topic = fixture.topic("changelog", 1);
    let mut producer = fixture.producer(&[&topic]);
    let (at, large) = (Partition::new(0).unwrap(), vec![0; 2_000_000]);
    let change = |value| Change { key: b"key", value };
    let both = |producer: &mut KafkaProducer, number, change: Change<'_>| {
        let record = Outgoing {
            topic: number,
            partition: at,
            timestamp: None,
            key: Some(change.key),
            value: change.value,
            headers: &Headers::new(),
        };
        let one = ready(|_| producer.send(&record)).unwrap_err();
        let changes = producer.send_changes(number, at, &[change]).unwrap_err();
        assert_eq!(changes.fault, one.fault);
        one
    };
    both(&mut producer, 7, change(None));
    let closed = both(&mut producer, 0, change(None));
    assert_eq!(closed.fault.code, code::LOCAL_STATE);
    producer.begin().unwrap();
    let refused = both(&mut producer, 0, change(Some(&large)));
    assert_eq!(refused.fault.code, code::MESSAGE_TOO_LARGE);
    // Fenced: the error is fatal.
    let successor = fixture.producer(&[&topic]);
    until("the fence", || {
        let sent = producer.send_changes(0, at, &[change(None)]);
        let flushed = ready(|slice| producer.flush(slice));
        sent.and(flushed).err().filter(|error| error.fault.fatal)
    });
    assert!(both(&mut producer, 0, change(None)).fault.fatal);
    drop(successor);
}

/// Waits for the next event, and checks that no record comes before it.
#[track_caller]
fn event_without_records(source: &mut KafkaSource, of: &TopicPartition) -> SourceEvent {
    until("OutOfRange", || {
        let records = taken(source, of, 10);
        assert!(records.is_empty(), "{records:?}");
        source.wait(Duration::from_millis(10));
        source.poll()
    })
}

#[test]
fn an_offset_that_is_gone_is_reported_and_never_reset() {
    let Some(mut fixture) = Fixture::new("gone") else {
        return;
    };
    let topic = fixture.topic("t", 1);
    fixture.fill(&topic, 0, 10);
    let p0 = partition(&topic, 0);
    let mut source = fixture.subscriber(&topic);
    assert!(matches!(event(&mut source), SourceEvent::Assigned(_)));
    source.assign(&[(p0.clone(), offset(77))]).unwrap();
    let gone = |asked| SourceEvent::OutOfRange {
        partition: p0.clone(),
        asked: Some(offset(asked)),
    };
    assert_eq!(event_without_records(&mut source, &p0), gone(77));

    // Retention removes the records at the offset.
    fixture.wire.delete_records(topic.as_str(), 0, 6).unwrap();
    source.unassign(std::slice::from_ref(&p0)).unwrap();
    let bounds = bounds(&mut source, &p0);
    assert_eq!((bounds.first, bounds.end), (offset(6), offset(10)));
    source.assign(&[(p0.clone(), offset(2))]).unwrap();
    assert_eq!(event_without_records(&mut source, &p0), gone(2));
    close(source);
}

#[test]
fn committed_offsets_are_pending_while_a_transaction_holds_them_and_so_is_the_end() {
    let Some(mut fixture) = Fixture::new("stable") else {
        return;
    };
    let (input, output) = fixture.topics();
    let mut source = fixture.reader(&input);
    let p0 = partition(&input, 0);
    let mut producer = fixture.begun(&[&output]);
    send(&mut producer, 0, 0, "open");
    let member = source.member().unwrap();
    let offsets = [to_commit(&p0, 5, "first")];
    ready(|slice| producer.send_offsets(&offsets, &member, slice)).unwrap();
    ready(|slice| producer.flush(slice)).unwrap();

    let of = std::slice::from_ref(&p0);
    // A stall makes a few calls slow. If they waited for the transaction, all would be.
    let (start, mut calls) = (Instant::now(), Vec::new());
    while calls.len() < 20 || start.elapsed() < Duration::from_millis(1500) {
        let call = Instant::now();
        assert!(source.committed(of, Duration::from_millis(20)).is_pending());
        calls.push(call.elapsed());
    }
    calls.sort();
    let usual = calls[calls.len() / 2];
    let quick = usual < Duration::from_millis(500);
    assert!(quick, "the worker can continue meanwhile: {usual:?}");
    let out = partition(&output, 0);
    let bounds = bounds(&mut source, &out);
    // The end for a reader of committed records.
    assert_eq!(bounds.end, offset(0));
    let all = Isolation::ReadUncommitted;
    let ends = fixture.wire.end_offsets(output.as_str(), all).unwrap();
    assert_eq!(ends, [1]);

    ready(|slice| producer.commit(slice)).unwrap();
    let found = committed(&mut source, of);
    assert_eq!(found, [committed_at(&p0, 5, "first")]);
    close(source);
}

/// Another owner of the partition has committed since the query was sent.
#[test]
fn a_revocation_discards_earlier_queries() {
    let Some(mut fixture) = Fixture::new("asked-before") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let mut source = fixture.reader(&input);
    let p0 = partition(&input, 0);
    let of = std::slice::from_ref(&p0);
    // The query has its response by the time of the revocation, but the response is not taken.
    assert!(source.committed(of, Duration::ZERO).is_pending());
    std::thread::sleep(Duration::from_secs(1));
    let bootstrap = fixture.bootstrap.clone();
    let id = format!("{}-peer", fixture.group());
    let mut peer = TransactionalProducer::new(&bootstrap, &id, Duration::from_secs(60)).unwrap();
    peer.send_offset(&fixture.group(), input.as_str(), 0, 5)
        .unwrap();
    peer.end(End::Commit).unwrap();

    source.unassign(of).unwrap();
    let found = committed(&mut source, of);
    assert_eq!(found[0].offset, Some(offset(5)));
    close(source);
}

#[test]
fn without_a_transactional_id_offsets_commit_through_the_consumer() {
    let Some(mut fixture) = Fixture::new("at-least-once") else {
        return;
    };
    let (input, output) = fixture.topics();
    let mut spec = fixture.producer_spec(&[&output]);
    spec.transactional_id = None;
    let mut producer = fixture.client.producer(&spec).unwrap();
    ready(|slice| producer.init(slice)).unwrap();
    producer.begin().unwrap();
    send(&mut producer, 0, 0, "out");
    ready(|slice| producer.flush(slice)).unwrap();
    expect(&mut fixture.wire, &output, &["out"]);

    let mut source = fixture.reader(&input);
    let p0 = partition(&input, 0);
    ready(|slice| source.commit(&[to_commit(&p0, 4, "meta")], slice)).unwrap();
    let found = committed(&mut source, std::slice::from_ref(&p0));
    assert_eq!(found, [committed_at(&p0, 4, "meta")]);
    close(source);
}

#[test]
fn a_partition_that_is_not_assigned_gives_nothing() {
    let Some(mut fixture) = Fixture::new("unassigned") else {
        return;
    };
    let topic = fixture.topic("t", 1);
    fixture.fill(&topic, 0, 1000);
    let p0 = partition(&topic, 0);
    let mut source = fixture.reader(&topic);
    take(&mut source, &p0, 1);
    source.unassign(std::slice::from_ref(&p0)).unwrap();
    let mut records = KafkaRecords::default();
    let error = source.take(&p0, 10, &mut records).unwrap_err();
    assert_eq!(error.fault.code, code::LOCAL_UNKNOWN_PARTITION);
    // Assigned again, from another offset: no record of the first assignment is delivered.
    source.assign(&[(p0.clone(), offset(500))]).unwrap();
    assert_eq!(offsets(&take(&mut source, &p0, 2)), [500, 501]);
    close(source);
}

/// librdkafka #4849: an abort that overtakes AddPartitionsToTxn ends a transaction that is unknown to the coordinator,
/// which is fatal.
#[test]
fn an_abort_right_after_the_first_record_ends_well() {
    let Some(mut fixture) = Fixture::new("early-abort") else {
        return;
    };
    let output = fixture.topic("out", 3);
    let mut failed = 0;
    for n in 0..20 {
        // The coordinator does not know a new producer's first transaction.
        let mut producer = fixture.begun(&[&output]);
        send(&mut producer, 0, n % 3, "aborted");
        std::thread::sleep(Duration::from_micros(200 * (n % 20) as u64));
        if let Err(error) = ready(|slice| producer.abort(slice)) {
            eprintln!("abort {n}: {error}");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "of 20");
    expect(&mut fixture.wire, &output, &[]);
}
