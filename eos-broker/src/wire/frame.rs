//! The decoder of requests, and the encoder of responses.

use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, RequestHeader, RequestKind, ResponseHeader, ResponseKind,
};
use kafka_protocol::protocol::{Decodable, Encodable};
use kafka_wire::frame;

use super::shape::{Misshapen, Shape};
use crate::broker::Api;

/// A decoded request.
#[derive(Debug)]
pub(super) struct Framed {
    pub(super) key: ApiKey,
    pub(super) version: i16,
    pub(super) correlation: i32,
    pub(super) client_id: String,
    pub(super) body: RequestKind,
}

/// The contents of a frame.
#[derive(Debug)]
pub(super) enum Frame {
    Request(Box<Framed>),
    /// ApiVersions in a version that is too new. The response contains the version for the retry.
    TooNew {
        correlation: i32,
    },
}

/// The reason why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadFrame {
    #[error("a frame of {0} bytes is too short for a request header")]
    TooShort(usize),
    #[error("api key {0} is not supported")]
    UnknownApi(i16),
    #[error("{key:?} is not supported in version {version}")]
    UnknownVersion { key: ApiKey, version: i16 },
    #[error(transparent)]
    Misshapen(#[from] Misshapen),
    #[error("the request cannot be decoded: {0}")]
    Malformed(String),
}

/// Decodes one frame, without its length.
pub(super) fn decode(mut bytes: Bytes) -> Result<Frame, BadFrame> {
    if bytes.len() < 8 {
        return Err(BadFrame::TooShort(bytes.len()));
    }
    let mut front = &bytes[..8];
    let (key, version, correlation) = (front.get_i16(), front.get_i16(), front.get_i32());
    let api = Api::of(key).ok_or(BadFrame::UnknownApi(key))?;
    let key = api.key;
    if !api.serves(version) {
        if key == ApiKey::ApiVersions {
            return Ok(Frame::TooNew { correlation });
        }
        return Err(BadFrame::UnknownVersion { key, version });
    }
    let malformed = |error: &dyn std::fmt::Display| BadFrame::Malformed(error.to_string());
    let header_version = key.request_header_version(version);
    check_header(&bytes, header_version)?;
    let header = RequestHeader::decode(&mut bytes, header_version);
    let header = header.map_err(|error| malformed(&error))?;
    let shape = Shape::of(key, version).ok_or(BadFrame::UnknownApi(key as i16))?;
    shape.check(&bytes)?;
    let body = RequestKind::decode(key, &mut bytes, version).map_err(|error| malformed(&error))?;
    Ok(Frame::Request(Box::new(Framed {
        key,
        version,
        correlation,
        client_id: header.client_id.as_deref().unwrap_or_default().to_owned(),
        body,
    })))
}

/// Checks the lengths in the header, which no shape covers.
fn check_header(bytes: &Bytes, header_version: i16) -> Result<(), BadFrame> {
    let rest = bytes.get(8..).unwrap_or_default();
    if header_version < 1 {
        return Ok(());
    }
    let length = rest.get(..2).ok_or(Misshapen)?;
    let length = i16::from_be_bytes([length[0], length[1]]).max(0) as usize;
    if rest.len() < 2 + length {
        return Err(Misshapen.into());
    }
    if header_version >= 2 {
        let tags = Shape {
            fields: Vec::new(),
            compact: true,
        };
        tags.check(&rest[2 + length..])?;
    }
    Ok(())
}

/// Returns the bytes of a response, with their length in front.
pub(super) fn encode(
    key: ApiKey,
    version: i16,
    correlation: i32,
    body: &ResponseKind,
) -> anyhow::Result<Bytes> {
    let header = ResponseHeader::default().with_correlation_id(correlation);
    frame::encode(|to| {
        header.encode(to, key.response_header_version(version))?;
        body.encode(to, version)
    })
}

/// Returns the response to an ApiVersions request that is too new, in version 0, which every client supports.
pub(super) fn encode_too_new(correlation: i32) -> anyhow::Result<Bytes> {
    let api = Api::of(ApiKey::ApiVersions as i16);
    let known = api.map(|api| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.advertised_min)
            .with_max_version(api.max)
    });
    let body = ApiVersionsResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_api_keys(known.into_iter().collect());
    encode(ApiKey::ApiVersions, 0, correlation, &body.into())
}
