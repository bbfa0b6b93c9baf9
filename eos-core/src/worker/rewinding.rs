//! Goes back to the last commit.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{CommitCause, ErrorClass};

use super::task::Readiness;
use super::{SLICE, Worker, WorkerError};
use crate::client::{Client, Source};

/// What became of the seeks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rewound {
    /// There were none, or they have to wait.
    Nothing,
    Moved,
    /// By assigning again, which may have answered a revocation: it is heard before anything else.
    Reassigned,
}

impl<C: Client> Worker<C> {
    /// Rule 8: goes back to the last commit. No task takes a record before that is confirmed.
    pub(super) fn rewind(&mut self) -> Result<Rewound, WorkerError> {
        if self.rewinds.is_empty() {
            self.reassigning = false;
            return Ok(Rewound::Nothing);
        }
        let mut done = Rewound::Moved;
        match self.source.seek(&self.rewinds, SLICE) {
            Poll::Pending => return Ok(Rewound::Moved),
            Poll::Ready(Ok(())) => {}
            // To librdkafka any (un)assign is the answer to the rebalance that is under way, one
            // that was not heard of yet included: partitions would be given away whose transaction
            // is not settled.
            Poll::Ready(Err(error))
                if error.class() == ErrorClass::Retriable && !(self.quiet() && self.settled()) =>
            {
                tracing::debug!(worker = %self.spec.id, %error, "seeking again");
                self.reassigning = true;
                self.commit(CommitCause::Restore);
                self.nap_at_most(Some(Duration::from_millis(5)));
                return Ok(Rewound::Nothing);
            }
            Poll::Ready(Err(error)) if error.class() == ErrorClass::Retriable => {
                // The fetcher has not started yet: assigning explicitly does the same.
                tracing::debug!(worker = %self.spec.id, %error, "assigning again instead of seeking");
                let partitions: Vec<_> = self.rewinds.iter().map(|(p, _)| p.clone()).collect();
                self.source
                    .unassign(&partitions)
                    .map_err(WorkerError::Client)?;
                self.source
                    .assign(&self.rewinds)
                    .map_err(WorkerError::Client)?;
                done = Rewound::Reassigned;
            }
            Poll::Ready(Err(error)) => return Err(WorkerError::Client(error)),
        }
        self.reassigning = false;
        self.rewinds.clear();
        for task in self
            .tasks
            .values_mut()
            .filter(|t| t.readiness == Readiness::Rewinding)
        {
            task.rewound();
        }
        Ok(done)
    }
}
