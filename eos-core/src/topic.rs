//! Typed topics.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use eos_protocol::{Timestamp, TopicName};

use crate::change::Change;
use crate::client::Headers;
use crate::codec::{
    ArcCodec, ChangeCodec, Codec, CodecError, Decode, Encode, Encoded, Field, Json, Part, Plain,
};

/// A topic: its name, and the types and codecs of its keys and values.
///
/// Sources and outputs take the same definition, so a value can't be written to a topic of another type. `KC` and `VC`
/// are the codecs of keys and values. The codecs of an input topic implement [`Decode`], and those of an output topic
/// [`Encode`]. With JSON, a value that is only read derives `serde::Deserialize`, and a value that is only written
/// derives `serde::Serialize`.
///
/// ```
/// # use eos_core::{App, Topic};
/// #[derive(serde::Deserialize)]
/// struct Order { cents: u64, pieces: u64 }
/// #[derive(serde::Serialize)]
/// struct Priced { total: u64 }
///
/// let mut app = App::new("pricing-v1");
/// app.source(&Topic::<String, Order>::json("orders"))
///     .map(|order| Priced { total: order.cents * order.pieces })
///     .to(&Topic::json("orders-priced"));
/// ```
pub struct Topic<K, V, KC = Plain, VC = Json> {
    pub(crate) name: TopicName,
    codecs: Arc<(KC, VC)>,
    partitioner: Option<Partitioner<K>>,
    time: Option<OwnTime<K, V, KC, VC>>,
    /// Whether this is a view, see [`Topic::values`].
    is_view: bool,
    types: Types<K, V>,
}

/// The key and value types of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTypes {
    pub(crate) key: &'static str,
    /// `None` for any type.
    pub(crate) value: Option<&'static str>,
}

impl ReadTypes {
    /// Whether records of one topic may be read as both.
    pub(crate) fn agree(&self, other: &Self) -> bool {
        let values = self.value.zip(other.value);
        self.key == other.key && values.is_none_or(|(one, other)| one == other)
    }
}

impl fmt::Display for ReadTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic<{}, {}>", self.key, self.value.unwrap_or("_"))
    }
}

/// A type without the `Option` around it.
fn bare(name: &'static str) -> &'static str {
    let inner = name.strip_prefix("core::option::Option<");
    inner
        .and_then(|inner| inner.strip_suffix('>'))
        .unwrap_or(name)
}

/// Returns the partition of a key among so many.
type Choose<K> = Arc<dyn Fn(&K, u32) -> u32 + Send + Sync>;

/// Chooses the partition of a record by its key and the number of partitions.
struct Partitioner<K> {
    name: Arc<str>,
    choose: Choose<K>,
}

impl<K> Clone for Partitioner<K> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            choose: Arc::clone(&self.choose),
        }
    }
}

/// Returns the time of a record.
type TimeOf<K, V> = Arc<dyn Fn(&K, &V) -> Option<Timestamp> + Send + Sync>;

