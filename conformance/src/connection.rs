//! One socket to one broker: any request, in any version.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// Nothing that a scenario asks for takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection; requests and answers may be apart.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    correlation: i32,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(address: &str) -> Result<Connection> {
        let socket =
            TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection {
            socket,
            correlation: 0,
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When it cannot be encoded in that version, or the connection is gone.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<()> {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("conformance")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(version))?;
        request.encode(&mut frame, version)?;
        let length = i32::try_from(frame.len() - 4)?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&frame)?;
        Ok(())
    }

    /// Takes the answer to the request that was sent last.
    ///
    /// # Errors
    /// When none comes within twenty seconds, or it is to another request.
    pub fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response> {
        let mut frame = self.receive_frame()?;
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version))?;
        ensure!(header.correlation_id == self.correlation, "another answer");
        let answer = R::Response::decode(&mut frame, version)?;
        ensure!(frame.is_empty(), "{} bytes behind the answer", frame.len());
        Ok(answer)
    }

    /// The next frame, whatever it is.
    ///
    /// # Errors
    /// When the connection is closed, or nothing comes within twenty seconds.
    pub fn receive_frame(&mut self) -> Result<Bytes> {
        let mut length = [0; 4];
        self.socket
            .read_exact(&mut length)
            .context("await an answer")?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.socket.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// Sends a request and takes its answer.
    ///
    /// # Errors
    /// As [`Connection::send`] and [`Connection::receive`].
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }

    /// Whether no answer comes for so long.
    ///
    /// # Errors
    /// When the socket cannot be set.
    pub fn is_silent(&mut self, time: Duration) -> Result<bool> {
        self.socket.set_read_timeout(Some(time))?;
        let silent = self.socket.peek(&mut [0; 1]).is_err();
        self.socket.set_read_timeout(Some(PATIENCE))?;
        Ok(silent)
    }
}
