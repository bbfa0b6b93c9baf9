//! The group member that owns a worker's partitions.
//!
//! When the group removes a member as dead, librdkafka reports the loss of all its partitions. But it does not while a
//! rebalance waits for its response (2.12.1, `rd_kafka_cgrp_revoke_all_rejoin_maybe`: "already in progress, skipping").
//! It then joins again under a new member id, and claims its previous partitions without their old generation. The
//! group assigns them again. No event reports that another member owned them meanwhile. The task would continue at a
//! position that was committed long ago. The group would not fence it, because the new member is valid. So a change of
//! the member id means that all partitions are lost: the worker aborts, leaves, and joins without a claim.
//!
//! The worker rejoins with a new consumer. A consumer that unsubscribes during a rebalance may never subscribe again:
//! librdkafka leaves `rkcg_rebalance_rejoin` set (2.12.1, `rd_kafka_cgrp_assignment_done`, the branch of
//! `rd_kafka_trigger_waiting_subscribe_maybe`), treats the rebalance as unfinished, and postpones all later
//! subscriptions. The worker cannot avoid that moment: the rebalance begins on the client's own thread.
//!
//! Under `group.protocol=consumer` the member id never changes and proves nothing. There the brokers decide the
//! ownership, and no claim counts (design note 0017).

use std::task::Poll;
use std::time::Duration;

use eos_protocol::{Deadline, TopicName};

use super::{Group, Standing};
use crate::client::{Client, GroupMetadata, Source, SourceSpec};
use crate::metrics::Count;
use crate::rules;
use crate::topology::Topology;
use crate::worker::shared::Shared;
use crate::worker::{SLICE, WorkerError, WorkerSpec};

/// The longest wait of a leaving worker for its join, and then for its leave.
pub(in crate::worker) const JOIN: Duration = Duration::from_secs(6);

/// The group member under which a worker owns its partitions.
#[derive(Debug, Default)]
pub(in crate::worker) struct Membership {
    /// The member id of the first assignment.
    id: String,
    course: Course,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Course {
    #[default]
    Member,
    /// All partitions are lost, whatever the client reports. The open transaction has to end first.
    Evicted,
    /// The worker waits for the LeaveGroup until the deadline.
    Leaving(Deadline),
    /// The worker waits for the consumer to close until the deadline.
    Closing(Deadline),
}

impl Membership {
    /// Returns whether the worker may process its partitions.
    pub(in crate::worker) fn holds(&self) -> bool {
        self.course == Course::Member
    }

    /// Returns whether the consumer has begun to leave the group.
    pub(in crate::worker) fn leaves(&self) -> bool {
        matches!(self.course, Course::Leaving(_) | Course::Closing(_))
    }

    /// Begins the ownership of this member, before its first assignment.
    pub(super) fn begin(&mut self, id: String) {
        self.id = id;
    }

    /// Returns whether this member id owns all partitions. If not, the worker gives up all of them.
    pub(in crate::worker) fn is_member<C>(&mut self, shared: &Shared<C>, id: &str) -> bool {
        let same = self.id == id || !rules::owns_as_one_member();
        if !same && self.holds() {
            tracing::warn!(
                app = %shared.spec.app, worker = %shared.spec.id, before = self.id, now = id,
                "the group removed this worker during a rebalance and added it as a new member; \
                 giving up all partitions and rejoining"
            );
            self.evict(shared);
        }
        same
    }

    /// Gives up all partitions and rejoins.
    pub(in crate::worker) fn evict<C>(&mut self, shared: &Shared<C>) {
        shared.meter.count(Count::Rebalances, 1);
        self.course = Course::Evicted;
    }
}

/// Creates a consumer that joins the app's group.
pub(in crate::worker) fn subscribed<C: Client>(
    client: &C,
    spec: &WorkerSpec,
    topology: &Topology,
    watched: Vec<TopicName>,
) -> Result<C::Source, WorkerError> {
    let mut source = client
        .source(&SourceSpec {
            group: spec.app.as_str().to_owned(),
            client_id: format!("{}-consumer", spec.identity),
            protocol: spec.protocol.clone(),
            prefetch: spec.prefetch,
            restores: !topology.stores().is_empty(),
            reads_several_topics: topology.reads_several_topics(),
            watched,
        })
        .map_err(WorkerError::Client)?;
    let topics = topology.driving_topics();
    source.subscribe(&topics).map_err(WorkerError::Client)?;
    Ok(source)
}

impl Group {
    /// Leaves, and joins again with a new consumer once no transaction is open.
    pub(in crate::worker) fn rejoin<C: Client>(
        &mut self,
        shared: &Shared<C>,
        txn: Standing,
        source: &mut C::Source,
        owns_nothing: bool,
    ) -> Result<(), WorkerError> {
        if !self.is_quiet() {
            return Ok(());
        }
        let deadline = || Deadline::after(shared.now(), JOIN);
        match self.membership.course {
            // In doubt: a successor waits for stable offsets, so this worker does not have to.
            Course::Evicted if txn.settled || txn.in_doubt => {
                source.unsubscribe().map_err(WorkerError::Client)?;
                self.membership.course = Course::Leaving(deadline());
            }
            // The revocation that `unsubscribe` causes comes first.
            Course::Leaving(by) if owns_nothing && has_left(shared, source, by) => {
                self.membership.course = Course::Closing(deadline());
            }
            Course::Closing(by) => match source.close(SLICE) {
                Poll::Pending if !by.passed(shared.now()) => {}
                closed => {
                    match closed {
                        Poll::Pending => tracing::warn!(
                            app = %shared.spec.app, worker = %shared.spec.id,
                            "the old consumer did not close in time; abandoning it"
                        ),
                        Poll::Ready(Err(error)) => tracing::warn!(
                            worker = %shared.spec.id, %error, "closing the old consumer failed"
                        ),
                        Poll::Ready(Ok(())) => {}
                    }
                    *source = self.subscribe_again(shared)?;
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn subscribe_again<C: Client>(&mut self, shared: &Shared<C>) -> Result<C::Source, WorkerError> {
        let watched = self.topics.names();
        let source = subscribed(&*shared.client, &shared.spec, &shared.topology, watched)?;
        self.joined = false;
        self.membership.course = Course::Member;
        tracing::info!(
            app = %shared.spec.app, worker = %shared.spec.id, "rejoining with a new consumer"
        );
        Ok(source)
    }
}

/// Returns whether the consumer has left. librdkafka leaves once the unassign is done. A static member does not leave
/// at all if its close has begun by then. librdkafka clears the member id when it sends the LeaveGroup.
pub(in crate::worker) fn has_left<C: Client>(
    shared: &Shared<C>,
    source: &mut C::Source,
    by: Deadline,
) -> bool {
    let forgotten = |source: &mut C::Source| {
        let member = source.member();
        member.is_ok_and(|member| member.member_id().is_empty())
    };
    if !shared.spec.static_member || forgotten(source) {
        return true;
    }
    let late = by.passed(shared.now());
    if late {
        tracing::warn!(
            app = %shared.spec.app, worker = %shared.spec.id,
            "the group did not receive the leave request in time; the partitions of this worker \
             move after the session timeout"
        );
    }
    late
}
