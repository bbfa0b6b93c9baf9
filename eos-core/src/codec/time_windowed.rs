//! The codec of windowed keys.

use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::windows::Tumbling;

use super::{CodecError, Decode, Encode, Encoded, Field, Plain};
use crate::windowed_key::Windowed;

/// The codec of windowed keys, in the format of Kafka Streams' `TimeWindowedSerializer`.
///
/// The key's bytes are followed by the window's start in milliseconds, as 8 bytes big-endian. The key alone decides the
/// partition, as in `WindowedStreamPartitioner`. The bytes do not hold the end of the window. A reader needs a codec with
/// the same window size.
///
/// ```
/// # use eos_core::windows::Windowed;
/// # use eos_core::Topic;
/// # use eos_core::codec::{Plain, TimeWindowed};
/// # use std::time::Duration;
/// let hour = Duration::from_secs(3600);
/// let views =
///     Topic::<Windowed<String>, u64>::with("views-per-hour", TimeWindowed::of(hour), Plain);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TimeWindowed<C = Plain> {
    key: C,
    windows: Tumbling,
}

impl TimeWindowed {
    /// Creates a codec of plain keys (text, bytes, integers) in windows of this size.
    #[must_use]
    pub fn of(size: Duration) -> Self {
        Self::with(Plain, size)
    }

    /// Creates a codec of keys with a codec of your choice, in windows of this size.
    #[must_use]
    pub fn with<C>(key: C, size: Duration) -> TimeWindowed<C> {
        TimeWindowed {
            key,
            windows: Tumbling::of(size),
        }
    }
}

/// The bytes of a window's start.
const START: usize = 8;

const EXPECTED: &str = "a key in a window";

#[diagnostic::do_not_recommend]
impl<K, C: Decode<K>> Decode<Windowed<K>> for TimeWindowed<C> {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<Windowed<K>, CodecError> {
        let bytes = bytes.ok_or(CodecError::null(EXPECTED))?;
        let (key, start) = bytes
            .split_last_chunk::<START>()
            .ok_or_else(|| CodecError::invalid(EXPECTED, "it has fewer than 8 bytes"))?;
        Ok(Windowed {
            key: self.key.decode(Some(key), field)?,
            window: self.windows.at(Timestamp(i64::from_be_bytes(*start))),
        })
    }
}

#[diagnostic::do_not_recommend]
impl<K, C: Encode<K>> Encode<Windowed<K>> for TimeWindowed<C> {
    fn encode(
        &self,
        windowed: &Windowed<K>,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        if let Encoded::Null = self.key.encode(&windowed.key, into, field)? {
            return Err(CodecError::null(EXPECTED));
        }
        into.extend_from_slice(&windowed.window.start.0.to_be_bytes());
        Ok(Encoded::Bytes)
    }

    fn deciding_bytes(&self, key: &[u8]) -> usize {
        let inner = key.len().saturating_sub(START);
        self.key.deciding_bytes(key.get(..inner).unwrap_or(key))
    }

    fn recycle(&self, windowed: Windowed<K>) {
        self.key.recycle(windowed.key);
    }
}
