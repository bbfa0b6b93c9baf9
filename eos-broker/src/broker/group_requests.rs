//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, ListGroups, DeleteGroups.

use kafka_protocol::ResponseError as Error;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, ResponseKind,
    SyncGroupRequest, SyncGroupResponse,
};

use super::{Broker, Context, Output, Reply, code, text};
use crate::groups::{
    Answer, Caller, Group, GroupState, Join, JoinAnswer, Leaving, Sync, SyncAnswer,
};

/// JoinGroup: from this version on, the protocol may be null, and the response contains its type.
const NULLABLE_PROTOCOL: i16 = 7;
/// LeaveGroup: from this version on, several members leave at once.
const MANY_LEAVE: i16 = 3;
/// DescribeGroups: from this version on, an unknown group is an error, not a dead group.
const UNKNOWN_IS_ERROR: i16 = 6;

impl Context {
    fn caller(&self) -> Caller {
        Caller {
            ticket: self.ticket,
            version: self.version,
            client_id: self.client_id.clone(),
            host: self.host.clone(),
        }
    }
}

impl Broker {
    pub(super) fn join_group(&mut self, request: JoinGroupRequest, context: &Context) -> Reply {
        let id = request.group_id.to_string();
        let member_id = request.member_id.to_string();
        let refuse = |error: Error| -> Reply {
            let refused = Err((error, member_id.clone()));
            join_response(refused, context.version).into()
        };
        if id.is_empty() {
            return refuse(Error::InvalidGroupId);
        }
        let options = &self.options;
        let allowed = options.group_min_session_timeout_ms..=options.group_max_session_timeout_ms;
        if !allowed.contains(&request.session_timeout_ms) {
            return refuse(Error::InvalidSessionTimeout);
        }
        if !self.groups.contains_key(&id) {
            if !member_id.is_empty() {
                return refuse(Error::UnknownMemberId);
            }
            let delay = self.options.group_initial_rebalance_delay_ms;
            self.groups.insert(id.clone(), Group::new(delay));
        }
        let instance_id = request.group_instance_id.map(|it| it.to_string());
        let number = self.fresh(0x6d65_6d62_6572_0000);
        let named = instance_id.as_deref().unwrap_or(&context.client_id);
        let fresh_id = format!("{named}-{number}");
        // Version 0 has one timeout for both.
        let rebalance = match context.version {
            0 => request.session_timeout_ms,
            _ => request.rebalance_timeout_ms,
        };
        let protocols = request.protocols.into_iter();
        let join = Join {
            member_id,
            instance_id,
            session_timeout: i64::from(request.session_timeout_ms),
            rebalance_timeout: i64::from(rebalance.max(0)),
            protocol_type: request.protocol_type.to_string(),
            protocols: protocols
                .map(|it| (it.name.to_string(), it.metadata))
                .collect(),
        };
        let caller = context.caller();
        self.in_group(&id, |group, out| {
            group.join(join, fresh_id, caller, context.now, out);
        });
        Reply::Held
    }

    pub(super) fn sync_group(&mut self, request: SyncGroupRequest, context: &Context) -> Reply {
        let id = request.group_id.to_string();
        if id.is_empty() {
            return sync_response(Err(Error::InvalidGroupId)).into();
        }
        if !self.groups.contains_key(&id) {
            return sync_response(Err(Error::UnknownMemberId)).into();
        }
        let assignments = request.assignments.into_iter();
        let sync = Sync {
            member_id: request.member_id.to_string(),
            instance_id: request.group_instance_id.map(|it| it.to_string()),
            generation: request.generation_id,
            protocol_type: request.protocol_type.map(|it| it.to_string()),
            protocol: request.protocol_name.map(|it| it.to_string()),
            assignments: assignments
                .map(|it| (it.member_id.to_string(), it.assignment))
                .collect(),
        };
        let caller = context.caller();
        self.in_group(&id, |group, out| group.sync(sync, caller, context.now, out));
        Reply::Held
    }

