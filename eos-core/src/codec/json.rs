//! JSON, by `serde`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError, Encoded};

/// JSON for every `serde` type. Null bytes are an error; JSON's own `null` is a value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn decode(&self, bytes: Option<&[u8]>) -> Result<T, CodecError> {
        let bytes = bytes.ok_or(CodecError::Null { expected: "JSON" })?;
        serde_json::from_slice(bytes).map_err(|e| CodecError::invalid("JSON of this type", e))
    }

    fn encode(&self, value: &T, into: &mut Vec<u8>) -> Result<Encoded, CodecError> {
        serde_json::to_writer(into, value)
            .map_err(|e| CodecError::invalid("writable as JSON", e))?;
        Ok(Encoded::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_says_where() {
        let decode = |bytes: Option<&[u8]>| Codec::<Vec<u32>>::decode(&Json, bytes);
        assert_eq!(decode(Some(b"[1,2]")).unwrap(), [1, 2]);
        let error = decode(Some(b"[1,")).unwrap_err().to_string();
        assert!(error.starts_with("not JSON of this type: EOF"), "{error}");
        assert!(
            decode(None)
                .unwrap_err()
                .to_string()
                .contains("null where JSON")
        );
    }
}
