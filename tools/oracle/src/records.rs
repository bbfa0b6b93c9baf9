//! One record of an input or an output.

use super::keys::{Key, Keys};

/// A record of a topic: its number, key, position and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number in the value, if there is one.
    pub seq: Option<u64>,
    /// The key.
    pub key: Key,
    /// The partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// Other contents of the value. In an output it is the running value (see
    /// [`Output::running`](super::Output::running)), in an input the argument of a [`Fold`](super::Fold). It is 0
    /// without contents, and a hash if the contents are no number.
    pub value: i64,
}

/// An input record with a valid number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) seq: u64,
    pub(super) key: Key,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) value: i64,
}

/// An input record, as the argument of a [`Fold`](super::Fold).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputRecord<'a> {
    /// The number.
    pub seq: u64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// The value of its [`Row`].
    pub value: i64,
}

impl Numbered {
    /// Returns the record with the bytes of its key.
    pub(super) fn with_key(self, keys: &Keys) -> InputRecord<'_> {
        InputRecord {
            seq: self.seq,
            key: keys.bytes(self.key),
            partition: self.partition,
            offset: self.offset,
            value: self.value,
        }
    }
}
