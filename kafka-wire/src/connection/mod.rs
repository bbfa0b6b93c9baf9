//! A connection to one broker, with one request in flight.
//!
//! Each request has a deadline. A connection requests the supported versions from the broker once. It sends each
//! request in the newest version that both sides support. On a pinned connection, each request names its version, and
//! the connection requests none.

mod failure;
mod versions;

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::{Request, StrBytes};

use crate::frame::{self, api_name};
use versions::Versions;

pub use failure::Failure;
pub(crate) use failure::{check, is_answer};

/// The `client.id` of this client, visible in the request logs of brokers.
const CLIENT_ID: &str = "eos-wire";

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: String,
    client: &'static str,
    versions: Versions,
    correlation: i32,
}

/// A request in flight. [`Connection::receive`] takes its response.
#[derive(Debug)]
#[must_use]
pub struct Sent<R> {
    correlation: i32,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl Connection {
    /// Connects and requests the versions that the broker supports.
    ///
    /// # Errors
    /// If no process listens at `address`, or no Kafka broker responds there in time.
    pub fn open(address: &str, deadline: Instant) -> Result<Self, Failure> {
        let mut connection = Connection::pinned(address, CLIENT_ID, deadline)?;
        let hello = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(CLIENT_ID))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let answer = connection.exchange_as(versions::API_VERSIONS, &hello, deadline)?;
        check(answer.error_code, || format!("ApiVersions on {address}"))?;
        connection.versions = Versions::of(&answer);
        Ok(connection)
    }

    /// Connects with this client id, for requests that name their version.
    ///
    /// # Errors
    /// If no process listens at `address`.
    pub fn pinned(address: &str, client: &'static str, deadline: Instant) -> Result<Self, Failure> {
        let stream = dial(address, deadline).map_err(|error| {
            Failure::Retry(anyhow!(error).context(format!("connect to {address}")))
        })?;
        Ok(Connection {
            stream,
            address: address.to_owned(),
            client,
            versions: Versions::default(),
            correlation: 0,
        })
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// See [`Connection::send_as`] and [`Connection::receive`].
    pub(crate) fn exchange<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let sent = self.send(request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request in this version and waits for its response.
    ///
    /// # Errors
    /// See [`Connection::send_as`] and [`Connection::receive`].
    pub fn exchange_as<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let sent = self.send_as(version, request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request in the newest version that both sides support. The caller must receive its response before it
    /// sends another.
    pub(crate) fn send<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<Sent<R>, Failure> {
        let version = self
            .versions
            .pick::<R>()
            .with_context(|| format!("broker {}", self.address))?;
        self.send_as(version, request, deadline)
    }

    /// Sends a request in this version.
    ///
    /// # Errors
    /// If the request cannot be encoded in that version, or the connection is closed.
    pub fn send_as<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        deadline: Instant,
    ) -> Result<Sent<R>, Failure> {
        self.correlation = self.correlation.wrapping_add(1);
        let frame = frame::encode_request(request, version, self.correlation, self.client)?;
        self.send_raw(&frame, deadline)
            .map_err(|error| self.lost::<R>(error, "send"))?;
        Ok(Sent {
            correlation: self.correlation,
            version,
            request: PhantomData,
        })
    }

    /// Waits for the response to `sent`.
    ///
    /// # Errors
    /// If no response arrives in time, or the response belongs to another request.
    pub fn receive<R: Request>(
        &mut self,
        sent: Sent<R>,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let mut frame = self
            .receive_raw(deadline)
            .map_err(|error| self.lost::<R>(error, "await the response to"))?;
        let answered = frame::correlation(&frame).context("a response without a header")?;
        if answered != sent.correlation {
            return Err(Failure::retry(format!(
                "{} responded to request {answered}, expected {}",
                self.address, sent.correlation
            )));
        }
        let answer = frame::decode_answer::<R>(&mut frame, sent.version)
            .and_then(|(_, answer)| match frame.remaining() {
                0 => Ok(answer),
                behind => Err(anyhow!("{behind} bytes after the response")),
            })
            .with_context(|| format!("decode {} of {}", api_name(R::KEY), self.address))?;
        Ok(answer)
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// If the connection is closed, or the broker does not accept the bytes in time.
    pub fn send_raw(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.timed(deadline).write_all(bytes)
    }

    /// Returns the next frame, of any kind, without its length.
    ///
    /// # Errors
    /// If the connection is closed, or no frame arrives in time.
    pub fn receive_raw(&mut self, deadline: Instant) -> io::Result<Bytes> {
        let frame = frame::read(&mut self.timed(deadline), frame::LARGEST)?;
        frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Returns whether no byte of a response arrives before the deadline.
    ///
    /// # Errors
    /// If the deadline is past or the socket timeout cannot be set.
    pub fn is_silent(&mut self, deadline: Instant) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(remaining(deadline)?))?;
        Ok(self.stream.peek(&mut [0; 1]).is_err())
    }

    fn timed(&self, deadline: Instant) -> Timed<'_> {
        Timed {
            stream: &self.stream,
            deadline,
        }
    }

    fn lost<R: Request>(&self, error: io::Error, doing: &str) -> Failure {
        let what = format!("{doing} {} ({})", api_name(R::KEY), self.address);
        Failure::Retry(anyhow!(error).context(what))
    }
}

/// A socket on which every call ends at the deadline.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = Some(remaining(self.deadline)?);
        self.stream.set_read_timeout(limit)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let limit = Some(remaining(self.deadline)?);
        self.stream.set_write_timeout(limit)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Connects to the first reachable address that the name resolves to.
fn dial(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "name resolves to no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, remaining(deadline)?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the time left, which is never zero, because a zero socket timeout would mean no timeout.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "deadline passed"))
}
