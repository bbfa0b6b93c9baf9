//! Record batches (format version 2): the encoder and the decoder.
//!
//! The layout and the attributes are those of Kafka's protocol guide, "Record Batch" and "Record" (KIP-98).
//!
//! ```text
//! header    the bytes before the first record: read, written, checksummed; Batch, Batches
//! builder   BatchBuilder: records to bytes, each copied once; markers
//! records   Records: bytes to records
//! aborted   Aborted, visible: the records that read_committed hides
//! ```
//!
//! `kafka_protocol::records` is not used, for two reasons. It drops a batch's last offset delta, which a reader needs
//! to skip compacted or empty tails. It also merges headers of the same name into one.

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

/// The reason why bytes are not a batch that this crate can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch, or its length leaves no room for a header.
    #[error("the record batch is cut short or its length is wrong")]
    Length,
    /// The batch has an old message format.
    #[error("record batches of magic {0} are not supported: only 2")]
    Magic(u8),
    /// The batch is corrupt.
    #[error("the record batch's checksum does not match")]
    Checksum,
    /// The records are compressed. The codec is the number in the attributes.
    #[error(
        "the record batch is compressed (codec {0}), which is not supported: write the topic with \
         compression.type=none"
    )]
    Compressed(i16),
    /// The records differ from those in the header.
    #[error("a record of the batch is cut short or malformed")]
    Record,
}

/// Batches in the form of a log, for unit tests.
#[cfg(test)]
pub(crate) mod logged {
    use super::{Batch, BatchBuilder, ProducerIdentity};

    /// Returns a batch of `count` records without key and value.
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

    /// Returns the marker that ends a producer's transaction.
    pub(crate) fn marker(offset: i64, (id, epoch): (i64, i16), commits: bool) -> Batch {
        Batch::end_marker(ProducerIdentity { id, epoch }, commits, 0, 0).at(offset)
    }

    /// Returns the batches as the bytes of a fetch.
    pub(crate) fn bytes(log: &[Batch]) -> bytes::Bytes {
        let log = log.iter().flat_map(|batch| batch.bytes().to_vec());
        log.collect()
    }
}
