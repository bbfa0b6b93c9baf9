//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
};

use super::fetch::{check_epoch, isolation};
use super::{Broker, Context, code};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// From this version on, responses contain the leader's epoch.
const WITH_EPOCH: i16 = 4;

impl Broker {
    pub(super) fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        context: &Context,
    ) -> ListOffsetsResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for it in &topic.partitions {
                let level = request.isolation_level;
                let (index, timestamp) = (it.partition_index, it.timestamp);
                let found = check_epoch(it.current_leader_epoch)
                    .and_then(|()| self.offset_at(&topic.name, index, timestamp, level));
                let (offset, time) = found.ok().flatten().unwrap_or((-1, -1));
                let known = offset >= 0 && context.version >= WITH_EPOCH;
                partitions.push(
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(index)
                        .with_error_code(code(&found))
                        .with_offset(offset)
                        .with_timestamp(time)
                        .with_leader_epoch(if known { 0 } else { -1 }),
                );
            }
            let answer = ListOffsetsTopicResponse::default()
                .with_name(topic.name)
                .with_partitions(partitions);
            topics.push(answer);
        }
        ListOffsetsResponse::default().with_topics(topics)
    }

    fn offset_at(
        &self,
        topic: &str,
        partition: i32,
        timestamp: i64,
        level: i8,
    ) -> Result<Option<(i64, i64)>, Error> {
        let log = self.partition(topic, partition)?;
        let isolation = isolation(level);
        match timestamp {
            LATEST => Ok(Some((log.end_for(isolation), -1))),
            EARLIEST => Ok(Some((log.start(), -1))),
            MAX_TIMESTAMP => Ok(log.max_timestamp()),
            time if time >= 0 => Ok(log.at_timestamp(time, isolation)),
            _ => Err(Error::UnsupportedVersion),
        }
    }

    pub(super) fn leader_epochs(
        &self,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let ends = topic.partitions.iter().map(|it| {
                let log = check_epoch(it.current_leader_epoch)
                    .and_then(|()| self.partition(&topic.topic, it.partition));
                let answer = EpochEndOffset::default()
                    .with_partition(it.partition)
                    .with_error_code(code(&log));
                match log {
                    Ok(log) if it.leader_epoch == 0 => {
                        answer.with_leader_epoch(0).with_end_offset(log.end())
                    }
                    _ => answer.with_leader_epoch(-1).with_end_offset(-1),
                }
            });
            let partitions = ends.collect();
            let answer = OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic)
                .with_partitions(partitions);
            topics.push(answer);
        }
        OffsetForLeaderEpochResponse::default().with_topics(topics)
    }

    pub(super) fn delete_records(
        &mut self,
        request: DeleteRecordsRequest,
    ) -> DeleteRecordsResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for it in &topic.partitions {
                let result = self.delete_before(&topic.name, it.partition_index, it.offset);
                partitions.push(
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(it.partition_index)
                        .with_error_code(code(&result))
                        .with_low_watermark(result.unwrap_or(-1)),
                );
            }
            let answer = DeleteRecordsTopicResult::default()
                .with_name(topic.name)
                .with_partitions(partitions);
            topics.push(answer);
        }
        self.recount_bytes();
        DeleteRecordsResponse::default().with_topics(topics)
    }

    fn delete_before(&mut self, topic: &str, partition: i32, offset: i64) -> Result<i64, Error> {
        self.partition(topic, partition)?;
        let deletes = self
            .topics
            .get(topic)
            .is_some_and(|it| it.configs().is_deleted());
        if !deletes {
            return Err(Error::PolicyViolation);
        }
        let log = self.partition_mut(topic, partition)?;
        let offset = if offset == -1 { log.end() } else { offset };
        if offset < 0 || offset > log.end() {
            return Err(Error::OffsetOutOfRange);
        }
        log.delete_before(offset);
        Ok(log.start())
    }
}
