//! Goes back to the last commit.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{ErrorClass, TopicPartition};

use super::{Group, unassign};
use crate::client::{Client, Source};
use crate::worker::shared::Shared;
use crate::worker::tasks::Seek;
use crate::worker::{SLICE, WorkerError};

/// How long after a seek that has to wait the next one is tried.
const RETRY: Duration = Duration::from_millis(5);

/// Seeks that are not confirmed yet.
#[derive(Debug, Default)]
pub(in crate::worker) struct Seeks {
    to: Vec<Seek>,
    /// They can be done only while no transaction is open: no record is taken until then.
    reassign: bool,
}

/// What came of the seeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Sought {
    /// There were none.
    Nothing,
    /// They are under way.
    Moved,
    /// They are done.
    Done,
    /// They are done, by an assignment that may have answered a revocation: it is read before anything else.
    Reassigned,
    /// The open transaction has to be committed first.
    NeedsCommit,
}

impl Seeks {
    /// Goes back to this offset, whatever the partition was to go back to before.
    pub(super) fn push(&mut self, (partition, to): Seek) {
        match self.to.iter_mut().find(|(known, _)| *known == partition) {
            Some((_, offset)) => *offset = to,
            None => self.to.push((partition, to)),
        }
    }

    pub(super) fn forget(&mut self, partitions: &[TopicPartition]) {
        self.to.retain(|(known, _)| !partitions.contains(known));
    }

    #[cfg(test)]
    pub(in crate::worker) fn are_empty(&self) -> bool {
        self.to.is_empty()
    }

    pub(super) fn are_done(&self) -> bool {
        self.to.is_empty() && !self.reassign
    }

    pub(super) fn reassigns(&self) -> bool {
        self.reassign
    }
}

impl Group {
    /// Rule 8: goes back to the last commit. No task takes a record before that is confirmed.
    pub(in crate::worker) fn go_back<C: Client>(
        &mut self,
        shared: &Shared<C>,
        settled: bool,
        source: &mut C::Source,
    ) -> Result<Sought, WorkerError> {
        if self.seeks.to.is_empty() {
            self.seeks.reassign = false;
            return Ok(Sought::Nothing);
        }
        let error = match source.seek(&self.seeks.to, SLICE) {
            Poll::Pending => return Ok(Sought::Moved),
            Poll::Ready(Ok(())) => {
                self.seeks = Seeks::default();
                return Ok(Sought::Done);
            }
            Poll::Ready(Err(error)) if error.class() != ErrorClass::Retriable => {
                return Err(WorkerError::Client(error));
            }
            Poll::Ready(Err(error)) => error,
        };
        // To librdkafka any (un)assign is the answer to the rebalance that is under way, one that was not reported
        // yet included: partitions would be given away whose transaction is not settled.
        if !(self.is_quiet() && settled) {
            tracing::debug!(worker = %shared.spec.id, %error, "seeking again");
            self.seeks.reassign = true;
            self.wake.after(RETRY);
            return Ok(Sought::NeedsCommit);
        }
        // The fetcher has not started yet: an explicit assignment does the same.
        tracing::debug!(worker = %shared.spec.id, %error, "assigning again instead of seeking");
        let seeks = std::mem::take(&mut self.seeks).to;
        let partitions: Vec<_> = seeks.iter().map(|(p, _)| p.clone()).collect();
        unassign::<C>(source, &partitions)?;
        source.assign(&seeks).map_err(WorkerError::Client)?;
        Ok(Sought::Reassigned)
    }
}
