//! Frames of the protocol: a length and that many bytes.
//!
//! The length has four bytes (protocol guide, "Protocol Primitives"). A request begins with a header, which contains
//! its API and a correlation id. Its response begins with the same id.

use std::fmt;
use std::io::{self, Read, Write};

use anyhow::{Context, Result};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::buf::ByteBuf;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// The limit of a frame, in bytes. It exceeds any request or response of brokers with their default settings. A longer
/// frame means that the peer does not speak Kafka's protocol.
pub const LARGEST: usize = 256 << 20;

/// The number of bytes that are allocated before they have arrived.
const AT_ONCE: usize = 1 << 20;

/// Reads the next frame, without its length. Returns `None` if the peer has closed the stream between two frames.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the length is negative or above `largest`. [`io::ErrorKind::UnexpectedEof`] if the
/// peer closes the stream within a frame. Also the errors of the stream.
pub fn read(from: &mut impl Read, largest: usize) -> io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    match begin(from, &mut length)? {
        0 => return Ok(None),
        begun => from.read_exact(&mut length[begun..])?,
    }
    let length = i32::from_be_bytes(length);
    let whole = usize::try_from(length).ok().filter(|it| *it <= largest);
    let whole = whole.ok_or_else(|| {
        let why = format!("frame of {length} bytes: is this a Kafka listener?");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    let mut frame = Vec::with_capacity(whole.min(AT_ONCE));
    from.take(whole as u64).read_to_end(&mut frame)?;
    if frame.len() < whole {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame.into()))
}

/// Reads the first bytes, and retries an interrupted read. If the socket has a timeout, a signal interrupts a read even
/// without a handler (`man 7 signal`). An interrupted read loses no bytes.
fn begin(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Writes a frame and its length in one call.
///
/// # Errors
/// The errors of the stream.
pub fn write(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).map_err(io::Error::other)?;
    let mut whole = Vec::with_capacity(4 + frame.len());
    whole.put_i32(length);
    whole.put_slice(frame);
    to.write_all(&whole)
}

/// Returns the frame that `fill` writes, with its length in front.
///
/// # Errors
/// The errors of `fill`. Also fails if the frame is longer than 2 GiB.
pub fn encode(fill: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<Bytes> {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    fill(&mut frame)?;
    let length = i32::try_from(frame.len() - 4).context("a frame above 2 GiB")?;
    (&mut frame[..4]).put_i32(length);
    Ok(frame.freeze())
}

/// Returns the frame of a request, with its length in front.
///
/// # Errors
/// If the request has fields that this version does not support.
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation: i32,
    client: &str,
) -> Result<Bytes> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_string(client.to_owned())));
    encode(|to| {
        header.encode(to, R::header_version(version))?;
        request.encode(to, version)
    })
}

/// Decodes a response from a frame without its length. Returns the correlation id and the response.
///
/// # Errors
/// If the frame is not a response to such a request in this version.
pub fn decode_answer<R: Request>(
    frame: &mut impl ByteBuf,
    version: i16,
) -> Result<(i32, R::Response)> {
    let header = ResponseHeader::decode(frame, R::Response::header_version(version))?;
    Ok((header.correlation_id, R::Response::decode(frame, version)?))
}

/// Returns the correlation id at the beginning of a response.
pub fn correlation(answer: &[u8]) -> Option<i32> {
    answer.first_chunk().map(|id| i32::from_be_bytes(*id))
}

/// The beginning of every request in every version (KIP-482 did not move these fields).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The API key.
    pub key: i16,
    /// The version of the API.
    pub version: i16,
    /// The id at the beginning of the response.
    pub correlation: i32,
    /// `client.id`, empty if there is none.
    pub client: String,
}

impl Header {
    /// Parses the header of a request, from a frame without its length.
    ///
    /// # Errors
    /// If the frame is too short.
    pub fn parse(frame: &[u8]) -> io::Result<Header> {
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

    /// Returns the API, if it is one of Kafka 4's.
    pub fn api(&self) -> Option<ApiKey> {
        ApiKey::try_from(self.key).ok()
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, correlation) = (self.version, self.correlation);
        let api = api_name(self.key);
        write!(f, "{api} v{version} #{correlation} of {}", self.client)
    }
}

/// Returns the name of an API, for messages.
pub(crate) fn api_name(key: i16) -> String {
    ApiKey::try_from(key).map_or_else(|()| format!("api {key}"), |api| format!("{api:?}"))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse};

    use super::*;

    #[test]
    fn a_written_frame_is_read_and_then_the_end() {
        let mut stream = Vec::new();
        write(&mut stream, b"abc").expect("written");
        write(&mut stream, b"").expect("written");
        let mut stream = &stream[..];
        let read = || read(&mut stream, LARGEST).expect("a frame");
        let frames: Vec<_> = std::iter::from_fn(read).collect();
        assert_eq!(frames, ["abc", ""]);
    }

    /// A stream that interrupts each read once.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => self.0.read(into),
            }
        }
    }

    #[test]
    fn a_signal_does_not_end_a_read() {
        let mut stream = Vec::new();
        write(&mut stream, b"abc").expect("written");
        let mut stream = Interrupted(&stream, false);
        let frame = read(&mut stream, LARGEST).expect("a frame");
        assert_eq!(frame.as_deref(), Some(&b"abc"[..]));
    }

    #[test]
    fn a_bad_length_and_a_torn_frame_are_told_apart() {
        let kind = |bytes: &[u8]| read(&mut &bytes[..], 4).expect_err("refused").kind();
        for bad in [[0xff, 0xff, 0xff, 0xff], [0, 0, 0, 5]] {
            assert_eq!(kind(&bad), io::ErrorKind::InvalidData);
        }
        for torn in [&[0][..], &[0, 0, 0, 1], &[0, 0, 0, 4, 1, 2, 3]] {
            assert_eq!(kind(torn), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_request_begins_with_its_header_in_every_version() {
        for version in 0..=4 {
            let frame = encode_request(&EndTxnRequest::default(), version, 7, "me");
            let frame = frame.expect("encoded");
            let header = Header::parse(&frame[4..]).expect("a header");
            assert_eq!(header.api(), Some(ApiKey::EndTxn));
            assert_eq!(header.to_string(), format!("EndTxn v{version} #7 of me"));
        }
        assert!(Header::parse(&[0; 9]).is_err());
        assert!(Header::parse(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn an_answer_is_decoded_with_its_id() {
        let answer = EndTxnResponse::default().with_error_code(3);
        let mut frame = encode(|to| {
            ResponseHeader::default()
                .with_correlation_id(9)
                .encode(to, 1)?;
            answer.encode(to, 4)
        })
        .expect("encoded");
        let mut frame = frame.split_off(4);
        assert_eq!(correlation(&frame), Some(9));
        let decoded = decode_answer::<EndTxnRequest>(&mut frame, 4).expect("decoded");
        assert_eq!(decoded, (9, answer));
    }
}
