//! Produce, Fetch and ListOffsets in short.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{BrokerId, FetchRequest, ListOffsetsRequest, ProduceRequest};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, Record, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};

use crate::world::{World, topic_name, transactional_id};

/// The version that librdkafka 2.12.1 sends.
const PRODUCE: i16 = 10;
const FETCH: i16 = 11;
const LIST_OFFSETS: i16 = 7;

/// A batch to be produced.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Producer id, epoch, first sequence.
    pub producer: Option<(i64, i16, i32)>,
    /// Of a transaction.
    pub transactional: bool,
    /// Key, value, timestamp.
    pub records: Vec<(Option<String>, Option<String>, i64)>,
}

impl Batch {
    /// Plain records, `k=v`; `k` alone is a tombstone and `=v` has no key.
    pub fn of(records: &[&str]) -> Batch {
        // Not a number from long ago: Kafka begins another segment when a marker is written a week
        // later, and a fetch reads one segment.
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

    /// Plain records with these timestamps.
    pub fn at(times: &[i64]) -> Batch {
        let record = |time: &i64| (Some("k".to_owned()), Some("v".to_owned()), *time);
        Batch {
            producer: None,
            transactional: false,
            records: times.iter().map(record).collect(),
        }
    }

    /// Of an idempotent producer.
    pub fn by(mut self, producer_id: i64, epoch: i16, sequence: i32) -> Batch {
        self.producer = Some((producer_id, epoch, sequence));
        self
    }

    /// Within a transaction.
    pub fn in_transaction(mut self) -> Batch {
        self.transactional = true;
        self
    }

    /// As it goes over the wire.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn encode(&self) -> Result<Bytes> {
        let (producer_id, producer_epoch, sequence) = self.producer.unwrap_or((-1, -1, -1));
        let records = self.records.iter().enumerate().map(|(index, it)| Record {
            transactional: self.transactional,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            producer_id,
            producer_epoch,
            timestamp_type: TimestampType::Creation,
            offset: index as i64,
            // The encoder makes one batch of what is in sequence, -1 for none included.
            sequence: sequence + index as i32,
            timestamp: it.2,
            key: it.0.clone().map(Bytes::from),
            value: it.1.clone().map(Bytes::from),
            headers: IndexMap::new(),
        });
        let records: Vec<Record> = records.collect();
        let options = RecordEncodeOptions {
            version: 2,
            compression: Compression::None,
        };
        let mut out = BytesMut::new();
        RecordBatchEncoder::encode(&mut out, records.iter(), &options)?;
        Ok(out.freeze())
    }
}

/// What a fetch of one partition answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The partition's error.
    pub error: i16,
    /// High watermark.
    pub high: i64,
    /// Last stable offset.
    pub stable: i64,
    /// Log start offset.
    pub start: i64,
    /// Aborted transactions: producer id and first offset, in order of the offsets.
    pub aborted: Vec<(i64, i64)>,
    /// Offset and `k=v` of data records; markers are `commit` or `abort`.
    pub records: Vec<(i64, String)>,
    /// As they came.
    pub bytes: Bytes,
}

impl Seen {
    /// What a client that reads committed records would hand out.
    pub fn committed(&self) -> Vec<(i64, String)> {
        self.records
            .iter()
            .filter(|(_, value)| value != "commit" && value != "abort")
            .cloned()
            .collect()
    }

    /// The records' offsets.
    pub fn offsets(&self) -> Vec<i64> {
        self.records.iter().map(|(offset, _)| *offset).collect()
    }
}

impl World {
    /// Produces to partition 0: error code and base offset.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn produce(&mut self, topic: &str, batch: &Batch) -> Result<(i16, i64)> {
        self.produce_to(topic, 0, batch, None)
    }

    /// Produces: error code and base offset.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn produce_to(
        &mut self,
        topic: &str,
        partition: i32,
        batch: &Batch,
        id: Option<&str>,
    ) -> Result<(i16, i64)> {
        self.produce_bytes(topic, partition, batch.encode()?, id, -1)
    }

    /// Produces what may not be a batch at all.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn produce_bytes(
        &mut self,
        topic: &str,
        partition: i32,
        records: Bytes,
        id: Option<&str>,
        acks: i16,
    ) -> Result<(i16, i64)> {
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(records));
        let topic = TopicProduceData::default()
            .with_name(topic_name(topic))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(id.map(transactional_id))
            .with_acks(acks)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![topic]);
        let answer = self.call(PRODUCE, &request)?;
        let topic = answer.responses.first().context("no topic")?;
        let it = topic.partition_responses.first().context("no partition")?;
        Ok((it.error_code, it.base_offset))
    }

    /// Reads partition 0 from an offset on, uncommitted records too.
    ///
    /// # Errors
    /// When there is no answer, or it cannot be understood.
    pub fn read(&mut self, topic: &str, offset: i64) -> Result<Seen> {
        self.read_all(topic, offset, 0)
    }

    /// Reads partition 0 from an offset on, only up to the last stable offset.
    ///
    /// # Errors
    /// When there is no answer, or it cannot be understood.
    pub fn read_stable(&mut self, topic: &str, offset: i64) -> Result<Seen> {
        self.read_all(topic, offset, 1)
    }

    /// A fetch may give less than there is (Kafka does, just behind a marker): then another one is made.
    fn read_all(&mut self, topic: &str, offset: i64, isolation: i8) -> Result<Seen> {
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

    /// Fetch of one partition, without waiting.
    ///
    /// # Errors
    /// When there is no answer, or it cannot be understood.
    pub fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        isolation: i8,
        max_bytes: i32,
    ) -> Result<Seen> {
        let partition = FetchPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(max_bytes);
        let topic = FetchTopic::default()
            .with_topic(topic_name(topic))
            .with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(0)
            .with_min_bytes(1)
            .with_max_bytes(64 << 20)
            .with_isolation_level(isolation)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
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

    /// ListOffsets of partition 0: error code, offset, timestamp.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn offset_at(
        &mut self,
        topic: &str,
        timestamp: i64,
        isolation: i8,
    ) -> Result<(i16, i64, i64)> {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(0)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation)
            .with_topics(vec![topic]);
        let answer = self.call(LIST_OFFSETS, &request)?;
        let topic = answer.topics.first().context("no topic")?;
        let it = topic.partitions.first().context("no partition")?;
        Ok((it.error_code, it.offset, it.timestamp))
    }
}

/// The records from an offset on.
fn decode(mut bytes: Bytes, from: i64) -> Result<Vec<(i64, String)>> {
    let mut all = Vec::new();
    for set in RecordBatchDecoder::decode_all(&mut bytes)? {
        for record in set.records.into_iter().filter(|it| it.offset >= from) {
            let as_text =
                |it: Option<Bytes>| it.map(|it| String::from_utf8_lossy(&it).into_owned());
            let what = if record.control {
                let key = record.key.unwrap_or_default();
                match key.last() {
                    Some(1) => "commit".to_owned(),
                    _ => "abort".to_owned(),
                }
            } else {
                match (as_text(record.key), as_text(record.value)) {
                    (Some(key), Some(value)) => format!("{key}={value}"),
                    (Some(key), None) => key,
                    (None, value) => format!("={}", value.unwrap_or_default()),
                }
            };
            all.push((record.offset, what));
        }
    }
    Ok(all)
}
