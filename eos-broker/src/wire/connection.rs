//! One connection, with one request at a time.
//!
//! Like Kafka, a connection takes no request before it has sent the response to the previous one.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;

use super::frame::{self, Frame, Framed};
use super::shared::{Shared, Stepped};
use crate::broker::{Output, Request, Unanswered};

/// The size of the read buffer. It is enough for small requests. A large request is read into its own buffer.
const BUFFER: usize = 16 << 10;
/// Interval of the checks that a client still waits for the response to a held request.
const LOOK: Duration = Duration::from_millis(500);

/// Serves one client until it disconnects, or sends an invalid request.
pub(super) fn serve(shared: &Shared, socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let host = format!("/{}", socket.peer_addr()?.ip());
    let mut reader = BufReader::with_capacity(BUFFER, socket);
    let mut writer = socket;
    while let Some(bytes) = read(&mut reader, shared)? {
        let answer = match frame::decode(bytes) {
            Ok(Frame::Request(request)) => match answer(shared, *request, socket, &host) {
                Then::Send(answer) => answer,
                Then::Close => return Ok(()),
                Then::Drain => {
                    io::copy(&mut reader, &mut io::sink())?;
                    return Ok(());
                }
            },
            Ok(Frame::TooNew { correlation }) => frame::encode_too_new(correlation),
            Err(_) => {
                shared.counters.malformed.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        };
        let answer = answer.map_err(io::Error::other)?;
        shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        writer.write_all(&answer)?;
    }
    Ok(())
}

/// The effect of a request on its connection.
enum Then {
    /// The bytes of the response, or none if the request expects none.
    Send(anyhow::Result<Bytes>),
    Close,
    /// All later bytes are discarded, because TCP loses no part of a stream.
    Drain,
}

fn answer(shared: &Shared, request: Framed, socket: &TcpStream, host: &str) -> Then {
    let Framed {
        key,
        version,
        correlation,
        client_id,
        body,
    } = request;
    let stepped = shared.step(|ticket| Request {
        ticket,
        version,
        client_id,
        host: host.to_owned(),
        body,
    });
    let output = match stepped {
        Stepped::Now(output) => output,
        Stepped::Later(ticket, receiver) => match held(&receiver, socket) {
            Some(output) => output,
            None => {
                shared.forget(ticket);
                return Then::Close;
            }
        },
        Stepped::Never => return Then::Close,
    };
    match output {
        Output::Answer(_, body) => Then::Send(frame::encode(key, version, correlation, &body)),
        Output::Nothing(Unanswered::Done(_)) => Then::Send(Ok(Bytes::new())),
        Output::Nothing(Unanswered::Lost(_)) => Then::Drain,
        Output::Disconnect(_) => Then::Close,
    }
}

/// Returns the output of a held request, or `None` if the broker stops or the client disconnects.
fn held(receiver: &Receiver<Output>, socket: &TcpStream) -> Option<Output> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(output) => return Some(output),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_gone(socket) {
            return None;
        }
    }
}

/// Returns whether the client has closed its end, and no bytes are left to read.
fn is_gone(socket: &TcpStream) -> bool {
    let look = || {
        socket.set_nonblocking(true)?;
        let seen = socket.peek(&mut [0; 1]);
        socket.set_nonblocking(false)?;
        seen
    };
    match look() {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Returns the next frame without its length, or `None` at the end or after an incomplete or malformed frame.
fn read(reader: &mut impl Read, shared: &Shared) -> io::Result<Option<Bytes>> {
    match kafka_wire::frame::read(reader, shared.limits.socket_request_max_bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            shared.counters.malformed.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
        read => read,
    }
}
