//! How keys and values become bytes and back.

mod json;
mod null;
mod ordered;
mod plain;
mod pool;

use std::error::Error as StdError;

pub use json::Json;
pub(crate) use ordered::OrderedCodec;
pub use ordered::{OrderedKey, PrefixOf};
pub use plain::{Plain, PlainCodec};

/// Turns values of one type into bytes and back. The same one serves sources and outputs.
///
/// The encoding of keys must be deterministic: equal keys have to give equal bytes, or they land
/// in different partitions.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't encode and decode `{T}`",
    note = "`Json` takes every `serde` type; `PlainCodec` takes text, bytes and integers; for your \
            own format implement `Codec<{T}>`"
)]
pub trait Codec<T>: Send + Sync + 'static {
    /// Reads a value; `None` is Kafka's null.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are no such value, or null where it has to be something.
    fn decode(&self, bytes: Option<&[u8]>) -> Result<T, CodecError>;

    /// Appends the value's bytes, or says that it is null.
    ///
    /// # Errors
    /// [`CodecError`] if the value can't be written.
    fn encode(&self, value: &T, into: &mut Vec<u8>) -> Result<Encoded, CodecError>;

    /// How many of a key's bytes, from the first on, decide its partition; all of them by default.
    fn deciding_bytes(&self, key: &[u8]) -> usize {
        key.len()
    }

    /// Takes back a value that was written, so that its memory can serve the next one. Dropping it
    /// is fine.
    fn recycle(&self, value: T) {
        drop(value);
    }
}

/// What an encoding came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// The bytes that were appended.
    Bytes,
    /// Kafka's null: no key, or a tombstone.
    Null,
}

/// Bytes that are no value, or a value that has no bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Null, but the type has no room for it.
    #[error("null where {expected} was expected; use an `Option` if nulls are meant to be there")]
    Null {
        /// What was expected.
        expected: &'static str,
    },
    /// The bytes are something else.
    #[error("not {expected}: {source}")]
    Invalid {
        /// What was expected.
        expected: &'static str,
        /// What is wrong.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl CodecError {
    /// Bytes that are not what was expected.
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
