//! SyncGroup.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::ResponseError as Error;

use super::group::{Answer, Caller, Group, GroupState, SyncAnswer};

/// A SyncGroup request.
#[derive(Debug, Clone)]
pub(crate) struct Sync {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    /// The leader's assignments: member id → assignment.
    pub(crate) assignments: BTreeMap<String, Bytes>,
}

impl Group {
    /// Responds now, or after the leader has assigned.
    pub(crate) fn sync(&mut self, sync: Sync, caller: Caller, now: i64, out: &mut Vec<Answer>) {
        if let Err(error) = self.check_sync(&sync) {
            out.push(Answer::Sync(caller, Err(error)));
            return;
        }
        let id = sync.member_id;
        if let Some(member) = self.members.get_mut(&id) {
            member.has_to_sync = false;
            if self.state == GroupState::Completing {
                // A repeated request replaces the previous one, as with JoinGroup.
                if let Some(before) = member.awaiting_sync.replace(caller) {
                    out.push(Answer::Sync(before, Err(Error::RebalanceInProgress)));
                }
            } else {
                member.heard_of(now);
                let answer = self.sync_answer(&id);
                out.push(Answer::Sync(caller, Ok(answer)));
                return;
            }
        }
        if self.leader.as_ref() == Some(&id) {
            self.assign(sync.assignments, now, out);
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), Error> {
        self.check_member(&sync.member_id, sync.instance_id.as_deref())?;
        if sync.generation != self.generation {
            return Err(Error::IllegalGeneration);
        }
        let differs = |said: &Option<String>, is: &Option<String>| said.is_some() && said != is;
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(Error::InconsistentGroupProtocol);
        }
        match self.state {
            GroupState::Empty => Err(Error::UnknownMemberId),
            GroupState::Preparing => Err(Error::RebalanceInProgress),
            GroupState::Completing | GroupState::Stable => Ok(()),
        }
    }

    fn assign(&mut self, mut assigned: BTreeMap<String, Bytes>, now: i64, out: &mut Vec<Answer>) {
        self.state = GroupState::Stable;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.assignment = assigned.remove(&id).unwrap_or_default();
            if let Some(caller) = member.awaiting_sync.take() {
                member.heard_of(now);
                let answer = self.sync_answer(&id);
                out.push(Answer::Sync(caller, Ok(answer)));
            }
        }
    }

    fn sync_answer(&self, id: &str) -> SyncAnswer {
        let member = self.members.get(id);
        SyncAnswer {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: member.map(|it| it.assignment.clone()).unwrap_or_default(),
        }
    }
}
