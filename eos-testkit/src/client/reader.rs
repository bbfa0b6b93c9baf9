//! The fetches of a consumer.
//!
//! One fetch at a time covers all partitions without records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eos_client::{ClientError, SourceEvent};
use eos_protocol::{CallSite, Offset, TopicName, TopicPartition, code};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, ResponseKind};
use kafka_wire::batch::{Record, visible};
use kafka_wire::requests::topic_name;

use super::call::Call;
use super::fabric::Wire;
use super::look::Look;
use super::network::Line;

/// `fetch.max.bytes`.
const MOST_BYTES: i32 = 50 << 20;
/// `fetch.wait.max.ms`.
const WAIT_MS: i32 = 50;
const READ_COMMITTED: i8 = 1;

/// An assigned partition.
#[derive(Debug)]
struct Place {
    /// The next offset to fetch.
    next: i64,
    /// The next offset for the application, from a record, an assignment or a seek.
    taken: i64,
    waiting: VecDeque<Record>,
    /// The last stable offset and the high watermark, as of the last fetch.
    ends: Option<(i64, i64)>,
    /// Fetching has stopped, because an offset is out of range.
    stopped: bool,
}

impl Place {
    fn at(offset: Offset) -> Place {
        Place {
            next: offset.get(),
            taken: offset.get(),
            waiting: VecDeque::new(),
            ends: None,
            stopped: false,
        }
    }
}

/// A fetch that is under way.
#[derive(Debug)]
struct Fetching {
    call: Call,
    asked: BTreeMap<TopicPartition, i64>,
    /// [`Reader::changes`] and [`Reader::foreign`] at the last comparison with the wanted partitions.
    compared: (u64, Vec<TopicName>),
}

/// The records of a consumer's partitions.
#[derive(Debug, Default)]
pub(super) struct Reader {
    places: BTreeMap<TopicPartition, Place>,
    /// The topics of these partitions.
    topics: BTreeSet<TopicName>,
    /// The number of changes of the wanted partitions. Without one, a fetch under way still fits.
    changes: u64,
    fetch: Option<Fetching>,
    events: VecDeque<SourceEvent>,
}

impl Reader {
    pub(super) fn assign(&mut self, at: &[(TopicPartition, Offset)]) {
        for (partition, offset) in at {
            self.places.insert(partition.clone(), Place::at(*offset));
            self.topics.insert(partition.topic.clone());
        }
        self.changes += 1;
    }

