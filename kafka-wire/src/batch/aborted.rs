//! The records that a read_committed reader must not return.
//!
//! A leader responds to such a fetch with data up to the last stable offset. The response also lists the aborted
//! transactions that touch the data, each as (producer id, first offset). The client must hide their records. It drops
//! a producer's batches from that first offset up to the producer's next abort marker. The same producer may commit
//! before and after, so the marker decides, not the id.

use std::collections::{HashSet, VecDeque};

use kafka_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};

use super::{Batch, BatchError, Batches, Record};

/// The aborted transactions of one fetch. The caller passes the batches of the fetch in offset order.
#[derive(Debug, Default)]
pub struct Aborted {
    /// Transactions that begin after the position, by first offset.
    ahead: VecDeque<(i64, i64)>,
    /// Producers inside an aborted transaction at the position.
    inside: HashSet<i64>,
}

impl Aborted {
    /// Returns the transactions in the list that a leader sent.
    pub fn listed(transactions: Option<Vec<AbortedTransaction>>) -> Self {
        let transactions = transactions.unwrap_or_default().into_iter();
        Aborted::new(transactions.map(|it| (it.producer_id.0, it.first_offset)))
    }

    fn new(transactions: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut ahead: Vec<_> = transactions
            .into_iter()
            .map(|(producer, first)| (first, producer))
            .collect();
        ahead.sort_unstable();
        Aborted {
            ahead: ahead.into(),
            inside: HashSet::new(),
        }
    }

    /// Returns whether the next batch in offset order holds records of an aborted transaction.
    ///
    /// # Errors
    /// If the batch is a malformed marker.
    pub fn hides(&mut self, batch: &Batch) -> Result<bool, BatchError> {
        while let Some(&(first, producer)) = self.ahead.front()
            && first <= batch.last_offset()
        {
            self.inside.insert(producer);
            self.ahead.pop_front();
        }
        if batch.is_abort_marker()? {
            self.inside.remove(&batch.producer_id);
            return Ok(true);
        }
        Ok(batch.is_transactional() && self.inside.contains(&batch.producer_id))
    }
}

/// Passes on the records of a fetch from offset `from` on, without markers and without records of aborted transactions.
/// The leader lists the aborted transactions, and lists none for read_uncommitted. Returns the offset of the next
/// fetch, which is beyond the last record if hidden records followed it.
///
/// # Errors
/// If a batch is corrupt or compressed.
pub fn visible(
    data: PartitionData,
    from: i64,
    mut each: impl FnMut(Record),
) -> Result<i64, BatchError> {
    let mut aborted = Aborted::listed(data.aborted_transactions);
    let mut next = from;
    for batch in Batches(data.records.unwrap_or_default()) {
        let batch = batch?;
        let hidden = aborted.hides(&batch)?;
        next = next.max(batch.last_offset() + 1);
        if hidden || batch.is_control() {
            continue;
        }
        for record in batch.records() {
            let record = record?;
            // A leader returns whole batches, including records before the requested offset.
            if record.offset >= from {
                each(record);
            }
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::super::logged::{marker, records};
    use super::*;

    #[test]
    fn a_producers_batches_are_hidden_from_its_first_aborted_offset_to_its_abort_marker() {
        let mut aborted = Aborted::new([(7, 12), (8, 10)]);
        let log = [
            (records(9, (7, 0), 1, true), false),
            (marker(10, (7, 0), true), false),
            (records(11, (8, 0), 1, true), true),
            (records(12, (7, 0), 1, true), true),
            (records(13, (9, 0), 1, true), false),
            (records(14, (7, 0), 1, false), false),
            (marker(15, (8, 0), false), true),
            (records(16, (8, 0), 1, true), false),
            (records(17, (7, 0), 1, true), true),
            (marker(18, (7, 0), false), true),
            (records(19, (7, 0), 1, true), false),
        ];
        for (batch, hidden) in log {
            let offset = batch.base_offset;
            assert_eq!(aborted.hides(&batch).unwrap(), hidden, "offset {offset}");
        }
    }

    #[test]
    fn a_producer_that_aborts_twice_is_hidden_twice() {
        let mut aborted = Aborted::new([(7, 0), (7, 3)]);
        let log = [
            (records(0, (7, 0), 1, true), true),
            (marker(1, (7, 0), false), true),
            (records(2, (7, 0), 1, true), false),
            (records(3, (7, 0), 1, true), true),
            (marker(4, (7, 0), false), true),
        ];
        for (batch, hidden) in log {
            let offset = batch.base_offset;
            assert_eq!(aborted.hides(&batch).unwrap(), hidden, "offset {offset}");
        }
    }
}
