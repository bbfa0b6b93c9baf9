//! The queue of records to purge. The runtime deletes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use eos_protocol::state::Purge;
use eos_protocol::{Offset, TopicPartition};

/// The records that all workers of a process no longer need.
#[derive(Debug, Default)]
pub struct PurgeQueue(Mutex<Purge>);

impl PurgeQueue {
    pub(super) fn lock(&self) -> MutexGuard<'_, Purge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues all records of a partition before this offset.
    #[cfg(test)]
    pub(crate) fn push(&self, partition: &TopicPartition, before: Offset) {
        self.lock().told(partition, before);
    }

    /// Returns the offsets before which all records may be deleted.
    #[must_use]
    pub fn due(&self) -> Vec<(TopicPartition, Offset)> {
        self.lock().due()
    }

    /// Drops a partition from the queue: its log ends before the queued offset, so it is another log.
    pub fn forget(&self, partition: &TopicPartition) {
        self.lock().forget(partition);
    }

    /// Records the beginning of a log after a deletion.
    pub fn begins(&self, partition: &TopicPartition, at: Offset) {
        self.lock().begins(partition, at);
    }
}
