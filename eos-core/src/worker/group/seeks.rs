//! Rewinds to the last commit.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{ErrorClass, TopicPartition};

use super::{Group, unassign};
use crate::client::{Client, Source};
use crate::worker::shared::Shared;
use crate::worker::tasks::Seek;
use crate::worker::{SLICE, WorkerError};

/// The pause before the retry of a postponed seek.
const RETRY: Duration = Duration::from_millis(5);

/// The seeks that are not confirmed yet.
#[derive(Debug, Default)]
pub(in crate::worker) struct Seeks {
    to: Vec<Seek>,
    /// Whether the seeks need an assignment. It requires that no transaction is open, so no record is taken until then.
    reassign: bool,
}

/// The result of the seeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Sought {
    /// There were no seeks.
    Nothing,
    /// The seeks are in progress.
    Moved,
    /// The seeks are done.
    Done,
    /// The seeks are done by an assignment, which may have responded to a revocation: read the revocation first.
    Reassigned,
    /// Commit the open transaction first.
    NeedsCommit,
}

impl Seeks {
    /// Adds a seek, and replaces an earlier one of the same partition.
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
    /// Rule 8: rewinds to the last commit. No task takes a record before the confirmation.
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
        // librdkafka treats any (un)assign as the response to the current rebalance, even to an unreported one. The
        // worker would give away partitions with an unsettled transaction.
        if !(self.is_quiet() && settled) {
            tracing::debug!(worker = %shared.spec.id, %error, "seeking again");
            self.seeks.reassign = true;
            self.wake.after(RETRY);
            return Ok(Sought::NeedsCommit);
        }
        // The fetcher has not started yet: an explicit assignment has the same effect.
        tracing::debug!(worker = %shared.spec.id, %error, "assigning again instead of seeking");
        let seeks = std::mem::take(&mut self.seeks).to;
        let partitions: Vec<_> = seeks.iter().map(|(p, _)| p.clone()).collect();
        unassign::<C>(source, &partitions)?;
        source.assign(&seeks).map_err(WorkerError::Client)?;
        Ok(Sought::Reassigned)
    }
}
