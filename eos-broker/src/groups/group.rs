//! A group, its members, and the causes of a rebalance.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;

use super::offsets::Offsets;
use crate::broker::Ticket;

/// The time that a new member may wait for the response to its first JoinGroup, in milliseconds.
const NEW_MEMBER_TIMEOUT: i64 = 300_000;

/// The sender of a request whose response comes later.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) ticket: Ticket,
    pub(crate) version: i16,
    pub(crate) client_id: String,
    pub(crate) host: String,
}

/// The state of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GroupState {
    #[default]
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl GroupState {
    /// Returns the name in DescribeGroups.
    pub(crate) fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::Preparing => "PreparingRebalance",
            GroupState::Completing => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) host: String,
    pub(super) session_timeout: i64,
    pub(super) rebalance_timeout: i64,
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    pub(super) awaiting_join: Option<Caller>,
    pub(super) awaiting_sync: Option<Caller>,
    pub(super) is_new: bool,
    pub(super) has_to_sync: bool,
    pub(super) expires: i64,
}

impl Member {
    /// Returns the member's metadata for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    fn expires_at(&self) -> Option<i64> {
        let waits = self.awaiting_join.is_some() || self.awaiting_sync.is_some();
        (self.is_new || !waits).then_some(self.expires)
    }

    pub(super) fn heard_of(&mut self, now: i64) {
        self.expires = now + self.session_timeout;
    }
}

/// The response to a successful JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JoinAnswer {
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: String,
    pub(crate) skip_assignment: bool,
    pub(crate) member_id: String,
    /// For the leader: id, instance id, metadata.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

/// The response to a successful SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SyncAnswer {
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) assignment: Bytes,
}

/// The response to a request that may have been held. A rejection contains the member id.
#[derive(Debug)]
pub(crate) enum Answer {
    Join(Caller, Result<JoinAnswer, (Error, String)>),
    Sync(Caller, Result<SyncAnswer, Error>),
}

/// A classic group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) state: GroupState,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) members: BTreeMap<String, Member>,
    /// Assigned ids that have not joined yet, and their deadlines.
    pub(super) pending: BTreeMap<String, i64>,
    /// Instance id → member id.
    pub(super) instances: BTreeMap<String, String>,
    pub(super) join_deadline: Option<i64>,
    /// The remaining time, while the first rebalance of an empty group waits for more members.
    pub(super) initial_left: Option<i64>,
    pub(super) member_added: bool,
    pub(super) initial_delay: i64,
    pub(super) sync_deadline: Option<i64>,
    pub(crate) offsets: Offsets,
}

impl Group {
    pub(crate) fn new(initial_delay: i64) -> Group {
        Group {
            initial_delay,
            ..Group::default()
        }
    }

