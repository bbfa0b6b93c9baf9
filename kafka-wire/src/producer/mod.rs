//! An idempotent producer: records are buffered per partition and sent in rounds.

mod round;
mod transactional;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use bytes::Bytes;

use self::round::InFlight;
use crate::batch::{BatchBuilder, HEADER as EMPTY_BATCH, ProducerIdentity};
use crate::client::{Client, Node};
use crate::connection::check;
use crate::requests;

pub use transactional::{End, TransactionalProducer};

/// A batch is closed at this size, well below the broker's default limit of 1 MiB.
const BATCH_BYTES: usize = 256 << 10;
/// A round begins when this much is buffered.
const ROUND_BYTES: usize = 1 << 20;
/// How long a producer tries without any batch being acknowledged.
const PATIENCE: Duration = Duration::from_secs(60);

/// An idempotent producer: acks from all replicas, retries that cannot double or reorder.
///
/// [`Producer::send`] buffers and only [`Producer::flush`] promises: what is not flushed when the
/// producer is dropped may be lost.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    identity: ProducerIdentity,
    patience: Duration,
    topics: Vec<Topic>,
    in_flight: Vec<InFlight>,
    /// Bytes waiting, in open and closed batches.
    buffered: usize,
    acknowledged: u64,
    retried: u64,
    stalled: Option<Instant>,
}

#[derive(Debug)]
struct Topic {
    name: String,
    partitions: Vec<Queue>,
}

/// What waits for one partition.
#[derive(Debug, Default)]
struct Queue {
    open: Option<BatchBuilder>,
    closed: VecDeque<Closed>,
    next_sequence: i32,
}

#[derive(Debug)]
struct Closed {
    bytes: Bytes,
    count: i32,
}

impl Producer {
    /// Connects and takes a producer id.
    ///
    /// # Errors
    /// When no broker of `bootstrap` answers.
    pub fn new(bootstrap: &str) -> Result<Producer> {
        Producer::with_patience(bootstrap, PATIENCE)
    }

    /// As [`Producer::new`], giving up when nothing is acknowledged for `patience`.
    ///
    /// # Errors
    /// When no broker of `bootstrap` answers.
    pub fn with_patience(bootstrap: &str, patience: Duration) -> Result<Producer> {
        let mut client = Client::connect(bootstrap, patience)?;
        let request = requests::init_producer_id(None, i32::MAX, requests::NO_PRODUCER);
        let identity = client.retry("take a producer id", |client, deadline| {
            let answer = client.exchange(Node::Any, &request, deadline)?;
            check(answer.error_code, || "InitProducerId".to_owned())?;
            Ok(ProducerIdentity {
                id: answer.producer_id.0,
                epoch: answer.producer_epoch,
            })
        })?;
        Ok(Producer {
            client,
            identity,
            patience,
            topics: Vec::new(),
            in_flight: Vec::new(),
            buffered: 0,
            acknowledged: 0,
            retried: 0,
            stalled: None,
        })
    }

    /// Buffers a record; sends when enough is buffered.
    ///
    /// # Errors
    /// When the topic or the partition does not exist, or when earlier records cannot be delivered.
    pub fn send(
        &mut self,
        topic: &str,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, &[u8])],
        timestamp_ms: i64,
    ) -> Result<()> {
        let identity = self.identity;
        let topic = self.topic(topic)?;
        let queue = usize::try_from(partition)
            .ok()
            .and_then(|partition| topic.partitions.get_mut(partition));
        let Some(queue) = queue else {
            let (name, count) = (&topic.name, topic.partitions.len());
            return Err(anyhow!(
                "{name} has {count} partitions, there is no {partition}"
            ));
        };
        let batch = queue
            .open
            .get_or_insert_with(|| BatchBuilder::new(BATCH_BYTES / 4));
        let before = batch.bytes();
        let headers = headers.iter().map(|(name, value)| (*name, Some(*value)));
        batch.push(timestamp_ms, key, value, headers);
        let (after, full) = (batch.bytes(), batch.bytes() >= BATCH_BYTES);
        if full {
            queue.close(identity);
        }
        self.buffered += after - before;
        if self.buffered >= ROUND_BYTES {
            self.round()?;
        }
        Ok(())
    }

    /// Returns when everything sent so far is acknowledged by all in-sync replicas.
    ///
    /// # Errors
    /// When the broker refuses a batch for good, or nothing is acknowledged for the patience.
    pub fn flush(&mut self) -> Result<()> {
        loop {
            self.round()?;
            if self.in_flight.is_empty() && self.buffered == 0 {
                return Ok(());
            }
        }
    }

    /// How many records are acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many batches had to be sent again: whether a fault was felt.
    pub fn retried(&self) -> u64 {
        self.retried
    }

    /// How many partitions a topic has.
    ///
    /// # Errors
    /// When the topic does not exist or no broker answers in time.
    pub fn partitions(&mut self, topic: &str) -> Result<i32> {
        Ok(self.topic(topic)?.partitions.len() as i32)
    }

    /// The queues of a topic, asked for when it is first used.
    fn topic(&mut self, name: &str) -> Result<&mut Topic> {
        let known = self.topics.iter().position(|topic| topic.name == name);
        let index = match known {
            Some(index) => index,
            None => self.learn(name)?,
        };
        Ok(&mut self.topics[index])
    }

    fn learn(&mut self, name: &str) -> Result<usize> {
        let what = format!("produce to {name}");
        let count = self
            .client
            .retry(&what, |client, deadline| client.partitions(name, deadline))?;
        self.topics.push(Topic {
            name: name.to_owned(),
            partitions: (0..count).map(|_| Queue::default()).collect(),
        });
        Ok(self.topics.len() - 1)
    }
}

impl Closed {
    /// Its size without the header, which is how `buffered` counts.
    fn records_bytes(&self) -> usize {
        self.bytes.len() - EMPTY_BATCH
    }
}

impl Queue {
    /// Closes the open batch: from here on its bytes and sequence numbers stay as they are.
    fn close(&mut self, identity: ProducerIdentity) {
        let Some(open) = self.open.take() else {
            return;
        };
        let count = open.count();
        let batch = open.close(identity, self.next_sequence, false);
        let bytes = batch.into_bytes();
        self.closed.push_back(Closed { bytes, count });
        // Sequence numbers wrap to zero after the largest i32.
        self.next_sequence = self.next_sequence.wrapping_add(count) & i32::MAX;
    }
}
