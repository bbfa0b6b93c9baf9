//! Topics of global tables, with erased codecs.

use std::any::type_name;

use super::row::decode_row;
use crate::client::Headers;
use crate::codec::{Codec, CodecError, Decode, Encoded};
use crate::topic::Topic;

/// A checked record of a global table's topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The record writes the row.
    Put,
    /// The record deletes the row.
    Delete,
}

/// Checks the records of a global table's topic, before they become rows.
pub(crate) trait CheckRows: Send + Sync {
    /// Decodes a record, and writes the canonical bytes of its key into `into`. Producers may encode one key in
    /// different ways.
    fn check(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &Headers,
        into: &mut Vec<u8>,
    ) -> Result<Checked, RowFault>;

    /// The names of the types and codecs.
    fn types(&self) -> String;
}

/// The reason why a record can't become a row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowFault {
    #[error("its key can't be decoded: {0}")]
    Key(CodecError),
    #[error("its value can't be decoded: {0}")]
    Value(CodecError),
    #[error("its key can't be encoded again: {0}")]
    Encode(CodecError),
    #[error("its key is null, so no join could find its row")]
    NullKey,
}

/// The topic of a global table, for the joins with it.
pub(crate) trait GlobalTopic<K, V>: Send + Sync {
    /// Appends the canonical bytes of a key.
    fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<Encoded, CodecError>;

    /// Decodes a row.
    fn decode_row(&self, row: &[u8]) -> Result<Option<V>, CodecError>;
}

impl<K, V, KC, VC> CheckRows for Topic<K, Option<V>, KC, VC>
where
    K: 'static,
    V: 'static,
    KC: Codec<K>,
    VC: Decode<Option<V>>,
{
    fn check(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &Headers,
        into: &mut Vec<u8>,
    ) -> Result<Checked, RowFault> {
        let key = self.decode_key(key, headers).map_err(RowFault::Key)?;
        into.clear();
        if GlobalTopic::encode_key(self, &key, into).map_err(RowFault::Encode)? == Encoded::Null {
            return Err(RowFault::NullKey);
        }
        let row = self.decode_value(value, headers).map_err(RowFault::Value)?;
        Ok(match row {
            Some(_) => Checked::Put,
            None => Checked::Delete,
        })
    }

    fn types(&self) -> String {
        format!(
            "{} {} ({} {})",
            type_name::<K>(),
            type_name::<V>(),
            type_name::<KC>(),
            type_name::<VC>()
        )
    }
}

impl<K, V, KC, VC> GlobalTopic<K, V> for Topic<K, Option<V>, KC, VC>
where
    K: 'static,
    V: 'static,
    KC: Codec<K>,
    VC: Decode<Option<V>>,
{
    fn encode_key(&self, key: &K, into: &mut Vec<u8>) -> Result<Encoded, CodecError> {
        self.encode_bare_key(key, into)
    }

    fn decode_row(&self, row: &[u8]) -> Result<Option<V>, CodecError> {
        let Some((headers, value)) = decode_row(row) else {
            return Err(CodecError::invalid(
                "a row of this version",
                "unknown format",
            ));
        };
        self.decode_value(Some(value), &headers)
    }
}
