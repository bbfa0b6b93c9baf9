//! JoinGroup.

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;

use super::group::{Answer, Caller, Group, GroupState, JoinAnswer, Member};

/// From this version on, a new member first receives its id, and then joins with it.
const KNOWN_MEMBER_ID: i16 = 4;
/// From this version on, the response can instruct a returning static leader to skip the assignment.
const SKIP_ASSIGNMENT: i16 = 9;

/// A JoinGroup request.
#[derive(Debug, Clone)]
pub(crate) struct Join {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) session_timeout: i64,
    pub(crate) rebalance_timeout: i64,
    pub(crate) protocol_type: String,
    pub(crate) protocols: Vec<(String, Bytes)>,
}

impl Group {
    /// Responds now, or after the rebalance. `fresh_id` is for a member without an id.
    pub(crate) fn join(
        &mut self,
        join: Join,
        fresh_id: String,
        caller: Caller,
        now: i64,
        out: &mut Vec<Answer>,
    ) {
        let refuse = |caller: Caller, error: Error, id: String, out: &mut Vec<Answer>| {
            out.push(Answer::Join(caller, Err((error, id))));
        };
        if !self.supports(&join) {
            let id = join.member_id;
            return refuse(caller, Error::InconsistentGroupProtocol, id, out);
        }
        if join.member_id.is_empty() {
            if let Some(instance) = join.instance_id.clone() {
                match self.instances.get(&instance).cloned() {
                    Some(old) => self.replace(&old, fresh_id, join, caller, now, out),
                    None => self.add(fresh_id, join, caller, now, out),
                }
            } else if caller.version >= KNOWN_MEMBER_ID {
                let deadline = now + join.session_timeout;
                self.pending.insert(fresh_id.clone(), deadline);
                refuse(caller, Error::MemberIdRequired, fresh_id, out);
            } else {
                self.add(fresh_id, join, caller, now, out);
            }
            return;
        }
        let id = join.member_id.clone();
        if self.pending.remove(&id).is_some() {
            return self.add(id, join, caller, now, out);
        }
        if let Err(error) = self.check_member(&id, join.instance_id.as_deref()) {
            return refuse(caller, error, id, out);
        }
        let same = self
            .members
            .get(&id)
            .is_some_and(|it| it.protocols == join.protocols);
        let leads = self.leader.as_deref() == Some(id.as_str());
        let told_again = match self.state {
            GroupState::Completing => same,
            GroupState::Stable => same && !leads,
            GroupState::Preparing | GroupState::Empty => false,
        };
        if told_again {
            // The response was lost. The generation is the same.
            let answer = self.join_answer(&id, true);
            out.push(Answer::Join(caller, Ok(answer)));
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            update(member, join, &caller);
            // The member sent an earlier request, probably on a connection that it has closed. Kafka never responds to
            // that request.
            if let Some(before) = member.awaiting_join.replace(caller) {
                let error = Error::RebalanceInProgress;
                out.push(Answer::Join(before, Err((error, id.clone()))));
            }
        }
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }

    /// Returns whether the group and the member have a protocol in common.
    fn supports(&self, join: &Join) -> bool {
        if join.protocol_type.is_empty() || join.protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let same_type = self.protocol_type.as_deref() == Some(join.protocol_type.as_str());
        let by_all = |name: &String| {
            let mut all = self.members.values();
            all.all(|member| member.protocols.iter().any(|(it, _)| it == name))
        };
        same_type && join.protocols.iter().any(|(name, _)| by_all(name))
    }

    fn add(&mut self, id: String, join: Join, caller: Caller, now: i64, out: &mut Vec<Answer>) {
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let mut member = Member {
            instance_id: join.instance_id.clone(),
            client_id: String::new(),
            host: String::new(),
            session_timeout: 0,
            rebalance_timeout: 0,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: true,
            has_to_sync: false,
            expires: 0,
        };
        update(&mut member, join, &caller);
        Group::newly_joined(&mut member, now);
        member.awaiting_join = Some(caller);
        self.members.insert(id, member);
        self.member_added = true;
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }

    /// Replaces a static member that rejoins under another id. The client with the old id is fenced.
    fn replace(
        &mut self,
        old: &str,
        id: String,
        join: Join,
        caller: Caller,
        now: i64,
        out: &mut Vec<Answer>,
    ) {
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        let fenced = Error::FencedInstanceId;
        if let Some(held) = member.awaiting_join.take() {
            out.push(Answer::Join(held, Err((fenced, old.to_owned()))));
        }
        if let Some(held) = member.awaiting_sync.take() {
            out.push(Answer::Sync(held, Err(fenced)));
        }
        let led = self.leader.as_deref() == Some(old);
        if led {
            self.leader = Some(id.clone());
        }
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        update(&mut member, join, &caller);
        member.heard_of(now);
        let version = caller.version;
        self.members.insert(id.clone(), member);
        let selected = self.select_protocol();
        if self.state == GroupState::Stable && selected == self.protocol {
            let mut answer = self.join_answer(&id, version >= SKIP_ASSIGNMENT);
            if version >= SKIP_ASSIGNMENT {
                answer.skip_assignment = led;
            } else if led {
                // The member must not act as the leader, because it would assign again.
                answer.leader = old.to_owned();
            }
            out.push(Answer::Join(caller, Ok(answer)));
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.awaiting_join = Some(caller);
        }
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }
}

fn update(member: &mut Member, join: Join, caller: &Caller) {
    member.protocols = join.protocols;
    member.session_timeout = join.session_timeout;
    member.rebalance_timeout = join.rebalance_timeout;
    member.client_id.clone_from(&caller.client_id);
    member.host.clone_from(&caller.host);
}

impl JoinAnswer {
    /// Returns the form of an error response.
    pub(crate) fn refused(member_id: String) -> JoinAnswer {
        JoinAnswer {
            generation: -1,
            member_id,
            ..JoinAnswer::default()
        }
    }
}
