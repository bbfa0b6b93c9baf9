//! One socket to one broker: one request in flight, a deadline on each.
//!
//! A connection asks the broker once which versions it supports, and each request is sent in the newest that both
//! sides know. Or each request names its version: then nothing is asked.

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

/// How this client names itself to brokers, visible in their request logs.
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

/// A request on its way; [`Connection::receive`] takes its answer.
#[derive(Debug)]
#[must_use]
pub struct Sent<R> {
    correlation: i32,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl Connection {
    /// Connects and asks which versions the broker supports.
    ///
    /// # Errors
    /// When nothing listens at `address`, or no Kafka broker answers there in time.
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

    /// Connects as the client of this id, for requests that name their version.
    ///
    /// # Errors
    /// When nothing listens at `address`.
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

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As [`Connection::send_as`] and [`Connection::receive`].
    pub(crate) fn exchange<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let sent = self.send(request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request in this version and waits for its answer.
    ///
    /// # Errors
    /// As [`Connection::send_as`] and [`Connection::receive`].
    pub fn exchange_as<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let sent = self.send_as(version, request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request in the newest version that both sides know; the caller must receive its answer before it
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
    /// When it cannot be encoded in that version, or the connection is gone.
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

    /// Waits for the answer to `sent`.
    ///
    /// # Errors
    /// When none comes in time, or it is another one.
    pub fn receive<R: Request>(
        &mut self,
        sent: Sent<R>,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let mut frame = self
            .receive_raw(deadline)
            .map_err(|error| self.lost::<R>(error, "await the answer to"))?;
        let answered = frame::correlation(&frame).context("an answer without a header")?;
        if answered != sent.correlation {
            return Err(Failure::retry(format!(
                "{} answered request {answered}, expected {}",
                self.address, sent.correlation
            )));
        }
        let answer = frame::decode_answer::<R>(&mut frame, sent.version)
            .and_then(|(_, answer)| match frame.remaining() {
                0 => Ok(answer),
                behind => Err(anyhow!("{behind} bytes behind the answer")),
            })
            .with_context(|| format!("decode {} of {}", api_name(R::KEY), self.address))?;
        Ok(answer)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone, or the broker takes nothing in time.
    pub fn send_raw(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.timed(deadline).write_all(bytes)
    }

    /// The next frame, whatever it is, without its length.
    ///
    /// # Errors
    /// When the connection is closed, or nothing comes in time.
    pub fn receive_raw(&mut self, deadline: Instant) -> io::Result<Bytes> {
        let frame = frame::read(&mut self.timed(deadline), frame::LARGEST)?;
        frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Whether no byte of an answer comes before the deadline.
    ///
    /// # Errors
    /// When the deadline is past or the socket can't be set.
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

/// A socket whose every call ends at the deadline.
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

/// Tries every address the name resolves to.
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

/// The time left, never zero: a zero socket timeout would mean "for ever".
fn remaining(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "deadline passed"))
}
