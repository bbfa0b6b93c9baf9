//! The codec of changes in repartition topics.

use super::{ArcCodec, CodecError, Decode, Encode, Encoded, Field};
use crate::change::Change;

const EXPECTED: &str = "a change of a table's row";
/// The version of the format.
const VERSION: u8 = 1;
const HAS_OLD: u8 = 1;
const HAS_NEW: u8 = 2;

/// The version, a byte of flags, the length of the old value in four bytes, the old value, and the new value. A missing
/// value has no bytes. The length is big-endian and only there if both values are.
///
/// Kafka Streams' format (`ChangedSerializer`, KIP-904) has a version at the end and no old value without a length. Only
/// the app reads this topic.
pub(crate) struct ChangeCodec<V>(pub(crate) ArcCodec<V>);

impl<V> ChangeCodec<V> {
    fn append(&self, value: &V, into: &mut Vec<u8>, field: &Field<'_>) -> Result<(), CodecError>
    where
        V: 'static,
    {
        // A codec may clear its buffer.
        let mut bytes = Vec::new();
        match self.0.encode(value, &mut bytes, field)? {
            Encoded::Bytes => into.extend_from_slice(&bytes),
            Encoded::Null => {
                let reason = "a grouped row has a value, but its codec wrote a null";
                return Err(CodecError::invalid(EXPECTED, reason));
            }
        }
        Ok(())
    }
}

impl<V: 'static> Encode<Change<V>> for ChangeCodec<V> {
    fn encode(
        &self,
        change: &Change<V>,
        into: &mut Vec<u8>,
        field: &Field<'_>,
    ) -> Result<Encoded, CodecError> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let flag = |there: bool, flag: u8| if there { flag } else { 0 };
        into.extend_from_slice(&[
            VERSION,
            flag(old.is_some(), HAS_OLD) | flag(new.is_some(), HAS_NEW),
        ]);
        if let Some(old) = old {
            let at = into.len();
            if new.is_some() {
                into.extend_from_slice(&[0; 4]);
            }
            let start = into.len();
            self.append(old, into, field)?;
            if new.is_some() {
                let length = u32::try_from(into.len() - start)
                    .map_err(|e| CodecError::invalid(EXPECTED, e.to_string()))?;
                if let Some(place) = into.get_mut(at..start) {
                    place.copy_from_slice(&length.to_be_bytes());
                }
            }
        }
        if let Some(new) = new {
            self.append(new, into, field)?;
        }
        Ok(Encoded::Bytes)
    }
}

impl<V: 'static> Decode<Change<V>> for ChangeCodec<V> {
    fn decode(&self, bytes: Option<&[u8]>, field: &Field<'_>) -> Result<Change<V>, CodecError> {
        let bytes = bytes.ok_or(CodecError::Null { expected: EXPECTED })?;
        let short = || CodecError::invalid(EXPECTED, "it is too short");
        let ([version, flags], rest) = bytes.split_first_chunk().ok_or_else(short)?;
        if *version != VERSION {
            return Err(CodecError::invalid(
                EXPECTED,
                format!(
                    "its version is {version}, and this program reads {VERSION}. Update all instances of the app"
                ),
            ));
        }
        let value = |bytes: &[u8]| self.0.decode(Some(bytes), field);
        let (old, new) = match (flags & HAS_OLD != 0, flags & HAS_NEW != 0) {
            (false, false) => (None, None),
            (true, false) => (Some(value(rest)?), None),
            (false, true) => (None, Some(value(rest)?)),
            (true, true) => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(short)?;
                let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| short())?;
                let (old, new) = rest.split_at_checked(length).ok_or_else(short)?;
                (Some(value(old)?), Some(value(new)?))
            }
        };
        Ok(Change { old, new })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Headers;
    use crate::codec::{Part, Plain};

    fn codec() -> ChangeCodec<String> {
        ChangeCodec(Arc::new(Plain))
    }

    fn decoded(bytes: &[u8]) -> Result<Change<String>, CodecError> {
        let headers = Headers::new();
        codec().decode(Some(bytes), &Field::new("t", Part::Value, &headers))
    }

    #[test]
    fn a_change_is_read_as_it_was_written() {
        let values = [
            None,
            Some(String::new()),
            Some("é".to_owned()),
            Some("x".repeat(300)),
        ];
        for old in &values {
            for new in &values {
                let (old, new) = (old.clone(), new.clone());
                let (change, headers, mut bytes) =
                    (Change { old, new }, Headers::new(), Vec::new());
                let field = Field::new("t", Part::Value, &headers);
                codec().encode(&change, &mut bytes, &field).unwrap();
                assert_eq!(decoded(&bytes).unwrap(), change);
            }
        }
    }

    #[test]
    fn another_version_is_refused_with_the_fix() {
        let error = decoded(&[2, 0]).unwrap_err().to_string();
        assert!(
            error.contains("its version is 2, and this program reads 1"),
            "{error}"
        );
        // Lengths that lie.
        for bytes in [&[][..], &[1], &[1, 3, 0, 0], &[1, 3, 0, 0, 0, 9, b'a']] {
            assert!(decoded(bytes).is_err(), "{bytes:?}");
        }
    }
}
