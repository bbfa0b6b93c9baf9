//! Reading of committed records.

use std::collections::BTreeMap;

use eos_core::codec::{Decode, Field, Part};
use eos_core::spi::stepped::codecs;
use eos_core::{Headers, Timestamp, Topic};
use kafka_wire::batch::Record;
use serde::de::DeserializeOwned;

use super::TestDriver;
use crate::ledger::ModelPlace;

/// A committed record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutputRecord<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// Its time.
    pub timestamp: Timestamp,
    /// Its partition and offset.
    pub partition: i32,
    /// Its headers.
    pub headers: Headers,
}

impl TestDriver {
    /// The committed rows of a place of the app's ledger, in the order of their transactions and of their records. `None`
    /// is a deletion. The place keeps all rows: it does not replace those of a key.
    ///
    /// # Panics
    /// If a row is no JSON of these types.
    ///
    /// # Examples
    /// ```
    /// use eos_core::{App, Topic};
    /// use eos_testkit::TestDriver;
    /// use eos_testkit::ledger::ModelLedger;
    ///
    /// let shop = ModelLedger::new("shop");
    /// let stock = shop.place("stock");
    /// let orders = Topic::<String, u64>::plain("orders");
    /// let mut app = App::new("inventory");
    /// app.ledger(&shop);
    /// app.source(&orders).to_place(stock.clone());
    ///
    /// let mut driver = TestDriver::new(app);
    /// driver.pipe(&orders, "pen", 2_u64);
    /// assert_eq!(driver.rows(&stock), [("pen".to_owned(), Some(2))]);
    /// ```
    #[must_use]
    pub fn rows<K, V>(&self, place: &ModelPlace<K, V>) -> Vec<(K, Option<V>)>
    where
        K: DeserializeOwned,
        V: DeserializeOwned,
    {
        place.rows()
    }

    /// The records of a topic that were committed since the last read, partition by partition, as seen by a consumer
    /// with `isolation.level=read_committed`.
    ///
    /// # Panics
    /// If there is no such topic, or a record can't be decoded.
    #[track_caller]
    pub fn read<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> Vec<OutputRecord<K, V>>
    where
        KC: Decode<K>,
        VC: Decode<V>,
    {
        self.take(topic, usize::MAX)
    }

    /// As [`read`](Self::read), keys and values only.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn read_pairs<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> Vec<(K, V)>
    where
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let records = self.read(topic).into_iter();
        records.map(|record| (record.key, record.value)).collect()
    }

    /// As [`read`](Self::read), the last value of each key.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn read_map<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> BTreeMap<K, V>
    where
        K: Ord,
        KC: Decode<K>,
        VC: Decode<V>,
    {
        self.read_pairs(topic).into_iter().collect()
    }

    /// The next record of a topic, from its first partition with a record.
    ///
    /// # Panics
    /// If there is none, and as [`read`](Self::read).
    #[track_caller]
    pub fn read_one<K, V, KC, VC>(&mut self, topic: &Topic<K, V, KC, VC>) -> OutputRecord<K, V>
    where
        KC: Decode<K>,
        VC: Decode<V>,
    {
        match self.take(topic, 1).pop() {
            Some(record) => record,
            None => panic!(
                "{} has no committed record that is still unread{}",
                topic.name(),
                if self.holds {
                    ". The driver holds: call `commit()` before"
                } else {
                    ""
                }
            ),
        }
    }

    /// Whether all committed records of a topic were read.
    ///
    /// # Panics
    /// If there is no such topic.
    #[track_caller]
    #[must_use]
    pub fn is_empty<K, V, KC, VC>(&self, topic: &Topic<K, V, KC, VC>) -> bool {
        self.count(topic) == 0
    }

    /// The number of committed records of a topic that were not read yet.
    ///
    /// # Panics
    /// If there is no such topic.
    #[track_caller]
    #[must_use]
    pub fn count<K, V, KC, VC>(&self, topic: &Topic<K, V, KC, VC>) -> usize {
        let name = topic.name();
        let partitions = 0..self.width(name);
        partitions.map(|it| self.unread_of(name, it).len()).sum()
    }

    #[track_caller]
    fn take<K, V, KC, VC>(
        &mut self,
        topic: &Topic<K, V, KC, VC>,
        most: usize,
    ) -> Vec<OutputRecord<K, V>>
    where
        KC: Decode<K>,
        VC: Decode<V>,
    {
        let name = topic.name();
        let mut taken = Vec::new();
        for partition in 0..self.width(name) {
            let rest = most - taken.len();
            for record in self.unread_of(name, partition).into_iter().take(rest) {
                self.next
                    .insert((name.to_owned(), partition), record.offset + 1);
                taken.push(decode(topic, partition, &record));
            }
        }
        taken
    }

    fn unread_of(&self, topic: &str, partition: i32) -> Vec<Record> {
        let next = self.next.get(&(topic.to_owned(), partition));
        let next = next.copied().unwrap_or(0);
        self.cluster.read_from(topic, partition, next)
    }

    #[track_caller]
    fn width(&self, topic: &str) -> i32 {
        let partitions = self.cluster.partitions(topic);
        if partitions == 0 {
            let (outputs, own) = (self.app.outputs(), self.app.own());
            let names = outputs.iter().chain(&own).map(|it| it.as_str());
            let names: Vec<&str> = names.collect();
            let names = names.join(", ");
            panic!(
                "the app does not write to {topic}, so there is nothing to read. It writes to {names}"
            );
        }
        partitions
    }
}

#[track_caller]
fn decode<K, V, KC, VC>(
    topic: &Topic<K, V, KC, VC>,
    partition: i32,
    record: &Record,
) -> OutputRecord<K, V>
where
    KC: Decode<K>,
    VC: Decode<V>,
{
    let (name, offset) = (topic.name(), record.offset);
    let (keys, values) = codecs(topic);
    let mut headers = Headers::new();
    for (name, value) in &record.headers {
        headers.push(name.as_str(), value.as_deref());
    }
    let field = |part| Field::new(name, part, &headers);
    let key = keys.decode(record.key.as_deref(), &field(Part::Key));
    let value = values.decode(record.value.as_deref(), &field(Part::Value));
    let (key, value) = match (key, value) {
        (Ok(key), Ok(value)) => (key, value),
        (Err(error), _) => {
            panic!(
                "the key of record {offset} of {name}-{partition} is not a key of this topic: \
                 {error}"
            )
        }
        (_, Err(error)) => {
            panic!(
                "the value of record {offset} of {name}-{partition} is not a value of this topic: \
                 {error}"
            )
        }
    };
    OutputRecord {
        key,
        value,
        timestamp: Timestamp(record.timestamp),
        partition,
        headers,
    }
}
