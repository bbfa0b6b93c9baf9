//! The deletion of records in topics that only this app reads.

use std::collections::BTreeMap;

use crate::errors::code;
use crate::ids::{Offset, TopicPartition};

/// Returns whether this error of a deletion means that the log no longer exists. Its offsets do not apply to the next
/// log of the same name: a deletion up to such an offset would lose unread records.
#[must_use]
pub fn is_of_another_log(error: i32) -> bool {
    matches!(
        error,
        code::OFFSET_OUT_OF_RANGE
            | code::UNKNOWN_TOPIC_OR_PARTITION
            | code::LOCAL_UNKNOWN_TOPIC
            | code::LOCAL_UNKNOWN_PARTITION
    )
}

/// The partitions with records that are no longer needed, and the offset up to which they can be deleted.
///
/// The caller of [`told`](Self::told) guarantees that every record below the offset is processed for good, even after
/// later failures. Several owners of a partition may call it in any order, even an owner that lost the partition long
/// ago. The highest offset counts, and each of them was right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    partitions: BTreeMap<TopicPartition, Front>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Front {
    /// The offset below which no record is needed.
    needless: Offset,
    /// The first offset of the log, if it is known.
    begins: Offset,
}

impl Purge {
    /// Notes that records below this offset are no longer needed.
    pub fn told(&mut self, partition: &TopicPartition, needless: Offset) {
        match self.partitions.get_mut(partition) {
            Some(front) => front.needless = front.needless.max(needless),
            None => {
                let begins = Offset::ZERO;
                let front = Front { needless, begins };
                self.partitions.insert(partition.clone(), front);
            }
        }
    }

    /// The deletions to do: all records below these offsets. Failed deletions are due again.
    #[must_use]
    pub fn due(&self) -> Vec<(TopicPartition, Offset)> {
        let due = self.partitions.iter();
        due.filter(|(_, front)| front.needless > front.begins)
            .map(|(partition, front)| (partition.clone(), front.needless))
            .collect()
    }

    /// Drops the offset of a log that no longer exists ([`is_of_another_log`]). The topic is missing, or a new
    /// and shorter log has its name.
    pub fn forget(&mut self, partition: &TopicPartition) {
        self.partitions.remove(partition);
    }

    /// Records the reported first offset of the log.
    pub fn begins(&mut self, partition: &TopicPartition, at: Offset) {
        if let Some(front) = self.partitions.get_mut(partition) {
            front.begins = front.begins.max(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Partition;

    fn tp(n: i32) -> TopicPartition {
        TopicPartition::new("words", Partition::new(n).unwrap())
    }

    fn offset(n: i64) -> Offset {
        Offset::new(n).unwrap()
    }

    fn due(purge: &Purge) -> Vec<(i32, i64)> {
        let due = purge.due().into_iter();
        due.map(|(tp, offset)| (tp.partition.get(), offset.get()))
            .collect()
    }

    #[test]
    fn a_requested_deletion_is_due_until_it_is_done() {
        let mut purge = Purge::default();
        purge.told(&tp(0), offset(5));
        purge.told(&tp(1), offset(0));
        assert_eq!(due(&purge), [(0, 5)], "there is nothing below 0");
        assert_eq!(due(&purge), [(0, 5)], "no deletion was reported");
        purge.begins(&tp(0), offset(5));
        assert_eq!(due(&purge), []);
        purge.told(&tp(0), offset(9));
        purge.begins(&tp(0), offset(7));
        assert_eq!(due(&purge), [(0, 9)], "only a part of it is gone");
    }

    #[test]
    fn it_never_deletes_more_than_requested() {
        let mut purge = Purge::default();
        purge.told(&tp(0), offset(9));
        purge.told(&tp(0), offset(3));
        assert_eq!(due(&purge), [(0, 9)], "an owner of before is late");
        purge.begins(&tp(0), offset(20));
        purge.told(&tp(0), offset(15));
        assert_eq!(due(&purge), [], "another worker deleted more");
        purge.begins(&tp(7), offset(1));
        assert_eq!(due(&purge), [], "it was never reported");
    }
}
