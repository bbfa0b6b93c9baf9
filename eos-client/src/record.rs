//! Records on their way in and out, as bytes.

use std::sync::Arc;

use eos_protocol::{Offset, Partition, Timestamp};

/// Fetched records of one partition, in order. They keep the client's buffers alive until they are
/// dropped, so no more of them are held than are about to be processed.
pub trait Records: Default + Send {
    /// A record.
    type Message: Message;

    /// The next one.
    fn first(&self) -> Option<&Self::Message>;

    /// Frees the next one.
    fn drop_first(&mut self);

    /// Frees all.
    fn clear(&mut self);
}

/// A fetched record.
pub trait Message {
    /// Its offset.
    fn offset(&self) -> Offset;
    /// Its time; `None` if the record has none.
    fn timestamp(&self) -> Option<Timestamp>;
    /// Its key; `None` is a null key.
    fn key(&self) -> Option<&[u8]>;
    /// Its value; `None` is a tombstone.
    fn value(&self) -> Option<&[u8]>;
    /// Its headers, in order.
    fn headers(&self) -> Headers;
}

/// One record header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its name; names may repeat.
    pub name: Box<str>,
    /// Its bytes; `None` is a null.
    pub value: Option<Box<[u8]>>,
}

/// A record's headers, in order. Empty ones cost nothing, and a clone shares the headers.
//
// Records are moved a lot, and most have no headers: one word instead of three.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<Vec<Header>>>);

impl Headers {
    /// No headers.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds one at the end.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Option<&[u8]>) {
        Arc::make_mut(self.0.get_or_insert_default()).push(Header {
            name: name.into(),
            value: value.map(Into::into),
        });
    }

    /// The value of the last header of this name: in Kafka the last one counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .rev()
            .find(|h| &*h.name == name)?
            .value
            .as_deref()
    }

    /// All of them, in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.as_deref().map_or(&[][..], Vec::as_slice).iter()
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().len()
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

/// A record on its way out: fully decided, nothing left to the client.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Which topic: an index into [`ProducerSpec::topics`](super::ProducerSpec::topics).
    pub topic: usize,
    /// Which partition of it.
    pub partition: Partition,
    /// Its time; `None` lets the client set it.
    pub timestamp: Option<Timestamp>,
    /// Its key; `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a Headers,
}
