//! Pauses of a task at a record or due item.
//!
//! A paused task waits until a [`Verdict`] arrives. An abort may return records before the place of the pause. The task
//! then processes these records again, and waits at the same place again.

use crate::ids::{Offset, Timestamp, TopicPartition};

/// The place at which a task pauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PausePlace {
    /// A record.
    Record {
        /// The record's partition.
        partition: TopicPartition,
        /// The record's offset.
        offset: Offset,
    },
    /// A due item: a moment of a timer, or a final result.
    Item {
        /// The index of the item's store.
        store: usize,
        /// The encoded key.
        key: Box<[u8]>,
        /// The moment.
        at: Timestamp,
    },
}

/// The decision about a failed record or item that is not processed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is skipped.
    Skip,
    /// It goes to the dead-letter topic.
    DeadLetter,
}

/// The next step of a task at a record or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The pause is at another place.
    Other,
    /// The task is at the place of its pause, without a verdict.
    StandStill,
    /// The task is at the place of its pause, and this verdict is to be carried out.
    Apply(Verdict),
    /// The task is behind the place, for example because the record was deleted. The pause is over.
    Passed,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    place: PausePlace,
    verdict: Option<Verdict>,
    /// Whether the task is at the place. After an abort, it may have to process earlier records again.
    is_reached: bool,
    /// Whether the verdict is carried out.
    is_applied: bool,
    /// Whether its effects are a part of the open transaction. They may wait for one.
    is_merged: bool,
}

impl Pause {
    /// A pause at the place where the task is.
    #[must_use]
    pub const fn at(place: PausePlace) -> Self {
        Self {
            place,
            verdict: None,
            is_reached: true,
            is_applied: false,
            is_merged: false,
        }
    }

    /// The place of the pause.
    #[must_use]
    pub const fn place(&self) -> &PausePlace {
        &self.place
    }

    /// Returns whether the task waits for a verdict.
    #[must_use]
    pub const fn stands_still(&self) -> bool {
        self.is_reached && self.verdict.is_none()
    }

    /// The verdict, if there is one and it is not carried out.
    #[must_use]
    pub const fn pending(&self) -> Option<Verdict> {
        match self.is_applied {
            true => None,
            false => self.verdict,
        }
    }

    /// Returns whether the task is at the place.
    #[must_use]
    pub const fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Takes the verdict.
    pub const fn decide(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
    }

    /// Marks the verdict as carried out. Its effects wait for a transaction.
    pub const fn applied(&mut self) {
        self.is_applied = true;
    }

    /// Marks the effects of the verdict, if it is carried out, as a part of the open transaction.
    pub const fn merged(&mut self) {
        self.is_merged = self.is_applied;
    }

    /// Handles the loss of the effects of a verdict that is not merged: the record or item comes again.
    pub const fn given_back(&mut self) {
        self.is_applied = self.is_merged;
    }

    /// Returns the next step at a record.
    pub fn meets_record(&mut self, partition: &TopicPartition, offset: Offset) -> Met {
        let PausePlace::Record {
            partition: own,
            offset: at,
        } = &self.place
        else {
            return Met::Other;
        };
        if own != partition || offset < *at || self.is_applied {
            return Met::Other;
        }
        match offset == *at {
            true => self.meets(),
            false => Met::Passed,
        }
    }

    /// Returns the next step at a due item.
    pub fn meets_item(&mut self, store: usize, key: &[u8], at: Timestamp) -> Met {
        let own = matches!(&self.place, PausePlace::Item { store: s, key: k, at: a }
            if *s == store && **k == *key && *a == at);
        match own && !self.is_applied {
            true => self.meets(),
            false => Met::Other,
        }
    }

    const fn meets(&mut self) -> Met {
        self.is_reached = true;
        match self.verdict {
            None => Met::StandStill,
            Some(verdict) => Met::Apply(verdict),
        }
    }

    /// Handles an abort. `rewinds`: the task processes earlier records again.
    pub const fn aborted(&mut self, rewinds: bool) {
        self.is_applied = false;
        self.is_merged = false;
        if rewinds {
            self.is_reached = false;
        }
    }

