//! The stop and the failure of a worker.

use std::task::Poll;

use eos_protocol::{Deadline, Now};

use super::group::{Group, JOIN, has_left};
use super::shared::Shared;
use super::tasks::Tasks;
use super::{RecordsOf, SLICE, StopMode, WorkerError};
use crate::client::{Client, Source};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// A leaving worker waits until the deadline to become a member: see `may_leave`.
    Draining(StopMode, Deadline),
    /// A close waits until the deadline for the LeaveGroup: see `has_left`.
    Leaving(Deadline),
    /// The worker waits until the deadline for the consumer to close.
    Closing(Deadline),
}

/// The state of a worker's stop or failure.
#[derive(Debug)]
pub(super) struct Lifecycle {
    stopping: Stopping,
    /// The error with which the worker ends once the open transaction is settled.
    failure: Option<WorkerError>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            stopping: Stopping::No,
            failure: None,
        }
    }
}

impl Lifecycle {
    /// Returns whether the worker neither stops nor has failed.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_stopping() && !self.has_failed()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping != Stopping::No
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Stops the worker with this error, unless it has failed before. Returns whether this is the first error.
    pub(super) fn fail(&mut self, error: WorkerError) -> bool {
        let first = self.failure.is_none();
        self.failure.get_or_insert(error);
        first
    }

    /// Records in the error that the records before the failed one are not committed.
    pub(super) fn lost_prefix(&mut self) {
        if let Some(WorkerError::Record {
            prefix_committed, ..
        }) = &mut self.failure
        {
            *prefix_committed = false;
        }
    }

    /// Returns the error with which the worker ends.
    pub(super) fn end(&mut self) -> Result<(), WorkerError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Begins to stop. Returns false if the worker is already stopping.
    pub(super) fn stop(&mut self, mode: StopMode, now: Now) -> bool {
        let first = !self.is_stopping();
        if first {
            self.stopping = Stopping::Draining(mode, Deadline::after(now, JOIN));
        }
        first
    }

    /// Continues a requested stop. Returns true once the worker has stopped. Events are handled meanwhile. `drained`:
    /// no transaction is open and no record is unsent.
    pub(super) fn step<C: Client>(
        &mut self,
        shared: &Shared<C>,
        drained: bool,
        source: &mut C::Source,
        group: &Group,
        tasks: &Tasks<RecordsOf<C>>,
    ) -> Result<bool, WorkerError> {
        let deadline = || Deadline::after(shared.now(), JOIN);
        match self.stopping {
            Stopping::Draining(StopMode::Restart, _) if drained => {
                self.stopping = Stopping::Closing(deadline());
            }
            Stopping::Draining(StopMode::Leave, by) if drained => {
                if may_leave(shared, group, by) {
                    // The worker may already be leaving, to rejoin with another consumer.
                    if !group.membership.leaves() {
                        source.unsubscribe().map_err(WorkerError::Client)?;
                    }
                    self.stopping = Stopping::Leaving(deadline());
                }
            }
            // The revocation that `unsubscribe` causes comes first.
            Stopping::Leaving(by) => {
                if tasks.owns_nothing() && group.is_quiet() && has_left(shared, source, by) {
                    self.stopping = Stopping::Closing(deadline());
                }
            }
            Stopping::Closing(by) => return Ok(is_closed(shared, source, by)),
            Stopping::No | Stopping::Draining(..) => {}
        }
        Ok(false)
    }
}

fn is_closed<C: Client>(shared: &Shared<C>, source: &mut C::Source, by: Deadline) -> bool {
    let spec = &shared.spec;
    match source.close(SLICE) {
        // Without transactions: a commit of offsets may wait behind a JoinGroup that waits for dead members. The
        // group then counts this worker among the dead members.
        Poll::Pending if by.passed(shared.now()) => {
            tracing::warn!(
                app = %spec.app, worker = %spec.id,
                "the consumer did not close in time; abandoning it"
            );
            true
        }
        Poll::Pending => false,
        Poll::Ready(closed) => {
            if let Err(error) = closed {
                tracing::warn!(worker = %spec.id, %error, "closing the consumer failed");
            }
            true
        }
    }
}

/// Returns whether the worker may leave the group. A static member that stopped before it joined is still in the group
/// from its last run: its partitions would wait for the session timeout. Only a member can leave, so the worker joins
/// first. It has joined when an assignment arrives, not before: librdkafka has a generation from the JoinGroup on, but
/// sends no LeaveGroup until the SyncGroup response.
fn may_leave<C>(shared: &Shared<C>, group: &Group, by: Deadline) -> bool {
    !shared.spec.static_member || group.has_joined() || by.passed(shared.now())
}
