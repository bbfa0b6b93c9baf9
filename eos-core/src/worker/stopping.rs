//! The way out: commit, leave, close.

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{CommitCause, Deadline};

use super::{SLICE, StopMode, Worker, WorkerError};
use crate::client::{Client, GroupMetadata, Source};

/// How long one who leaves waits to be a member first, and then to be none.
pub(super) const JOIN: Duration = Duration::from_secs(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    No,
    /// Until the deadline, one who leaves waits to be a member: see `Worker::may_leave`.
    Draining(StopMode, Deadline),
    /// Until the deadline, a close waits for the LeaveGroup: see `Worker::has_left`.
    Leaving(Deadline),
    /// Until the deadline, the consumer's close is waited for.
    Closing(Deadline),
}

impl<C: Client> Worker<C> {
    /// Asks the worker to stop; go on stepping until it answers [`Step::Stopped`](super::Step::Stopped).
    pub fn stop(&mut self, mode: StopMode) {
        if self.stopping == Stopping::No {
            tracing::info!(app = %self.spec.app, worker = %self.spec.id, ?mode, "stopping");
            self.stopping = Stopping::Draining(mode, Deadline::after(self.env.now(), JOIN));
            self.commit(CommitCause::Shutdown);
        }
    }

    /// The way out: commit, leave, close; events are answered all the while.
    pub(super) fn stop_if_asked(&mut self) -> Result<bool, WorkerError> {
        match self.stopping {
            Stopping::No => Ok(false),
            Stopping::Draining(mode, deadline) if self.settled() && self.unsent.is_none() => {
                if mode == StopMode::Leave {
                    if !self.may_leave(deadline) {
                        return Ok(false);
                    }
                    // It may be about to leave already, to join with another consumer.
                    if !self.membership.leaves() {
                        self.source.unsubscribe().map_err(WorkerError::Client)?;
                    }
                }
                self.stopping = match mode {
                    StopMode::Leave => Stopping::Leaving(Deadline::after(self.env.now(), JOIN)),
                    StopMode::Restart => Stopping::Closing(Deadline::after(self.env.now(), JOIN)),
                };
                Ok(false)
            }
            Stopping::Draining(..) => Ok(false),
            Stopping::Leaving(deadline) => {
                // The revocation that `unsubscribe` causes has to be answered first.
                if self.owned.is_empty() && self.quiet() && self.has_left(deadline) {
                    self.stopping = Stopping::Closing(Deadline::after(self.env.now(), JOIN));
                }
                Ok(false)
            }
            Stopping::Closing(deadline) => match self.source.close(SLICE) {
                // At least once only: a commit of offsets may wait behind a JoinGroup that waits
                // for members that are dead. To the group this worker is one of them then.
                Poll::Pending if deadline.passed(self.env.now()) => {
                    tracing::warn!(
                        app = %self.spec.app, worker = %self.spec.id,
                        "the consumer did not close in time and is abandoned"
                    );
                    self.producer = None;
                    Ok(true)
                }
                Poll::Pending => Ok(false),
                Poll::Ready(closed) => {
                    if let Err(error) = closed {
                        tracing::warn!(worker = %self.spec.id, %error, "closing the consumer");
                    }
                    self.producer = None;
                    Ok(true)
                }
            },
        }
    }

    /// A static member that was started and stopped before it joined is still in the group from its
    /// last run: its partitions would wait for the session time-out. Only a member can leave, so it
    /// joins first. It has when an assignment came, not before: librdkafka has a generation from the
    /// JoinGroup on, but sends no LeaveGroup until the SyncGroup was answered.
    fn may_leave(&self, deadline: Deadline) -> bool {
        !self.spec.static_member || self.joined || deadline.passed(self.env.now())
    }

    /// librdkafka leaves once the unassign is done, and a static member not at all if its close has
    /// begun by then. It forgets its member id when it sends the LeaveGroup.
    pub(super) fn has_left(&mut self, deadline: Deadline) -> bool {
        let forgotten = |source: &mut C::Source| {
            let member = source.member();
            member.is_ok_and(|member| member.member_id().is_empty())
        };
        if !self.spec.static_member || forgotten(&mut self.source) {
            return true;
        }
        let late = deadline.passed(self.env.now());
        if late {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id,
                "the group did not hear in time that this worker leaves: its partitions move after \
                 the session time-out"
            );
        }
        late
    }
}
