//! The positions of a worker in a ledger: a store beside Kafka that takes effects and positions in one transaction.

use std::collections::BTreeMap;

use crate::{Offset, TopicPartition};

/// The epoch of a position. Each take-over raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// A position in a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The partition.
    pub partition: TopicPartition,
    /// The next offset to process. `None` before the first commit.
    pub offset: Option<Offset>,
    /// The name of the transaction that set the position, as [`Move::name`]. Empty without an offset.
    pub name: String,
    /// The epoch.
    pub epoch: Epoch,
}

/// A position as a worker expects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The partition.
    pub partition: TopicPartition,
    /// The epoch of the worker's last take-over.
    pub epoch: Epoch,
    /// The stored offset.
    pub from: Option<Offset>,
}

/// A move of a position in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The position before.
    pub expected: Expected,
    /// The next offset to process.
    pub to: Offset,
    /// The name of the transaction. A start reads it to find out which of two transactions was the last one.
    pub name: String,
}

/// The positions that a worker has taken over.
///
/// After each take-over it compares the positions of the ledger with those that this worker committed. A difference
/// means that another worker committed meanwhile, or that the ledger lost commits in a failover. The tasks of such
/// positions start again from the ledger.
#[derive(Debug, Default)]
pub struct PositionBook {
    known: BTreeMap<TopicPartition, Known>,
}

#[derive(Debug)]
struct Known {
    at: Taken,
    /// The move whose commit is on its way.
    unclear: Option<(Offset, String)>,
}

impl Known {
    /// Returns whether the ledger may have this position without any other writer.
    fn agrees(&self, found: &Taken) -> bool {
        let is_old = found.offset == self.at.offset && found.name == self.at.name;
        let is_new =
            |(to, name): &(Offset, String)| found.offset == Some(*to) && found.name == *name;
        is_old || self.unclear.as_ref().is_some_and(is_new)
    }
}

impl PositionBook {
    /// Records a take-over. Returns whether the position is as this worker left it. A position that the worker did not
    /// own before always is.
    pub fn taken(&mut self, found: Taken) -> bool {
        let known = self.known.get(&found.partition);
        let agrees = known.is_none_or(|known| known.agrees(&found));
        let unclear = None;
        self.known
            .insert(found.partition.clone(), Known { at: found, unclear });
        agrees
    }

    /// Returns whether the worker has taken over this partition.
    #[must_use]
    pub fn has(&self, partition: &TopicPartition) -> bool {
        self.known.contains_key(partition)
    }

    /// Returns all partitions that the worker has taken over.
    #[must_use]
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.known.keys().cloned().collect()
    }

    /// Returns the expected position of a partition.
    #[must_use]
    pub fn expected(&self, partition: &TopicPartition) -> Option<Expected> {
        let at = &self.known.get(partition)?.at;
        Some(Expected {
            partition: at.partition.clone(),
            epoch: at.epoch,
            from: at.offset,
        })
    }

    /// Returns the moves to these offsets under these names.
    ///
    /// # Errors
    /// The partitions that this worker has not taken over.
    pub fn moves<'a>(
        &self,
        offsets: impl Iterator<Item = (&'a TopicPartition, Offset, &'a str)>,
    ) -> Result<Vec<Move>, Vec<TopicPartition>> {
        let (mut moves, mut absent) = (Vec::new(), Vec::new());
        for (partition, to, name) in offsets {
            match self.expected(partition) {
                Some(expected) => moves.push(Move {
                    expected,
                    to,
                    name: name.to_owned(),
                }),
                None => absent.push(partition.clone()),
            }
        }
        match absent.is_empty() {
            true => Ok(moves),
            false => Err(absent),
        }
    }

    /// Records that the commit of these moves begins: from now on it may have happened.
    pub fn commits(&mut self, moves: &[Move]) {
        for it in moves {
            if let Some(known) = self.known.get_mut(&it.expected.partition) {
                known.unclear = Some((it.to, it.name.clone()));
            }
        }
    }

    /// Records that the commit succeeded.
    pub fn committed(&mut self) {
        for known in self.known.values_mut() {
            if let Some((to, name)) = known.unclear.take() {
                known.at.offset = Some(to);
                known.at.name = name;
            }
        }
    }

    /// Removes a partition that the worker returns.
    pub fn forget(&mut self, partition: &TopicPartition) {
        self.known.remove(partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Partition, TopicName};

    fn partition() -> TopicPartition {
        TopicPartition::new(TopicName::new("in"), Partition::ZERO)
    }

    fn found(offset: Option<i64>, name: &str, epoch: i64) -> Taken {
        Taken {
            partition: partition(),
            offset: offset.map(|it| Offset::new(it).unwrap()),
            name: name.to_owned(),
            epoch: Epoch(epoch),
        }
    }

    fn offset(at: i64) -> Offset {
        Offset::new(at).unwrap()
    }

    #[test]
    fn a_new_position_agrees() {
        assert!(PositionBook::default().taken(found(Some(7), "a", 1)));
    }

    #[test]
    fn a_position_of_another_writer_differs_also_at_the_same_offset() {
        let mut book = PositionBook::default();
        book.taken(found(Some(7), "a", 1));
        assert!(book.taken(found(Some(7), "a", 2)));
        assert!(!book.taken(found(Some(8), "b", 3)));
        assert!(!book.taken(found(Some(8), "c", 4)));
        // Lost commits: the position went back.
        assert!(!book.taken(found(None, "", 5)));
    }

    #[test]
    fn an_unclear_commit_agrees_with_both_outcomes() {
        for outcome in [found(Some(7), "a", 2), found(Some(9), "b", 2)] {
            let mut book = PositionBook::default();
            book.taken(found(Some(7), "a", 1));
            let (of, to) = (partition(), offset(9));
            let moves = book.moves([(&of, to, "b")].into_iter()).unwrap();
            book.commits(&moves);
            assert!(book.taken(outcome.clone()));
            let expected = book.expected(&of).unwrap();
            assert_eq!((expected.from, expected.epoch), (outcome.offset, Epoch(2)));
        }
    }

    #[test]
    fn a_commit_moves_the_expected_position() {
        let mut book = PositionBook::default();
        book.taken(found(None, "", 3));
        let of = partition();
        let moves = book.moves([(&of, offset(5), "b")].into_iter()).unwrap();
        assert_eq!(moves[0].expected.from, None);
        book.commits(&moves);
        book.committed();
        assert_eq!(book.expected(&of).unwrap().from, Some(offset(5)));
        assert!(book.taken(found(Some(5), "b", 4)));
    }

    #[test]
    fn a_partition_without_a_take_over_cannot_move() {
        let mut book = PositionBook::default();
        book.taken(found(None, "", 1));
        book.forget(&partition());
        let of = partition();
        let absent = book.moves([(&of, offset(5), "b")].into_iter());
        assert_eq!(absent, Err(vec![partition()]));
    }
}
