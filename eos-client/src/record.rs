//! Consumed and produced records, as bytes.

use std::fmt;
use std::sync::Arc;

use eos_protocol::{Offset, Partition, Timestamp};

/// Fetched records of one partition, in order. They keep the client's buffers alive until they are dropped. Hold only
/// records that are about to be processed.
pub trait Records: Default + Send {
    /// A record.
    type Message: Message;

    /// Returns the next record.
    fn first(&self) -> Option<&Self::Message>;

    /// Returns the last record.
    fn last(&self) -> Option<&Self::Message>;

    /// Frees the next record.
    fn drop_first(&mut self);

    /// Frees all records.
    fn clear(&mut self);
}

/// A fetched record.
pub trait Message {
    /// Returns the offset of the record.
    fn offset(&self) -> Offset;
    /// Returns the timestamp, or `None` if the record has none.
    fn timestamp(&self) -> Option<Timestamp>;
    /// Returns the key. `None` is a null key.
    fn key(&self) -> Option<&[u8]>;
    /// Returns the value. `None` is a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Returns the headers, in order.
    fn headers(&self) -> Headers;
}

/// One record header.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    name: Box<str>,
    value: Option<Box<[u8]>>,
}

impl Header {
    /// Returns a header of this name. The value `None` is a null.
    pub fn new(name: impl Into<Box<str>>, value: Option<&[u8]>) -> Self {
        Self {
            name: name.into(),
            value: value.map(Into::into),
        }
    }

    /// Returns the name. Names may repeat.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes. `None` is a null.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }
}

/// Formats UTF-8 values as text, and other values as bytes.
impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.value().map(str::from_utf8);
        match text {
            Some(Ok(text)) => write!(f, "{:?}: {text:?}", self.name),
            Some(Err(_)) => write!(f, "{:?}: {:?}", self.name, self.value().unwrap_or_default()),
            None => write!(f, "{:?}: null", self.name),
        }
    }
}

/// A record's headers, in order. Empty headers cost nothing, and clones share the headers.
//
// Records are moved often, and most have no headers: one word instead of three.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<Vec<Header>>>);

impl Headers {
    /// Returns empty headers.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds a header at the end.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Option<&[u8]>) {
        self.extend([Header::new(name, value)]);
    }

    /// Removes all headers of this name, and returns their number.
    pub fn remove(&mut self, name: &str) -> usize {
        let before = self.len();
        if self.get_header(name).is_some()
            && let Some(headers) = &mut self.0
        {
            Arc::make_mut(headers).retain(|header| header.name() != name);
        }
        before - self.len()
    }

    /// Returns the value of the last header of this name: in Kafka the last one counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_header(name)?.value()
    }

    fn get_header(&self, name: &str) -> Option<&Header> {
        self.iter().rev().find(|header| header.name() == name)
    }

    /// Returns all headers, in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.as_deref().map_or(&[][..], Vec::as_slice).iter()
    }

    /// Returns the number of headers.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Returns whether there are no headers.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Extend<Header> for Headers {
    fn extend<I: IntoIterator<Item = Header>>(&mut self, headers: I) {
        let mut headers = headers.into_iter().peekable();
        if headers.peek().is_some() {
            Arc::make_mut(self.0.get_or_insert_default()).extend(headers);
        }
    }
}

/// ```
/// use eos_client::{Header, Headers};
/// let headers: Headers = [Header::new("trace", Some(b"7")), Header::new("flag", None)].into_iter().collect();
/// assert_eq!((headers.len(), headers.get("trace")), (2, Some(&b"7"[..])));
/// ```
impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(headers: I) -> Self {
        let mut all = Self::new();
        all.extend(headers);
        all
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A record to produce. The client has nothing left to decide.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The topic, as an index into [`ProducerSpec::topics`](super::ProducerSpec::topics).
    pub topic: usize,
    /// The partition of the topic.
    pub partition: Partition,
    /// The timestamp. With `None` the client sets it.
    pub timestamp: Option<Timestamp>,
    /// The key. `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// The value. `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a Headers,
}

/// A change of a store, as a record of its changelog: without headers, with the time at which it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value. `None` is a tombstone.
    pub value: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_readable_in_debug_output() {
        let mut headers = Headers::new();
        headers.push("a", Some(b"1 17 3"));
        headers.push("b", Some(b"\xff"));
        headers.push("c", None);
        assert_eq!(
            format!("{headers:?}"),
            r#"["a": "1 17 3", "b": [255], "c": null]"#
        );
    }

    #[test]
    fn clones_share_headers_until_one_of_them_changes() {
        let mut headers = Headers::new();
        headers.push("a", None);
        let (shared, mut changed) = (headers.clone(), headers.clone());
        let at = |headers: &Headers| headers.iter().as_slice().as_ptr();
        assert_eq!(at(&headers), at(&shared));
        changed.push("b", Some(b"1"));
        assert_eq!((headers.len(), shared.len(), changed.len()), (1, 1, 2));
        assert_eq!(changed.remove("a"), 1);
        assert_eq!(headers, shared);
    }
}
