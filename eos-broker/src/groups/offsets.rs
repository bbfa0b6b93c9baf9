//! Committed offsets, and pending offsets of open transactions.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError as Error;

/// A partition.
pub(crate) type At = (String, i32);

/// The committed offset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    /// The position of its record among all records of this group. The later record wins, independent of the time of
    /// its decision.
    order: u64,
}

impl Committed {
    pub(crate) fn new(offset: i64, leader_epoch: i32, metadata: String) -> Committed {
        Committed {
            offset,
            leader_epoch,
            metadata,
            order: 0,
        }
    }
}

/// The offsets of one group.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    committed: BTreeMap<At, Committed>,
    pending: BTreeMap<i64, BTreeMap<At, Committed>>,
    /// The highest epoch of each producer in these offsets, markers included. As in any other log, a write with an
    /// older epoch is rejected (`ProducerAppendInfo.checkProducerEpoch`).
    epochs: BTreeMap<i64, i16>,
    written: u64,
}

impl Offsets {
    pub(crate) fn get(&self, at: &At) -> Option<&Committed> {
        self.committed.get(at)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&At, &Committed)> {
        self.committed.iter()
    }

    /// Returns whether an undecided transaction has an offset of this partition.
    pub(crate) fn is_unstable(&self, at: &At) -> bool {
        self.pending
            .values()
            .any(|offsets| offsets.contains_key(at))
    }

    pub(crate) fn commit(&mut self, at: At, mut offset: Committed) {
        self.written += 1;
        offset.order = self.written;
        self.committed.insert(at, offset);
    }

    /// Returns whether this producer and epoch has an undecided transaction with offsets here. Its next write needs no
    /// check with the transaction's coordinator.
    pub(crate) fn is_open(&self, (producer_id, epoch): (i64, i16)) -> bool {
        self.pending.contains_key(&producer_id) && self.epochs.get(&producer_id) == Some(&epoch)
    }

    /// Checks whether a producer may write here.
    pub(crate) fn check_epoch(&self, (producer_id, epoch): (i64, i16)) -> Result<(), Error> {
        match self.epochs.get(&producer_id) {
            Some(known) if *known > epoch => Err(Error::InvalidProducerEpoch),
            _ => Ok(()),
        }
    }

    fn saw(&mut self, (producer_id, epoch): (i64, i16)) {
        let known = self.epochs.entry(producer_id).or_insert(epoch);
        *known = epoch.max(*known);
    }

    pub(crate) fn commit_in(&mut self, producer: (i64, i16), at: At, mut offset: Committed) {
        self.saw(producer);
        let (producer_id, _) = producer;
        self.written += 1;
        offset.order = self.written;
        let pending = self.pending.entry(producer_id).or_default();
        pending.insert(at, offset);
    }

    /// Handles a marker, which commits or discards the offsets of the producer's transaction.
    pub(crate) fn decide(&mut self, producer: (i64, i16), commit: bool) {
        self.saw(producer);
        let (producer_id, _) = producer;
        let Some(decided) = self.pending.remove(&producer_id) else {
            return;
        };
        for (at, offset) in decided.into_iter().filter(|_| commit) {
            let before = self.committed.get(&at);
            if before.is_none_or(|before| before.order < offset.order) {
                self.committed.insert(at, offset);
            }
        }
    }

    pub(crate) fn delete(&mut self, at: &At) -> bool {
        for pending in self.pending.values_mut() {
            pending.remove(at);
        }
        self.committed.remove(at).is_some()
    }

    /// Removes the offsets of a deleted topic.
    pub(crate) fn forget_topic(&mut self, topic: &str) {
        self.committed.retain(|(it, _), _| it != topic);
        for pending in self.pending.values_mut() {
            pending.retain(|(it, _), _| it != topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partition: i32) -> At {
        ("t".into(), partition)
    }

    fn offset(value: i64) -> Committed {
        Committed::new(value, -1, String::new())
    }

    fn seen(offsets: &Offsets) -> Option<i64> {
        offsets.get(&at(0)).map(|it| it.offset)
    }

    #[test]
    fn an_offset_in_a_transaction_counts_from_its_commit_on() {
        let mut offsets = Offsets::default();
        offsets.commit(at(0), offset(1));
        offsets.commit_in((7, 0), at(0), offset(5));
        assert_eq!(seen(&offsets), Some(1));
        assert!(offsets.is_unstable(&at(0)) && !offsets.is_unstable(&at(1)));
        offsets.decide((7, 0), true);
        assert_eq!(seen(&offsets), Some(5));
        assert!(!offsets.is_unstable(&at(0)));
    }

    #[test]
    fn an_aborted_transaction_leaves_what_was_there() {
        let mut offsets = Offsets::default();
        offsets.commit(at(0), offset(1));
        offsets.commit_in((7, 0), at(0), offset(5));
        offsets.decide((7, 0), false);
        assert_eq!(seen(&offsets), Some(1));
        assert!(!offsets.is_unstable(&at(0)));
    }

    #[test]
    fn the_later_written_offset_wins_in_whatever_order_they_are_decided() {
        let mut offsets = Offsets::default();
        offsets.commit_in((1, 0), at(0), offset(10));
        offsets.commit_in((2, 0), at(0), offset(20));
        offsets.decide((2, 0), true);
        offsets.decide((1, 0), true);
        assert_eq!(seen(&offsets), Some(20));
        offsets.commit_in((1, 0), at(0), offset(30));
        offsets.commit(at(0), offset(40));
        offsets.decide((1, 0), true);
        assert_eq!(seen(&offsets), Some(40));
    }

    /// Otherwise, a zombie's offset would join the transaction of its successor.
    #[test]
    fn what_an_older_epoch_writes_is_in_no_transaction() {
        let mut offsets = Offsets::default();
        let (zombie, successor) = ((7, 0), (7, 2));
        assert_eq!(offsets.check_epoch(zombie), Ok(()));
        offsets.commit_in(zombie, at(0), offset(1));
        assert!(offsets.is_open(zombie) && !offsets.is_open(successor));
        // The successor's InitProducerId ends it, with an epoch of its own.
        offsets.decide((7, 1), false);
        assert!(!offsets.is_open(zombie));
        assert_eq!(
            offsets.check_epoch(zombie),
            Err(Error::InvalidProducerEpoch)
        );
        offsets.commit_in(successor, at(0), offset(5));
        assert_eq!(
            offsets.check_epoch(zombie),
            Err(Error::InvalidProducerEpoch)
        );
        offsets.decide(successor, true);
        assert_eq!(offsets.check_epoch(successor), Ok(()));
        assert_eq!(seen(&offsets), Some(5));
    }
}
