//! Frames as they are on the wire: a length of four bytes, and as many bytes.

use std::fmt;
use std::io::{self, Read, Write};

use kafka_wire::protocol::messages::ApiKey;

/// Larger than any request or answer that brokers take with their default settings.
const LARGEST: usize = 256 << 20;

/// What stands at the beginning of every request (KIP-482 left these fields where they were).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The API's number.
    pub key: i16,
    /// The version of the API.
    pub version: i16,
    /// By which the client knows the answer.
    pub correlation: i32,
    /// `client.id`, empty if it has none.
    pub client: String,
}

impl Header {
    /// Reads the header of a request.
    pub(super) fn parse(frame: &[u8]) -> io::Result<Header> {
        let short = || io::Error::new(io::ErrorKind::InvalidData, "a request without a header");
        let (head, rest) = frame.split_at_checked(10).ok_or_else(short)?;
        let number = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
        // -1 is null.
        let length = usize::try_from(number(8)).unwrap_or(0);
        let client = rest.get(..length).ok_or_else(short)?;
        Ok(Header {
            key: number(0),
            version: number(2),
            correlation: correlation(&head[4..]).ok_or_else(short)?,
            client: String::from_utf8_lossy(client).into_owned(),
        })
    }

    /// The API, if it is one of Kafka 4's.
    pub fn api(&self) -> Option<ApiKey> {
        ApiKey::try_from(self.key).ok()
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.api() {
            Some(api) => write!(f, "{api:?}")?,
            None => write!(f, "api {}", self.key)?,
        }
        write!(
            f,
            " v{} #{} of {}",
            self.version, self.correlation, self.client
        )
    }
}

/// The correlation id that an answer begins with.
pub(super) fn correlation(answer: &[u8]) -> Option<i32> {
    let bytes = answer.first_chunk::<4>()?;
    Some(i32::from_be_bytes(*bytes))
}

/// The next frame without its length; none once the peer has closed between two frames.
pub(super) fn read(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read(&mut length)? {
        0 => return Ok(None),
        n => stream.read_exact(&mut length[n..])?,
    }
    let length = usize::try_from(i32::from_be_bytes(length))
        .ok()
        .filter(|length| *length <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not Kafka"))?;
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// Writes a frame and its length at once.
pub(super) fn write(stream: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).map_err(io::Error::other)?;
    let mut whole = Vec::with_capacity(4 + frame.len());
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(frame);
    stream.write_all(&whole)
}
