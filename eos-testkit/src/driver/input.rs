//! A record to pipe.

use eos_client::Headers;
use eos_core::codec::{Encode, Encoded, Field, Part};
use eos_core::spi::stepped::{chosen_partition, codecs};
use eos_core::{Timestamp, Topic};
use eos_protocol::partition_for;

/// A record for an input topic, with all its fields.
///
/// ```
/// use eos_core::Timestamp;
/// use eos_testkit::Input;
///
/// let order = Input::<String, u64>::new("ada", 5_u64)
///     .at(Timestamp(1_000))
///     .to_partition(2)
///     .header("trace", b"42");
/// // Bytes that are no `u64`: what a foreign producer may write.
/// let poison = Input::<String, u64>::raw(Some(b"ada"), Some(b"five"));
/// ```
#[derive(Debug, Clone)]
#[must_use = "pipe it"]
pub struct Input<K, V> {
    content: Content<K, V>,
    pub(super) timestamp: Option<Timestamp>,
    partition: Option<i32>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone)]
enum Content<K, V> {
    Typed(K, V),
    Raw(Option<Vec<u8>>, Option<Vec<u8>>),
}

/// A record as bytes.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) partition: i32,
}

impl<K, V> Input<K, V> {
    /// A record with this key and value, encoded by the topic's codecs.
    pub fn new(key: impl Into<K>, value: impl Into<V>) -> Input<K, V> {
        Input::of(Content::Typed(key.into(), value.into()))
    }

    /// A record of raw bytes, which the topic's codecs need not accept. `None` is Kafka's null: as a value, a
    /// tombstone.
    pub fn raw(key: Option<&[u8]>, value: Option<&[u8]>) -> Input<K, V> {
        Input::of(Content::Raw(key.map(Into::into), value.map(Into::into)))
    }

    fn of(content: Content<K, V>) -> Input<K, V> {
        Input {
            content,
            timestamp: None,
            partition: None,
            headers: Vec::new(),
        }
    }

    /// Sets the time. The default is the driver's [`now`](crate::TestDriver::now).
    pub fn at(mut self, timestamp: Timestamp) -> Input<K, V> {
        self.timestamp = Some(timestamp);
        self
    }

    /// Sets the partition. Without it, the topic's partitioner decides, and a null key goes to partition 0.
    pub fn to_partition(mut self, partition: i32) -> Input<K, V> {
        self.partition = Some(partition);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Input<K, V> {
        let value = value.as_ref().to_vec();
        self.headers.push((name.to_owned(), value));
        self
    }
}

impl<K, V> Input<K, V> {
    /// Encodes the record for a topic with this number of partitions.
    pub(super) fn encode<KC, VC>(
        &self,
        topic: &Topic<K, V, KC, VC>,
        partitions: i32,
    ) -> Result<Bytes, String>
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        let mut headers = Headers::new();
        for (name, value) in &self.headers {
            headers.push(name.as_str(), Some(value));
        }
        let field = |part| Field::new(topic.name(), part, &headers);
        let name = topic.name();
        let (keys, values) = codecs(topic);
        let count = u32::try_from(partitions).unwrap_or(1);
        let mut chosen = None;
        let (key, value) = match &self.content {
            Content::Raw(key, value) => (key.clone(), value.clone()),
            Content::Typed(key, value) => {
                chosen = chosen_partition(topic, key, count).and_then(|it| i32::try_from(it).ok());
                let (mut key_bytes, mut value_bytes) = (Vec::new(), Vec::new());
                let key = keys.encode(key, &mut key_bytes, &field(Part::Key));
                let key = key.map_err(|e| format!("a key for {name} can't be written: {e}"))?;
                let value = values.encode(value, &mut value_bytes, &field(Part::Value));
                let value =
                    value.map_err(|e| format!("a value for {name} can't be written: {e}"))?;
                (
                    (key == Encoded::Bytes).then_some(key_bytes),
                    (value == Encoded::Bytes).then_some(value_bytes),
                )
            }
        };
        let by_key = |key: &Vec<u8>| {
            let deciding = keys.deciding_bytes(key).min(key.len());
            partition_for(&key[..deciding], count).get()
        };
        let partition = self.partition.or(chosen);
        let partition = partition.or_else(|| key.as_ref().map(by_key));
        let partition = partition.unwrap_or(0);
        if !(0..partitions).contains(&partition) {
            return Err(format!(
                "partition {partition} of {name} does not exist: the topic has {partitions}. Give \
                 it more by `TestDriver::builder().partitions(\"{name}\", n)`"
            ));
        }
        Ok(Bytes {
            key,
            value,
            partition,
        })
    }
}

impl<K, V> From<(K, V)> for Input<K, V> {
    fn from((key, value): (K, V)) -> Input<K, V> {
        Input::of(Content::Typed(key, value))
    }
}
