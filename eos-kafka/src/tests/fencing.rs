//! Duplicate owners, dead owners and unanswered requests.

use std::time::{Duration, Instant};

use eos_client::{
    Client, GroupMetadata, Headers, Outgoing, Producer, ProducerSpec, Source, SourceEvent,
};
use eos_protocol::{ErrorClass, Partition, code};

use kafka_launcher as kafka;
use kafka_wire as wire;

use super::support::{
    Fixture, OUTLASTS, PATIENCE, SLICE, assert_class, assert_quick, classic, client_of, commit,
    expect, fatal_code, partition, read, ready, send, subscribed, take_over, to_commit, until,
    wait_until,
};

#[test]
fn a_newer_producer_of_the_same_id_fences_the_older_one() {
    let Some(mut fixture) = Fixture::new("zombie") else {
        return;
    };
    let (input, output) = fixture.topics();
    let mut source = fixture.reader(&input);
    let offsets = [to_commit(&partition(&input, 0), 5, "")];
    let mut zombie = fixture.begun(&[&output]);
    send(&mut zombie, 0, 0, "zombie");
    ready(|slice| zombie.flush(slice)).unwrap();

    let mut owner = fixture.producer(&[&output]);
    let error = commit(&mut source, &mut zombie, &offsets).unwrap_err();
    assert_class(&error, ErrorClass::ProducerFenced);
    // After that all calls fail, with the flag.
    let error = ready(|slice| zombie.commit(slice)).unwrap_err();
    assert_eq!(fatal_code(&error), code::LOCAL_FENCED);
    assert!(!zombie.unanswered(), "a refusal is an answer");

    owner.begin().unwrap();
    send(&mut owner, 0, 0, "owner");
    commit(&mut source, &mut owner, &offsets).unwrap();
    expect(&mut fixture.wire, &output, &["owner"]);
}

#[test]
fn a_fence_met_while_sending_is_reported_as_one() {
    let Some(mut fixture) = Fixture::new("send-fence") else {
        return;
    };
    let output = fixture.topic("out", 2);
    let mut zombie = fixture.begun(&[&output]);
    let _owner = fixture.producer(&[&output]);

    let record = Outgoing {
        topic: 0,
        partition: Partition::new(1).unwrap(),
        timestamp: None,
        key: None,
        value: Some(b"v"),
        headers: &Headers::new(),
    };
    let error = until("refusal", || {
        let sent = ready(|_| zombie.send(&record));
        std::thread::sleep(Duration::from_millis(5));
        sent.and_then(|()| ready(|slice| zombie.flush(slice))).err()
    });
    assert_class(&error, ErrorClass::ProducerFenced);
}

#[test]
fn a_member_that_the_group_has_replaced_cannot_commit() {
    let Some(mut fixture) = Fixture::new("generation") else {
        return;
    };
    let (input, output) = fixture.topics();
    let mut source = fixture.reader(&input);
    let offsets = [to_commit(&partition(&input, 0), 5, "")];
    let mut producer = fixture.begun(&[&output]);
    send(&mut producer, 0, 0, "late");
    let member = source.member().unwrap();
    let mut successor = fixture.subscriber(&input);
    wait_until("new generation", || {
        source.wait(SLICE);
        source.poll();
        successor.poll();
        source.member().unwrap().generation_id() > member.generation_id()
    });
    let error = ready(|slice| producer.send_offsets(&offsets, &member, slice)).unwrap_err();
    assert_class(&error, ErrorClass::GroupFenced);
    assert!(error.fault.abortable);
    ready(|slice| producer.abort(slice)).unwrap();
    assert_eq!(read(&mut fixture.wire, &output), [""; 0]);
}

