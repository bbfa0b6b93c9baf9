//! The JSON codec.

use std::error::Error as StdError;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CodecError, Decode, Encode, Encoded, Field, null};

/// The JSON codec for `serde` types.
///
/// `None` is Kafka's null, a tombstone, in both directions; JSON's own `null` is read as `None`,
/// too. For a type that is not an `Option`, null bytes are an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + 'static> Decode<T> for Json {
    // Each record is decoded, and a call would move the result once more (docs/design/0030).
    #[inline(always)]
    fn decode(&self, bytes: Option<&[u8]>, _: &Field<'_>) -> Result<T, CodecError> {
        match bytes {
            Some(bytes) => {
                parse(bytes).map_err(|e| CodecError::invalid("JSON of this type", JsonError(e)))
            }
            None => null::read().ok_or(CodecError::Null { expected: "JSON" }),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + 'static> Encode<T> for Json {
    fn encode(&self, value: &T, into: &mut Vec<u8>, _: &Field<'_>) -> Result<Encoded, CodecError> {
        let start = into.len();
        serde_json::to_writer(&mut *into, value)
            .map_err(|e| CodecError::invalid("writable as JSON", JsonError(e)))?;
        // Not every `null` is a tombstone: a NaN is written as one, and must delete nothing.
        if into.get(start..) == Some(b"null") && null::is(value) {
            into.truncate(start);
            return Ok(Encoded::Null);
        }
        Ok(Encoded::Bytes)
    }
}

/// One UTF-8 check of all bytes is faster than a check of each string, and most records pass it. For the others,
/// `from_slice` accepts bytes that are not UTF-8 in fields that are not read.
#[inline]
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    }
}

/// An error of `serde_json`. Its text does not call names in an object "keys", because these are not record keys.
#[derive(Debug)]
struct JsonError(serde_json::Error);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match text.strip_prefix("key must be a string") {
            Some(place) => write!(
                f,
                "the names in a JSON object must be strings in quotes{place}"
            ),
            None => f.write_str(&text),
        }
    }
}

impl StdError for JsonError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::codec::Part;

    const FIELD: Field<'static> = Field::bare("t", Part::Value);

    fn decode<T: DeserializeOwned + 'static>(bytes: Option<&[u8]>) -> Result<T, CodecError> {
        Json.decode(bytes, &FIELD)
    }

    #[test]
    fn an_error_names_the_place_of_invalid_json() {
        let decode = decode::<Vec<u32>>;
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

    #[test]
    fn bytes_that_are_not_utf_8_fail_only_where_they_are_read() {
        #[derive(Debug, Serialize, Deserialize)]
        struct Read {
            n: u32,
        }
        let bytes = b"{\"ignored\": \"\xff\", \"n\": 7}";
        assert_eq!(decode::<Read>(Some(bytes)).unwrap().n, 7);
        let error = decode::<String>(Some(b"\"\xff\"")).unwrap_err();
        assert!(error.to_string().contains("unicode"), "{error}");
    }

    #[test]
    fn names_in_json_are_not_mistaken_for_the_records_key() {
        let error = decode::<serde_json::Value>(Some(b"{pen:1}")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not JSON of this type: the names in a JSON object must be strings in quotes at line 1 \
             column 2"
        );
        let pairs = std::collections::BTreeMap::from([((1, 2), 3)]);
        let error = Json.encode(&pairs, &mut Vec::new(), &FIELD).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not writable as JSON: the names in a JSON object must be strings in quotes"
        );
    }

    #[track_caller]
    fn check<T>(value: T, bytes: Option<&[u8]>)
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug + 'static,
    {
        let mut written = b"before".to_vec();
        let encoded = Json.encode(&value, &mut written, &FIELD).unwrap();
        let as_kafka = (encoded == Encoded::Bytes).then_some(&written[6..]);
        assert_eq!(as_kafka, bytes);
        assert_eq!(decode::<T>(bytes).unwrap(), value);
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Maybe(Option<u32>);

    #[test]
    fn none_is_a_tombstone_and_comes_back_as_none() {
        check(None::<u32>, None);
        check(Some(1), Some(b"1"));
        check(Maybe(None), None);
        check(vec![None::<u32>], Some(b"[null]"));
        check((), Some(b"null"));
        let text_null = decode::<Option<u32>>(Some(b"null"));
        assert_eq!(text_null.unwrap(), None);
    }

    #[test]
    fn a_null_that_is_no_none_deletes_nothing() {
        let mut bytes = Vec::new();
        let encoded = Json.encode(&f64::NAN, &mut bytes, &FIELD).unwrap();
        assert_eq!((encoded, &bytes[..]), (Encoded::Bytes, &b"null"[..]));
        check(serde_json::Value::Null, Some(b"null"));
        for refused in [
            decode::<serde_json::Value>(None).is_err(),
            decode::<()>(None).is_err(),
            decode::<u32>(None).is_err(),
            decode::<String>(None).is_err(),
        ] {
            assert!(refused, "null where there is no room for it");
        }
    }
}