    pub(super) fn heartbeat(
        &mut self,
        request: HeartbeatRequest,
        context: &Context,
    ) -> HeartbeatResponse {
        let id = request.group_id.to_string();
        let instance = request.group_instance_id.as_deref();
        let beat = |group: &mut Group| {
            let generation = request.generation_id;
            group.heartbeat(&request.member_id, instance, generation, context.now)
        };
        let result = match self.groups.get_mut(&id) {
            _ if id.is_empty() => Err(Error::InvalidGroupId),
            None => Err(Error::UnknownMemberId),
            Some(group) => beat(group),
        };
        HeartbeatResponse::default().with_error_code(code(&result))
    }

    pub(super) fn leave_group(
        &mut self,
        request: LeaveGroupRequest,
        context: &Context,
    ) -> LeaveGroupResponse {
        let id = request.group_id.to_string();
        let answer = LeaveGroupResponse::default();
        if id.is_empty() {
            return answer.with_error_code(Error::InvalidGroupId.code());
        }
        let now = context.now;
        if context.version < MANY_LEAVE {
            let leaving = Leaving {
                member_id: request.member_id.to_string(),
                instance_id: None,
            };
            let result = self.leave_one(&id, &leaving, now);
            return answer.with_error_code(code(&result));
        }
        let mut members = Vec::new();
        for member in request.members {
            let leaving = Leaving {
                member_id: member.member_id.to_string(),
                instance_id: member.group_instance_id.as_deref().map(str::to_owned),
            };
            let result = self.leave_one(&id, &leaving, now);
            members.push(
                MemberResponse::default()
                    .with_member_id(member.member_id)
                    .with_group_instance_id(member.group_instance_id)
                    .with_error_code(code(&result)),
            );
        }
        answer.with_members(members)
    }

    fn leave_one(&mut self, id: &str, leaving: &Leaving, now: i64) -> Result<(), Error> {
        let mut result = Err(Error::UnknownMemberId);
        self.in_group(id, |group, out| result = group.leave(leaving, now, out));
        result
    }

    pub(super) fn describe_groups(
        &self,
        request: DescribeGroupsRequest,
        context: &Context,
    ) -> DescribeGroupsResponse {
        let groups = request.groups.into_iter().map(|id| {
            let answer = DescribedGroup::default().with_group_id(id.clone());
            match self.groups.get(id.as_str()) {
                Some(group) => described(answer, group),
                None if context.version >= UNKNOWN_IS_ERROR => answer
                    .with_error_code(Error::GroupIdNotFound.code())
                    .with_error_message(Some(text(&format!("Group {} not found.", id.as_str()))))
                    .with_group_state(text("Dead")),
                None => answer.with_group_state(text("Dead")),
            }
        });
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    pub(super) fn list_groups(
        &self,
        request: ListGroupsRequest,
        _: &Context,
    ) -> ListGroupsResponse {
        let wanted = |group: &Group| {
            let states = &request.states_filter;
            let types = &request.types_filter;
            let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
            (states.is_empty() || states.iter().any(|it| is(it, group.state.name())))
                && (types.is_empty() || types.iter().any(|it| is(it, "classic")))
        };
        let listed = self.groups.iter().filter(|(_, group)| wanted(group));
        let listed = listed.map(|(id, group)| {
            ListedGroup::default()
                .with_group_id(GroupId(text(id)))
                .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()))
                .with_group_state(text(group.state.name()))
                .with_group_type(text("classic"))
        });
        ListGroupsResponse::default().with_groups(listed.collect())
    }

    pub(super) fn delete_groups(&mut self, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
        let mut results = Vec::new();
        for id in request.groups_names {
            let error = match self.groups.get(id.as_str()) {
                _ if id.is_empty() => Error::InvalidGroupId.code(),
                None => Error::GroupIdNotFound.code(),
                Some(group) if !group.is_idle() => Error::NonEmptyGroup.code(),
                Some(_) => {
                    self.groups.remove(id.as_str());
                    0
                }
            };
            results.push(
                DeletableGroupResult::default()
                    .with_group_id(id)
                    .with_error_code(error),
            );
        }
        DeleteGroupsResponse::default().with_results(results)
    }

    /// Ends a member's session as if it had been silent for too long. The next [`advance`](Broker::advance) or
    /// [`step`](Broker::step) returns the responses that result.
    pub fn expire_session(&mut self, group: &str, member_id: &str, now: i64) {
        self.in_group(group, |group, out| {
            group.expire_member(member_id, now, out);
        });
    }

    pub(super) fn expire_groups(&mut self, now: i64) {
        let due = |group: &Group| group.next_deadline().is_some_and(|at| at <= now);
        let due: Vec<String> = self
            .groups
            .iter()
            .filter(|(_, group)| due(group))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            self.in_group(&id, |group, out| group.expire(now, out));
        }
    }

    /// Changes a group, passes on its responses, and sets the next wake-up.
    fn in_group(&mut self, id: &str, act: impl FnOnce(&mut Group, &mut Vec<Answer>)) {
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        let mut answers = Vec::new();
        act(group, &mut answers);
        if let Some(deadline) = group.next_deadline() {
            self.wake_at(deadline);
        }
        for answer in answers {
            let (ticket, response) = match answer {
                Answer::Join(caller, result) => {
                    let response = join_response(result, caller.version);
                    (caller.ticket, ResponseKind::JoinGroup(response))
                }
                Answer::Sync(caller, result) => (
                    caller.ticket,
                    ResponseKind::SyncGroup(sync_response(result)),
                ),
            };
            self.out.push(Output::Answer(ticket, response));
        }
    }
}

