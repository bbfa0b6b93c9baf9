//! Moments of a record's key that come before the record.

use eos_protocol::{Clock, Offset, Timestamp, TopicPartition};

use crate::own_timer::OwnTimer;

/// The timers of a step, for the key of a record. Their moments up to the time of the record come before the record.
#[derive(Debug)]
pub(super) struct OwnMoments {
    /// The record.
    pub(super) partition: TopicPartition,
    pub(super) offset: Offset,
    /// Empty if all of their moments have come.
    pub(super) timers: Vec<OwnTimer>,
    /// The time of the record by the machine's clock. It stays the same when the record runs again: otherwise, new moments
    /// could come before the record without end.
    pub(super) wall_clock: Option<Timestamp>,
}

impl OwnMoments {
    pub(super) fn new(
        (partition, offset): (TopicPartition, Offset),
        timers: Vec<OwnTimer>,
        before: Option<&Self>,
    ) -> Self {
        let before = before.filter(|it| it.is_of(&partition, offset));
        let mut by_wall = timers.iter().filter(|timer| timer.clock == Clock::Wall);
        let wall_clock = before.and_then(|it| it.wall_clock);
        Self {
            wall_clock: wall_clock.or(by_wall.next().map(|timer| timer.now)),
            partition,
            offset,
            timers,
        }
    }

    /// Returns whether the moments come before this record.
    pub(super) fn is_of(&self, partition: &TopicPartition, offset: Offset) -> bool {
        self.offset == offset && self.partition == *partition
    }
}
