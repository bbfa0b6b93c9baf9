//! A client that consists of a socket only.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use eos_broker::EmbeddedKafka;

/// ApiVersions in version 0, correlation id 7, no client id.
pub(crate) const HELLO: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];

pub(crate) fn connect(kafka: &EmbeddedKafka) -> TcpStream {
    let socket = TcpStream::connect(kafka.bootstrap()).expect("connected");
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).expect("set");
    socket
}

/// Returns whether a request is served: the response has its correlation id.
pub(crate) fn is_served(mut socket: &TcpStream) -> bool {
    let mut length = [0; 4];
    if socket.write_all(&HELLO).is_err() || socket.read_exact(&mut length).is_err() {
        return false;
    }
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut answer).is_ok() && answer[..4] == [0, 0, 0, 7]
}

/// Returns whether the other side has closed the socket.
pub(crate) fn is_closed(mut socket: &TcpStream) -> bool {
    matches!(socket.read(&mut [0; 1]), Ok(0) | Err(_))
}

pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
