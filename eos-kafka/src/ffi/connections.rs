//! A producer's connections and the requests on them.

use std::ffi::{CStr, c_int};
use std::sync::{Mutex, PoisonError};

use eos_protocol::Traffic;

/// The API keys of the requests that change a transaction at the broker: Produce, InitProducerId, AddPartitionsToTxn,
/// AddOffsetsToTxn, EndTxn, TxnOffsetCommit.
const TRANSACTION_REQUESTS: [i16; 6] = [0, 22, 24, 25, 26, 28];

/// The API keys of the requests that a call may wait for: those above, FindCoordinator, SaslHandshake, ApiVersions,
/// SaslAuthenticate. Metadata is not counted: librdkafka repeats it, and sends it often while a broker is away.
const COUNTED: [i16; 10] = [0, 22, 24, 25, 26, 28, 10, 17, 18, 36];

pub(super) fn changes_a_transaction(api_key: i16) -> bool {
    TRANSACTION_REQUESTS.contains(&api_key)
}

/// The name of the connection to the transaction coordinator, in addition to the connections of the brokers
/// (`rd_kafka_broker_add_logical`).
const TRANSACTION_COORDINATOR: &CStr = c"TxnCoordinator";

/// The open sockets of a producer. Broker threads update them, and the thread of `CoordinatorWatch` reads them.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The open sockets, in the order of their first request.
    sockets: Vec<Socket>,
    /// The number of requests in flight, in the order of [`COUNTED`].
    in_flight: [u32; COUNTED.len()],
    sent: u64,
}

#[derive(Debug)]
struct Socket {
    number: c_int,
    /// Whether librdkafka may look up a coordinator on the connection (`rd_kafka_broker_weight_usable`).
    looks_up: bool,
}

fn counted(api_key: i16) -> Option<usize> {
    COUNTED.iter().position(|key| *key == api_key)
}

impl State {
    fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent,
            in_flight: self.in_flight.iter().sum(),
        }
    }
}

impl Connections {
    pub(super) fn sent(&self, socket: c_int, broker: &CStr, api_key: i16) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.sockets.iter().any(|it| it.number == socket) {
            state.sockets.push(Socket {
                number: socket,
                looks_up: broker != TRANSACTION_COORDINATOR,
            });
        }
        if let Some(in_flight) = counted(api_key).and_then(|at| state.in_flight.get_mut(at)) {
            *in_flight += 1;
            state.sent += 1;
        }
    }

    /// librdkafka calls twice for some requests, and for requests that it never sent, so the count may be too low. Then
    /// a connection is closed too soon: the request on it is unanswered, and the producer is replaced.
    pub(super) fn received(&self, api_key: i16) {
        let Some(at) = counted(api_key) else { return };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(in_flight) = state.in_flight.get_mut(at) {
            *in_flight = in_flight.saturating_sub(1);
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.traffic()
    }
}

#[cfg(unix)]
impl Connections {
    /// Shuts down a connection, unless requests were sent since `seen`. Its broker thread closes the socket, and connects
    /// again.
    ///
    /// When a connection closes, librdkafka looks up the coordinator on another one. If there is none, it looks up
    /// nothing for the next second (`rd_kafka_coord_req_fsm`). So this chooses the connection to the transaction
    /// coordinator, on which librdkafka never looks up a coordinator, or else the oldest one.
    ///
    /// Returns whether it shut down a connection.
    pub(crate) fn shut_one_down(&self, seen: Traffic) -> bool {
        use std::mem::ManuallyDrop;
        use std::net::{Shutdown, TcpStream};
        use std::os::fd::FromRawFd;

        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The call may have ended meanwhile, and the commit's request may be under way.
        if state.sockets.is_empty() || state.traffic() != seen {
            return false;
        }
        let spare = state.sockets.iter().position(|it| !it.looks_up);
        let socket = state.sockets.remove(spare.unwrap_or(0)).number;
        // SAFETY: the socket is open, because `close` removes it under the same lock before it closes it. librdkafka
        // keeps the socket and closes it.
        let stream = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(socket) });
        // The call fails if the broker closed the connection first, which has the same effect.
        let _ = stream.shutdown(Shutdown::Read);
        true
    }

    /// Closes a socket of librdkafka.
    pub(super) fn close(&self, socket: c_int) {
        use std::os::fd::{FromRawFd, OwnedFd};

        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.sockets.retain(|it| it.number != socket);
        // SAFETY: librdkafka passes its own open socket, and does not use it afterwards (`closesocket_cb`). The lock is
        // held, because the system may give the number to another file at once.
        drop(unsafe { OwnedFd::from_raw_fd(socket) });
    }
}

