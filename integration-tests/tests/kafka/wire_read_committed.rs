//! The records that a `read_committed` reader sees, with transactions of a real broker.
//!
//! The judge depends on this filter. If it hid too many records, the judge would report false losses. If it hid too
//! few, the judge would blame the framework for records of aborted transactions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use integration_tests::wait::wait_until;
use kafka_launcher::{Provided, for_tests};
use kafka_wire::{Client, End, Fetched, Isolation, TransactionalProducer};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster, which may be shared, and a topic of one partition for this test.
struct Setting {
    kafka: Provided,
    client: Client,
    /// The suffix of all names of this test.
    mark: String,
    topic: String,
}

impl Setting {
    /// Creates a topic. Returns `None` if there is no Kafka to test with.
    fn new() -> Result<Option<Setting>> {
        let Some(kafka) = for_tests(1)? else {
            return Ok(None);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let mut setting = Setting {
            client: Client::connect(kafka.bootstrap(), TIMEOUT)?,
            kafka,
            mark: format!("{now:x}"),
            topic: format!("log-{now:x}"),
        };
        setting.client.create_topic(&setting.topic, 1, 1, &[])?;
        Ok(Some(setting))
    }

    fn producer(&self, id: &str) -> Result<Writer> {
        let id = format!("{id}-{}", self.mark);
        let timeout = Duration::from_secs(60);
        let producer = TransactionalProducer::new(self.kafka.bootstrap(), &id, timeout)?;
        Ok(Writer {
            producer,
            topic: self.topic.clone(),
        })
    }

    fn fetch(&mut self, from: i64) -> Result<Fetched> {
        let isolation = Isolation::ReadCommitted;
        self.client.fetch(&self.topic, 0, from, isolation)
    }

    fn stable_end(&mut self) -> Result<i64> {
        let ends = self
            .client
            .end_offsets(&self.topic, Isolation::ReadCommitted)?;
        ends.first().copied().context("the topic has no partition")
    }

    fn end(&mut self) -> Result<i64> {
        let ends = self
            .client
            .end_offsets(&self.topic, Isolation::ReadUncommitted)?;
        ends.first().copied().context("the topic has no partition")
    }

    /// Returns the values that a reader sees in the whole topic.
    fn values(&mut self, isolation: Isolation) -> Result<Vec<String>> {
        let mut values = Vec::new();
        self.client.read_all(&self.topic, isolation, |_, record| {
            let value = record.value.as_deref().unwrap_or_default();
            values.push(String::from_utf8_lossy(value).into_owned());
        })?;
        Ok(values)
    }
}

/// A transactional producer to the test's topic.
struct Writer {
    producer: TransactionalProducer,
    topic: String,
}

impl Writer {
    /// Writes one batch. Returns its first offset.
    fn write(&mut self, values: &[&str]) -> Result<i64> {
        let records: Vec<_> = values.iter().map(|value| ("k", *value)).collect();
        self.producer.send(&self.topic, 0, &records)
    }

    fn commit(&mut self) -> Result<()> {
        self.producer.end(End::Commit)
    }

    fn abort(&mut self) -> Result<()> {
        self.producer.end(End::Abort)
    }
}

#[test]
fn aborted_records_are_hidden_between_committed_ones_of_the_same_producer() -> Result<()> {
    let Some(mut setting) = Setting::new()? else {
        return Ok(());
    };
    let (mut a, mut b) = (setting.producer("a")?, setting.producer("b")?);
    a.write(&["a committed 1", "a committed 2"])?;
    a.commit()?;
    a.write(&["a aborted 1"])?;
    // The transaction of another producer begins and commits during the aborted one.
    b.write(&["b committed"])?;
    a.write(&["a aborted 2", "a aborted 3"])?;
    b.commit()?;
    a.abort()?;
    a.write(&["a committed 3"])?;
    a.commit()?;
    b.write(&["b aborted"])?;
    b.abort()?;

    let committed = [
        "a committed 1",
        "a committed 2",
        "b committed",
        "a committed 3",
    ];
    assert_eq!(setting.values(Isolation::ReadCommitted)?, committed);
    assert_eq!(
        setting.values(Isolation::ReadUncommitted)?,
        [
            "a committed 1",
            "a committed 2",
            "a aborted 1",
            "b committed",
            "a aborted 2",
            "a aborted 3",
            "a committed 3",
            "b aborted"
        ]
    );
    // From each start offset, a reader sees the same records and gets past every marker.
    // Brokers respond to EndTxn before its marker is written.
    let mut end = 0;
    wait_until(TIMEOUT, "the last marker is there", || {
        end = setting.stable_end()?;
        Ok(end == setting.end()?)
    })?;
    let all = setting.fetch(0)?;
    for from in 0..=end {
        let part = setting.fetch(from)?;
        let expected = all.records.iter().filter(|r| r.offset >= from);
        assert!(part.records.iter().eq(expected), "from {from}: {part:?}");
        assert_eq!(part.next_offset, end, "from {from}");
    }
    Ok(())
}

#[test]
fn an_open_transaction_ends_what_is_readable() -> Result<()> {
    let Some(mut setting) = Setting::new()? else {
        return Ok(());
    };
    let (mut open, mut other) = (setting.producer("open")?, setting.producer("other")?);
    other.write(&["before"])?;
    other.commit()?;
    let first = open.write(&["undecided"])?;
    other.write(&["behind it"])?;
    other.commit()?;

    assert_eq!(setting.values(Isolation::ReadCommitted)?, ["before"]);
    assert_eq!(setting.stable_end()?, first);
    let id = open.producer.producer_id();
    let states = setting.client.transactions()?;
    let state = states.iter().find(|state| state.producer_id == id);
    let state = state.context("the open transaction is not listed")?;
    assert!(state.is_open(), "{state:?}");

    // A second owner of the id aborts the open transaction of the first owner, and fences it.
    setting.producer("open")?;
    let decided = ["before", "behind it"];
    assert_eq!(setting.values(Isolation::ReadCommitted)?, decided);
    assert!(open.commit().is_err(), "the first owner is not fenced");
    Ok(())
}
