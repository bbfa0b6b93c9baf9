//! Produce.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::produce_response::{
    PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, RequestKind};
use kafka_wire::batch::BatchError as Format;
use kafka_wire::refusal::refuse;

use super::{Broker, Context, Output, Reply, text};
use crate::log::{AppendError, Appended, Batch, BatchError};
use crate::transactions::Participant;

/// From this version on, responses may contain the reason of an error.
const WITH_MESSAGES: i16 = 8;

/// The reason why a partition rejected a batch.
struct Refusal {
    error: Error,
    why: Option<String>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, why: None }
    }
}

impl From<AppendError> for Refusal {
    fn from(why: AppendError) -> Refusal {
        let error = match why {
            AppendError::Batch(BatchError::Format(Format::Checksum)) => Error::CorruptMessage,
            AppendError::Batch(_) | AppendError::NoKey => Error::InvalidRecord,
            AppendError::TooLarge { .. } => Error::MessageTooLarge,
            AppendError::Timestamp { .. } => Error::InvalidTimestamp,
            AppendError::OldEpoch => Error::InvalidProducerEpoch,
            AppendError::OutOfOrder => Error::OutOfOrderSequenceNumber,
            AppendError::NotTransactional => Error::InvalidTxnState,
        };
        Refusal {
            error,
            why: Some(why.to_string()),
        }
    }
}

impl From<BatchError> for Refusal {
    fn from(why: BatchError) -> Refusal {
        AppendError::Batch(why).into()
    }
}

impl Broker {
    pub(super) fn produce(&mut self, request: ProduceRequest, context: &Context) -> Reply {
        let acks = request.acks;
        let refused = if request.transactional_id.is_none() && is_transactional(&request) {
            Some(Error::TransactionalIdAuthorizationFailed)
        } else {
            (!matches!(acks, -1..=1)).then_some(Error::InvalidRequiredAcks)
        };
        if let Some(error) = refused {
            let request = RequestKind::Produce(request);
            let Some(answer) = refuse(&request, context.version, error.code()) else {
                // With acks=0 no response can carry the error.
                self.out.push(Output::Disconnect(context.ticket));
                return Reply::Held;
            };
            return answer.into();
        }
        let id = request.transactional_id.as_deref().map(|id| id.to_string());
        let mut topics = Vec::with_capacity(request.topic_data.len());
        let mut fetches = BTreeSet::new();
        for topic in request.topic_data {
            let mut partitions = Vec::with_capacity(topic.partition_data.len());
            for data in topic.partition_data {
                let records = data.records.unwrap_or_default();
                let id = id.as_deref();
                let result = self.produce_one(&topic.name, data.index, records, id, context.now);
                self.fetches.collect(&topic.name, data.index, &mut fetches);
                partitions.push(answer(data.index, result, context.version));
            }
            let topic = TopicProduceResponse::default()
                .with_name(topic.name)
                .with_partition_responses(partitions);
            topics.push(topic);
        }
        self.answer_ready(fetches, context.now);
        if acks == 0 {
            return Reply::Nothing;
        }
        ProduceResponse::default().with_responses(topics).into()
    }

    fn produce_one(
        &mut self,
        topic: &str,
        partition: i32,
        mut records: Bytes,
        transactional_id: Option<&str>,
        now: i64,
    ) -> Result<(Appended, i64), Refusal> {
        let log = self.partition(topic, partition)?;
        let batch = Batch::split(&mut records)?;
        if !records.is_empty() {
            let why = BatchError::Invalid("a request carries one record batch for each partition");
            return Err(why.into());
        }
        let known = log
            .producers
            .is_open(batch.producer_id, batch.producer_epoch);
        if batch.is_transactional()
            && !known
            && self.options.transaction_partition_verification
            && let Some(id) = transactional_id
        {
            let place = Participant::Partition(topic.to_owned(), partition);
            let (producer, epoch) = (batch.producer_id, batch.producer_epoch);
            let verified = self.transactions.verify(id, producer, epoch, &place);
            verified.map_err(for_producers)?;
        }
        let place = match self.topics.get(topic) {
            Some(topic) => topic.place(),
            None => return Err(Error::UnknownTopicOrPartition.into()),
        };
        let log = self.partition(topic, partition)?;
        if let Some(there) = log.judge(&batch, place, now)? {
            return Ok((there, log.start()));
        }
        self.check_memory(log.bytes(), batch.bytes().len())?;
        let log = self.partition_mut(topic, partition)?;
        let before = log.bytes();
        let appended = log.append(batch, place, now);
        let (grown, start) = (log.bytes() - before, log.start());
        self.bytes += grown;
        Ok((appended, start))
    }

    /// Checks the limits of memory. Kafka's closest error code is a policy violation.
    fn check_memory(&self, partition: usize, more: usize) -> Result<(), Refusal> {
        let limits = [
            (
                "log.memory.max.bytes",
                self.bytes,
                self.options.log_memory_max_bytes,
            ),
            (
                "partition.memory.max.bytes",
                partition,
                self.options.partition_memory_max_bytes,
            ),
        ];
        for (name, held, limit) in limits {
            if held + more > limit {
                return Err(Refusal {
                    error: Error::PolicyViolation,
                    why: Some(format!(
                        "the embedded broker holds {held} bytes, {more} more would exceed \
                         {name}={limit}: raise the limit, or delete records"
                    )),
                });
            }
        }
        Ok(())
    }
}

/// Returns whether a batch of a request is transactional.
fn is_transactional(request: &ProduceRequest) -> bool {
    let data = request.topic_data.iter().flat_map(|it| &it.partition_data);
    let mut batches = data.filter_map(|it| Batch::split(&mut it.records.clone()?).ok());
    batches.any(|batch| batch.is_transactional())
}

/// Replaces CONCURRENT_TRANSACTIONS, which old producers do not retry, by an error that they retry.
fn for_producers(error: Error) -> Error {
    match error {
        Error::ConcurrentTransactions => Error::NotEnoughReplicas,
        other => other,
    }
}

fn answer(
    index: i32,
    result: Result<(Appended, i64), Refusal>,
    version: i16,
) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default().with_index(index);
    match result {
        Ok((appended, start)) => answer
            .with_base_offset(appended.base_offset)
            .with_log_append_time_ms(appended.append_time)
            .with_log_start_offset(start),
        Err(refusal) => {
            let why = refusal.why.filter(|_| version >= WITH_MESSAGES);
            answer
                .with_base_offset(-1)
                .with_error_code(refusal.error.code())
                .with_error_message(why.as_deref().map(text))
        }
    }
}