#[cfg(not(unix))]
impl Connections {
    /// Elsewhere, librdkafka closes idle connections (`connections.max.idle.ms`).
    pub(crate) fn shut_one_down(&self, _: Traffic) -> bool {
        false
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{self, ErrorKind, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::time::Duration;

    use super::*;

    const BROKER: &CStr = c"127.0.0.1:9092/1";
    const PRODUCE: i16 = 0;
    const METADATA: i16 = 3;
    const TXN_OFFSET_COMMIT: i16 = 28;

    /// Returns both ends of a connection.
    fn connect() -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        Ok((ours, listener.accept()?.0))
    }

    #[test]
    fn counts_the_requests_of_the_transaction_protocol() {
        let connections = Connections::default();
        let traffic = |sent, in_flight| Traffic { sent, in_flight };
        connections.sent(7, BROKER, METADATA);
        assert_eq!(connections.traffic(), traffic(0, 0));
        connections.sent(7, BROKER, PRODUCE);
        connections.sent(8, BROKER, TXN_OFFSET_COMMIT);
        assert_eq!(connections.traffic(), traffic(2, 2));
        connections.received(TXN_OFFSET_COMMIT);
        connections.received(TXN_OFFSET_COMMIT);
        assert_eq!(connections.traffic(), traffic(2, 1));
        connections.received(PRODUCE);
        assert_eq!(connections.traffic(), traffic(2, 0));
    }

    #[test]
    fn shuts_down_the_connection_that_is_not_used_for_lookups() {
        let ((mut broker, _peer), (mut coordinator, _other)) =
            (connect().unwrap(), connect().unwrap());
        let patience = Some(Duration::from_secs(5));
        coordinator.set_read_timeout(patience).unwrap();
        let connections = Connections::default();
        connections.sent(broker.as_raw_fd(), BROKER, METADATA);
        let before = connections.traffic();
        connections.sent(coordinator.as_raw_fd(), TRANSACTION_COORDINATOR, PRODUCE);
        assert!(!connections.shut_one_down(before), "a request was sent");
        connections.received(PRODUCE);
        assert!(connections.shut_one_down(connections.traffic()));
        assert_eq!(coordinator.read(&mut [0]).unwrap(), 0, "it is still open");
        broker.set_nonblocking(true).unwrap();
        let read = broker.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(ErrorKind::WouldBlock), "it is shut down");
    }

    #[test]
    fn shuts_down_the_oldest_connection_that_is_open() {
        let ((closed, _), (mut first, _peer), (second, _)) =
            (connect().unwrap(), connect().unwrap(), connect().unwrap());
        let connections = Connections::default();
        let closed = closed.into_raw_fd();
        for socket in [closed, first.as_raw_fd(), second.as_raw_fd()] {
            connections.sent(socket, BROKER, METADATA);
        }
        connections.close(closed);
        assert!(connections.shut_one_down(connections.traffic()));
        assert_eq!(first.read(&mut [0]).unwrap(), 0, "it is still open");
        assert!(second.peer_addr().is_ok());
        // The socket itself is still librdkafka's.
        assert!(first.local_addr().is_ok());
        assert!(connections.shut_one_down(connections.traffic()));
        assert!(!connections.shut_one_down(connections.traffic()));
    }
}
