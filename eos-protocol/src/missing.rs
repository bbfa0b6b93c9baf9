//! Confirms that a committed offset is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::TopicPartition;
use crate::start::Start;

/// Counts the reports of the group that a task has no committed offset.
///
/// A coordinator that resigns or loads may briefly report an offset as missing (KAFKA-20416). A task that trusted the
/// first report would start over and commit the new offsets.
#[derive(Debug, Clone, Default)]
pub struct MissingOffsets(BTreeMap<TopicPartition, u32>);

impl MissingOffsets {
    /// The number of reports in a row that confirm a missing offset.
    pub const TRIES: u32 = 4;
    /// The time between two queries.
    pub const PAUSE: Duration = Duration::from_millis(250);

    /// Drops the count of a task that another worker owns now.
    pub fn forget(&mut self, driving: &TopicPartition) {
        self.0.remove(driving);
    }

    /// Returns whether this start is confirmed: none of its offsets is missing, or the group has reported the missing
    /// offset [`TRIES`](Self::TRIES) times in a row.
    pub fn confirm(&mut self, driving: &TopicPartition, start: &Start) -> bool {
        if start.is_complete() {
            self.0.remove(driving);
            return true;
        }
        let answers = self.0.entry(driving.clone()).or_default();
        *answers += 1;
        if *answers < Self::TRIES {
            return false;
        }
        self.0.remove(driving);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Offset, Partition};
    use crate::start::FirstStart;

    fn driving() -> TopicPartition {
        TopicPartition::new("in", Partition::ZERO)
    }

    fn first() -> Start {
        Start::First {
            partitions: vec![driving()],
            from: FirstStart::Earliest,
        }
    }

    #[test]
    fn a_missing_offset_is_believed_when_it_is_reported_often_enough() {
        let mut missing = MissingOffsets::default();
        let believed: Vec<bool> = (0..5)
            .map(|_| missing.confirm(&driving(), &first()))
            .collect();
        assert_eq!(believed, [false, false, false, true, false]);
    }

    #[test]
    fn an_offset_that_comes_back_is_believed_at_once_and_ends_the_count() {
        let mut missing = MissingOffsets::default();
        let resume = Start::Resume {
            at: vec![(driving(), Offset::ZERO)],
            name: None,
        };
        for _ in 1..MissingOffsets::TRIES {
            assert!(!missing.confirm(&driving(), &first()));
        }
        assert!(missing.confirm(&driving(), &resume));
        assert!(!missing.confirm(&driving(), &first()));
    }
}
