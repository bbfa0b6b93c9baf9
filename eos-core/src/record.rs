//! A record as a user's closure sees it.

use eos_protocol::Timestamp;

use crate::client::Headers;

/// A record: key, value, time and headers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
    /// Milliseconds since 1970; `None` if the record carries no time.
    pub timestamp: Option<Timestamp>,
    /// Carried on to outputs unless you change them.
    pub headers: Headers,
}

impl<K, V> Record<K, V> {
    /// A record without time or headers.
    pub fn new(key: K, value: V) -> Self {
        Self {
            key,
            value,
            timestamp: None,
            headers: Headers::new(),
        }
    }
}
