//! Counts of committed records, hidden records and markers.
//!
//! Only the headers of batches are read, so a follower of a busy topic costs next to nothing.

use anyhow::{Context, Result};
use kafka_protocol::messages::fetch_response::PartitionData;

use super::Client;
use super::fetch::Isolation;
use crate::batch::{Aborted, Batches};

/// The counts between two offsets of a partition, from the view of a read_committed reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records that such a reader receives.
    pub visible: u64,
    /// Records of aborted transactions.
    pub hidden: u64,
    /// The abort markers, by the producers of the aborted transactions.
    pub aborts: Vec<EndedBy>,
    /// The offset of the next call.
    pub next_offset: i64,
}

/// The producer that a marker names. A coordinator that fences a producer writes the epoch after the producer's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndedBy {
    /// The producer id.
    pub producer_id: i64,
    /// The epoch of the producer.
    pub producer_epoch: i16,
}

impl Client {
    /// Counts the records of a partition from an offset on, up to 8 MiB and not beyond the last stable offset.
    ///
    /// At the end of the log, it waits a quarter of a second for new records.
    ///
    /// # Errors
    /// See [`Client::fetch`].
    pub fn tally(&mut self, topic: &str, partition: i32, from: i64) -> Result<Tally> {
        let data = self.fetch_data(topic, partition, from, Isolation::ReadCommitted)?;
        count(data, from).with_context(|| format!("count {topic}-{partition} from offset {from}"))
    }
}

fn count(data: PartitionData, from: i64) -> Result<Tally> {
    let mut aborted = Aborted::listed(data.aborted_transactions);
    let mut tally = Tally {
        next_offset: from,
        ..Tally::default()
    };
    for batch in Batches(data.records.unwrap_or_default()) {
        let batch = batch?;
        let hidden = aborted.hides(&batch)?;
        tally.next_offset = tally.next_offset.max(batch.last_offset() + 1);
        if batch.is_abort_marker()? {
            tally.aborts.push(EndedBy {
                producer_id: batch.producer_id,
                producer_epoch: batch.producer_epoch,
            });
        } else if hidden {
            tally.hidden += u64::from(batch.count.unsigned_abs());
        } else if !batch.is_control() {
            tally.visible += u64::from(batch.count.unsigned_abs());
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ProducerId;
    use kafka_protocol::messages::fetch_response::AbortedTransaction;

    use super::*;
    use crate::batch::logged::{bytes, marker, records};

    #[test]
    fn committed_and_aborted_records_are_told_apart_and_markers_are_neither() {
        let log = [
            records(10, (7, 4), 3, true),
            records(13, (8, 4), 2, true),
            marker(15, (7, 4), true),
            marker(16, (8, 4), false),
            records(17, (8, 4), 1, true),
        ];
        let aborted = AbortedTransaction::default()
            .with_producer_id(ProducerId(8))
            .with_first_offset(13);
        let data = PartitionData::default()
            .with_records(Some(bytes(&log)))
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
