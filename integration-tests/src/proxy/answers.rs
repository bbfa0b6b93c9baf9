//! Responses of brokers and of the proxy.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use kafka_wire::frame::Header;
use kafka_wire::protocol::messages::{
    ApiKey, RequestHeader, RequestKind, ResponseHeader, ResponseKind,
};
use kafka_wire::protocol::protocol::{Decodable, Encodable};
use kafka_wire::refusal::refuse;

/// Returns the first error code in a response, or 0 if it has none. Returns `None` for an unsupported API.
pub(super) fn code(header: &Header, answer: &[u8]) -> Option<i16> {
    let api = known(header)?;
    let mut answer = Bytes::copy_from_slice(answer);
    ResponseHeader::decode(&mut answer, api.response_header_version(header.version)).ok()?;
    let code = match ResponseKind::decode(api, &mut answer, header.version).ok()? {
        ResponseKind::EndTxn(it) => it.error_code,
        ResponseKind::AddOffsetsToTxn(it) => it.error_code,
        ResponseKind::InitProducerId(it) => it.error_code,
        ResponseKind::Heartbeat(it) => it.error_code,
        ResponseKind::AddPartitionsToTxn(it) => {
            let topics = it.results_by_topic_v3_and_below.iter();
            let partitions = topics.flat_map(|t| &t.results_by_partition);
            first(partitions.map(|p| p.partition_error_code))
        }
        ResponseKind::TxnOffsetCommit(it) => {
            let partitions = it.topics.iter().flat_map(|t| &t.partitions);
            first(partitions.map(|p| p.error_code))
        }
        ResponseKind::OffsetCommit(it) => {
            let partitions = it.topics.iter().flat_map(|t| &t.partitions);
            first(partitions.map(|p| p.error_code))
        }
        ResponseKind::Produce(it) => {
            let partitions = it.responses.iter().flat_map(|t| &t.partition_responses);
            first(partitions.map(|p| p.error_code))
        }
        _ => return None,
    };
    Some(code)
}

/// Returns the API of a request if the proxy supports it: the APIs of a transaction.
fn known(header: &Header) -> Option<ApiKey> {
    header.api().filter(|api| {
        matches!(
            api,
            ApiKey::EndTxn
                | ApiKey::AddOffsetsToTxn
                | ApiKey::InitProducerId
                | ApiKey::Heartbeat
                | ApiKey::AddPartitionsToTxn
                | ApiKey::TxnOffsetCommit
                | ApiKey::OffsetCommit
                | ApiKey::Produce
        )
    })
}

fn first(mut codes: impl Iterator<Item = i16>) -> i16 {
    codes.find(|code| *code != 0).unwrap_or(0)
}

/// Builds a broker's response with this error, without the frame's length. Returns `None` for an unsupported API.
///
/// # Errors
/// When the request can't be read.
pub(super) fn refusal(header: &Header, request: &[u8], code: i16) -> Result<Option<Vec<u8>>> {
    let (Some(api), version) = (known(header), header.version) else {
        return Ok(None);
    };
    let mut request = Bytes::copy_from_slice(request);
    RequestHeader::decode(&mut request, api.request_header_version(version))?;
    let request = RequestKind::decode(api, &mut request, version);
    let request = request.with_context(|| format!("read {header}"))?;
    let Some(answer) = refuse(&request, version, code) else {
        return Ok(None);
    };
    let mut frame = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(header.correlation)
        .encode(&mut frame, api.response_header_version(version))?;
    let encoded = answer.encode(&mut frame, version);
    encoded.with_context(|| format!("encode the response to {header}"))?;
    Ok(Some(frame.into()))
}
