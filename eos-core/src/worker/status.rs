//! The status of a worker for its caller.

use eos_protocol::{Offset, Timestamp, TopicPartition};

use super::task::Task;

/// The progress of one partition that a worker reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputStanding {
    /// The partition.
    pub partition: TopicPartition,
    /// The committed offset, where a restart begins.
    pub committed: Offset,
    /// The next offset. All records before it are processed, but may be uncommitted.
    pub next: Offset,
    /// The stream time of the task: the highest timestamp of its records so far.
    pub stream_time: Option<Timestamp>,
    /// Whether the task is paused at a failed record or item, and waits for a decision.
    pub paused: bool,
}

impl InputStanding {
    /// Returns the progress of all inputs of a task.
    pub(super) fn of<R>(task: &Task<R>) -> impl Iterator<Item = Self> {
        let stream_time = task.progress.stream_time();
        let paused = task.stands_still();
        let inputs = task.progress.inputs().iter();
        inputs.map(move |input| Self {
            partition: input.partition.clone(),
            committed: input.committed,
            next: input.next,
            stream_time,
            paused,
        })
    }
}
