//! Injected faults, from the view of a client.
//!
//! Each fault must fire.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use eos_broker::EmbeddedKafka;
use eos_broker::faults::{Act, Rule};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::common::{HELLO, connect, is_closed, is_served, until};

/// Returns a broker with this fault of its first request, and a function that counts how often it fired.
fn hurt(act: Act) -> (EmbeddedKafka, impl Fn(&EmbeddedKafka) -> u64) {
    let kafka = EmbeddedKafka::start().expect("started");
    let rule = Rule::on(ApiKey::ApiVersions, act).times(1);
    let rule = kafka.with(|broker, _| broker.add_fault(rule));
    let fired = move |kafka: &EmbeddedKafka| kafka.with(|broker, _| broker.fired(rule));
    (kafka, fired)
}

#[test]
fn a_delayed_request_or_answer_is_late_and_comes() {
    const LATE: i64 = 300;
    for act in [Act::DelayRequest(LATE), Act::DelayAnswer(LATE)] {
        let (kafka, fired) = hurt(act.clone());
        let since = Instant::now();
        let socket = connect(&kafka);
        assert!(is_served(&socket), "{act:?}");
        // The model's clock counts whole milliseconds.
        let took = since.elapsed() + Duration::from_millis(2);
        assert!(took.as_millis() >= LATE as u128, "{act:?}: {took:?}");
        assert_eq!(fired(&kafka), 1);
        assert!(is_served(&socket), "once: {act:?}");
    }
}

#[test]
fn a_connection_is_closed_instead_of_an_answer() {
    for act in [Act::DisconnectBefore, Act::DisconnectAfter] {
        let (kafka, fired) = hurt(act.clone());
        let mut socket = connect(&kafka);
        socket.write_all(&HELLO).expect("sent");
        assert!(is_closed(&socket), "{act:?}");
        assert_eq!(fired(&kafka), 1);
        assert!(is_served(&connect(&kafka)), "it may connect again");
    }
}

#[test]
fn an_error_is_returned_instead() {
    let (kafka, fired) = hurt(Act::Refuse(ResponseError::UnsupportedVersion));
    let mut socket = connect(&kafka);
    socket.write_all(&HELLO).expect("sent");
    let mut start = [0; 10];
    socket.read_exact(&mut start).expect("a response");
    let (correlation, code) = (&start[4..8], &start[8..]);
    assert_eq!((correlation, code), (&[0, 0, 0, 7][..], &[0, 35][..]));
    assert_eq!(fired(&kafka), 1);
}

#[test]
fn a_duplicated_request_is_answered_once() {
    let (kafka, fired) = hurt(Act::Duplicate);
    let socket = connect(&kafka);
    // Further responses would put their correlation ids in the place of this length.
    assert!(is_served(&socket) && is_served(&socket));
    assert_eq!(fired(&kafka), 1);
}

/// TCP loses no part of a stream. A client without a response to one request has no responses to later requests.
#[test]
fn a_connection_is_silent_after_a_lost_request_or_response() {
    let lost = [Act::DropRequest, Act::DropAnswer];
    for act in lost {
        let kafka = EmbeddedKafka::start().expect("started");
        let rule = Rule::on(ApiKey::ApiVersions, act.clone()).times(1);
        let rule = kafka.with(|broker, _| broker.add_fault(rule));
        let mut socket = connect(&kafka);
        socket.write_all(&HELLO).expect("sent");
        socket.write_all(&HELLO).expect("sent");
        until("it is lost", || {
            kafka.with(|broker, _| broker.fired(rule)) == 1
        });
        let brief = Some(Duration::from_millis(300));
        socket.set_read_timeout(brief).expect("set");
        let heard = socket.read(&mut [0; 10]);
        assert!(heard.is_err(), "{act:?}: {heard:?}");
        assert!(is_served(&connect(&kafka)), "others are");
        drop(socket);
        until("it is closed", || kafka.traffic().open == 0);
    }
}

#[test]
fn the_broker_does_not_wait_for_a_disconnected_client() {
    let kafka = EmbeddedKafka::start().expect("started");
    let rule = Rule::on(ApiKey::ApiVersions, Act::DelayAnswer(3_600_000)).times(1);
    let rule = kafka.with(|broker, _| broker.add_fault(rule));
    let mut socket = connect(&kafka);
    socket.write_all(&HELLO).expect("sent");
    until("it is held", || {
        kafka.with(|broker, _| broker.fired(rule)) == 1
    });
    drop(socket);
    until("it is closed", || kafka.traffic().open == 0);
}
