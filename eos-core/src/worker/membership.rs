//! What a worker owns, it owns as one member of its group.
//!
//! When the group takes a member for dead, librdkafka reports the loss of all its partitions; but
//! not while a rebalance waits for its answer (2.12.1, `rd_kafka_cgrp_revoke_all_rejoin_maybe`: "already
//! in progress, skipping"). It joins again under a new member id then, and claims what it believes to
//! own, without the generation that it owned it in. The group gives it back, and no event says that
//! somebody else had it meanwhile: the task would go on at a position that is long committed, and
//! the group's fence lets it, for the member is valid. So a change of the member id means that
//! everything is lost: the worker aborts, leaves, and joins without a claim.
//!
//! It joins with a consumer of its own. One that unsubscribed while a rebalance was under way may never subscribe
//! again: librdkafka leaves `rkcg_rebalance_rejoin` set (2.12.1, `rd_kafka_cgrp_assignment_done`, the branch of
//! `rd_kafka_trigger_waiting_subscribe_maybe`), takes the rebalance for unfinished, and postpones each later
//! subscription for ever. The worker cannot avoid that moment: the rebalance begins on the client's own thread.
//!
//! Under `group.protocol=consumer` the member id stays the same for good and says nothing; there the
//! brokers decide who owns what, and no claim counts (design note 0017).

use std::task::Poll;

use eos_protocol::{Deadline, Event, State, TopicName};

use super::stopping::{JOIN, Stopping};
use super::{SLICE, Worker, WorkerError, WorkerSpec};
use crate::client::{Client, GroupMetadata, Source, SourceSpec};
use crate::failpoints::{self, Defence};
use crate::metrics::Count;
use crate::topology::Topology;

/// As which member a worker owns what it owns.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// The member id under which the first of it was assigned.
    id: String,
    course: Course,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Course {
    #[default]
    Member,
    /// What it owned is lost, whatever the client says: what is open has to end first.
    Evicted,
    /// Until the deadline, the LeaveGroup is waited for.
    Leaving(Deadline),
    /// Until the deadline, the consumer's close is waited for.
    Closing(Deadline),
}

impl Membership {
    /// Whether what is owned may be worked on.
    pub(super) fn holds(&self) -> bool {
        self.course == Course::Member
    }

    /// Whether the consumer has begun to leave the group.
    pub(super) fn leaves(&self) -> bool {
        matches!(self.course, Course::Leaving(_) | Course::Closing(_))
    }
}

/// A consumer that joins the app's group.
pub(super) fn subscribed<C: Client>(
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
            watched,
        })
        .map_err(WorkerError::Client)?;
    let topics = topology.driving_topics();
    source.subscribe(&topics).map_err(WorkerError::Client)?;
    Ok(source)
}

impl<C: Client> Worker<C> {
    /// Partitions are about to be taken over.
    pub(super) fn note_member(&mut self) {
        let member = self.source.member();
        let id = member.map_or(String::new(), |member| member.member_id().to_owned());
        if self.owned.is_empty() && self.resolving.is_none() {
            self.membership.id = id;
        } else if !self.is_member(&id) {
            self.feed(Event::Lost);
        }
    }

    /// Whether this is the member that everything was assigned to. If not, everything is given up.
    pub(super) fn is_member(&mut self, id: &str) -> bool {
        let same = self.membership.id == id || failpoints::undefended(Defence::Membership);
        if !same && self.membership.holds() {
            tracing::warn!(
                app = %self.spec.app, worker = %self.spec.id, before = self.membership.id, now = id,
                "the group took this worker for dead while a rebalance was under way, and has it as a \
                 new member: it gives everything up and joins anew"
            );
            self.evict();
        }
        same
    }

    /// Gives up everything and joins anew.
    pub(super) fn evict(&mut self) {
        self.meter.count(Count::Rebalances, 1);
        self.membership.course = Course::Evicted;
    }

    /// Leaves, and joins again with a new consumer, once nothing is open any more.
    pub(super) fn join_anew(&mut self) -> Result<(), WorkerError> {
        if self.stopping != Stopping::No || !self.quiet() {
            return Ok(());
        }
        let course = self.membership.course;
        match course {
            // In doubt: a successor waits for stable offsets, we need not.
            Course::Evicted if self.settled() || self.machine.state() == State::InDoubt => {
                self.source.unsubscribe().map_err(WorkerError::Client)?;
                let deadline = Deadline::after(self.env.now(), JOIN);
                self.membership.course = Course::Leaving(deadline);
            }
            // The revocation that `unsubscribe` causes has to be answered first.
            Course::Leaving(deadline) if self.owned.is_empty() && self.has_left(deadline) => {
                let deadline = Deadline::after(self.env.now(), JOIN);
                self.membership.course = Course::Closing(deadline);
            }
            Course::Closing(deadline) => match self.source.close(SLICE) {
                Poll::Pending if !deadline.passed(self.env.now()) => {}
                Poll::Pending => {
                    tracing::warn!(
                        app = %self.spec.app, worker = %self.spec.id,
                        "the consumer that left the group did not close in time: it is abandoned"
                    );
                    self.replace_source()?;
                }
                Poll::Ready(closed) => {
                    if let Err(error) = closed {
                        tracing::warn!(worker = %self.spec.id, %error, "closing the consumer that left the group");
                    }
                    self.replace_source()?;
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn replace_source(&mut self) -> Result<(), WorkerError> {
        let watched = self.topics.names();
        self.source = subscribed(&*self.client, &self.spec, &self.topology, watched)?;
        self.joined = false;
        self.membership.course = Course::Member;
        tracing::info!(app = %self.spec.app, worker = %self.spec.id, "joining the group with a new consumer");
        Ok(())
    }
}
