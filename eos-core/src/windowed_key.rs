//! Keys in windows, and their codec.

use std::fmt;
use std::time::Duration;

use eos_protocol::Timestamp;
use eos_protocol::windows::{Tumbling, Window};

use crate::codec::{Codec, CodecError, Encoded, Plain, PlainCodec};

/// A key in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Windowed<K> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
}

/// Keys in windows, in the bytes of Kafka Streams' `TimeWindowedSerializer`: the key's, then the
/// window's start in milliseconds, 8 bytes big-endian. The key alone decides the partition, as with
/// `WindowedStreamPartitioner`.
///
/// Where a window ends is not in the bytes: the codec says how long they are, and a reader has to be
/// told the same.
///
/// ```
/// # use eos_core::{Topic, Windowed, WindowedCodec};
/// # use eos_core::codec::PlainCodec;
/// # use std::time::Duration;
/// let hour = Duration::from_secs(3600);
/// let views = Topic::<Windowed<String>, u64>::with(
///     "views-per-hour",
///     WindowedCodec::plain(hour),
///     PlainCodec::new(),
/// );
/// ```
pub struct WindowedCodec<K> {
    key: Box<dyn Codec<K>>,
    windows: Tumbling,
}

impl<K: 'static> WindowedCodec<K> {
    /// Of plain keys (text, bytes, integers) in windows of this length.
    #[must_use]
    pub fn plain(size: Duration) -> Self
    where
        K: Plain,
    {
        Self::with(PlainCodec::new(), size)
    }

    /// Of keys with a codec of your choice, in windows of this length.
    #[must_use]
    pub fn with(key: impl Codec<K>, size: Duration) -> Self {
        Self {
            key: Box::new(key),
            windows: Tumbling::of(size),
        }
    }
}

/// Of a window's start.
const START: usize = 8;

impl<K: 'static> Codec<Windowed<K>> for WindowedCodec<K> {
    fn decode(&self, bytes: Option<&[u8]>) -> Result<Windowed<K>, CodecError> {
        const EXPECTED: &str = "a key in a window";
        let bytes = bytes.ok_or(CodecError::Null { expected: EXPECTED })?;
        let (key, start) = bytes
            .split_last_chunk::<START>()
            .ok_or_else(|| CodecError::invalid(EXPECTED, "it has fewer than 8 bytes"))?;
        Ok(Windowed {
            key: self.key.decode(Some(key))?,
            window: self.windows.at(Timestamp(i64::from_be_bytes(*start))),
        })
    }

    fn encode(&self, windowed: &Windowed<K>, into: &mut Vec<u8>) -> Result<Encoded, CodecError> {
        const EXPECTED: &str = "a key in a window";
        if let Encoded::Null = self.key.encode(&windowed.key, into)? {
            return Err(CodecError::Null { expected: EXPECTED });
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

impl<K> fmt::Debug for WindowedCodec<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowedCodec")
            .field("size", &self.windows.size())
            .finish_non_exhaustive()
    }
}