/// An encoded key and an encoded value.
type Pair<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Returns the time of an encoded record of a topic.
type ReadTime<T> = fn(&T, Pair<'_>, &Headers) -> Option<Timestamp>;

/// The function of `time_by`.
struct OwnTime<K, V, KC, VC> {
    of: TimeOf<K, V>,
    /// Returns the time of an encoded record. It contains a second decoder. Only topics with `time_by` have one, so the
    /// compiler inlines the only decoder of all others.
    read: ReadTime<Topic<K, V, KC, VC>>,
}

impl<K, V, KC, VC> Clone for OwnTime<K, V, KC, VC> {
    fn clone(&self) -> Self {
        Self {
            of: Arc::clone(&self.of),
            read: self.read,
        }
    }
}

fn read_time<K, V, KC, VC>(
    topic: &Topic<K, V, KC, VC>,
    (key, value): Pair<'_>,
    headers: &Headers,
) -> Option<Timestamp>
where
    KC: Decode<K>,
    VC: Decode<V>,
{
    let key = topic.decode_key(key, headers).ok()?;
    let value = topic.decode_value(value, headers).ok()?;
    topic.time_of(&key, &value)?
}

/// Types that are named but not held.
type Types<K, V> = PhantomData<fn(K, V) -> (K, V)>;

/// A topic of text, bytes and integers. Returned by [`Topic::plain`].
pub type PlainTopic<K, V> = Topic<K, V, Plain, Plain>;

impl<K, V> Topic<K, V> {
    /// Values are JSON; keys are plain (text, bytes, integers).
    ///
    /// ```
    /// # use eos_core::Topic;
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order { amount: u64 }
    /// let orders = Topic::<String, Order>::json("orders");
    /// // Records without a key, and tombstones:
    /// let compacted = Topic::<Option<String>, Option<Order>>::json("orders-by-id");
    /// ```
    ///
    /// A null fails the record if the type is not an `Option`.
    #[must_use]
    pub fn json(name: &str) -> Self {
        Self::with(name, Plain, Json)
    }

    /// Keys and values are plain: text (UTF-8), bytes, integers.
    ///
    /// ```
    /// # use eos_core::{PlainTopic, Topic};
    /// fn lines() -> PlainTopic<Option<String>, String> {
    ///     Topic::plain("lines")
    /// }
    /// ```
    #[must_use]
    pub fn plain(name: &str) -> PlainTopic<K, V> {
        Self::with(name, Plain, Plain)
    }

    /// Creates a topic with codecs of your choice: [`Json`], [`Plain`] or your own.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// # use eos_core::codec::{Json, Plain};
    /// // Two numbers as a JSON key.
    /// let grid = Topic::<(i32, i32), String>::with("grid", Json, Plain);
    /// ```
    #[must_use]
    pub fn with<KC, VC>(name: &str, key: KC, value: VC) -> Topic<K, V, KC, VC> {
        Topic {
            name: name.into(),
            codecs: Arc::new((key, value)),
            partitioner: None,
            time: None,
            is_view: false,
            types: PhantomData,
        }
    }
}

impl<K, V, KC: Default, VC: Default> Topic<K, V, KC, VC> {
    /// Creates a topic from a type alias such as [`PlainTopic`], with the default values of its codecs.
    ///
    /// ```
    /// # use eos_core::PlainTopic;
    /// let lines = PlainTopic::<String, String>::named("lines");
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Self {
        Topic::<K, V>::with(name, KC::default(), VC::default())
    }
}

impl<K, V, KC, VC> Topic<K, V, KC, VC> {
    /// The name of the topic.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// A view of the topic with another value type, e.g. raw JSON in a test, or `Option<V>` for tombstones. The view
    /// keeps key type, codecs and partitioner. An app may read both the topic and a view of it. Any other two types of
    /// one topic are an error.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// # #[derive(serde::Deserialize)]
    /// # struct Order { cents: u64 }
    /// let orders = Topic::<String, Order>::json("orders");
    /// let raw = orders.values::<serde_json::Value>();
    /// ```
    #[must_use]
    pub fn values<W>(&self) -> Topic<K, W, KC, VC> {
        Topic {
            name: self.name.clone(),
            codecs: Arc::clone(&self.codecs),
            partitioner: self.partitioner.clone(),
            time: None,
            is_view: true,
            types: PhantomData,
        }
    }

    /// Sets the partitioner of written records. `f` receives the key and the number of partitions, and returns a number
    /// below that. The default is Kafka's partitioner (murmur2 of the key's bytes).
    ///
    /// Topics that one task reads together must place a key in the same partition. Therefore a partitioner has a name.
    /// An app that joins or merges topics whose partitioners have different names does not start.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// // The tenants of a region stay together.
    /// let orders = Topic::<String, u64>::plain("orders")
    ///     .partition_by("region", |tenant, partitions| match tenant.starts_with("eu-") {
    ///         true => 0,
    ///         false => partitions - 1,
    ///     });
    /// ```
    #[must_use]
    pub fn partition_by(
        mut self,
        name: &str,
        f: impl Fn(&K, u32) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.partitioner = Some(Partitioner {
            name: name.into(),
            choose: Arc::new(f),
        });
        self
    }

    /// Sets the function that computes a record's timestamp from its key and value (Kafka Streams'
    /// `TimestampExtractor`). Windows, timers, joins, stream time and the order of several topics of a task follow this
    /// time, and outputs have it as their timestamp.
    ///
    /// `None` or a negative time fails the record, and the [`ErrorPolicy`](crate::ErrorPolicy) of its source applies. It
    /// applies only to sources, not to outputs. The worker decodes each key and value a second time to call `f`.
    ///
    /// ```
    /// # use eos_core::{Timestamp, Topic};
    /// #[derive(serde::Deserialize)]
    /// struct Reading { celsius: f64, taken_at_ms: i64 }
    ///
    /// let readings = Topic::<String, Reading>::json("readings")
    ///     .time_by(|_sensor, reading| Some(Timestamp(reading.taken_at_ms)));
    /// ```
    #[must_use]
    pub fn time_by(
        mut self,
        f: impl Fn(&K, &V) -> Option<Timestamp> + Send + Sync + 'static,
    ) -> Self
    where
        KC: Decode<K>,
        VC: Decode<V>,
    {
        self.time = Some(OwnTime {
            of: Arc::new(f),
            read: read_time,
        });
        self
    }

    /// Distinguishes the closure of `time_by` from that of another topic.
    pub(crate) fn time_id(&self) -> Option<usize> {
        let time = self.time.as_ref()?;
        Some(Arc::as_ptr(&time.of).cast::<()>().addr())
    }

    /// Returns the time of a record by the closure of `time_by`, if there is one.
    pub(crate) fn time_of(&self, key: &K, value: &V) -> Option<Option<Timestamp>> {
        let time = (self.time.as_ref()?.of)(key, value);
        Some(time.filter(|time| time.0 >= 0))
    }

    /// Returns the time of an encoded record by the closure of `time_by`.
    pub(crate) fn read_time(&self, record: Pair<'_>, headers: &Headers) -> Option<Timestamp> {
        (self.time.as_ref()?.read)(self, record, headers)
    }

    /// The names of the key and value types, without `Option`.
    pub(crate) fn read_types(&self) -> ReadTypes {
        ReadTypes {
            key: bare(type_name::<K>()),
            value: (!self.is_view).then(|| bare(type_name::<V>())),
        }
    }

    /// The name of the topic's own partitioner, if any.
    pub(crate) fn partitioner(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.partitioner.as_ref()?.name))
    }

    /// The same topic under another name.
    pub(crate) fn renamed(&self, name: TopicName) -> Self {
        Self {
            name,
            ..self.clone()
        }
    }

    /// Decodes the key of a record.
    pub(crate) fn decode_key(
        &self,
        bytes: Option<&[u8]>,
        headers: &Headers,
    ) -> Result<K, CodecError>
    where
        KC: Decode<K>,
    {
        let field = Field::new(self.name.as_str(), Part::Key, headers);
        self.codecs.0.decode(bytes, &field)
    }

    /// Encodes a key that belongs to no record.
    pub(crate) fn encode_bare_key(&self, key: &K, into: &mut Vec<u8>) -> Result<Encoded, CodecError>
    where
        KC: Encode<K>,
    {
        let field = Field::bare(self.name.as_str(), Part::Key);
        self.codecs.0.encode(key, into, &field)
    }

    pub(crate) fn decode_value(
        &self,
        bytes: Option<&[u8]>,
        headers: &Headers,
    ) -> Result<V, CodecError>
    where
        VC: Decode<V>,
    {
        let field = Field::new(self.name.as_str(), Part::Value, headers);
        self.codecs.1.decode(bytes, &field)
    }

    /// Takes back a written record.
    pub(crate) fn recycle(&self, key: K, value: V)
    where
        KC: Encode<K>,
        VC: Encode<V>,
    {
        self.codecs.0.recycle(key);
        self.codecs.1.recycle(value);
    }
}

