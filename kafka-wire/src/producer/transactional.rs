//! A transactional producer for tests, driven step by step.
//!
//! A test uses it as another program that aborts, hangs with its transaction open, or returns as a zombie. It uses the
//! first generation of the protocol, as librdkafka does. Partitions are added one by one, and the epoch changes only
//! with [`TransactionalProducer::new`].

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_protocol::messages::ProduceRequest;

use crate::batch::{BatchBuilder, ProducerIdentity};
use crate::client::{Client, Node};
use crate::connection::check;
use crate::requests;

/// The maximum duration of one step, retries included.
const STEP: Duration = Duration::from_secs(30);

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The records become visible.
    Commit,
    /// The records stay hidden from read_committed.
    Abort,
}

/// A producer whose transactions are driven by the test.
///
/// Dropping it leaves its transaction open until the broker's timeout, like a crash.
#[derive(Debug)]
pub struct TransactionalProducer {
    client: Client,
    id: String,
    identity: ProducerIdentity,
    /// The next sequence number of each partition.
    sequences: HashMap<(String, i32), i32>,
    /// The partitions of the open transaction.
    added: Vec<(String, i32)>,
}

impl TransactionalProducer {
    /// Takes over a transactional id. Fences the producer that had it and aborts its open transaction.
    ///
    /// # Errors
    /// If the coordinator does not respond in time, or rejects the timeout.
    pub fn new(bootstrap: &str, id: &str, transaction_timeout: Duration) -> Result<Self> {
        let mut client = Client::connect(bootstrap, STEP)?;
        let timeout = transaction_timeout.as_millis() as i32;
        let request = requests::init_producer_id(Some(id), timeout, requests::NO_PRODUCER);
        let what = format!("initialize {id}");
        let identity = client.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Transaction(id), &request, deadline)?;
            check(answer.error_code, || "InitProducerId".to_owned())?;
            Ok(ProducerIdentity {
                id: answer.producer_id.0,
                epoch: answer.producer_epoch,
            })
        })?;
        Ok(TransactionalProducer {
            client,
            id: id.to_owned(),
            identity,
            sequences: HashMap::new(),
            added: Vec::new(),
        })
    }

    /// Returns the producer id that is in its records.
    pub fn producer_id(&self) -> i64 {
        self.identity.id
    }

    /// Writes one batch within the transaction, and returns its offset. The first batch begins the transaction.
    ///
    /// # Errors
    /// If the producer is fenced (`InvalidProducerEpoch`, `ProducerFenced`), or no response arrives in time.
    pub fn send(&mut self, topic: &str, partition: i32, records: &[(&str, &str)]) -> Result<i64> {
        self.add_partition(topic, partition)?;
        self.send_unannounced(topic, partition, records)
    }

    /// As [`TransactionalProducer::send`], but does not add the partition to the transaction at the coordinator. This
    /// is like a request that arrives after its transaction. No coordinator ends a transaction that begins so.
    ///
    /// # Errors
    /// See [`TransactionalProducer::send`]. Brokers that verify transactions reject it.
    pub fn send_unannounced(
        &mut self,
        topic: &str,
        partition: i32,
        records: &[(&str, &str)],
    ) -> Result<i64> {
        let place = (topic.to_owned(), partition);
        let sequence = self.sequences.get(&place).copied().unwrap_or(0);
        let request = self.produce_request(topic, partition, records, sequence);
        let what = format!("produce to {topic}-{partition} as {}", self.id);
        let offset = self.client.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Leader(topic, partition), &request, deadline)?;
            let mut partitions = answer.responses.iter().flat_map(|t| &t.partition_responses);
            let found = partitions
                .next()
                .context("response without the partition")?;
            check(found.error_code, || format!("{topic}-{partition}"))?;
            Ok(found.base_offset)
        })?;
        self.sequences
            .insert(place, sequence + records.len() as i32);
        Ok(offset)
    }

    /// Adds an offset of a group to the transaction. The producer is not a member of the group.
    ///
    /// # Errors
    /// See [`TransactionalProducer::send`].
    pub fn send_offset(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<()> {
        let add = requests::add_offsets(&self.id, self.identity, group);
        let place = (topic, partition);
        let commit = requests::txn_offset_commit(&self.id, self.identity, group, place, offset, "");
        let (id, what) = (&self.id, format!("add an offset of {group} as {}", self.id));
        self.client.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Transaction(id), &add, deadline)?;
            check(answer.error_code, || "AddOffsetsToTxn".to_owned())?;
            let answer = client.exchange(Node::Group(group), &commit, deadline)?;
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|p| check(p.error_code, || "TxnOffsetCommit".to_owned()))
        })
    }

    /// Ends the transaction.
    ///
    /// # Errors
    /// See [`TransactionalProducer::send`]. Without a response the outcome is unknown.
    pub fn end(&mut self, end: End) -> Result<()> {
        let request = requests::end_txn(&self.id, self.identity, end == End::Commit);
        let (id, what) = (&self.id, format!("end the transaction of {}", self.id));
        self.client.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Transaction(id), &request, deadline)?;
            check(answer.error_code, || "EndTxn".to_owned())
        })?;
        self.added.clear();
        Ok(())
    }

    fn add_partition(&mut self, topic: &str, partition: i32) -> Result<()> {
        let place = (topic.to_owned(), partition);
        if self.added.contains(&place) {
            return Ok(());
        }
        let partitions = [(topic, partition)];
        let request = requests::add_partitions(&self.id, self.identity, &partitions);
        let (id, what) = (&self.id, format!("add {topic}-{partition} as {}", self.id));
        self.client.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Transaction(id), &request, deadline)?;
            let topics = answer.results_by_topic_v3_and_below.iter();
            let mut partitions = topics.flat_map(|topic| &topic.results_by_partition);
            partitions
                .try_for_each(|p| check(p.partition_error_code, || "AddPartitionsToTxn".to_owned()))
        })?;
        self.added.push(place);
        Ok(())
    }

    fn produce_request(
        &self,
        topic: &str,
        partition: i32,
        records: &[(&str, &str)],
        sequence: i32,
    ) -> ProduceRequest {
        let mut batch = BatchBuilder::new(1 << 10);
        for (key, value) in records {
            let none = std::iter::empty();
            batch.push(now_ms(), Some(key.as_bytes()), Some(value.as_bytes()), none);
        }
        let batch = batch.close(self.identity, sequence, true);
        requests::produce(topic, partition, batch.into_bytes(), Some(&self.id), -1)
    }
}

/// Returns the time in milliseconds since the epoch.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
