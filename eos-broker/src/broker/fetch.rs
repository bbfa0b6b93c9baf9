//! Fetch, and waiting fetches.

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, ProducerId, ResponseKind};

use super::{Broker, Context, Output, Reply, Ticket};
use crate::log::{Isolation, PartitionLog};

/// A fetch that waits for enough bytes.
#[derive(Debug)]
pub(super) struct Waiting {
    ticket: Ticket,
    version: i16,
    deadline: i64,
    request: FetchRequest,
}

impl Waiting {
    pub(super) fn deadline(&self) -> i64 {
        self.deadline
    }
}

impl Broker {
    pub(super) fn fetch(&mut self, request: FetchRequest, context: &Context) -> Reply {
        // The broker creates no fetch sessions, so no client can have one.
        if request.session_id != 0 && request.session_epoch > 0 {
            let error = Error::FetchSessionIdNotFound.code();
            return FetchResponse::default().with_error_code(error).into();
        }
        let wait = i64::from(request.max_wait_ms);
        if wait <= 0 || self.is_ready(&request) {
            return self.read(&request, context.version).into();
        }
        let deadline = context.now + wait;
        self.waiting.push(Waiting {
            ticket: context.ticket,
            version: context.version,
            deadline,
            request,
        });
        self.wake_at(deadline);
        Reply::Held
    }

    /// Responds to the waiting fetches that have enough records or have waited long enough.
    pub(super) fn answer_fetches(&mut self, now: i64) {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            if waiting.deadline > now && !self.is_ready(&waiting.request) {
                index += 1;
                continue;
            }
            let waiting = self.waiting.remove(index);
            let answer = self.read(&waiting.request, waiting.version);
            let answer = ResponseKind::Fetch(answer);
            self.out.push(Output::Answer(waiting.ticket, answer));
        }
    }

    /// Returns whether there is enough data to return, or an error.
    fn is_ready(&self, request: &FetchRequest) -> bool {
        let enough = usize::try_from(request.min_bytes).unwrap_or(0);
        let isolation = isolation(request.isolation_level);
        let mut bytes = 0;
        let mut asked = false;
        for topic in &request.topics {
            for it in &topic.partitions {
                asked = true;
                let log = check_epoch(it.current_leader_epoch)
                    .and_then(|()| self.partition(&topic.topic, it.partition));
                match log {
                    Ok(log) if is_within(log, it.fetch_offset) => {
                        bytes +=
                            log.available(it.fetch_offset, isolation, enough - bytes.min(enough));
                    }
                    _ => return true,
                }
            }
        }
        bytes >= enough || !asked
    }

    fn read(&self, request: &FetchRequest, version: i16) -> FetchResponse {
        let isolation = isolation(request.isolation_level);
        let mut left = usize::try_from(request.max_bytes).unwrap_or(0);
        let mut nothing_yet = true;
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for it in &topic.partitions {
                let answer = PartitionData::default().with_partition_index(it.partition);
                let log = match self.partition(&topic.topic, it.partition) {
                    Ok(log) => log,
                    Err(error) => {
                        partitions.push(failed(answer, error));
                        continue;
                    }
                };
                if let Err(error) = check_epoch(it.current_leader_epoch) {
                    partitions.push(failed(answer, error));
                    continue;
                }
                if !is_within(log, it.fetch_offset) {
                    partitions.push(failed(answer, Error::OffsetOutOfRange));
                    continue;
                }
                let own = usize::try_from(it.partition_max_bytes).unwrap_or(0);
                let found = log.read(it.fetch_offset, isolation, own.min(left), nothing_yet);
                nothing_yet &= found.records.is_empty();
                left = left.saturating_sub(found.records.len());
                let aborted = found.aborted.iter().map(|it| {
                    AbortedTransaction::default()
                        .with_producer_id(ProducerId(it.producer_id))
                        .with_first_offset(it.first_offset)
                });
                let aborted = (isolation == Isolation::ReadCommitted).then(|| aborted.collect());
                partitions.push(
                    answer
                        .with_high_watermark(log.end())
                        .with_last_stable_offset(log.last_stable())
                        .with_log_start_offset(log.start())
                        .with_aborted_transactions(aborted)
                        .with_records(Some(found.records)),
                );
            }
            let answer = FetchableTopicResponse::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions);
            topics.push(answer);
        }
        debug_assert!(version <= 12, "newer versions name topics by id");
        FetchResponse::default().with_responses(topics)
    }
}

fn failed(answer: PartitionData, error: Error) -> PartitionData {
    answer
        .with_error_code(error.code())
        .with_high_watermark(-1)
        .with_records(Some(Bytes::new()))
}

fn is_within(log: &PartitionLog, offset: i64) -> bool {
    (log.start()..=log.end()).contains(&offset)
}

/// There is only one leader, of epoch 0.
pub(super) fn check_epoch(epoch: i32) -> Result<(), Error> {
    match epoch {
        -1 | 0 => Ok(()),
        it if it < -1 => Err(Error::FencedLeaderEpoch),
        _ => Err(Error::UnknownLeaderEpoch),
    }
}

pub(super) fn isolation(level: i8) -> Isolation {
    if level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    }
}