#[test]
fn a_second_owner_of_an_instance_id_fences_the_first_which_learns_why() {
    let Some(mut fixture) = Fixture::new("instance") else {
        return;
    };
    let input = fixture.topic("in", 1);
    let mut spec = fixture.source_spec();
    spec.protocol = classic(Some("one".into()), OUTLASTS);
    let join = || subscribed(&fixture.client, &spec, &input);
    let mut first = join();
    take_over(&mut first);
    let mut second = join();
    let error = until("fencing", || {
        second.poll();
        first.wait(SLICE);
        match first.poll() {
            Some(SourceEvent::Failed(error)) => Some(error),
            _ => None,
        }
    });
    assert_eq!(fatal_code(&error), code::FENCED_INSTANCE_ID);
    assert_class(&error, ErrorClass::GroupFenced);

    // Later calls fail for the same reason.
    let offsets = [to_commit(&partition(&input, 0), 1, "")];
    let commit = ready(|slice| first.commit(&offsets, slice)).unwrap_err();
    let subscribe = first.subscribe(std::slice::from_ref(&input)).unwrap_err();
    for error in [commit, subscribe] {
        assert_eq!(error.fault.code, code::FENCED_INSTANCE_ID, "{error:?}");
    }
}

#[test]
fn a_record_that_no_broker_takes_fails_the_flush_and_the_abort_heals() {
    let Some(mut fixture) = Fixture::new("oversize") else {
        return;
    };
    let name = fixture.topic("out", 1);
    let small = format!("{name}-small");
    let limit = [("max.message.bytes", "1000")];
    fixture.wire.create_topic(&small, 1, 1, &limit).unwrap();
    let small = small.as_str().into();
    let mut producer = fixture.begun(&[&small]);
    send(&mut producer, 0, 0, &"x".repeat(5000));
    let error = ready(|slice| producer.flush(slice)).unwrap_err();
    assert_eq!(error.fault.code, code::MESSAGE_TOO_LARGE, "{error:?}");
    assert_eq!(error.class(), ErrorClass::Abortable);
    ready(|slice| producer.abort(slice)).unwrap();
    assert_eq!(read(&mut fixture.wire, &small), [""; 0]);
}

#[test]
fn a_dropped_producer_sends_no_abort_and_drops_at_once() {
    let Some(mut fixture) = Fixture::new("drop") else {
        return;
    };
    let output = fixture.topic("out", 1);
    let mut producer = fixture.begun(&[&output]);
    send(&mut producer, 0, 0, "flushed");
    ready(|slice| producer.flush(slice)).unwrap();
    for _ in 0..10_000 {
        send(&mut producer, 0, 0, "queued");
    }
    let start = Instant::now();
    drop(producer);
    assert_quick(start);
    let id = fixture.producer_spec(&[]).transactional_id.unwrap();
    let mut open = fixture.wire.transactions().unwrap();
    open.retain(|t| t.transactional_id == id.as_str());
    let open = open.first().unwrap();
    assert!(open.is_open(), "{open:?}");
}

#[test]
fn a_request_that_is_never_answered_taints_its_producer_even_if_the_call_ends_well() {
    if kafka::skipped().unwrap() {
        return;
    }
    // A separate broker: the test freezes it, which must not affect other tests. Its session outlasts the freeze. With
    // the default of three seconds the controller may depose it when it thaws, and the markers of the commit get lost
    // between two terms of its coordinator.
    let options = kafka::ClusterOptions::default().property("broker.session.timeout.ms", "30000");
    let mut cluster = kafka::Cluster::start(&options).unwrap();
    let mut wire = wire::Client::connect(cluster.bootstrap(), PATIENCE).unwrap();
    wire.create_topic("out", 1, 1, &[]).unwrap();
    let client = client_of(cluster.bootstrap());
    let spec = ProducerSpec {
        client_id: "tainted".into(),
        transactional_id: Some("tainted".into()),
        transaction_timeout: OUTLASTS,
        // Longer than a stall, which leaves no request unanswered, and shorter than the freeze.
        request_timeout: Duration::from_secs(5),
        topics: vec!["out".into()],
        batch_limits: Vec::new(),
    };
    let mut producer = client.producer(&spec).unwrap();
    ready(|slice| producer.init(slice)).unwrap();
    producer.begin().unwrap();
    send(&mut producer, 0, 0, "kept");
    ready(|slice| producer.flush(slice)).unwrap();
    assert!(!producer.unanswered());

    cluster.freeze(1).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        let outcome = producer.commit(SLICE);
        assert!(outcome.is_pending(), "{outcome:?} is not known");
    }
    assert!(producer.unanswered());
    cluster.thaw(1).unwrap();
    ready(|slice| producer.commit(slice)).unwrap();
    expect(&mut wire, &"out".into(), &["kept"]);
    // The first request may still be in flight.
    assert!(producer.unanswered());
}
