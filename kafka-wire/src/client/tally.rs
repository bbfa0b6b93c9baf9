//! How much of which kind lies in a log: committed data, hidden data, markers.
//!
//! Only the headers of batches are looked at, so a follower of a busy topic costs next to nothing.

use anyhow::{Context, Result};
use kafka_protocol::messages::fetch_response::PartitionData;

use super::Client;
use super::fetch::Isolation;
use crate::batch::Aborted;
use crate::batch::Batches;

/// What lies between two offsets of a partition, as a read_committed reader would count it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records that such a reader sees.
    pub visible: u64,
    /// Records of aborted transactions.
    pub hidden: u64,
    /// The abort markers, by who wrote the transactions they ended.
    pub aborts: Vec<EndedBy>,
    /// Where to continue.
    pub next_offset: i64,
}

/// The producer that a marker names. A coordinator that fences one writes the epoch after its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndedBy {
    /// The producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
}

impl Client {
    /// Counts a partition from an offset on, up to 8 MB and not beyond the last stable offset.
    ///
    /// At the end of the log it waits a quarter of a second for more.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub fn tally(&mut self, topic: &str, partition: i32, from: i64) -> Result<Tally> {
        let data = self.fetch_data(topic, partition, from, Isolation::ReadCommitted)?;
        count(data, from).with_context(|| format!("count {topic}-{partition} from offset {from}"))
    }
}

fn count(data: PartitionData, from: i64) -> Result<Tally> {
    let listed = data.aborted_transactions.unwrap_or_default().into_iter();
    let mut aborted = Aborted::new(listed.map(|t| (t.producer_id.0, t.first_offset)));
    let mut tally = Tally {
        next_offset: from,
        ..Tally::default()
    };
    for batch in Batches(data.records.unwrap_or_default()) {
        let batch = batch?;
        let hidden = aborted.hides(&batch)?;
        tally.next_offset = tally.next_offset.max(batch.last_offset + 1);
        if batch.abort_marker()? {
            tally.aborts.push(EndedBy {
                producer_id: batch.producer_id,
                producer_epoch: batch.producer_epoch,
            });
        } else if hidden {
            tally.hidden += u64::from(batch.count.unsigned_abs());
        } else if !batch.control() {
            tally.visible += u64::from(batch.count.unsigned_abs());
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::ProducerId;
    use kafka_protocol::messages::fetch_response::AbortedTransaction;

    use super::*;
    use crate::batch::{BatchBuilder, ProducerIdentity};

    /// As many records of a producer, in a transaction.
    fn records(offset: i64, id: i64, count: usize) -> BytesMut {
        batch(offset, id, &vec![None; count])
    }

    /// The marker that ends its transaction.
    fn marker(offset: i64, id: i64, commits: bool) -> BytesMut {
        let mut bytes = batch(offset, id, &[Some(&[0, 0, 0, u8::from(commits)])]);
        bytes[22] |= 1 << 5; // control
        let checksum = crc32c::crc32c(&bytes[21..]);
        (&mut bytes[17..21]).put_u32(checksum);
        bytes
    }

    fn batch(offset: i64, id: i64, keys: &[Option<&[u8]>]) -> BytesMut {
        let mut builder = BatchBuilder::new(100);
        for key in keys {
            builder.push(0, *key, None, std::iter::empty());
        }
        let bytes = builder.close(ProducerIdentity { id, epoch: 4 }, 0, true);
        let mut bytes = BytesMut::from(&bytes[..]);
        (&mut bytes[..8]).put_i64(offset); // outside the checksum
        bytes
    }

    #[test]
    fn committed_and_aborted_records_are_told_apart_and_markers_are_neither() {
        let log = [
            records(10, 7, 3),
            records(13, 8, 2),
            marker(15, 7, true),
            marker(16, 8, false),
            records(17, 8, 1),
        ];
        let aborted = AbortedTransaction::default()
            .with_producer_id(ProducerId(8))
            .with_first_offset(13);
        let data = PartitionData::default()
            .with_records(Some(log.concat().into()))
            .with_aborted_transactions(Some(vec![aborted]));
        let expected = Tally {
            visible: 4,
            hidden: 2,
            aborts: vec![EndedBy {
                producer_id: 8,
                producer_epoch: 4,
            }],
            next_offset: 18,
        };
        assert_eq!(count(data, 10).unwrap(), expected);
    }
}
