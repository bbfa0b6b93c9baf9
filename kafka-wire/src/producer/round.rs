//! One round of requests to the leaders.
//!
//! Each leader receives one request with at most one batch per partition. The next round begins after every request of
//! the last round has a response. So a batch that must be sent again is always the latest of its partition, which keeps
//! the order. The leader recognises a duplicate batch by its sequence number.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};

use super::{Closed, Producer};
use crate::client::EXCHANGE;
use crate::connection::{Failure, Sent, check};
use crate::requests::{BROKER_TIMEOUT_MS, topic_name};

/// The pause after a round in which something failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A request without a response yet.
#[derive(Debug)]
pub(super) struct InFlight {
    broker: i32,
    sent: Sent<ProduceRequest>,
    batches: Vec<Addressed>,
}

/// A batch and its partition, by index in the producer's lists.
#[derive(Debug)]
struct Addressed {
    topic: usize,
    partition: usize,
    batch: Closed,
}

impl Producer {
    /// Handles the responses of the last round, and begins the next round with all buffered batches.
    pub(super) fn round(&mut self) -> Result<()> {
        let settled = self.settle();
        match settled.and_then(|()| self.dispatch()) {
            Ok(()) => Ok(()),
            Err(Failure::Final(error)) => Err(error),
            Err(Failure::Retry(error)) => self.pause(error),
        }
    }

    /// Waits after a retriable failure, or fails if nothing has been acknowledged for too long.
    fn pause(&mut self, error: anyhow::Error) -> Result<()> {
        let since = *self.stalled.get_or_insert_with(Instant::now);
        if since.elapsed() > self.patience {
            let patience = self.patience;
            return Err(error.context(format!("produce: nothing acknowledged for {patience:?}")));
        }
        self.client.routes.forget();
        thread::sleep(PAUSE);
        Ok(())
    }

    fn dispatch(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (broker, batches) in self.next_batches(&mut outcome) {
            let request = self.request(&batches);
            let deadline = Instant::now() + EXCHANGE;
            let connection = self.client.connection(broker, deadline);
            match connection.and_then(|open| open.send(&request, deadline)) {
                Ok(sent) => self.in_flight.push(InFlight {
                    broker,
                    sent,
                    batches,
                }),
                Err(failure) => {
                    self.client.hang_up(broker);
                    batches.into_iter().for_each(|batch| self.put_back(batch));
                    worsen(&mut outcome, failure);
                }
            }
        }
        outcome
    }

    /// Removes the oldest batch of each partition, grouped by leader.
    fn next_batches(&mut self, outcome: &mut Result<(), Failure>) -> BTreeMap<i32, Vec<Addressed>> {
        let mut by_leader: BTreeMap<i32, Vec<Addressed>> = BTreeMap::new();
        let deadline = Instant::now() + EXCHANGE;
        for (topic, state) in self.topics.iter_mut().enumerate() {
            for (partition, queue) in state.partitions.iter_mut().enumerate() {
                queue.close(self.identity);
                let Some(batch) = queue.closed.pop_front() else {
                    continue;
                };
                match self.client.leader(&state.name, partition as i32, deadline) {
                    Ok(leader) => {
                        self.buffered -= batch.records_bytes();
                        by_leader.entry(leader).or_default().push(Addressed {
                            topic,
                            partition,
                            batch,
                        });
                    }
                    Err(failure) => {
                        queue.closed.push_front(batch);
                        worsen(outcome, failure);
                    }
                }
            }
        }
        by_leader
    }

    fn request(&self, batches: &[Addressed]) -> ProduceRequest {
        let mut topics: BTreeMap<usize, Vec<PartitionProduceData>> = BTreeMap::new();
        for addressed in batches {
            let data = PartitionProduceData::default()
                .with_index(addressed.partition as i32)
                .with_records(Some(addressed.batch.bytes.clone()));
            topics.entry(addressed.topic).or_default().push(data);
        }
        let topic = |(index, data): (usize, _)| {
            TopicProduceData::default()
                .with_name(topic_name(&self.topics[index].name))
                .with_partition_data(data)
        };
        ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(BROKER_TIMEOUT_MS)
            .with_topic_data(topics.into_iter().map(topic).collect())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for request in std::mem::take(&mut self.in_flight) {
            let deadline = Instant::now() + EXCHANGE;
            let connection = self.client.connection(request.broker, deadline);
            match connection.and_then(|open| open.receive(request.sent, deadline)) {
                Ok(answer) => self.take_answer(request.batches, &answer, &mut outcome),
                Err(failure) => {
                    self.client.hang_up(request.broker);
                    let batches = request.batches.into_iter();
                    batches.for_each(|batch| self.put_back(batch));
                    worsen(&mut outcome, failure);
                }
            }
        }
        outcome
    }

    fn take_answer(
        &mut self,
        batches: Vec<Addressed>,
        answer: &ProduceResponse,
        outcome: &mut Result<(), Failure>,
    ) {
        for addressed in batches {
            match verdict(
                &self.topics[addressed.topic].name,
                addressed.partition,
                answer,
            ) {
                Ok(()) => {
                    self.acknowledged += addressed.batch.count as u64;
                    self.stalled = None;
                }
                Err(failure) => {
                    self.put_back(addressed);
                    worsen(outcome, failure);
                }
            }
        }
    }

    /// Returns a batch to its queue, also after a final failure. The next flush must fail, too, while it is not
    /// acknowledged.
    fn put_back(&mut self, addressed: Addressed) {
        let queue = &mut self.topics[addressed.topic].partitions[addressed.partition];
        self.buffered += addressed.batch.records_bytes();
        self.retried += 1;
        queue.closed.push_front(addressed.batch);
    }
}

/// Returns the leader's result for one batch.
fn verdict(topic: &str, partition: usize, answer: &ProduceResponse) -> Result<(), Failure> {
    let of_topic = answer.responses.iter().filter(|t| t.name.as_str() == topic);
    let mut partitions = of_topic.flat_map(|topic| &topic.partition_responses);
    let Some(found) = partitions.find(|p| p.index as usize == partition) else {
        return Err(Failure::retry(format!(
            "the response lacks {topic}-{partition}"
        )));
    };
    // The leader already has the batch: an earlier acknowledgement was lost.
    if found.error_code == ResponseError::DuplicateSequenceNumber.code() {
        return Ok(());
    }
    let why = found.error_message.as_ref().map_or("", |why| why.as_str());
    check(found.error_code, || {
        format!("produce to {topic}-{partition}: {why}")
    })
}

/// Keeps the more serious of two failures. After a final failure, a retry would not help.
fn worsen(outcome: &mut Result<(), Failure>, failure: Failure) {
    if !matches!(outcome, Err(Failure::Final(_))) {
        *outcome = Err(failure);
    }
}
