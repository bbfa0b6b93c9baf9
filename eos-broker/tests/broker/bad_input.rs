//! The embedded broker survives invalid input and reports the error.

use std::io::Write;
use std::net::TcpStream;

use eos_broker::EmbeddedKafka;
use eos_broker::broker::BrokerOptions;
use eos_broker::wire::Limits;
use kafka_protocol::messages::ProduceRequest;
use kafka_wire::batch::BatchBuilder;
use kafka_wire::frame;
use kafka_wire::requests::{self, NO_PRODUCER};

use crate::common::{HELLO, connect, is_closed, is_served, until};

#[test]
fn malformed_frames_close_their_connection_and_no_other() {
    let kafka = EmbeddedKafka::start().expect("started");
    let other = connect(&kafka);
    let bad: [&[u8]; 6] = [
        // A negative length, and one above the limit.
        &[0xff, 0xff, 0xff, 0xff],
        &[0x7f, 0xff, 0xff, 0xff],
        // A frame too short for a header.
        &[0, 0, 0, 2, 0, 18],
        // Requests that are not served: an unknown one, and an old version.
        &[0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff],
        &[0, 0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 7, 0xff, 0xff],
        // DescribeGroups with two thousand million names.
        &[
            0, 0, 0, 14, 0, 15, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff,
        ],
    ];
    for (count, bytes) in bad.iter().enumerate() {
        let mut socket = connect(&kafka);
        socket.write_all(bytes).expect("sent");
        assert!(is_closed(&socket), "{bytes:?}");
        assert_eq!(kafka.traffic().malformed, count as u64 + 1);
        assert!(is_served(&other));
    }
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_request_is_forgotten() {
    let kafka = EmbeddedKafka::start().expect("started");
    for length in 1..HELLO.len() {
        let mut socket = connect(&kafka);
        socket.write_all(&HELLO[..length]).expect("sent");
    }
    until("they are forgotten", || kafka.traffic().open == 0);
    assert!(is_served(&connect(&kafka)));
}

#[test]
fn a_thousand_idle_connections_disturb_no_client() {
    let kafka = EmbeddedKafka::start().expect("started");
    let idle: Vec<TcpStream> = (0..1_000).map(|_| connect(&kafka)).collect();
    until("they are open", || kafka.traffic().open == 1_000);
    assert!(is_served(&connect(&kafka)));
    assert!(idle.iter().all(is_served), "each of them is served");
    drop(idle);
    until("they are gone", || kafka.traffic().open == 0);
}

#[test]
fn one_connection_more_than_allowed_is_turned_away() {
    let mut limits = Limits::default();
    limits.max_connections = 3;
    let kafka = EmbeddedKafka::builder()
        .limits(limits)
        .start()
        .expect("started");
    let mut three: Vec<TcpStream> = (0..3).map(|_| connect(&kafka)).collect();
    assert!(three.iter().all(is_served));
    assert!(is_closed(&connect(&kafka)));
    assert_eq!(kafka.traffic().turned_away, 1);
    three.pop();
    until("there is room", || kafka.traffic().open == 2);
    assert!(is_served(&connect(&kafka)));
}

#[test]
fn a_frame_above_the_limit_is_not_read() {
    let mut limits = Limits::default();
    limits.socket_request_max_bytes = 100;
    let kafka = EmbeddedKafka::builder()
        .limits(limits)
        .start()
        .expect("started");
    let mut socket = connect(&kafka);
    socket.write_all(&101u32.to_be_bytes()).expect("sent");
    assert!(is_closed(&socket));
    assert!(is_served(&connect(&kafka)));
}

/// Produces one record of this many bytes to `t-0`. Returns the error's code and its text.
fn produce(mut socket: &TcpStream, bytes: usize) -> (i16, String) {
    let mut batch = BatchBuilder::new(bytes);
    batch.push(0, None, Some(&vec![b'v'; bytes]), std::iter::empty());
    let records = batch.close(NO_PRODUCER, -1, false).into_bytes();
    let request = requests::produce("t", 0, records, None, -1);
    let request = frame::encode_request(&request, 9, 7, "test").expect("a request");
    socket.write_all(&request).expect("sent");
    let answer = frame::read(&mut socket, frame::LARGEST).expect("a response");
    let answer = frame::decode_answer::<ProduceRequest>(&mut answer.expect("open"), 9);
    let (_, answer) = answer.expect("a response");
    let answer = &answer.responses[0].partition_responses[0];
    let text = answer.error_message.as_deref().unwrap_or_default();
    (answer.error_code, text.to_owned())
}

/// A flooded partition rejects batches above its limit, and the error names the limit. The broker still serves all
/// other requests.
#[test]
fn a_flooded_partition_names_its_limit() {
    let mut options = BrokerOptions::default();
    options.partition_memory_max_bytes = 100_000;
    let kafka = EmbeddedKafka::builder()
        .options(options)
        .topic("t", 1)
        .start()
        .expect("started");
    let socket = connect(&kafka);
    let accepted = (0..100)
        .map(|_| produce(&socket, 10_000))
        .take_while(|(code, _)| *code == 0);
    assert_eq!(accepted.count(), 9, "as many as there is room for");
    let (code, text) = produce(&socket, 10_000);
    assert_ne!(code, 0);
    let named = "partition.memory.max.bytes";
    assert!(text.contains(named) && text.contains("100000"), "{text}");
    assert_eq!(produce(&socket, 10).0, 0, "there is room for a small one");
    assert!(is_served(&socket) && is_served(&connect(&kafka)));
}

#[test]
fn a_dropped_broker_frees_its_port_and_its_clients() {
    let kafka = EmbeddedKafka::start().expect("started");
    let port = kafka.port();
    let socket = connect(&kafka);
    assert!(is_served(&socket));
    drop(kafka);
    assert!(is_closed(&socket));
    let again = EmbeddedKafka::builder()
        .port(port)
        .start()
        .expect("the port is free");
    assert!(is_served(&connect(&again)));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let kafka = EmbeddedKafka::start().expect("started");
    let error = EmbeddedKafka::builder().port(kafka.port()).start();
    let error = error.expect_err("taken").to_string();
    assert!(error.contains(&kafka.bootstrap()), "{error}");
}