    /// Returns whether the pause is over after a commit of the task's part.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    fn tp(topic: &str) -> TopicPartition {
        TopicPartition::new(topic, Partition::ZERO)
    }

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    fn at_record(n: i64) -> Pause {
        let (partition, offset) = (tp("in"), offset(n));
        Pause::at(PausePlace::Record { partition, offset })
    }

    #[test]
    fn a_task_stands_still_until_a_verdict() {
        let mut pause = at_record(7);
        assert!(pause.stands_still());
        assert_eq!(pause.meets_record(&tp("in"), offset(7)), Met::StandStill);
        pause.decide(Verdict::Skip);
        assert!(!pause.stands_still());
        let met = pause.meets_record(&tp("in"), offset(7));
        assert_eq!(met, Met::Apply(Verdict::Skip));
        assert_eq!(pause.meets_record(&tp("other"), offset(7)), Met::Other);
    }

    #[test]
    fn an_abort_keeps_the_verdict_and_lets_earlier_records_pass() {
        let mut pause = at_record(7);
        pause.aborted(true);
        assert!(!pause.stands_still(), "record 5 comes again");
        assert_eq!(pause.meets_record(&tp("in"), offset(5)), Met::Other);
        assert_eq!(pause.meets_record(&tp("in"), offset(7)), Met::StandStill);
        assert!(pause.stands_still());

        pause.decide(Verdict::DeadLetter);
        pause.applied();
        assert_eq!(pause.pending(), None);
        assert_eq!(pause.meets_record(&tp("in"), offset(8)), Met::Other);
        pause.aborted(true);
        assert!(!pause.is_over());
        let met = pause.meets_record(&tp("in"), offset(7));
        assert_eq!(met, Met::Apply(Verdict::DeadLetter));
        pause.applied();
        assert!(!pause.is_over(), "the letter waits for a transaction");
        pause.merged();
        assert!(pause.is_over());
    }

    /// A stalled worker gives a record back whose effects wait for the next transaction.
    #[test]
    fn a_verdict_that_is_given_back_is_carried_out_again() {
        let mut pause = at_record(7);
        pause.decide(Verdict::Skip);
        pause.applied();
        pause.given_back();
        let met = pause.meets_record(&tp("in"), offset(7));
        assert_eq!(met, Met::Apply(Verdict::Skip));
        pause.applied();
        pause.merged();
        pause.given_back();
        assert!(pause.is_over(), "it is in the transaction");
    }

    #[test]
    fn only_a_verdict_that_is_carried_out_is_merged() {
        let mut pause = at_record(7);
        pause.decide(Verdict::Skip);
        // A record before it.
        pause.merged();
        assert!(!pause.is_over());
    }

    #[test]
    fn an_abort_of_others_leaves_the_task_where_it_is() {
        let mut pause = at_record(7);
        pause.aborted(false);
        assert!(pause.stands_still());
    }

    #[test]
    fn a_pause_ends_with_its_record() {
        let mut pause = at_record(7);
        pause.aborted(true);
        assert_eq!(pause.meets_record(&tp("in"), offset(9)), Met::Passed);
    }

    /// A handler may set the same moment of the same key again.
    #[test]
    fn a_verdict_about_an_item_counts_once() {
        let key: Box<[u8]> = Box::from(&b"k"[..]);
        let (store, at) = (2, Timestamp(50));
        let mut pause = Pause::at(PausePlace::Item { store, key, at });
        assert_eq!(pause.meets_item(2, b"k", at), Met::StandStill);
        assert_eq!(pause.meets_item(2, b"k", Timestamp(51)), Met::Other);
        assert_eq!(pause.meets_item(2, b"l", at), Met::Other);
        assert_eq!(pause.meets_record(&tp("in"), offset(7)), Met::Other);
        pause.decide(Verdict::Skip);
        assert_eq!(pause.pending(), Some(Verdict::Skip));
        pause.applied();
        assert_eq!(pause.meets_item(2, b"k", at), Met::Other);
        assert_eq!(pause.pending(), None);
    }
}
