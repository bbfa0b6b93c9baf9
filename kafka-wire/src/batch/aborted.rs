//! What a read_committed reader must not see.
//!
//! A leader answers such a fetch with data up to the last stable offset and the list of aborted
//! transactions that touch it, each as (producer id, first offset). Hiding their records is the
//! client's part: a producer's batches are dropped from that first offset on until its next abort
//! marker. The same producer may commit before and after, so the marker, not the id, decides.

use std::collections::{HashSet, VecDeque};

use anyhow::Result;

use super::Batch;

/// The aborted transactions of one fetch, walked in offset order along with its batches.
#[derive(Debug, Default)]
pub struct Aborted {
    /// Transactions that begin ahead of the position, by first offset.
    ahead: VecDeque<(i64, i64)>,
    /// Producers inside an aborted transaction at the position.
    inside: HashSet<i64>,
}

impl Aborted {
    /// The list a leader sent, as (producer id, first offset).
    pub fn new(transactions: impl IntoIterator<Item = (i64, i64)>) -> Self {
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

    /// Whether the next batch in offset order holds records of an aborted transaction.
    pub fn hides(&mut self, batch: &Batch) -> Result<bool> {
        while let Some(&(first, producer)) = self.ahead.front()
            && first <= batch.last_offset
        {
            self.inside.insert(producer);
            self.ahead.pop_front();
        }
        if batch.abort_marker()? {
            self.inside.remove(&batch.producer_id);
            return Ok(true);
        }
        Ok(batch.transactional() && self.inside.contains(&batch.producer_id))
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};

    use super::super::{BatchBuilder, Batches, ProducerIdentity};
    use super::*;

    /// A batch of one record by a producer, at an offset.
    fn batch(offset: i64, producer: i64, transactional: bool) -> Batch {
        read(encode(offset, producer, None, transactional))
    }

    /// The marker that ends a producer's transaction.
    fn marker(offset: i64, producer: i64, commits: bool) -> Batch {
        let kind = [0, 0, 0, u8::from(commits)];
        let mut bytes = BytesMut::from(&encode(offset, producer, Some(&kind), true)[..]);
        bytes[22] |= 1 << 5; // control
        let checksum = crc32c::crc32c(&bytes[21..]);
        (&mut bytes[17..21]).put_u32(checksum);
        read(bytes.freeze())
    }

    fn encode(offset: i64, producer: i64, key: Option<&[u8]>, transactional: bool) -> Bytes {
        let mut builder = BatchBuilder::new(100);
        builder.push(0, key, None, std::iter::empty());
        let identity = ProducerIdentity {
            id: producer,
            epoch: 0,
        };
        let mut bytes = BytesMut::from(&builder.close(identity, 0, transactional)[..]);
        (&mut bytes[..8]).put_i64(offset); // outside the checksum
        bytes.freeze()
    }

    fn read(bytes: Bytes) -> Batch {
        Batches(bytes).next().unwrap().unwrap()
    }

    #[test]
    fn a_producers_batches_are_hidden_from_its_first_aborted_offset_to_its_abort_marker() {
        let mut aborted = Aborted::new([(7, 12), (8, 10)]);
        let log = [
            (batch(9, 7, true), false),
            (marker(10, 7, true), false),
            (batch(11, 8, true), true),
            (batch(12, 7, true), true),
            (batch(13, 9, true), false),
            (batch(14, 7, false), false),
            (marker(15, 8, false), true),
            (batch(16, 8, true), false),
            (batch(17, 7, true), true),
            (marker(18, 7, false), true),
            (batch(19, 7, true), false),
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
            (batch(0, 7, true), true),
            (marker(1, 7, false), true),
            (batch(2, 7, true), false),
            (batch(3, 7, true), true),
            (marker(4, 7, false), true),
        ];
        for (batch, hidden) in log {
            let offset = batch.base_offset;
            assert_eq!(aborted.hides(&batch).unwrap(), hidden, "offset {offset}");
        }
    }
}
