//! A transactional producer, one request at a time.

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::DescribeTransactionsRequest;
use kafka_wire::batch::ProducerIdentity;
use kafka_wire::requests::{self, transactional_id};

use crate::reading::Batch;
use crate::world::World;

/// The identity of a transactional producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// `transactional.id`.
    pub id: String,
    /// The producer id from InitProducerId.
    pub producer_id: i64,
    /// The epoch from InitProducerId.
    pub epoch: i16,
}

impl Producer {
    /// Builds a batch of a transaction.
    pub fn batch(&self, sequence: i32, records: &[&str]) -> Batch {
        let batch = Batch::of(records).by(self.producer_id, self.epoch, sequence);
        batch.in_transaction()
    }

    pub(crate) fn identity(&self) -> ProducerIdentity {
        ProducerIdentity {
            id: self.producer_id,
            epoch: self.epoch,
        }
    }
}

impl World {
    /// Sends InitProducerId. Returns the error code, the producer id and the epoch.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn init_once(
        &self,
        id: Option<&str>,
        timeout_ms: i32,
        known: (i64, i16),
        version: i16,
    ) -> Result<(i16, i64, i16)> {
        let known = match version {
            3.. => ProducerIdentity {
                id: known.0,
                epoch: known.1,
            },
            _ => requests::NO_PRODUCER,
        };
        let request = requests::init_producer_id(id, timeout_ms, known);
        let it = self.call(version, &request)?;
        Ok((it.error_code, it.producer_id.0, it.producer_epoch))
    }

    /// Initialises a producer with this id. This ends its open transaction.
    ///
    /// # Errors
    /// When InitProducerId returns an error.
    pub fn init(&self, id: &str) -> Result<Producer> {
        self.init_with(id, 60_000)
    }

    /// Initialises a producer with this transaction timeout.
    ///
    /// # Errors
    /// When InitProducerId returns an error.
    pub fn init_with(&self, id: &str, timeout_ms: i32) -> Result<Producer> {
        let ask = || self.init_once(Some(id), timeout_ms, (-1, -1), 4);
        let (error, producer_id, epoch) = self.settled(ask, |it| it.0)?;
        ensure!(error == 0, "InitProducerId: {error}");
        Ok(Producer {
            id: id.to_owned(),
            producer_id,
            epoch,
        })
    }

    /// Initialises a producer with a new id.
    ///
    /// # Errors
    /// When InitProducerId returns an error.
    pub fn producer(&self) -> Result<Producer> {
        let id = self.fresh("x");
        self.init(&id)
    }

    /// Sends AddPartitionsToTxn once. Returns the error code of each partition.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn add_once(
        &self,
        producer: &Producer,
        partitions: &[(&str, i32)],
        version: i16,
    ) -> Result<Vec<i16>> {
        let request = requests::add_partitions(&producer.id, producer.identity(), partitions);
        let answer = self.call(version, &request)?;
        let mut codes = Vec::new();
        for (topic, partition) in partitions {
            let found = answer
                .results_by_topic_v3_and_below
                .iter()
                .filter(|it| it.name.as_str() == *topic)
                .flat_map(|it| &it.results_by_partition)
                .find(|it| it.partition_index == *partition);
            codes.push(found.context("no result")?.partition_error_code);
        }
        Ok(codes)
    }

    /// Sends AddPartitionsToTxn with partition 0, and retries while the last transaction ends. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn add(&self, producer: &Producer, topic: &str) -> Result<i16> {
        let ask = || self.add_once(producer, &[(topic, 0)], 0);
        let codes = self.settled(ask, |codes| codes[0])?;
        Ok(codes[0])
    }

    /// Sends AddPartitionsToTxn with partition 0, and EndTxn. Returns both error codes.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn add_and_end(&self, producer: &Producer, topic: &str) -> Result<(i16, i16)> {
        Ok((
            self.add(producer, topic)?,
            self.end_once(producer, true, 1)?,
        ))
    }

    /// Produces within a transaction to partition 0. Returns the error code and the base offset.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn write(
        &self,
        producer: &Producer,
        topic: &str,
        sequence: i32,
        records: &[&str],
    ) -> Result<(i16, i64)> {
        let batch = producer.batch(sequence, records);
        self.produce_to(topic, 0, &batch, Some(&producer.id))
    }

    /// Sends EndTxn once. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn end_once(&self, producer: &Producer, commit: bool, version: i16) -> Result<i16> {
        let request = requests::end_txn(&producer.id, producer.identity(), commit);
        Ok(self.call(version, &request)?.error_code)
    }

    /// Sends EndTxn, and waits until the markers are written.
    ///
    /// # Errors
    /// When EndTxn returns an error, or the markers are not written in time.
    pub fn end(&self, producer: &Producer, commit: bool) -> Result<()> {
        let ask = || self.end_once(producer, commit, 1);
        let code = self.settled(ask, |code| *code)?;
        ensure!(code == 0, "EndTxn: {code}");
        let state = if commit {
            "CompleteCommit"
        } else {
            "CompleteAbort"
        };
        self.becomes(&producer.id, state)
    }

    /// Waits until the transaction with this id is in this state.
    ///
    /// # Errors
    /// When the transaction does not reach the state in time.
    pub fn becomes(&self, id: &str, state: &str) -> Result<()> {
        self.until(state, || Ok(self.state_of(id)?.1 == state))
    }

    /// Opens a transaction and writes these records.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn open_in(&self, topic: &str, records: &[&str]) -> Result<Producer> {
        let producer = self.producer()?;
        self.add(&producer, topic)?;
        self.write(&producer, topic, 0, records)?;
        Ok(producer)
    }

    /// Creates a topic, opens a transaction and writes `a=1`.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn open(&self) -> Result<(String, Producer)> {
        let topic = self.topic()?;
        let producer = self.open_in(&topic, &["a=1"])?;
        Ok((topic, producer))
    }

    /// Creates a topic, writes `a=1` in a transaction and ends it.
    ///
    /// # Errors
    /// When a request fails.
    pub fn ended(&self, commit: bool) -> Result<(String, Producer)> {
        let (topic, producer) = (self.topic()?, self.producer()?);
        self.transaction(&producer, &topic, 0, &["a=1"], commit)?;
        Ok((topic, producer))
    }

    /// Runs a whole transaction. Returns its first offset in partition 0.
    ///
    /// # Errors
    /// When a request fails.
    pub fn transaction(
        &self,
        producer: &Producer,
        topic: &str,
        sequence: i32,
        records: &[&str],
        commit: bool,
    ) -> Result<i64> {
        let added = self.add(producer, topic)?;
        ensure!(added == 0, "AddPartitionsToTxn: {added}");
        let (error, offset) = self.write(producer, topic, sequence, records)?;
        ensure!(error == 0, "Produce: {error}");
        self.end(producer, commit)?;
        Ok(offset)
    }

    /// Sends DescribeTransactions. Returns the error code and the state.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn state_of(&self, id: &str) -> Result<(i16, String)> {
        let request = DescribeTransactionsRequest::default()
            .with_transactional_ids(vec![transactional_id(id)]);
        let answer = self.call(0, &request)?;
        let it = answer.transaction_states.first().context("no state")?;
        Ok((it.error_code, it.transaction_state.to_string()))
    }

    /// Sends AddOffsetsToTxn, and retries while the last transaction ends. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn add_offsets(&self, producer: &Producer, group: &str) -> Result<i16> {
        let request = requests::add_offsets(&producer.id, producer.identity(), group);
        self.settled(|| Ok(self.call(0, &request)?.error_code), |code| *code)
    }
}
