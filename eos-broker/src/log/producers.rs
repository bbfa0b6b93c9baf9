//! The producers of a partition: epochs, last batches, open transactions.
//!
//! The rules are those of Kafka's `ProducerStateManager`. A batch that is among a producer's last five is a duplicate,
//! and is acknowledged at its first position. A batch that does not follow the last one is out of order.

use std::collections::{BTreeMap, VecDeque};

use super::batch::Batch;

/// The number of remembered batches of a producer, which is the maximum number of requests in flight.
const REMEMBERED: usize = 5;

#[derive(Debug, Clone, Copy)]
struct Remembered {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
    last_offset: i64,
    timestamp: i64,
}

/// The state of a producer in this partition.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    batches: VecDeque<Remembered>,
    /// The first offset of the open transaction in this partition.
    pub(crate) open_from: Option<i64>,
    pub(crate) coordinator_epoch: i32,
    pub(crate) last_timestamp: i64,
}

impl Producer {
    pub(crate) fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(-1, |batch| batch.last_sequence)
    }
}

/// The result of the check of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Append,
    /// The batch is already in the log.
    Duplicate {
        base_offset: i64,
        timestamp: i64,
    },
}

/// The reason why a batch of a producer may not be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    OldEpoch,
    OutOfOrder,
    /// The batch is not transactional, but belongs to a producer in a transaction.
    NotTransactional,
}

/// The producers of one partition.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: BTreeMap<i64, Producer>,
    /// The first offsets of open transactions, for the last stable offset.
    open: BTreeMap<i64, i64>,
}

impl Producers {
    /// Checks a batch. Changes nothing.
    pub(crate) fn judge(&self, batch: &Batch) -> Result<Verdict, Refused> {
        let Some(producer) = self.known.get(&batch.producer_id) else {
            return Ok(Verdict::Append);
        };
        if batch.producer_epoch < producer.epoch {
            return Err(Refused::OldEpoch);
        }
        let (first, last) = (batch.base_sequence, batch.last_sequence());
        if batch.producer_epoch == producer.epoch {
            let same =
                |seen: &&Remembered| seen.first_sequence == first && seen.last_sequence == last;
            if let Some(seen) = producer.batches.iter().find(same) {
                return Ok(Verdict::Duplicate {
                    base_offset: seen.base_offset,
                    timestamp: seen.timestamp,
                });
            }
            let last_seen = producer.last_sequence();
            let follows =
                first == last_seen.wrapping_add(1) || (last_seen == i32::MAX && first == 0);
            if !follows {
                return Err(Refused::OutOfOrder);
            }
        } else if first != 0 {
            return Err(Refused::OutOfOrder);
        }
        if producer.open_from.is_some() && !batch.is_transactional() {
            return Err(Refused::NotTransactional);
        }
        Ok(Verdict::Append)
    }

    /// Returns whether a transaction of this producer and epoch is open in this partition.
    pub(crate) fn is_open(&self, producer_id: i64, epoch: i16) -> bool {
        let producer = self.known.get(&producer_id);
        producer.is_some_and(|known| known.open_from.is_some() && known.epoch == epoch)
    }

    /// Records an appended batch.
    pub(crate) fn appended(&mut self, batch: &Batch) {
        let producer = self.entry(batch.producer_id, batch.producer_epoch);
        if producer.batches.len() == REMEMBERED {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Remembered {
            first_sequence: batch.base_sequence,
            last_sequence: batch.last_sequence(),
            base_offset: batch.base_offset,
            last_offset: batch.last_offset(),
            timestamp: batch.max_timestamp,
        });
        producer.last_timestamp = batch.max_timestamp;
        if batch.is_transactional() && producer.open_from.is_none() {
            producer.open_from = Some(batch.base_offset);
            self.open.insert(batch.base_offset, batch.producer_id);
        }
    }

    /// Ends the transaction of a producer. Returns its first offset if one was open.
    pub(crate) fn ended(
        &mut self,
        producer_id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        now: i64,
    ) -> Option<i64> {
        let producer = self.entry(producer_id, epoch);
        producer.coordinator_epoch = coordinator_epoch;
        producer.last_timestamp = now;
        let first = producer.open_from.take();
        if let Some(first) = first {
            self.open.remove(&first);
        }
        first
    }

