//! Fetch, and waiting fetches.

use std::collections::{BTreeMap, BTreeSet};

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
struct Waiting {
    ticket: Ticket,
    version: i16,
    deadline: i64,
    request: FetchRequest,
}

/// The fetches that wait, by arrival, by deadline and by partition. A record makes the broker look only at the fetches
/// of its partition, as in Kafka.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    arrivals: u64,
    all: BTreeMap<u64, Waiting>,
    deadlines: BTreeSet<(i64, u64)>,
    by_partition: BTreeMap<String, BTreeMap<i32, BTreeSet<u64>>>,
    /// Whether records were deleted, which may end any wait.
    recheck: bool,
}

impl Fetches {
    fn add(&mut self, waiting: Waiting) {
        self.arrivals += 1;
        let number = self.arrivals;
        for topic in &waiting.request.topics {
            let partitions = self.by_partition.entry(topic.topic.to_string());
            let partitions = partitions.or_default();
            for it in &topic.partitions {
                partitions.entry(it.partition).or_default().insert(number);
            }
        }
        self.deadlines.insert((waiting.deadline, number));
        self.all.insert(number, waiting);
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.all.remove(&number)?;
        self.deadlines.remove(&(waiting.deadline, number));
        for topic in &waiting.request.topics {
            let Some(partitions) = self.by_partition.get_mut(topic.topic.as_str()) else {
                continue;
            };
            for it in &topic.partitions {
                if let Some(numbers) = partitions.get_mut(&it.partition) {
                    numbers.remove(&number);
                }
            }
        }
        Some(waiting)
    }

    /// Returns the fetches that are due.
    fn due(&self, now: i64) -> BTreeSet<u64> {
        let due = self.deadlines.range(..=(now, u64::MAX));
        due.map(|(_, number)| *number).collect()
    }

    /// Returns the time of the next deadline.
    pub(super) fn next_deadline(&self) -> Option<i64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Adds the numbers of the fetches of a partition.
    pub(super) fn collect(&self, topic: &str, partition: i32, into: &mut BTreeSet<u64>) {
        let partitions = self.by_partition.get(topic);
        into.extend(
            partitions
                .and_then(|it| it.get(&partition))
                .into_iter()
                .flatten(),
        );
    }

    /// Notes that partitions have changed without an append.
    pub(super) fn recheck(&mut self) {
        self.recheck = true;
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
        self.fetches.add(Waiting {
            ticket: context.ticket,
            version: context.version,
            deadline,
            request,
        });
        self.wake_at(deadline);
        Reply::Held
    }

    /// Responds to the waiting fetches that are due. After a deletion of records, it also responds to those that have
    /// something to read.
    pub(super) fn answer_fetches(&mut self, now: i64) {
        let due = match std::mem::take(&mut self.fetches.recheck) {
            true => self.fetches.all.keys().copied().collect(),
            false => self.fetches.due(now),
        };
        self.answer_ready(due, now);
    }

    /// Responds to these waiting fetches, if they have enough records or have waited long enough.
    pub(super) fn answer_ready(&mut self, numbers: BTreeSet<u64>, now: i64) {
        for number in numbers {
            let Some(waiting) = self.fetches.all.get(&number) else {
                continue;
            };
            if waiting.deadline > now && !self.is_ready(&waiting.request) {
                continue;
            }
            let Some(waiting) = self.fetches.remove(number) else {
                continue;
            };
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

/// Checks the epoch of a request. There is only one leader, of epoch 0.
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
