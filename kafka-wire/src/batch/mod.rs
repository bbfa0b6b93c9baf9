//! Record batches (format version 2): bytes to records and back.
//!
//! Decoded here rather than with `kafka_protocol::records` because that drops a batch's last
//! offset delta, without which a reader cannot step over compacted or empty tails, and folds
//! repeated headers into one. Written here so that a record is copied once, into the batch.

mod aborted;
mod decode;
mod encode;
mod visible;

pub use aborted::Aborted;
pub use decode::{Batch, Batches, Record};
pub use encode::{BatchBuilder, ProducerIdentity};
pub use visible::visible;

/// Attribute bits of a batch.
const COMPRESSION: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// Bytes of a batch before its first record, from the base offset to the record count.
pub const HEADER: usize = 61;
/// Bytes before the part that the length field counts: base offset and the length itself.
const BEFORE_LENGTH_ENDS: usize = 12;
/// Where the checksummed part begins: after length, leader epoch, magic and the checksum.
const CHECKSUMMED_FROM: usize = 21;