    /// Returns whether a marker of this epoch is too late.
    pub(crate) fn is_fenced(&self, producer_id: i64, epoch: i16) -> bool {
        let producer = self.known.get(&producer_id);
        producer.is_some_and(|known| epoch < known.epoch)
    }

    fn entry(&mut self, producer_id: i64, epoch: i16) -> &mut Producer {
        let producer = self.known.entry(producer_id).or_insert_with(|| Producer {
            epoch,
            batches: VecDeque::new(),
            open_from: None,
            coordinator_epoch: -1,
            last_timestamp: -1,
        });
        if producer.epoch != epoch {
            producer.epoch = epoch;
            producer.batches.clear();
        }
        producer
    }

    /// Returns the first offset of the oldest open transaction.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.keys().next().copied()
    }

    /// Returns all producers, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Producer)> {
        self.known.iter().map(|(id, producer)| (*id, producer))
    }

    /// Returns whether this is the last batch of its producer in this partition, whose sequences must be kept.
    pub(crate) fn is_last_of(&self, batch: &Batch) -> bool {
        let producer = self.known.get(&batch.producer_id);
        let last = producer.and_then(|producer| producer.batches.back());
        last.is_some_and(|last| last.last_offset == batch.last_offset())
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::produced;
    use super::*;

    fn batch(epoch: i16, sequence: i32, transactional: bool) -> Batch {
        let producer = Some((9, epoch, sequence));
        Batch::read(produced(producer, transactional, &[("k", None, 0)]))
    }

    fn seen(batches: &[Batch]) -> Producers {
        let mut producers = Producers::default();
        for (offset, batch) in batches.iter().enumerate() {
            let mut batch = batch.clone();
            batch.place(offset as i64, super::super::TimestampType::Create, 0);
            producers.appended(&batch);
        }
        producers
    }

    #[test]
    fn an_unknown_producer_may_begin_with_any_sequence() {
        assert_eq!(
            Producers::default().judge(&batch(0, 17, false)),
            Ok(Verdict::Append)
        );
    }

    #[test]
    fn the_last_five_batches_are_duplicates_older_ones_are_out_of_order() {
        let all: Vec<_> = (0..7).map(|sequence| batch(0, sequence, false)).collect();
        let producers = seen(&all);
        for sequence in 2..7 {
            let duplicate = Verdict::Duplicate {
                base_offset: i64::from(sequence),
                timestamp: 0,
            };
            assert_eq!(producers.judge(&batch(0, sequence, false)), Ok(duplicate));
        }
        for sequence in [0, 1, 8] {
            let refused = Err(Refused::OutOfOrder);
            assert_eq!(producers.judge(&batch(0, sequence, false)), refused);
        }
        assert_eq!(producers.judge(&batch(0, 7, false)), Ok(Verdict::Append));
    }

    #[test]
    fn a_new_epoch_begins_at_sequence_zero_and_fences_the_old_one() {
        let producers = seen(&[batch(3, 0, false)]);
        assert_eq!(producers.judge(&batch(4, 0, false)), Ok(Verdict::Append));
        assert_eq!(
            producers.judge(&batch(4, 1, false)),
            Err(Refused::OutOfOrder)
        );
        assert_eq!(producers.judge(&batch(2, 1, false)), Err(Refused::OldEpoch));
    }

    #[test]
    fn no_plain_batch_within_a_transaction() {
        let mut producers = seen(&[batch(0, 0, true)]);
        assert!(producers.is_open(9, 0) && !producers.is_open(9, 1));
        assert_eq!(producers.first_open(), Some(0));
        assert_eq!(
            producers.judge(&batch(0, 1, false)),
            Err(Refused::NotTransactional)
        );
        assert_eq!(producers.ended(9, 0, 0, 5), Some(0));
        assert_eq!(producers.first_open(), None);
        assert_eq!(producers.judge(&batch(0, 1, false)), Ok(Verdict::Append));
    }

    #[test]
    fn a_marker_of_a_higher_epoch_fences() {
        let mut producers = seen(&[batch(0, 0, true)]);
        producers.ended(9, 1, 0, 5);
        assert_eq!(producers.judge(&batch(0, 1, true)), Err(Refused::OldEpoch));
        assert!(producers.is_fenced(9, 0) && !producers.is_fenced(9, 1));
    }
}