    pub(super) fn unassign(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            self.places.remove(partition);
        }
        self.topics = self.places.keys().map(|it| it.topic.clone()).collect();
        self.changes += 1;
    }

    /// Seeks to the offset and drops fetched records.
    pub(super) fn seek(&mut self, to: &[(TopicPartition, Offset)]) {
        for (partition, offset) in to {
            if let Some(place) = self.places.get_mut(partition) {
                *place = Place::at(*offset);
            }
        }
        self.changes += 1;
    }

    pub(super) fn is_assigned(&self, partition: &TopicPartition) -> bool {
        self.places.contains_key(partition)
    }

    pub(super) fn next_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    pub(super) fn take(&mut self, from: &TopicPartition, max: usize) -> Vec<Record> {
        let Some(place) = self.places.get_mut(from) else {
            return Vec::new();
        };
        let count = max.min(place.waiting.len());
        let taken: Vec<Record> = place.waiting.drain(..count).collect();
        if let Some(last) = taken.last() {
            place.taken = last.offset + 1;
            self.changes += 1;
        }
        taken
    }

    /// The last stable offset, once all records before it were taken.
    pub(super) fn drained(&self, of: &TopicPartition) -> Option<i64> {
        let place = self.places.get(of)?;
        let (stable, _) = place.ends?;
        (place.waiting.is_empty() && place.next >= stable).then_some(stable)
    }

    /// See [`Source::end`](eos_client::Source::end).
    pub(super) fn end(&self, of: &TopicPartition) -> Option<i64> {
        let place = self.places.get(of)?;
        let (stable, _) = place.ends?;
        let here = place.waiting.is_empty() && place.next >= stable;
        Some(if here { place.taken } else { stable })
    }

    /// The number of records held back behind the last stable offset.
    pub(super) fn held_back(&self, of: &TopicPartition) -> Option<u64> {
        self.drained(of)?;
        let (stable, high) = self.places.get(of)?.ends?;
        u64::try_from(high - stable).ok()
    }

    /// The high watermark, as of the last fetch.
    pub(super) fn high_watermark(&self, of: &TopicPartition) -> Option<i64> {
        let (_, high) = self.places.get(of)?.ends?;
        Some(high)
    }

    /// Takes fetched records and fetches more.
    pub(super) fn tick(&mut self, look: &Look, wire: &mut Wire<'_>) {
        if let Some(mut fetching) = self.fetch.take() {
            match fetching.call.poll(wire) {
                Some(ResponseKind::Fetch(answer)) => {
                    for topic in answer.responses {
                        if look.is_foreign(&topic.topic, wire) {
                            continue;
                        }
                        for data in topic.partitions {
                            self.take_in(&topic.topic, data, &fetching.asked);
                        }
                    }
                }
                _ if self.still_wants(&mut fetching, look, wire) => self.fetch = Some(fetching),
                // The request does not fit the wanted partitions any more; its response is discarded.
                _ => fetching.call.abandon(wire),
            }
        }
        if self.fetch.is_none() {
            let asked = self.wants(look, wire);
            if !asked.is_empty() {
                let mut call = Call::new(Line::Data, request(&asked, wire.fetch_bytes()));
                let _later = call.poll(wire);
                self.fetch = Some(Fetching {
                    call,
                    asked,
                    compared: (self.changes, self.foreign(look, wire)),
                });
            }
        }
    }

    /// Whether a fetch under way still fits the wanted partitions.
    fn still_wants(&self, fetching: &mut Fetching, look: &Look, wire: &Wire<'_>) -> bool {
        let compared = (self.changes, self.foreign(look, wire));
        if compared == fetching.compared {
            return true;
        }
        fetching.compared = compared;
        self.wants(look, wire) == fetching.asked
    }

    /// The topics whose records are those of another topic.
    fn foreign(&self, look: &Look, wire: &Wire<'_>) -> Vec<TopicName> {
        let foreign = self.topics.iter();
        let foreign = foreign.filter(|it| look.is_foreign(it.as_str(), wire));
        foreign.cloned().collect()
    }

    /// The partitions and offsets of the next fetch.
    fn wants(&self, look: &Look, wire: &Wire<'_>) -> BTreeMap<TopicPartition, i64> {
        let hungry = self.places.iter();
        let hungry = hungry.filter(|(_, place)| place.waiting.is_empty() && !place.stopped);
        let hungry = hungry.filter(|(it, _)| !look.is_foreign(it.topic.as_str(), wire));
        hungry
            .map(|(partition, place)| (partition.clone(), place.next))
            .collect()
    }

    fn take_in(&mut self, topic: &str, data: PartitionData, asked: &BTreeMap<TopicPartition, i64>) {
        let Ok(number) = eos_protocol::Partition::new(data.partition_index) else {
            return;
        };
        let partition = TopicPartition::new(topic, number);
        let from = asked.get(&partition).copied();
        let Some(place) = self.places.get_mut(&partition) else {
            return;
        };
        if from != Some(place.next) {
            return;
        }
        self.changes += 1;
        match i32::from(data.error_code) {
            0 => {}
            code::OFFSET_OUT_OF_RANGE => {
                place.stopped = true;
                self.events.push_back(SourceEvent::OutOfRange {
                    partition,
                    asked: Offset::new(place.next).ok(),
                });
                return;
            }
            // The partition is fetched again.
            _ => return,
        }
        place.ends = Some((data.last_stable_offset, data.high_watermark));
        let mut found = Vec::new();
        match visible(data, place.next, |record| found.push(record)) {
            Ok(next) => {
                place.waiting.extend(found);
                place.next = next;
            }
            Err(why) => {
                let error = ClientError::new(CallSite::Take, code::LOCAL_BAD_MSG, why.to_string());
                self.events.push_back(SourceEvent::Failed(error));
            }
        }
    }
}

fn request(asked: &BTreeMap<TopicPartition, i64>, bytes: i32) -> FetchRequest {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (partition, next) in asked {
        let it = FetchPartition::default()
            .with_partition(partition.partition.get())
            .with_fetch_offset(*next)
            .with_partition_max_bytes(bytes);
        match topics.last_mut() {
            Some(topic) if topic.topic.as_str() == partition.topic.as_str() => {
                topic.partitions.push(it);
            }
            _ => {
                let topic = FetchTopic::default()
                    .with_topic(topic_name(partition.topic.as_str()))
                    .with_partitions(vec![it]);
                topics.push(topic);
            }
        }
    }
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(WAIT_MS)
        .with_min_bytes(1)
        .with_max_bytes(MOST_BYTES)
        .with_isolation_level(READ_COMMITTED)
        .with_session_epoch(-1)
        .with_topics(topics)
}
