//! Records of user closures.

use eos_protocol::Timestamp;

use crate::client::Headers;

/// A record: key, value, timestamp and headers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// The timestamp in milliseconds since 1970. `None` if the record has none.
    pub timestamp: Option<Timestamp>,
    /// The headers. Outputs receive them unless a step changes them.
    pub headers: Headers,
}

impl<K, V> Record<K, V> {
    /// Creates a record without timestamp and headers. When it is emitted or forwarded, it gets the timestamp of the
    /// current record.
    pub fn new(key: K, value: V) -> Self {
        Self {
            key,
            value,
            timestamp: None,
            headers: Headers::new(),
        }
    }

    /// Replaces the key.
    #[inline]
    pub fn with_key<L>(self, key: L) -> Record<L, V> {
        Record {
            key,
            value: self.value,
            timestamp: self.timestamp,
            headers: self.headers,
        }
    }

    /// Replaces the value.
    #[inline]
    pub fn with_value<U>(self, value: U) -> Record<K, U> {
        Record {
            key: self.key,
            value,
            timestamp: self.timestamp,
            headers: self.headers,
        }
    }

    /// Changes the value.
    ///
    /// ```
    /// # use eos_core::{Record, Timestamp};
    /// let record = Record::new("ada", 2).at(Timestamp(1_000)).map(|n| n * 2);
    /// assert_eq!((record.value, record.timestamp), (4, Some(Timestamp(1_000))));
    /// ```
    #[inline]
    pub fn map<U>(self, f: impl FnOnce(V) -> U) -> Record<K, U> {
        let (value, rest) = self.split();
        rest.with_value(f(value))
    }

    /// Sets the timestamp.
    #[must_use]
    pub fn at(self, timestamp: Timestamp) -> Self {
        Self {
            timestamp: Some(timestamp),
            ..self
        }
    }

    /// Appends a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push(name, Some(value.as_ref()));
        self
    }

    /// Splits the record into its value and a record without a value.
    #[inline]
    pub fn split(self) -> (V, Record<K, ()>) {
        let rest = Record {
            key: self.key,
            value: (),
            timestamp: self.timestamp,
            headers: self.headers,
        };
        (self.value, rest)
    }
}

impl<K> Record<K, ()> {
    /// Returns a record with this value and a borrowed key.
    #[inline]
    pub(crate) fn lent<V>(&self, value: V) -> Record<&K, V> {
        Record {
            key: &self.key,
            value,
            timestamp: self.timestamp,
            headers: self.headers.clone(),
        }
    }
}
