//! InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and the markers that follow.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProducerId,
};

use super::{Broker, Context, Marking, code};
use crate::transactions::{Initialized, Markers, Participant};

/// The epoch of the only coordinator.
const COORDINATOR_EPOCH: i32 = 0;

/// Replaces PRODUCER_FENCED for older clients, which do not support it.
fn spelled(error: Error, version: i16, since: i16) -> Error {
    if error == Error::ProducerFenced && version < since {
        Error::InvalidProducerEpoch
    } else {
        error
    }
}

impl Broker {
    pub(super) fn init_producer_id(
        &mut self,
        request: InitProducerIdRequest,
        context: &Context,
    ) -> InitProducerIdResponse {
        let answer = InitProducerIdResponse::default();
        match self.init(request, context) {
            Ok(producer) => answer
                .with_producer_id(ProducerId(producer.producer_id))
                .with_producer_epoch(producer.epoch),
            Err(error) => answer
                .with_error_code(spelled(error, context.version, 4).code())
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1),
        }
    }

    fn init(
        &mut self,
        request: InitProducerIdRequest,
        context: &Context,
    ) -> Result<Initialized, Error> {
        let (producer_id, epoch) = (request.producer_id.0, request.producer_epoch);
        let expected = match (producer_id, epoch) {
            (-1, -1) => None,
            (-1, _) | (_, -1) => return Err(Error::InvalidRequest),
            known => Some(known),
        };
        let Some(id) = request.transactional_id else {
            return Ok(Initialized {
                producer_id: self.transactions.new_producer_id(),
                epoch: 0,
            });
        };
        if id.is_empty() {
            return Err(Error::InvalidRequest);
        }
        let timeout = request.transaction_timeout_ms;
        if timeout <= 0 || timeout > self.options.transaction_max_timeout_ms {
            return Err(Error::InvalidTransactionTimeout);
        }
        let (initialized, aborted) = self.transactions.init(&id, timeout, expected);
        if let Some(markers) = aborted {
            self.decided(markers, context.now);
        }
        initialized
    }

    pub(super) fn add_partitions(
        &mut self,
        request: AddPartitionsToTxnRequest,
        context: &Context,
    ) -> AddPartitionsToTxnResponse {
        let topics = request.v3_and_below_topics;
        let asked = topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(|index| (topic.name.to_string(), *index))
        });
        let asked: Vec<(String, i32)> = asked.collect();
        let exists = |(topic, partition): &(String, i32)| self.partition(topic, *partition).is_ok();
        let all_exist = asked.iter().all(exists);
        let result = if all_exist {
            let participants = asked
                .iter()
                .map(|(topic, partition)| Participant::Partition(topic.clone(), *partition));
            let participants = participants.collect();
            let id = request.v3_and_below_transactional_id.to_string();
            let producer = request.v3_and_below_producer_id.0;
            let epoch = request.v3_and_below_producer_epoch;
            self.add(&id, producer, epoch, participants, context.now)
                .map_err(|error| spelled(error, context.version, 2))
        } else {
            Err(Error::OperationNotAttempted)
        };
        let mut answers = Vec::new();
        for topic in topics {
            let partitions = topic.partitions.iter().map(|index| {
                let error = if all_exist {
                    code(&result)
                } else {
                    let known = self.partition(&topic.name, *index);
                    known.map_or_else(|error| error.code(), |_| code(&result))
                };
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*index)
                    .with_partition_error_code(error)
            });
            let partitions = partitions.collect();
            answers.push(
                AddPartitionsToTxnTopicResult::default()
                    .with_name(topic.name)
                    .with_results_by_partition(partitions),
            );
        }
        AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(answers)
    }

    pub(super) fn add_offsets(
        &mut self,
        request: AddOffsetsToTxnRequest,
        context: &Context,
    ) -> AddOffsetsToTxnResponse {
        let group = Participant::Group(request.group_id.to_string());
        let (producer, epoch) = (request.producer_id.0, request.producer_epoch);
        let id = request.transactional_id;
        let result = self
            .add(&id, producer, epoch, vec![group], context.now)
            .map_err(|error| spelled(error, context.version, 2));
        AddOffsetsToTxnResponse::default().with_error_code(code(&result))
    }

    fn add(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        participants: Vec<Participant>,
        now: i64,
    ) -> Result<(), Error> {
        let result = self
            .transactions
            .add(id, producer_id, epoch, participants, now);
        if let Some(expiry) = self.transactions.next_expiry() {
            self.wake_at(expiry);
        }
        result
    }

    pub(super) fn end_txn(&mut self, request: EndTxnRequest, context: &Context) -> EndTxnResponse {
        let (producer, epoch) = (request.producer_id.0, request.producer_epoch);
        let id = request.transactional_id;
        let (result, markers) = self
            .transactions
            .end(&id, producer, epoch, request.committed);
        if let Some(markers) = markers {
            self.decided(markers, context.now);
        }
        let result = result.map_err(|error| spelled(error, context.version, 2));
        EndTxnResponse::default().with_error_code(code(&result))
    }

    /// Schedules the markers of a decided transaction, in another order each time.
    pub(super) fn decided(&mut self, mut markers: Markers, now: i64) {
        let first = now + self.options.marker_delay_ms;
        let spread = self.options.marker_spread_ms;
        self.wake_at(first);
        if spread > 0 && markers.participants.len() > 1 {
            self.decisions += 1;
            let by = self.decisions % markers.participants.len();
            markers.participants.rotate_left(by);
            for (participant, nth) in markers.participants.into_iter().zip(0..) {
                let participants = vec![participant];
                self.marking.push(Marking {
                    markers: Markers {
                        participants,
                        transactional_id: markers.transactional_id.clone(),
                        ..markers
                    },
                    due: first + nth * spread,
                });
            }
            return;
        }
        self.marking.push(Marking {
            markers,
            due: first,
        });
    }

    pub(super) fn write_due_markers(&mut self, now: i64) {
        let mut fetches = BTreeSet::new();
        let mut rest = Vec::new();
        for mut marking in std::mem::take(&mut self.marking) {
            if marking.due > now {
                rest.push(marking);
                continue;
            }
            let all = std::mem::take(&mut marking.markers.participants);
            let (held, free) = all.into_iter().partition(|it| self.is_held(it));
            let free: Vec<Participant> = free;
            for participant in &free {
                if let Participant::Partition(topic, partition) = participant {
                    self.fetches.collect(topic, *partition, &mut fetches);
                }
                self.write_marker(&marking.markers, participant, now);
                let id = &marking.markers.transactional_id;
                self.transactions.marked(id, participant);
            }
            self.transactions
                .complete(&marking.markers.transactional_id);
            marking.markers.participants = held;
            if !marking.markers.participants.is_empty() {
                rest.push(marking);
            }
        }
        self.marking = rest;
        self.answer_ready(fetches, now);
    }

    fn write_marker(&mut self, markers: &Markers, participant: &Participant, now: i64) {
        match participant {
            Participant::Partition(topic, partition) => {
                // A deleted topic needs no marker.
                if let Ok(log) = self.partition_mut(topic, *partition) {
                    let (id, epoch) = (markers.producer_id, markers.epoch);
                    let before = log.bytes();
                    log.mark(id, epoch, markers.commit, COORDINATOR_EPOCH, now);
                    self.bytes +=
                        self.partition(topic, *partition).map_or(0, |it| it.bytes()) - before;
                }
            }
            Participant::Group(group) => {
                if let Some(group) = self.groups.get_mut(group) {
                    let by = (markers.producer_id, markers.epoch);
                    group.offsets.decide(by, markers.commit);
                }
            }
        }
    }
}
