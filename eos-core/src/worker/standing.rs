//! What whoever steps a worker may ask of it, and tell it.

use eos_protocol::{CommitCause, Offset, State, Timestamp, TopicPartition};

use super::task::Readiness;
use super::{Answering, Worker};
use crate::client::Client;

/// How far a worker is with one partition that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputStanding {
    /// The partition.
    pub partition: TopicPartition,
    /// Up to where it is committed: the offset that a restart begins at.
    pub committed: Offset,
    /// The offset that comes next: all before it is processed, though maybe not committed.
    pub next: Offset,
    /// The stream time of its task: the highest time of the records that it has taken.
    pub stream_time: Option<Timestamp>,
}

impl<C: Client> Worker<C> {
    /// Asks for a commit of the open transaction, before it is due; the next steps do it. False if none is
    /// open.
    pub fn commit_now(&mut self) -> bool {
        let open = self.machine.state() == State::Open;
        self.commit(CommitCause::Interval);
        open
    }

    /// Where its transaction is.
    #[must_use]
    pub fn state(&self) -> State {
        self.machine.state()
    }

    /// Whether all that the group gave it is ready for records: no rebalance, no restore and no seek is under
    /// way, and no record waits for a transaction of its own.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.joined
            && self.changes.is_empty()
            && matches!(self.answering, Answering::Nothing)
            && self.resolving.is_none()
            && self.restoring.is_empty()
            && self.rewinds.is_empty()
            && self.held.is_none()
            && !self.reassigning
            && !self.to_assign
            && (self.tasks.values()).all(|task| task.readiness == Readiness::Ready)
    }

    /// How far it is with each partition that it reads.
    #[must_use]
    pub fn standings(&self) -> Vec<InputStanding> {
        let of_task = |task: &super::Task<super::RecordsOf<C>>| {
            let stream_time = task.progress.stream_time();
            let inputs = task.progress.inputs().iter();
            let inputs = inputs.map(move |input| InputStanding {
                partition: input.partition.clone(),
                committed: input.committed,
                next: input.next,
                stream_time,
            });
            inputs.collect::<Vec<_>>()
        };
        self.tasks.values().flat_map(of_task).collect()
    }
}