    /// Returns whether the group has no members and no offsets.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == GroupState::Empty && self.pending.is_empty()
    }

    /// Returns whether a member subscribes to a topic, according to its metadata.
    pub(crate) fn subscribes_to(&self, topic: &str) -> bool {
        let Some(protocol) = self.protocol.as_deref() else {
            return false;
        };
        let mut all = self.members.values();
        all.any(|member| subscription(&member.metadata(protocol)).contains(topic))
    }

    /// Checks that a request comes from a member.
    pub(crate) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), Error> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(Error::UnknownMemberId),
                Some(current) if current != id => return Err(Error::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(Error::UnknownMemberId)
        }
    }

    /// Handles a heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        now: i64,
    ) -> Result<(), Error> {
        self.check_member(id, instance)?;
        if generation != self.generation {
            return Err(Error::IllegalGeneration);
        }
        if let Some(member) = self.members.get_mut(id) {
            member.heard_of(now);
        }
        match self.state {
            GroupState::Empty => Err(Error::UnknownMemberId),
            GroupState::Preparing => Err(Error::RebalanceInProgress),
            GroupState::Completing | GroupState::Stable => Ok(()),
        }
    }

    /// Begins a rebalance, unless one is already in progress.
    pub(super) fn rebalance(&mut self, now: i64, out: &mut Vec<Answer>) {
        if self.state == GroupState::Preparing {
            return;
        }
        if self.state == GroupState::Completing {
            for member in self.members.values_mut() {
                member.assignment = Bytes::new();
                if let Some(caller) = member.awaiting_sync.take() {
                    // The member could not send heartbeats while its request was held.
                    member.heard_of(now);
                    out.push(Answer::Sync(caller, Err(Error::RebalanceInProgress)));
                }
            }
        }
        self.sync_deadline = None;
        let was_empty = self.state == GroupState::Empty;
        self.state = GroupState::Preparing;
        if was_empty {
            let timeout = self.rebalance_timeout();
            let delay = self.initial_delay.min(timeout);
            self.initial_left = Some((timeout - delay).max(0));
            self.member_added = false;
            self.join_deadline = Some(now + delay);
        } else {
            self.join_deadline = Some(now + self.rebalance_timeout());
            self.complete_if_all_joined(now, out);
        }
    }

    pub(super) fn rebalance_timeout(&self) -> i64 {
        let all = self.members.values().map(|it| it.rebalance_timeout);
        all.max().unwrap_or(0)
    }

    pub(super) fn complete_if_all_joined(&mut self, now: i64, out: &mut Vec<Answer>) {
        let joined = self.members.values().all(|it| it.awaiting_join.is_some());
        let waits_for_more = self.initial_left.is_some();
        let preparing = self.state == GroupState::Preparing;
        if preparing && joined && self.pending.is_empty() && !waits_for_more {
            self.complete_join(now, out);
        }
    }

    /// Completes the rebalance. The members that have joined form the next generation.
    fn complete_join(&mut self, now: i64, out: &mut Vec<Answer>) {
        self.initial_left = None;
        let missing = |(id, member): (&String, &Member)| {
            let gone = member.awaiting_join.is_none() && member.instance_id.is_none();
            gone.then(|| id.clone())
        };
        let missing: Vec<String> = self.members.iter().filter_map(missing).collect();
        for id in missing {
            self.forget(&id);
        }
        if !self.elect() && !self.members.is_empty() {
            // All members are static, and none has joined. The group waits for one.
            self.join_deadline = Some(now + self.rebalance_timeout());
            return;
        }
        self.join_deadline = None;
        self.generation += 1;
        if self.members.is_empty() {
            self.state = GroupState::Empty;
            self.protocol = None;
            self.leader = None;
            return;
        }
        self.state = GroupState::Completing;
        self.protocol = self.select_protocol();
        self.sync_deadline = Some(now + self.rebalance_timeout());
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.join_answer(&id, true);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.is_new = false;
            member.has_to_sync = true;
            member.heard_of(now);
            if let Some(caller) = member.awaiting_join.take() {
                out.push(Answer::Join(caller, Ok(answer)));
            }
        }
    }

    /// Ensures that the leader is a member that has joined.
    fn elect(&mut self) -> bool {
        let joined = |id: &String| {
            let member = self.members.get(id);
            member.is_some_and(|member| member.awaiting_join.is_some())
        };
        if self.leader.as_ref().is_some_and(joined) {
            return true;
        }
        let next = self.members.keys().find(|id| joined(id)).cloned();
        let found = next.is_some();
        if found {
            self.leader = next;
        }
        found
    }

    /// Returns a member's response about the current generation. It lists the members only for the leader.
    pub(super) fn join_answer(&self, id: &str, with_members: bool) -> JoinAnswer {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leads = self.leader.as_deref() == Some(id);
        let all = self.members.iter().map(|(id, member)| {
            let metadata = member.metadata(&protocol);
            (id.clone(), member.instance_id.clone(), metadata)
        });
        JoinAnswer {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            member_id: id.to_owned(),
            members: if leads && with_members {
                all.collect()
            } else {
                Vec::new()
            },
        }
    }

    /// Returns the protocol that most members prefer, from those that all members support.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let known = |name: &str| {
            let mut all = self.members.values();
            all.all(|member| member.protocols.iter().any(|(it, _)| it == name))
        };
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let mut preferred = member.protocols.iter().map(|(name, _)| name.as_str());
            if let Some(vote) = preferred.find(|name| known(name)) {
                *votes.entry(vote).or_default() += 1;
            }
        }
        let most = votes.values().max().copied()?;
        let winner = votes.iter().find(|(_, count)| **count == most);
        winner.map(|(name, _)| (*name).to_owned())
    }

    /// Removes a member, and responds to its held request.
    pub(super) fn remove(&mut self, id: &str, now: i64, out: &mut Vec<Answer>) {
        let Some(member) = self.forget(id) else {
            return;
        };
        let unknown = Error::UnknownMemberId;
        if let Some(caller) = member.awaiting_join {
            out.push(Answer::Join(caller, Err((unknown, id.to_owned()))));
        }
        if let Some(caller) = member.awaiting_sync {
            out.push(Answer::Sync(caller, Err(unknown)));
        }
        match self.state {
            GroupState::Stable | GroupState::Completing => self.rebalance(now, out),
            GroupState::Preparing => self.complete_if_all_joined(now, out),
            GroupState::Empty => {}
        }
    }

    fn forget(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Sets the time until which a new member may be silent.
    pub(super) fn newly_joined(member: &mut Member, now: i64) {
        member.expires = now + NEW_MEMBER_TIMEOUT;
    }

    /// Removes members that were silent for too long, and ends rebalances that took too long.
    pub(crate) fn expire(&mut self, now: i64, out: &mut Vec<Answer>) {
        let before = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now);
        if self.pending.len() < before {
            self.complete_if_all_joined(now, out);
        }
        let silent = |(id, member): (&String, &Member)| {
            let expired = member.expires_at().is_some_and(|at| at <= now);
            expired.then(|| id.clone())
        };
        let silent: Vec<String> = self.members.iter().filter_map(silent).collect();
        for id in silent {
            self.remove(&id, now, out);
        }
        if self.join_deadline.is_some_and(|deadline| deadline <= now) {
            match self.initial_left {
                Some(left) if self.member_added && left > 0 => {
                    let delay = self.initial_delay.min(left);
                    self.member_added = false;
                    self.initial_left = Some(left - delay);
                    self.join_deadline = Some(now + delay);
                }
                _ => self.complete_join(now, out),
            }
        }
        if self.sync_deadline.is_some_and(|deadline| deadline <= now) {
            self.sync_deadline = None;
            let late = |(id, member): (&String, &Member)| member.has_to_sync.then(|| id.clone());
            let late: BTreeSet<String> = self.members.iter().filter_map(late).collect();
            for id in &late {
                self.remove(id, now, out);
            }
        }
    }

    /// Returns the time at which [`Group::expire`] must run next.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        let members = self.members.values().filter_map(Member::expires_at);
        let pending = self.pending.values().copied();
        let phases = self.join_deadline.into_iter().chain(self.sync_deadline);
        members.chain(pending).chain(phases).min()
    }

    /// Ends a member's session at once, as if it had timed out.
    pub(crate) fn expire_member(&mut self, id: &str, now: i64, out: &mut Vec<Answer>) -> bool {
        let known = self.members.contains_key(id);
        self.remove(id, now, out);
        known
    }
}

/// Returns the topics in a consumer's metadata (`ConsumerProtocolSubscription`).
fn subscription(metadata: &[u8]) -> BTreeSet<String> {
    let mut topics = BTreeSet::new();
    let number = |at: usize, len: usize| {
        let slice = metadata.get(at..at + len)?;
        Some(
            slice
                .iter()
                .fold(0usize, |sum, byte| sum << 8 | *byte as usize),
        )
    };
    // The metadata has a version, then an array of strings.
    let count = number(2, 4).unwrap_or(0);
    let mut at = 6;
    for _ in 0..count {
        let Some(length) = number(at, 2) else { break };
        let Some(name) = metadata.get(at + 2..at + 2 + length) else {
            break;
        };
        topics.insert(String::from_utf8_lossy(name).into_owned());
        at += 2 + length;
    }
    topics
}
