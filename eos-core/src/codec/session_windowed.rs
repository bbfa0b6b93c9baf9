//! The codec of keys in sessions.

use eos_protocol::Timestamp;
use eos_protocol::windows::Window;

use super::{CodecError, Decode, Encode, Encoded, Field};
use crate::windowed_key::Windowed;

/// The codec of keys in sessions, in the format of Kafka Streams' `SessionWindowedSerializer`.
///
/// The key's bytes are followed by the times of the last and the first record in milliseconds, as 8 bytes big-endian each
/// (`SessionKeySchema`). Both times are inclusive, as in Kafka Streams. The end of a [`Window`] is exclusive, so the codec
/// subtracts one millisecond. The key alone decides the partition.
///
/// ```
/// # use eos_core::windows::Windowed;
/// # use eos_core::Topic;
/// # use eos_core::codec::{Plain, SessionWindowed};
/// let visits = Topic::<Windowed<String>, u64>::with("visits", SessionWindowed::of(Plain), Plain);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SessionWindowed<C> {
    key: C,
}

impl<C> SessionWindowed<C> {
    /// Creates a codec of keys with this codec.
    #[must_use]
    pub const fn of(key: C) -> Self {
        Self { key }
    }
}

/// The bytes of both times.
const SPAN: usize = 16;

const EXPECTED: &str = "a key in a session";

#[diagnostic::do_not_recommend]
impl<K, C: Decode<K>> Decode<Windowed<K>> for SessionWindowed<C> {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<Windowed<K>, CodecError> {
        let bytes = bytes.ok_or(CodecError::null(EXPECTED))?;
        let invalid = || CodecError::invalid(EXPECTED, "the key has fewer than 16 bytes");
        let (key, start) = bytes.split_last_chunk().ok_or_else(invalid)?;
        let (key, last) = key.split_last_chunk().ok_or_else(invalid)?;
        let last = i64::from_be_bytes(*last);
        Ok(Windowed {
            key: self.key.decode(Some(key), field)?,
            window: Window {
                start: Timestamp(i64::from_be_bytes(*start)),
                end: Timestamp(last.saturating_add(1)),
            },
        })
    }
}

#[diagnostic::do_not_recommend]
impl<K, C: Encode<K>> Encode<Windowed<K>> for SessionWindowed<C> {
    fn encode(
        &self,
        windowed: &Windowed<K>,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        if let Encoded::Null = self.key.encode(&windowed.key, into, field)? {
            return Err(CodecError::null(EXPECTED));
        }
        let Window { start, end } = windowed.window;
        into.extend_from_slice(&end.0.saturating_sub(1).to_be_bytes());
        into.extend_from_slice(&start.0.to_be_bytes());
        Ok(Encoded::Bytes)
    }

    fn deciding_bytes(&self, key: &[u8]) -> usize {
        let inner = key.len().saturating_sub(SPAN);
        self.key.deciding_bytes(key.get(..inner).unwrap_or(key))
    }

    fn recycle(&self, windowed: Windowed<K>) {
        self.key.recycle(windowed.key);
    }
}
