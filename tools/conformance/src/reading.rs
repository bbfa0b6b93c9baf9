//! Short forms of Produce, Fetch and ListOffsets.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_wire::batch::{BatchBuilder, Batches, ProducerIdentity};
use kafka_wire::requests;

use crate::world::World;

/// The version that librdkafka 2.12.1 sends.
const PRODUCE: i16 = 10;
const FETCH: i16 = 11;
const LIST_OFFSETS: i16 = 7;

/// A batch to produce.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The producer id, the epoch, and the first sequence.
    pub producer: Option<(i64, i16, i32)>,
    /// Whether the batch belongs to a transaction.
    pub transactional: bool,
    /// The key, the value and the timestamp of each record.
    pub records: Vec<(Option<String>, Option<String>, i64)>,
}

impl Batch {
    /// Creates a batch of plain records, `k=v`; `k` alone is a tombstone and `=v` has no key.
    pub fn of(records: &[&str]) -> Batch {
        // The current time, because Kafka starts a new segment for a marker that is a week newer than the records, and
        // a fetch reads only one segment.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |it| it.as_millis() as i64);
        let split = |record: &&str| match record.split_once('=') {
            Some(("", value)) => (None, Some(value.to_owned()), now),
            Some((key, value)) => (Some(key.to_owned()), Some(value.to_owned()), now),
            None => (Some((*record).to_owned()), None, now),
        };
        Batch {
            producer: None,
            transactional: false,
            records: records.iter().map(split).collect(),
        }
    }

    /// Creates a batch of plain records with these timestamps.
    pub fn at(times: &[i64]) -> Batch {
        let record = |time: &i64| (Some("k".to_owned()), Some("v".to_owned()), *time);
        Batch {
            producer: None,
            transactional: false,
            records: times.iter().map(record).collect(),
        }
    }

    /// Makes it a batch of an idempotent producer.
    pub fn by(mut self, producer_id: i64, epoch: i16, sequence: i32) -> Batch {
        self.producer = Some((producer_id, epoch, sequence));
        self
    }

    /// Makes it a batch of a transaction.
    pub fn in_transaction(mut self) -> Batch {
        self.transactional = true;
        self
    }

    /// Returns the batch in the wire format.
    pub fn encode(&self) -> Bytes {
        let mut batch = BatchBuilder::new(128);
        for (key, value, timestamp) in &self.records {
            let (key, value) = (key.as_deref(), value.as_deref());
            let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
            batch.push(*timestamp, key, value, std::iter::empty());
        }
        let (id, epoch, sequence) = self.producer.unwrap_or((-1, -1, -1));
        let producer = ProducerIdentity { id, epoch };
        let batch = batch.close(producer, sequence, self.transactional);
        batch.into_bytes()
    }
}

/// The response to a fetch of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The error code of the partition.
    pub error: i16,
    /// The high watermark.
    pub high: i64,
    /// The last stable offset.
    pub stable: i64,
    /// The log start offset.
    pub start: i64,
    /// The producer id and the first offset of each aborted transaction, in the order of the offsets.
    pub aborted: Vec<(i64, i64)>,
    /// The offset and `k=v` of each data record. Markers are `commit` or `abort`.
    pub records: Vec<(i64, String)>,
    /// The encoded records.
    pub bytes: Bytes,
}

impl Seen {
    /// Returns the records without the markers.
    pub fn committed(&self) -> Vec<(i64, String)> {
        self.records
            .iter()
            .filter(|(_, value)| value != "commit" && value != "abort")
            .cloned()
            .collect()
    }

    /// Returns the offsets of the records.
    pub fn offsets(&self) -> Vec<i64> {
        self.records.iter().map(|(offset, _)| *offset).collect()
    }
}