impl<K: 'static, V: 'static, KC: Codec<K>, VC: Codec<V>> Topic<K, V, KC, VC> {
    /// The same topic with erased codec types, for lists of topics and for codecs chosen by configuration.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// let topics = [
    ///     Topic::<String, u64>::json("numbers-as-json").erased(),
    ///     Topic::<String, u64>::plain("numbers-as-bytes").erased(),
    /// ];
    /// ```
    #[must_use]
    pub fn erased(&self) -> Topic<K, V, ArcCodec<K>, ArcCodec<V>> {
        let key: ArcCodec<K> = Arc::new(KeyCodec(Arc::clone(&self.codecs)));
        let value: ArcCodec<V> = Arc::new(ValueCodec(Arc::clone(&self.codecs)));
        let mut erased = Topic::<K, V>::with("", key, value);
        erased.partitioner = self.partitioner.clone();
        erased.time = self.time.as_ref().map(|time| OwnTime {
            of: Arc::clone(&time.of),
            read: read_time,
        });
        erased.is_view = self.is_view;
        erased.renamed(self.name.clone())
    }

    /// The same topic, for the changes of a table's rows.
    pub(crate) fn changes(&self) -> TopicOfChanges<K, V> {
        let erased = self.erased();
        let (key, value) = &*erased.codecs;
        let value: ArcCodec<Change<V>> = Arc::new(ChangeCodec(Arc::clone(value)));
        let mut changes = Topic::<K, Change<V>>::with("", Arc::clone(key), value);
        changes.partitioner = erased.partitioner;
        changes.renamed(self.name.clone())
    }
}

