//! Record batches (format version 2): bytes to records and back.
//!
//! Layout and attributes are those of Kafka's protocol guide, "Record Batch" and "Record" (KIP-98).
//!
//! ```text
//! header    the bytes before the first record: read, written, checksummed; Batch, Batches
//! builder   BatchBuilder: records to bytes, each copied once; markers
//! records   Records: bytes to records
//! aborted   Aborted, visible: the records that read_committed hides
//! ```
//!
//! `kafka_protocol::records` is not used: it drops a batch's last offset delta, without which a reader cannot
//! step over compacted or empty tails, and folds repeated headers into one.

mod aborted;
mod builder;
mod header;
mod records;

pub use aborted::{Aborted, visible};
pub use builder::{BatchBuilder, ProducerIdentity};
pub use header::{
    Batch, Batches, CONTROL, DELETE_HORIZON, HEADER, Header, LOG_APPEND_TIME, TRANSACTIONAL, seal,
};
pub use records::{Record, Records};

/// Bytes that are not a batch, or not one that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch, or its length leaves no room for a header.
    #[error("the record batch is cut short or its length is wrong")]
    Length,
    /// A message format of long ago.
    #[error("record batches of magic {0} are not supported: only 2")]
    Magic(u8),
    /// The batch is corrupt.
    #[error("the record batch's checksum does not match")]
    Checksum,
    /// The codec is the number in the attributes.
    #[error(
        "the record batch is compressed (codec {0}), which is not read: write the topic with \
         compression.type=none"
    )]
    Compressed(i16),
    /// The records are not those that the header announces.
    #[error("a record of the batch is cut short or malformed")]
    Record,
}

/// Batches as a log holds them, for unit tests.
#[cfg(test)]
pub(crate) mod logged {
    use super::{Batch, BatchBuilder, ProducerIdentity};

    /// As many records without key and value.
    pub(crate) fn records(
        offset: i64,
        (id, epoch): (i64, i16),
        count: usize,
        transactional: bool,
    ) -> Batch {
        let mut batch = BatchBuilder::new(100);
        for _ in 0..count {
            batch.push(0, None, None, std::iter::empty());
        }
        let producer = ProducerIdentity { id, epoch };
        batch.close(producer, 0, transactional).at(offset)
    }

    /// The marker that ends a producer's transaction.
    pub(crate) fn marker(offset: i64, (id, epoch): (i64, i16), commits: bool) -> Batch {
        Batch::end_marker(ProducerIdentity { id, epoch }, commits, 0, 0).at(offset)
    }

    /// What a fetch of them brings.
    pub(crate) fn bytes(log: &[Batch]) -> bytes::Bytes {
        let log = log.iter().flat_map(|batch| batch.bytes().to_vec());
        log.collect()
    }
}
