//! Values with a timestamp.

use std::sync::Arc;

use eos_protocol::Timestamp;

use crate::codec::{Codec, CodecError, Decode, Encode, Encoded, Field};

/// A stored value of an operator, with the highest timestamp of its records, as in Kafka Streams (KIP-258).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamped<V> {
    pub(crate) value: V,
    pub(crate) timestamp: Option<Timestamp>,
}

/// Eight bytes of time, big-endian and lowest for none, then the value.
pub(crate) struct StampedCodec<V>(pub(crate) Arc<dyn Codec<V>>);

impl<V: 'static> Decode<Stamped<V>> for StampedCodec<V> {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<Stamped<V>, CodecError> {
        const EXPECTED: &str = "a value with its time";
        let bytes = bytes.ok_or(CodecError::Null { expected: EXPECTED })?;
        let (time, value) = bytes
            .split_first_chunk()
            .ok_or_else(|| CodecError::invalid(EXPECTED, "it has fewer than 8 bytes"))?;
        Ok(Stamped {
            value: self.0.decode(Some(value), field)?,
            timestamp: Some(i64::from_be_bytes(*time))
                .filter(|ms| *ms != i64::MIN)
                .map(Timestamp),
        })
    }
}

impl<V: 'static> Encode<Stamped<V>> for StampedCodec<V> {
    fn encode(
        &self,
        stamped: &Stamped<V>,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        let time = stamped.timestamp.map_or(i64::MIN, |time| time.0);
        into.extend_from_slice(&time.to_be_bytes());
        self.0.encode(&stamped.value, into, field)
    }
}

/// Returns the value of the bytes of a stamped value.
pub(crate) fn unstamped(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(8..)
}
