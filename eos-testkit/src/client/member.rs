//! A member of a consumer group: the work of librdkafka's main thread.
//!
//! ```text
//! Out ─JoinGroup─► Joining ─► Syncing ─► Stable ─Heartbeat─► REBALANCE_IN_PROGRESS: Out
//!                                           │
//!                              partitions to revoke: Revoked, response by unassign; then
//!                              partitions to assign: Assigned, response by assign; after a revocation, Out
//! ```
//! Cooperative (KIP-429): partitions that stay assigned are processed meanwhile.

use std::collections::{BTreeSet, VecDeque};

use eos_client::{GroupMetadata, GroupProtocol, SourceEvent, SourceSpec};
use eos_protocol::{CallSite, TopicPartition, code};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ResponseKind,
    SyncGroupRequest,
};
use kafka_wire::requests::text;

use super::assignor::{self, Claim};
use super::call::Call;
use super::errors::{fatal, plain};
use super::fabric::Wire;
use super::network::Line;

/// librdkafka's name of its cooperative assignor.
const PROTOCOL: &str = "cooperative-sticky";
/// `max.poll.interval.ms`: how long the group waits for a member to join.
const REBALANCE_TIMEOUT_MS: i32 = 300_000;
/// The session timeout that brokers set under KIP-848. The model does not support KIP-848, so such members join as
/// dynamic ones.
const CONSUMER_SESSION_MS: i64 = 45_000;
const CONSUMER_HEARTBEAT_MS: i64 = 500;

/// The group metadata of a member at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelMember {
    pub(super) group: String,
    pub(super) generation: i32,
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
}

impl GroupMetadata for ModelMember {
    fn generation_id(&self) -> i32 {
        self.generation
    }
    fn member_id(&self) -> &str {
        &self.id
    }
}

/// An event to which the application has to respond.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    Assigned(BTreeSet<TopicPartition>),
    Revoked(BTreeSet<TopicPartition>),
}

#[derive(Debug)]
enum Phase {
    Out,
    Joining(Call),
    Syncing(Call),
    Stable,
    Leaving(Call),
    /// An error that a rejoin does not fix.
    Failed,
}

/// A member of a consumer group.
#[derive(Debug)]
pub(super) struct Member {
    group: String,
    instance_id: Option<String>,
    session_ms: i64,
    heartbeat_ms: i64,
    /// The subscribed topics; empty after an unsubscribe.
    topics: Vec<String>,
    id: String,
    generation: i32,
    phase: Phase,
    owned: BTreeSet<TopicPartition>,
    question: Option<Question>,
    /// The partitions to assign after the revocation.
    coming: BTreeSet<TopicPartition>,
    /// Whether the member joins again after the last response.
    rejoins: bool,
    leaves: bool,
    /// Whether the member unsubscribed between a revocation and the end of the rebalance. librdkafka 2.12.1 then
    /// leaves `rkcg_rebalance_rejoin` set (`rd_kafka_cgrp_assignment_done`), treats the rebalance as unfinished, and
    /// postpones every later subscription endlessly.
    postpones: bool,
    events: VecDeque<SourceEvent>,
    beat: Option<Call>,
    next_beat: i64,
    /// The time of the coordinator's last response.
    heard: i64,
}

impl Member {
    pub(super) fn new(spec: &SourceSpec) -> Member {
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (instance_id, session_ms, heartbeat_ms) = match &spec.protocol {
            GroupProtocol::Classic {
                instance_id,
                session_timeout,
                heartbeat_interval,
            } => (
                instance_id.clone(),
                ms(*session_timeout),
                ms(*heartbeat_interval),
            ),
            GroupProtocol::Consumer => (None, CONSUMER_SESSION_MS, CONSUMER_HEARTBEAT_MS),
        };
        Member {
            group: spec.group.clone(),
            instance_id,
            session_ms,
            heartbeat_ms,
            topics: Vec::new(),
            id: String::new(),
            generation: -1,
            phase: Phase::Out,
            owned: BTreeSet::new(),
            question: None,
            coming: BTreeSet::new(),
            rejoins: false,
            leaves: false,
            postpones: false,
            events: VecDeque::new(),
            beat: None,
            next_beat: 0,
            heard: 0,
        }
    }

