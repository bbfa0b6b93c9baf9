//! Answers: the error code in a broker's, and one of our own with a given code.

use anyhow::{Context, Result};
use kafka_wire::frame::{self, Header};
use kafka_wire::protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_wire::protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_wire::protocol::messages::produce_response::{
    PartitionProduceResponse, TopicProduceResponse,
};
use kafka_wire::protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_wire::protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, ApiKey, EndTxnRequest, EndTxnResponse, HeartbeatRequest,
    HeartbeatResponse, InitProducerIdRequest, InitProducerIdResponse, OffsetCommitRequest,
    OffsetCommitResponse, ProduceRequest, ProduceResponse, ProducerId, RequestHeader,
    ResponseHeader, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_wire::protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};

/// The first error code in an answer, 0 if it has none; nothing for an API that is not known here.
pub(super) fn code(header: &Header, answer: &[u8]) -> Option<i16> {
    let answer = &mut &answer[..];
    let code = match header.api()? {
        ApiKey::EndTxn => decode::<EndTxnRequest>(header, answer)?.error_code,
        ApiKey::AddOffsetsToTxn => decode::<AddOffsetsToTxnRequest>(header, answer)?.error_code,
        ApiKey::InitProducerId => decode::<InitProducerIdRequest>(header, answer)?.error_code,
        ApiKey::Heartbeat => decode::<HeartbeatRequest>(header, answer)?.error_code,
        ApiKey::AddPartitionsToTxn => {
            let answer = decode::<AddPartitionsToTxnRequest>(header, answer)?;
            let topics = answer.results_by_topic_v3_and_below.iter();
            let partitions = topics.flat_map(|t| &t.results_by_partition);
            first(partitions.map(|p| p.partition_error_code))
        }
        ApiKey::TxnOffsetCommit => {
            let answer = decode::<TxnOffsetCommitRequest>(header, answer)?;
            let partitions = answer.topics.iter().flat_map(|t| &t.partitions);
            first(partitions.map(|p| p.error_code))
        }
        ApiKey::OffsetCommit => {
            let answer = decode::<OffsetCommitRequest>(header, answer)?;
            let partitions = answer.topics.iter().flat_map(|t| &t.partitions);
            first(partitions.map(|p| p.error_code))
        }
        ApiKey::Produce => {
            let answer = decode::<ProduceRequest>(header, answer)?;
            let topics = answer.responses.iter();
            let partitions = topics.flat_map(|t| &t.partition_responses);
            first(partitions.map(|p| p.error_code))
        }
        _ => return None,
    };
    Some(code)
}

fn first(mut codes: impl Iterator<Item = i16>) -> i16 {
    codes.find(|code| *code != 0).unwrap_or(0)
}

/// What a broker would say that answers a request with this error; nothing for an API that is not
/// known here.
///
/// # Errors
/// When the request can't be read.
pub(super) fn refusal(header: &Header, request: &[u8], code: i16) -> Result<Option<Vec<u8>>> {
    let Some(api) = header.api() else {
        return Ok(None);
    };
    let frame = match api {
        ApiKey::EndTxn => {
            let answer = EndTxnResponse::default().with_error_code(code);
            encode::<EndTxnRequest>(header, &answer)?
        }
        ApiKey::AddOffsetsToTxn => {
            let answer = AddOffsetsToTxnResponse::default().with_error_code(code);
            encode::<AddOffsetsToTxnRequest>(header, &answer)?
        }
        ApiKey::InitProducerId => {
            let answer = InitProducerIdResponse::default()
                .with_error_code(code)
                .with_producer_id(ProducerId(-1));
            encode::<InitProducerIdRequest>(header, &answer)?
        }
        ApiKey::Heartbeat => {
            let answer = HeartbeatResponse::default().with_error_code(code);
            encode::<HeartbeatRequest>(header, &answer)?
        }
        ApiKey::AddPartitionsToTxn => add_partitions(header, request, code)?,
        ApiKey::TxnOffsetCommit => txn_offsets(header, request, code)?,
        ApiKey::OffsetCommit => offsets(header, request, code)?,
        ApiKey::Produce => produce(header, request, code)?,
        _ => return Ok(None),
    };
    Ok(Some(frame))
}

fn add_partitions(header: &Header, request: &[u8], code: i16) -> Result<Vec<u8>> {
    let asked = body::<AddPartitionsToTxnRequest>(header, request)?;
    let partition = |index: &i32| {
        AddPartitionsToTxnPartitionResult::default()
            .with_partition_index(*index)
            .with_partition_error_code(code)
    };
    let topics = asked.v3_and_below_topics.iter().map(|topic| {
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(partition).collect())
    });
    let answer =
        AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics.collect());
    encode::<AddPartitionsToTxnRequest>(header, &answer)
}

fn txn_offsets(header: &Header, request: &[u8], code: i16) -> Result<Vec<u8>> {
    let asked = body::<TxnOffsetCommitRequest>(header, request)?;
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    let answer = TxnOffsetCommitResponse::default().with_topics(topics.collect());
    encode::<TxnOffsetCommitRequest>(header, &answer)
}

fn offsets(header: &Header, request: &[u8], code: i16) -> Result<Vec<u8>> {
    let asked = body::<OffsetCommitRequest>(header, request)?;
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        OffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partitions(partitions.collect())
    });
    let answer = OffsetCommitResponse::default().with_topics(topics.collect());
    encode::<OffsetCommitRequest>(header, &answer)
}

fn produce(header: &Header, request: &[u8], code: i16) -> Result<Vec<u8>> {
    let asked = body::<ProduceRequest>(header, request)?;
    let topics = asked.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_error_code(code)
                .with_base_offset(-1)
        });
        TopicProduceResponse::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions.collect())
    });
    let answer = ProduceResponse::default().with_responses(topics.collect());
    encode::<ProduceRequest>(header, &answer)
}

fn decode<R: Request>(header: &Header, answer: &mut &[u8]) -> Option<R::Response> {
    let (_, answer) = frame::decode_answer::<R>(answer, header.version).ok()?;
    Some(answer)
}

fn body<R: Request>(header: &Header, mut request: &[u8]) -> Result<R> {
    let api = header.api().context("an unknown API")?;
    let version = api.request_header_version(header.version);
    RequestHeader::decode(&mut request, version)?;
    R::decode(&mut request, header.version).with_context(|| format!("read {header}"))
}

/// A frame without its length.
fn encode<R: Request>(header: &Header, answer: &R::Response) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    ResponseHeader::default()
        .with_correlation_id(header.correlation)
        .encode(&mut frame, R::Response::header_version(header.version))?;
    answer
        .encode(&mut frame, header.version)
        .with_context(|| format!("answer {header}"))?;
    Ok(frame)
}
