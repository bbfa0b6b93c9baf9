//! One socket to one broker: length-prefixed frames, one request in flight, a deadline on each.

mod failure;
mod versions;

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use versions::Versions;

pub(crate) use failure::{Failure, check, is_answer};

/// How this client names itself to brokers, visible in their request logs.
const CLIENT_ID: &str = "eos-wire";

/// An answer above this size means that the peer is not a Kafka broker.
const MAX_FRAME: usize = 256 << 20;

/// An open connection, with the versions its broker supports.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    versions: Versions,
    correlation: i32,
    frame: BytesMut,
}

/// A request on its way; [`Connection::receive`] takes its answer.
#[derive(Debug)]
#[must_use]
pub(crate) struct Sent<R> {
    correlation: i32,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl Connection {
    /// Connects and asks which versions the broker supports.
    pub(crate) fn open(address: &str, deadline: Instant) -> Result<Self, Failure> {
        let stream = dial(address, deadline).map_err(|error| {
            Failure::Retry(anyhow!(error).context(format!("connect to {address}")))
        })?;
        let mut connection = Connection {
            stream,
            address: address.to_owned(),
            versions: Versions::default(),
            correlation: 0,
            frame: BytesMut::new(),
        };
        let hello = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str(CLIENT_ID))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let sent = connection.send_version(&hello, versions::API_VERSIONS, deadline)?;
        let answer = connection.receive(sent, deadline)?;
        check(answer.error_code, || format!("ApiVersions on {address}"))?;
        connection.versions = Versions::of(&answer);
        Ok(connection)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn exchange<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let sent = self.send(request, deadline)?;
        self.receive(sent, deadline)
    }

    /// Sends a request; the caller must receive its answer before it sends another.
    pub(crate) fn send<R: Request>(
        &mut self,
        request: &R,
        deadline: Instant,
    ) -> Result<Sent<R>, Failure> {
        let version = self
            .versions
            .pick::<R>()
            .with_context(|| format!("broker {}", self.address))?;
        self.send_version(request, version, deadline)
    }

    fn send_version<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Result<Sent<R>, Failure> {
        self.correlation = self.correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 4]);
        header.encode(&mut self.frame, R::header_version(version))?;
        request.encode(&mut self.frame, version)?;
        let length = i32::try_from(self.frame.len() - 4).context("request above 2 GiB")?;
        self.frame[..4].copy_from_slice(&length.to_be_bytes());
        self.write(deadline)
            .map_err(|error| self.lost::<R>(error, "send"))?;
        Ok(Sent {
            correlation: self.correlation,
            version,
            request: PhantomData,
        })
    }

    /// Waits for the answer to `sent`.
    pub(crate) fn receive<R: Request>(
        &mut self,
        sent: Sent<R>,
        deadline: Instant,
    ) -> Result<R::Response, Failure> {
        let mut frame = self
            .read(deadline)
            .map_err(|error| self.lost::<R>(error, "await the answer to"))?;
        let header = R::Response::header_version(sent.version);
        let header = ResponseHeader::decode(&mut frame, header)?;
        if header.correlation_id != sent.correlation {
            return Err(Failure::retry(format!(
                "{} answered request {}, expected {}",
                self.address, header.correlation_id, sent.correlation
            )));
        }
        let answer = R::Response::decode(&mut frame, sent.version)
            .with_context(|| format!("decode {} of {}", versions::name(R::KEY), self.address))?;
        Ok(answer)
    }

    fn write(&mut self, deadline: Instant) -> io::Result<()> {
        self.stream.set_write_timeout(Some(remaining(deadline)?))?;
        self.stream.write_all(&self.frame)
    }

    fn read(&mut self, deadline: Instant) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.set_read_timeout(Some(remaining(deadline)?))?;
        self.stream.read_exact(&mut length)?;
        let length = (&length[..]).get_i32();
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_FRAME)
            .ok_or_else(|| {
                io::Error::other(format!(
                    "frame of {length} bytes: is this a Kafka listener?"
                ))
            })?;
        let mut body = vec![0; length];
        self.stream.set_read_timeout(Some(remaining(deadline)?))?;
        self.stream.read_exact(&mut body)?;
        Ok(Bytes::from(body))
    }

    fn lost<R: Request>(&self, error: io::Error, doing: &str) -> Failure {
        let what = format!("{doing} {} ({})", versions::name(R::KEY), self.address);
        Failure::Retry(anyhow!(error).context(what))
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