impl World {
    /// Produces to partition 0. Returns the error code and the base offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn produce(&self, topic: &str, batch: &Batch) -> Result<(i16, i64)> {
        self.produce_to(topic, 0, batch, None)
    }

    /// Produces plain records to partition 0. Returns the error code and the base offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn put(&self, topic: &str, records: &[&str]) -> Result<(i16, i64)> {
        self.produce(topic, &Batch::of(records))
    }

    /// Produces to a partition. Returns the error code and the base offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn produce_to(
        &self,
        topic: &str,
        partition: i32,
        batch: &Batch,
        id: Option<&str>,
    ) -> Result<(i16, i64)> {
        self.produce_bytes(topic, partition, batch.encode(), id, -1)
    }

    /// Produces bytes that need not be a valid batch. Returns the error code and the base offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn produce_bytes(
        &self,
        topic: &str,
        partition: i32,
        records: Bytes,
        id: Option<&str>,
        acks: i16,
    ) -> Result<(i16, i64)> {
        let request = requests::produce(topic, partition, records, id, acks);
        let answer = self.call(PRODUCE, &request)?;
        let topic = answer.responses.first().context("no topic")?;
        let it = topic.partition_responses.first().context("no partition")?;
        Ok((it.error_code, it.base_offset))
    }

    /// Reads partition 0 from an offset, with uncommitted records.
    ///
    /// # Errors
    /// When the broker returns no response, or the response cannot be decoded.
    pub fn read(&self, topic: &str, offset: i64) -> Result<Seen> {
        self.read_all(topic, offset, 0)
    }

    /// Reads partition 0 from an offset up to the last stable offset.
    ///
    /// # Errors
    /// When the broker returns no response, or the response cannot be decoded.
    pub fn read_stable(&self, topic: &str, offset: i64) -> Result<Seen> {
        self.read_all(topic, offset, 1)
    }

    /// Compares the stable records of partition 0, and returns the fetched records.
    ///
    /// # Errors
    /// As [`World::read_stable`].
    pub fn reads(&self, topic: &str, expected: &[(i64, &str)]) -> Result<Seen> {
        let seen = self.read_stable(topic, 0)?;
        self.same("records", &seen.records, &owned(expected));
        Ok(seen)
    }

    /// Repeats the fetch while it does not reach the end, because Kafka returns fewer records just after a marker.
    fn read_all(&self, topic: &str, offset: i64, isolation: i8) -> Result<Seen> {
        for _ in 0..100 {
            let seen = self.fetch(topic, 0, offset, isolation, 1 << 20)?;
            let end = if isolation == 0 {
                seen.high
            } else {
                seen.stable
            };
            let reached = seen.records.last().map_or(offset, |it| it.0 + 1);
            if seen.error != 0 || reached >= end {
                return Ok(seen);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.fetch(topic, 0, offset, isolation, 1 << 20)
    }

    /// Fetches one partition, without waiting for records.
    ///
    /// # Errors
    /// When the broker returns no response, or the response cannot be decoded.
    pub fn fetch(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        isolation: i8,
        max_bytes: i32,
    ) -> Result<Seen> {
        let request = requests::fetch(topic, partition, offset, isolation, 0, max_bytes);
        let answer = self.call(FETCH, &request)?;
        ensure!(answer.error_code == 0, "fetch: {}", answer.error_code);
        let topic = answer.responses.first().context("no topic")?;
        let it = topic.partitions.first().context("no partition")?;
        let bytes = it.records.clone().unwrap_or_default();
        let aborted = it.aborted_transactions.iter().flatten();
        let mut aborted: Vec<_> = aborted
            .map(|it| (it.producer_id.0, it.first_offset))
            .collect();
        aborted.sort_by_key(|it| it.1);
        Ok(Seen {
            error: it.error_code,
            high: it.high_watermark,
            stable: it.last_stable_offset,
            start: it.log_start_offset,
            aborted,
            records: decode(bytes.clone(), offset)?,
            bytes,
        })
    }

    /// Sends ListOffsets for partition 0. Returns the error code, the offset and the timestamp.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn offset_at(&self, topic: &str, timestamp: i64, isolation: i8) -> Result<(i16, i64, i64)> {
        let request = requests::list_offsets(topic, 0, timestamp, isolation);
        let answer = self.call(LIST_OFFSETS, &request)?;
        let topic = answer.topics.first().context("no topic")?;
        let it = topic.partitions.first().context("no partition")?;
        Ok((it.error_code, it.offset, it.timestamp))
    }
}

/// Converts records to those of [`Seen`].
pub(crate) fn owned(records: &[(i64, &str)]) -> Vec<(i64, String)> {
    let owned = |(at, it): &(i64, &str)| (*at, (*it).to_owned());
    records.iter().map(owned).collect()
}

/// Decodes the records from an offset on.
fn decode(bytes: Bytes, from: i64) -> Result<Vec<(i64, String)>> {
    let as_text = |it: Bytes| String::from_utf8_lossy(&it).into_owned();
    let mut all = Vec::new();
    for batch in Batches(bytes) {
        let batch = batch?;
        let marker = batch.marker()?;
        for record in batch.records() {
            let record = record?;
            let what = match (marker, record.key.map(as_text), record.value.map(as_text)) {
                (Some(true), ..) => "commit".to_owned(),
                (Some(false), ..) => "abort".to_owned(),
                (None, Some(key), Some(value)) => format!("{key}={value}"),
                (None, Some(key), None) => key,
                (None, None, value) => format!("={}", value.unwrap_or_default()),
            };
            all.push((record.offset, what));
        }
    }
    all.retain(|(offset, _)| *offset >= from);
    Ok(all)
}