fn join_response(result: Result<JoinAnswer, (Error, String)>, version: i16) -> JoinGroupResponse {
    let (answer, error) = match result {
        Ok(answer) => (answer, 0),
        Err((error, id)) => (JoinAnswer::refused(id), error.code()),
    };
    let nullable = version >= NULLABLE_PROTOCOL;
    let protocol = answer.protocol.as_deref().or((!nullable).then_some(""));
    let members = answer.members.into_iter().map(|(id, instance, metadata)| {
        JoinGroupResponseMember::default()
            .with_member_id(text(&id))
            .with_group_instance_id(instance.as_deref().map(text))
            .with_metadata(metadata)
    });
    JoinGroupResponse::default()
        .with_error_code(error)
        .with_generation_id(answer.generation)
        .with_protocol_type(answer.protocol_type.as_deref().map(text))
        .with_protocol_name(protocol.map(text))
        .with_leader(text(&answer.leader))
        .with_skip_assignment(answer.skip_assignment)
        .with_member_id(text(&answer.member_id))
        .with_members(members.collect())
}

fn sync_response(result: Result<SyncAnswer, Error>) -> SyncGroupResponse {
    let error = code(&result);
    let answer = result.unwrap_or_default();
    SyncGroupResponse::default()
        .with_error_code(error)
        .with_protocol_type(answer.protocol_type.as_deref().map(text))
        .with_protocol_name(answer.protocol.as_deref().map(text))
        .with_assignment(answer.assignment)
}

fn described(answer: DescribedGroup, group: &Group) -> DescribedGroup {
    let stable = group.state == GroupState::Stable;
    let protocol = group.protocol.as_deref().filter(|_| stable);
    let protocol = protocol.unwrap_or_default();
    let members = group.members.iter().map(|(id, member)| {
        let answer = DescribedGroupMember::default()
            .with_member_id(text(id))
            .with_group_instance_id(member.instance_id.as_deref().map(text))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(&member.host));
        if stable {
            answer
                .with_member_metadata(member.metadata(protocol))
                .with_member_assignment(member.assignment.clone())
        } else {
            answer
        }
    });
    answer
        .with_group_state(text(group.state.name()))
        .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()))
        .with_protocol_data(text(protocol))
        .with_members(members.collect())
}