    pub(super) fn is_static(&self) -> bool {
        self.instance_id.is_some()
    }

    /// The metadata; generation −1 and an empty id outside a group.
    pub(super) fn metadata(&self) -> ModelMember {
        ModelMember {
            group: self.group.clone(),
            generation: self.generation,
            id: self.id.clone(),
            instance_id: self.instance_id.clone(),
        }
    }

    pub(super) fn subscribe(&mut self, topics: Vec<String>) {
        if self.postpones {
            return;
        }
        self.topics = topics;
        self.leaves = false;
        self.rejoins = true;
    }

    /// Rejoins if the partition count of a subscribed topic has changed, so that the group assigns the new
    /// partitions.
    pub(super) fn resized(&mut self, topics: &[String]) {
        if self.topics.iter().any(|it| topics.contains(it)) {
            self.rejoins = true;
        }
    }

    /// Returns its partitions and then leaves the group, also as a static member.
    pub(super) fn unsubscribe(&mut self) {
        self.postpones |= matches!(self.question, Some(Question::Revoked(_)));
        self.topics.clear();
        self.leaves = true;
    }

    pub(super) fn next_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.question.is_some()
    }

    /// Returns owned partitions before it closes. Returns whether that is done.
    ///
    /// A closing member has no subscription (`rd_kafka_cgrp_terminate0`), so it does not rejoin after the revocation.
    pub(super) fn gives_back(&mut self) -> bool {
        self.topics.clear();
        if self.question.is_none() && !self.owned.is_empty() {
            self.revoke(self.owned.clone(), false);
        }
        self.question.is_none() && self.events.is_empty()
    }

    /// Whether the member is in the group, or may be.
    pub(super) fn is_member(&self) -> bool {
        !self.id.is_empty()
    }

    /// Any assign counts as a response.
    pub(super) fn assigned(&mut self) {
        if let Some(Question::Assigned(partitions)) = &self.question {
            self.owned.extend(partitions.iter().cloned());
            self.question = None;
        }
    }

    /// Any unassign counts as a response.
    pub(super) fn unassigned(&mut self) {
        if let Some(Question::Revoked(partitions)) = &self.question {
            self.owned.retain(|it| !partitions.contains(it));
            self.question = None;
            self.rejoins = true;
            let coming = std::mem::take(&mut self.coming);
            if !coming.is_empty() {
                self.ask_to_assign(coming);
            }
        }
    }

    fn ask_to_assign(&mut self, partitions: BTreeSet<TopicPartition>) {
        let list = partitions.iter().cloned().collect();
        self.events.push_back(SourceEvent::Assigned(list));
        self.question = Some(Question::Assigned(partitions));
    }

    fn revoke(&mut self, partitions: BTreeSet<TopicPartition>, lost: bool) {
        let list = partitions.iter().cloned().collect();
        self.events.push_back(SourceEvent::Revoked {
            partitions: list,
            lost,
        });
        self.question = Some(Question::Revoked(partitions));
    }

    /// The time of its next action, if nothing arrives before.
    pub(super) fn wake(&self) -> Option<i64> {
        match &self.phase {
            Phase::Out if self.question.is_some() || (!self.rejoins && !self.leaves) => None,
            Phase::Out => Some(i64::MIN).filter(|_| !self.topics.is_empty() && self.rejoins),
            Phase::Joining(call) | Phase::Syncing(call) | Phase::Leaving(call) => call.wake(),
            Phase::Stable => match &self.beat {
                Some(beat) => beat.wake(),
                None => Some(self.next_beat),
            },
            Phase::Failed => None,
        }
    }

    /// Does all due work.
    pub(super) fn tick(&mut self, wire: &mut Wire<'_>) {
        match std::mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Out => self.phase = Phase::Out,
            Phase::Joining(mut call) => match call.poll(wire) {
                Some(ResponseKind::JoinGroup(answer)) => self.joined(answer, call, wire),
                _ => self.phase = Phase::Joining(call),
            },
            Phase::Syncing(mut call) => match call.poll(wire) {
                Some(ResponseKind::SyncGroup(answer)) => {
                    self.heard = wire.now();
                    self.synced(answer.error_code, &answer.assignment, call, wire);
                }
                _ => self.phase = Phase::Syncing(call),
            },
            Phase::Leaving(mut call) => {
                if call.poll(wire).is_some() {
                    self.phase = Phase::Out;
                } else {
                    self.phase = Phase::Leaving(call);
                }
            }
            Phase::Stable => {
                self.phase = Phase::Stable;
                self.beat(wire);
            }
            Phase::Failed => return,
        }
        self.move_on(wire);
    }

    /// Leaves or joins again, once no response is pending.
    fn move_on(&mut self, wire: &mut Wire<'_>) {
        if self.question.is_some() || !self.events.is_empty() && self.leaves {
            return;
        }
        let idle = matches!(self.phase, Phase::Out | Phase::Stable);
        if self.leaves && idle {
            if !self.owned.is_empty() {
                self.revoke(self.owned.clone(), false);
                return;
            }
            self.leaves = false;
            self.rejoins = false;
            self.leave(wire);
            return;
        }
        if self.rejoins && idle && !self.topics.is_empty() {
            self.rejoins = false;
            self.stop_beating(wire);
            let mut call = Call::new(Line::Coordinator, self.join_request());
            let _later = call.poll(wire);
            self.phase = Phase::Joining(call);
        }
    }

    /// Sends the LeaveGroup and drops the member id.
    pub(super) fn leave(&mut self, wire: &mut Wire<'_>) {
        self.stop_beating(wire);
        if self.id.is_empty() {
            self.phase = Phase::Out;
            return;
        }
        let member = MemberIdentity::default()
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id.as_deref().map(text));
        let request = LeaveGroupRequest::default()
            .with_group_id(text(&self.group).into())
            .with_members(vec![member]);
        self.id.clear();
        self.generation = -1;
        let mut call = Call::new(Line::Coordinator, request);
        let _later = call.poll(wire);
        self.phase = Phase::Leaving(call);
    }

    fn stop_beating(&mut self, wire: &mut Wire<'_>) {
        if let Some(beat) = self.beat.take() {
            beat.abandon(wire);
        }
    }

    fn join_request(&self) -> JoinGroupRequest {
        let claim = Claim {
            member: String::new(),
            topics: self.topics.clone(),
            owned: self.owned.clone(),
            generation: self.generation,
        };
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text(PROTOCOL))
            .with_metadata(assignor::subscription(&claim));
        JoinGroupRequest::default()
            .with_group_id(text(&self.group).into())
            .with_session_timeout_ms(i32::try_from(self.session_ms).unwrap_or(i32::MAX))
            .with_rebalance_timeout_ms(REBALANCE_TIMEOUT_MS)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id.as_deref().map(text))
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol])
    }

    fn joined(&mut self, answer: JoinGroupResponse, mut call: Call, wire: &mut Wire<'_>) {
        self.heard = wire.now();
        match i32::from(answer.error_code) {
            0 => {
                self.id = answer.member_id.to_string();
                self.generation = answer.generation_id;
                let leads = answer.leader == answer.member_id && !answer.skip_assignment;
                let assignments = if leads {
                    assignments(&answer, wire)
                } else {
                    Vec::new()
                };
                let request = SyncGroupRequest::default()
                    .with_group_id(text(&self.group).into())
                    .with_generation_id(self.generation)
                    .with_member_id(text(&self.id))
                    .with_group_instance_id(self.instance_id.as_deref().map(text))
                    .with_protocol_type(Some(text("consumer")))
                    .with_protocol_name(Some(text(PROTOCOL)))
                    .with_assignments(assignments);
                let mut call = Call::new(Line::Coordinator, request);
                let _later = call.poll(wire);
                self.phase = Phase::Syncing(call);
            }
            code::MEMBER_ID_REQUIRED => {
                self.id = answer.member_id.to_string();
                self.phase = Phase::Out;
                self.rejoins = true;
            }
            error if is_away(error) => {
                call.again(wire);
                self.phase = Phase::Joining(call);
            }
            error => self.refused(error),
        }
    }

    fn synced(&mut self, error: i16, share: &bytes::Bytes, mut call: Call, wire: &mut Wire<'_>) {
        match i32::from(error) {
            0 => {
                self.phase = Phase::Stable;
                self.next_beat = wire.now() + self.heartbeat_ms;
                let share = assignor::share(share);
                let goes: BTreeSet<_> = self.owned.difference(&share).cloned().collect();
                let comes: BTreeSet<_> = share.difference(&self.owned).cloned().collect();
                if goes.is_empty() {
                    self.ask_to_assign(comes);
                } else {
                    self.coming = comes;
                    self.revoke(goes, false);
                }
            }
            error if is_away(error) => {
                call.again(wire);
                self.phase = Phase::Syncing(call);
            }
            error => self.refused(error),
        }
    }

    /// The coordinator has another state of this member.
    fn refused(&mut self, error: i32) {
        self.phase = Phase::Out;
        match error {
            code::REBALANCE_IN_PROGRESS => self.rejoins = true,
            code::UNKNOWN_MEMBER_ID => {
                self.id.clear();
                self.lost();
            }
            code::ILLEGAL_GENERATION => self.lost(),
            code::FENCED_INSTANCE_ID => {
                let why = "another member has its group.instance.id";
                let error = fatal(CallSite::Poll, error, why);
                self.events.push_back(SourceEvent::Failed(error));
                self.phase = Phase::Failed;
            }
            error => {
                let error = i16::try_from(error).unwrap_or(-1);
                let error = plain(CallSite::Poll, error);
                self.events.push_back(SourceEvent::Failed(error));
                self.rejoins = true;
            }
        }
    }

    /// Loses all partitions. While a response is pending, librdkafka does not report the loss
    /// (`rd_kafka_cgrp_revoke_all_rejoin_maybe`), and claims the partitions under its next id.
    fn lost(&mut self) {
        self.generation = -1;
        self.rejoins = true;
        if self.question.is_none() && !self.owned.is_empty() {
            self.revoke(self.owned.clone(), true);
        }
    }

    fn beat(&mut self, wire: &mut Wire<'_>) {
        let now = wire.now();
        // Only while no response is pending (`rd_kafka_cgrp_serve`, in the join state "steady").
        if self.question.is_none() && now >= self.heard + self.session_ms {
            self.heard = now;
            self.stop_beating(wire);
            self.phase = Phase::Out;
            self.id.clear();
            self.lost();
            return;
        }
        if self.beat.is_none() && now >= self.next_beat {
            let request = HeartbeatRequest::default()
                .with_group_id(text(&self.group).into())
                .with_generation_id(self.generation)
                .with_member_id(text(&self.id))
                .with_group_instance_id(self.instance_id.as_deref().map(text));
            self.beat = Some(Call::new(Line::Coordinator, request));
        }
        let Some(mut beat) = self.beat.take() else {
            return;
        };
        let Some(ResponseKind::Heartbeat(answer)) = beat.poll(wire) else {
            self.beat = Some(beat);
            return;
        };
        self.next_beat = now + self.heartbeat_ms;
        match i32::from(answer.error_code) {
            0 => self.heard = now,
            code::REBALANCE_IN_PROGRESS => {
                self.heard = now;
                self.rejoins = true;
            }
            error if is_away(error) => {}
            error => self.refused(error),
        }
    }
}

/// Whether the error requires a search or wait for a coordinator.
fn is_away(error: i32) -> bool {
    matches!(
        error,
        code::NOT_COORDINATOR
            | code::COORDINATOR_NOT_AVAILABLE
            | code::COORDINATOR_LOAD_IN_PROGRESS
            | code::NETWORK_EXCEPTION
            | code::REQUEST_TIMED_OUT
    )
}

/// The leader's assignment.
fn assignments(answer: &JoinGroupResponse, wire: &Wire<'_>) -> Vec<SyncGroupRequestAssignment> {
    let members = answer.members.iter();
    let claims: Vec<Claim> = members
        .map(|member| assignor::claim(&member.member_id, &member.metadata))
        .collect();
    let shares = assignor::assign(&claims, |topic| wire.partitions(topic));
    let shares = claims.iter().zip(shares).map(|(claim, share)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(&claim.member))
            .with_assignment(assignor::assignment(&share))
    });
    shares.collect()
}
