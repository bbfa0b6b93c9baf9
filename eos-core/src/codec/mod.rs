//! Codecs of keys and values.

mod change;
mod json;
mod null;
mod ordered;
mod plain;
mod pool;
mod session_windowed;
mod time_windowed;

use std::error::Error as StdError;
use std::sync::Arc;

use crate::client::Headers;

pub(crate) use change::ChangeCodec;
pub use json::Json;
pub(crate) use ordered::OrderedCodec;
pub use ordered::{OrderedKey, PrefixOf};
pub use plain::{Plain, PlainType};
pub use session_windowed::SessionWindowed;
pub use time_windowed::TimeWindowed;

/// Reads values of one type from bytes.
///
/// The codecs of input topics implement `Decode`; see [`App::source`](crate::App::source). Decoding runs on the worker's
/// thread and may block it. A codec that waits for a remote schema returns [`CodecError::unavailable`]. The record is
/// then retried if the error policy of its source has a retry.
///
/// ```
/// use eos_core::codec::{CodecError, Decode, Field};
///
/// /// Text, whatever bytes there are.
/// #[derive(Default)]
/// struct Lossy;
///
/// impl Decode<String> for Lossy {
///     fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<String, CodecError> {
///         let bytes = bytes.ok_or(CodecError::null("text"))?;
///         Ok(String::from_utf8_lossy(bytes).into_owned())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{T}` can't be read with `{Self}`",
    label = "this topic is read, so its keys and values must be decodable",
    note = "`Json` reads types that derive `serde::Deserialize`; `Plain` reads text, bytes and integers, and the tuple structs of `eos_core::plain_key!`",
    note = "for another format, implement `eos_core::codec::Decode<{T}>` and declare the topic by `Topic::with`"
)]
pub trait Decode<T>: Send + Sync + 'static {
    /// Reads a value; `None` is Kafka's null.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are not a value of this type, or if they are null and the type is not an `Option`.
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<T, CodecError>;
}

/// Writes values of one type as bytes.
///
/// The codecs of output topics implement `Encode`; see [`Stream::to`](crate::Stream::to) and
/// [`App::output`](crate::App::output). The encoding of keys must be deterministic: equal keys with different bytes
/// would be in different partitions.
#[diagnostic::on_unimplemented(
    message = "`{T}` can't be written with `{Self}`",
    label = "this topic is written, so its keys and values must be encodable",
    note = "`Json` writes types that derive `serde::Serialize`; `Plain` writes text, bytes and integers, and the tuple structs of `eos_core::plain_key!`",
    note = "if the value is a future: closures run to their end and cannot wait for one",
    note = "for another format, implement `eos_core::codec::Encode<{T}>` and declare the topic by `Topic::with`"
)]
pub trait Encode<T>: Send + Sync + 'static {
    /// Appends the value's bytes, or reports that it is null.
    ///
    /// # Errors
    /// [`CodecError`] if the value can't be written.
    fn encode(
        &self,
        value: &T,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError>;

    /// The number of a key's first bytes that decide its partition; all of them by default.
    fn deciding_bytes(&self, key: &[u8]) -> usize {
        key.len()
    }

    /// Takes back a written value to reuse its memory. By default the value is dropped.
    fn recycle(&self, value: T) {
        drop(value);
    }
}

/// Both directions: stores and repartition topics are written and read back.
#[diagnostic::on_unimplemented(
    message = "`{T}` can't be kept with `{Self}`",
    label = "stores and repartition topics are written and read back",
    note = "`Json` takes types that derive both `serde::Serialize` and `serde::Deserialize`"
)]
pub trait Codec<T>: Decode<T> + Encode<T> {}

#[diagnostic::do_not_recommend]
impl<T, C: Decode<T> + Encode<T>> Codec<T> for C {}

/// A decoder chosen at run time, for example by configuration.
pub type BoxDecode<T> = Box<dyn Decode<T>>;

/// An encoder chosen at run time, for example by configuration.
pub type BoxEncode<T> = Box<dyn Encode<T>>;

/// A codec chosen at run time, for example by configuration.
pub type BoxCodec<T> = Box<dyn Codec<T>>;

/// A codec chosen at run time and shared: see [`Topic::erased`](crate::Topic::erased).
pub type ArcCodec<T> = Arc<dyn Codec<T>>;

macro_rules! by_pointer {
    ($($pointer:ident),+) => {$(
        #[diagnostic::do_not_recommend]
        impl<T, C: Decode<T> + ?Sized> Decode<T> for $pointer<C> {
            fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<T, CodecError> {
                (**self).decode(bytes, field)
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T, C: Encode<T> + ?Sized> Encode<T> for $pointer<C> {
            fn encode(
                &self,
                value: &T,
                into: &mut Vec<u8>,
                field: &Field<'_>,
            ) -> Result<Encoded, CodecError> {
                (**self).encode(value, into, field)
            }

            fn deciding_bytes(&self, key: &[u8]) -> usize {
                (**self).deciding_bytes(key)
            }

            fn recycle(&self, value: T) {
                (**self).recycle(value);
            }
        }
    )+};
}

by_pointer!(Arc, Box);

/// The place of an encoded key or value: its topic, its part of the record, and the record's headers.
///
/// A codec can use it to find the schema of a topic. For a store, the topic is the store's name, and there are no
/// headers.
#[derive(Debug)]
pub struct Field<'a> {
    topic: &'a str,
    part: Part,
    headers: &'a Headers,
}

impl<'a> Field<'a> {
    /// Creates the place of a key or a value of a record with these headers.
    #[must_use]
    pub const fn new(topic: &'a str, part: Part, headers: &'a Headers) -> Self {
        Self {
            topic,
            part,
            headers,
        }
    }

    /// Without headers.
    pub(crate) const fn bare(topic: &'a str, part: Part) -> Self {
        static NONE: Headers = Headers::new();
        Self::new(topic, part, &NONE)
    }

    /// The topic's name.
    #[must_use]
    pub const fn topic(&self) -> &'a str {
        self.topic
    }

    /// The part of the record.
    #[must_use]
    pub const fn part(&self) -> Part {
        self.part
    }

    /// The record's headers.
    #[must_use]
    pub const fn headers(&self) -> &'a Headers {
        self.headers
    }
}

/// A part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

/// The result of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// The bytes that were appended.
    Bytes,
    /// Kafka's null: no key, or a tombstone.
    Null,
}

/// An error in decoding or encoding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes are null, but the type is not an `Option`.
    #[error("null where {expected} was expected; use an `Option` to allow nulls")]
    Null {
        /// The expected type.
        expected: &'static str,
    },
    /// The bytes are not a value of the expected type.
    #[error("not {expected}: {source}")]
    Invalid {
        /// The expected type.
        expected: &'static str,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The codec is not available; the bytes may be valid.
    #[error("the codec is not available: {source}")]
    Unavailable {
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl CodecError {
    /// Creates the error for null bytes of a type that is not an `Option`.
    #[must_use]
    pub const fn null(expected: &'static str) -> Self {
        Self::Null { expected }
    }

    /// Creates the error of a codec that lacks a resource, e.g. when a schema registry does not respond. The record is
    /// retried if the error policy of its source has a retry, such as
    /// [`retry_forever`](crate::ErrorPolicy::retry_forever). Other policies treat it as undecodable.
    pub fn unavailable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Unavailable {
            source: source.into(),
        }
    }

    /// Creates the error for bytes that are not a value of the expected type.
    pub fn invalid(
        expected: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Invalid {
            expected,
            source: source.into(),
        }
    }
}
