//! A topic with the types of its records.

use std::fmt;
use std::sync::Arc;

use eos_protocol::TopicName;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{Codec, Json, Plain, PlainCodec};

/// A topic that carries both types of its records, and how they become bytes: source and output
/// alike, so that a value can't be written to a topic of another type.
pub struct Topic<K, V> {
    pub(crate) name: TopicName,
    pub(crate) key: Arc<dyn Codec<K>>,
    pub(crate) value: Arc<dyn Codec<V>>,
}

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
    /// A null where the type has no room for it fails the record.
    pub fn json(name: &str) -> Self
    where
        K: Plain,
        V: Serialize + DeserializeOwned + 'static,
    {
        Self::with(name, PlainCodec::new(), Json)
    }

    /// Keys and values are plain: text (UTF-8), bytes, integers.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// let lines = Topic::<Option<String>, String>::plain("lines");
    /// ```
    pub fn plain(name: &str) -> Self
    where
        K: Plain,
        V: Plain,
    {
        Self::with(name, PlainCodec::new(), PlainCodec::new())
    }

    /// With codecs of your choice: [`Json`], [`PlainCodec`] or your own.
    ///
    /// ```
    /// # use eos_core::Topic;
    /// # use eos_core::codec::{Json, PlainCodec};
    /// // Two numbers as a JSON key.
    /// let grid = Topic::<(i32, i32), String>::with("grid", Json, PlainCodec::new());
    /// ```
    pub fn with(name: &str, key: impl Codec<K>, value: impl Codec<V>) -> Self {
        Self {
            name: name.into(),
            key: Arc::new(key),
            value: Arc::new(value),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

/// How a topic's keys and values become bytes and back.
#[must_use]
pub fn codecs<K, V>(topic: &Topic<K, V>) -> (&dyn Codec<K>, &dyn Codec<V>) {
    (&*topic.key, &*topic.value)
}

impl<K, V> Clone for Topic<K, V> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            key: Arc::clone(&self.key),
            value: Arc::clone(&self.value),
        }
    }
}

impl<K, V> fmt::Debug for Topic<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
