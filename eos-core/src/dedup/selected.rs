//! Functions that read the id of a record.

use std::fmt;
use std::sync::Arc;

use eos_protocol::identity::{ContentHash, TimedIdFormat};
use serde::Serialize;

use super::content_id::ContentId;
use super::rule::IdOf;
use crate::codec::{Encoded, PlainType};
use crate::record::Record;

/// A selected id.
pub struct Selected<K, V> {
    pub(super) id: IdOf<K, V>,
    /// The format, if the id has a time.
    pub(super) format: Option<TimedIdFormat>,
}

impl<K: 'static, V: 'static> Selected<K, V> {
    pub(super) fn new(id: IdOf<K, V>) -> Self {
        Self { id, format: None }
    }

    /// Selects the last header of this name.
    pub(super) fn header(name: &str) -> Self {
        let name = name.to_owned();
        Self::new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let header = record.headers.get(&name);
                into.extend_from_slice(header.unwrap_or_default());
                Ok(header.is_some())
            },
        ))
    }

    /// Selects the source and the id of a CloudEvent in binary mode.
    pub(super) fn cloud_event() -> Self {
        Self::new(Arc::new(|record: &Record<K, V>, into: &mut Vec<u8>| {
            let header = |name| record.headers.get(name).unwrap_or_default();
            let begin = into.len();
            begin_pair(into);
            into.extend_from_slice(header("ce_source"));
            let second = end_first(begin, into);
            into.extend_from_slice(header("ce_id"));
            Ok(is_pair(begin, second, into))
        }))
    }

    /// Selects two parts of the value. The record has no id if one is null or empty.
    pub(super) fn pair<A: PlainType, B: PlainType>(
        f: impl Fn(&V) -> (A, B) + Send + Sync + 'static,
    ) -> Self {
        Self::new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let (first, second) = f(&record.value);
                let begin = into.len();
                begin_pair(into);
                first.write(into);
                first.recycle();
                let end = end_first(begin, into);
                second.write(into);
                second.recycle();
                Ok(is_pair(begin, end, into))
            },
        ))
    }

    /// Selects the hash of the value.
    pub(super) fn value() -> Self
    where
        V: Serialize,
    {
        let empty = ContentHash::new("");
        Self::new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let id = ContentId::new(empty.clone());
                id.add(&record.value).write(into)
            },
        ))
    }

    /// Selects the first id that the record has. A byte in front separates the two kinds.
    pub(super) fn or_else(self, other: Self) -> Self {
        let (first, second) = (self.id, other.id);
        Self::new(Arc::new(
            move |record: &Record<K, V>, into: &mut Vec<u8>| {
                let begin = into.len();
                into.push(0);
                if first(record, into)? && into.len() > begin + 1 {
                    return Ok(true);
                }
                into.truncate(begin);
                into.push(1);
                second(record, into)
            },
        ))
    }
}

/// Leaves room for the length of the first part. Without the length, `ab` and `c` would equal `a` and `bc`.
fn begin_pair(into: &mut Vec<u8>) {
    into.extend_from_slice(&[0; 8]);
}

/// Writes the length of the first part, and returns the place of the second one.
fn end_first(begin: usize, into: &mut [u8]) -> usize {
    let length = (into.len() - begin - 8) as u64;
    if let Some(room) = into.get_mut(begin..begin + 8) {
        room.copy_from_slice(&length.to_be_bytes());
    }
    into.len()
}

/// Whether both parts have bytes.
fn is_pair(begin: usize, second: usize, id: &[u8]) -> bool {
    second > begin + 8 && id.len() > second
}

/// Writes a part of the value.
pub(super) fn of_value<K, V: 'static, I: PlainType>(
    f: impl Fn(&V) -> I + Send + Sync + 'static,
) -> IdOf<K, V> {
    Arc::new(move |record: &Record<K, V>, into: &mut Vec<u8>| {
        let part = f(&record.value);
        let written = part.write(into);
        part.recycle();
        Ok(written == Encoded::Bytes)
    })
}

impl<K, V> fmt::Debug for Selected<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}
