//! An idempotent producer that buffers records and sends in rounds.

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

/// The size at which a batch is closed, in bytes. It is well below the broker's default limit of 1 MiB.
const BATCH_BYTES: usize = 256 << 10;
/// The default number of buffered bytes that starts a round.
const ROUND_BYTES: usize = 1 << 20;
/// The time after which a producer gives up if no batch is acknowledged.
const PATIENCE: Duration = Duration::from_secs(60);

/// An idempotent producer with acks from all replicas. Its retries cannot duplicate or reorder records.
///
/// [`Producer::send`] only buffers. A record that was not flushed with [`Producer::flush`] may be lost when the
/// producer is dropped.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    identity: ProducerIdentity,
    patience: Duration,
    topics: Vec<Topic>,
    in_flight: Vec<InFlight>,
    /// The buffered bytes, in open and closed batches.
    buffered: usize,
    /// The number of buffered bytes that starts a round.
    round_bytes: usize,
    acknowledged: u64,
    retried: u64,
    stalled: Option<Instant>,
}

#[derive(Debug)]
struct Topic {
    name: String,
    partitions: Vec<Queue>,
}

/// The batches that wait for one partition.
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
    /// Connects and requests a producer id.
    ///
    /// # Errors
    /// If no broker of `bootstrap` responds.
    pub fn new(bootstrap: &str) -> Result<Producer> {
        Producer::with_patience(bootstrap, PATIENCE)
    }

    /// As [`Producer::new`], but gives up if nothing is acknowledged for `patience`.
    ///
    /// # Errors
    /// If no broker of `bootstrap` responds.
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
            round_bytes: ROUND_BYTES,
            acknowledged: 0,
            retried: 0,
            stalled: None,
        })
    }

    /// Sets the number of buffered bytes that starts a round. A topic of many partitions needs more for batches of the
    /// same size.
    #[must_use]
    pub fn buffering(mut self, bytes: usize) -> Self {
        self.round_bytes = bytes;
        self
    }

    /// Buffers a record. Sends all buffered records when enough bytes are buffered.
    ///
    /// # Errors
    /// If the topic or the partition does not exist, or if earlier records cannot be delivered.
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
        if self.buffered >= self.round_bytes {
            self.round()?;
        }
        Ok(())
    }

    /// Waits until all in-sync replicas have acknowledged every record sent so far.
    ///
    /// # Errors
    /// If the broker rejects a batch permanently, or if nothing is acknowledged for the patience.
    pub fn flush(&mut self) -> Result<()> {
        loop {
            self.round()?;
            if self.in_flight.is_empty() && self.buffered == 0 {
                return Ok(());
            }
        }
    }

    /// Returns the number of acknowledged records.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the number of batches that were sent again, which shows whether a fault had an effect.
    pub fn retried(&self) -> u64 {
        self.retried
    }

    /// Returns the number of partitions of a topic.
    ///
    /// # Errors
    /// If the topic does not exist or no broker responds in time.
    pub fn partitions(&mut self, topic: &str) -> Result<i32> {
        Ok(self.topic(topic)?.partitions.len() as i32)
    }

    /// Returns the queues of a topic. The first call requests its metadata.
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
    /// Returns the size of the records without the header, as in `buffered`.
    fn records_bytes(&self) -> usize {
        self.bytes.len() - EMPTY_BATCH
    }
}

impl Queue {
    /// Closes the open batch. Its bytes and sequence numbers no longer change.
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