/// A repartition topic with the changes of a table's rows.
pub(crate) type TopicOfChanges<K, V> = Topic<K, Change<V>, ArcCodec<K>, ArcCodec<Change<V>>>;

/// The key codec of a topic's pair of codecs.
struct KeyCodec<KC, VC>(Arc<(KC, VC)>);

/// The value codec of the pair.
struct ValueCodec<KC, VC>(Arc<(KC, VC)>);

macro_rules! part {
    ($part:ident, $at:tt, $codec:ident, $other:ident) => {
        impl<T, $codec: Decode<T>, $other: Send + Sync + 'static> Decode<T> for $part<KC, VC> {
            fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<T, CodecError> {
                self.0.$at.decode(bytes, field)
            }
        }

        impl<T, $codec: Encode<T>, $other: Send + Sync + 'static> Encode<T> for $part<KC, VC> {
            fn encode(
                &self,
                value: &T,
                into: &mut Vec<u8>,
                field: &Field<'_>,
            ) -> Result<Encoded, CodecError> {
                self.0.$at.encode(value, into, field)
            }

            fn deciding_bytes(&self, key: &[u8]) -> usize {
                self.0.$at.deciding_bytes(key)
            }

            fn recycle(&self, value: T) {
                self.0.$at.recycle(value);
            }
        }
    };
}

part!(KeyCodec, 0, KC, VC);
part!(ValueCodec, 1, VC, KC);

/// An output topic for records of these types, with any codecs.
pub(crate) trait WritableTopic<K, V>: Send + Sync {
    fn name(&self) -> &TopicName;

    fn encode_key(
        &self,
        key: &K,
        into: &mut Vec<u8>,
        headers: &Headers,
    ) -> Result<Encoded, CodecError>;

    fn encode_value(
        &self,
        value: &V,
        into: &mut Vec<u8>,
        headers: &Headers,
    ) -> Result<Encoded, CodecError>;

    /// The number of the key's bytes that decide the partition.
    fn deciding_bytes(&self, key: &[u8]) -> usize;

    /// The partition that the topic's own partitioner chooses, if any.
    fn choose(&self, key: &K, partitions: u32) -> Option<u32>;
}

impl<K, V, KC: Encode<K>, VC: Encode<V>> WritableTopic<K, V> for Topic<K, V, KC, VC> {
    fn name(&self) -> &TopicName {
        &self.name
    }

    fn encode_key(
        &self,
        key: &K,
        into: &mut Vec<u8>,
        headers: &Headers,
    ) -> Result<Encoded, CodecError> {
        let field = Field::new(self.name.as_str(), Part::Key, headers);
        self.codecs.0.encode(key, into, &field)
    }

    fn encode_value(
        &self,
        value: &V,
        into: &mut Vec<u8>,
        headers: &Headers,
    ) -> Result<Encoded, CodecError> {
        let field = Field::new(self.name.as_str(), Part::Value, headers);
        self.codecs.1.encode(value, into, &field)
    }

    fn deciding_bytes(&self, key: &[u8]) -> usize {
        self.codecs.0.deciding_bytes(key)
    }

    #[inline]
    fn choose(&self, key: &K, partitions: u32) -> Option<u32> {
        let partitioner = self.partitioner.as_ref()?;
        Some((partitioner.choose)(key, partitions))
    }
}

/// The partition that a topic's own partitioner chooses for a key; `None` without a partitioner.
pub fn chosen_partition<K, V, KC, VC>(
    topic: &Topic<K, V, KC, VC>,
    key: &K,
    partitions: u32,
) -> Option<u32> {
    let partitioner = topic.partitioner.as_ref()?;
    Some((partitioner.choose)(key, partitions))
}

/// The codecs of a topic's keys and values.
#[must_use]
pub fn codecs<K, V, KC, VC>(topic: &Topic<K, V, KC, VC>) -> (&KC, &VC) {
    (&topic.codecs.0, &topic.codecs.1)
}

impl<K, V, KC, VC> Clone for Topic<K, V, KC, VC> {
    fn clone(&self) -> Self {
        Self {
            is_view: self.is_view,
            time: self.time.clone(),
            ..self.values()
        }
    }
}

impl<K, V, KC, VC> fmt::Debug for Topic<K, V, KC, VC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
