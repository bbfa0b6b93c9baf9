//! A member of a classic group, one request at a time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
    SyncGroupResponse,
};
use kafka_wire::requests::{group_id, text};
use kafka_wire::{Connection, Sent};

use crate::world::{World, soon};

/// The versions that librdkafka 2.12.1 sends.
const JOIN: i16 = 5;
const SYNC: i16 = 3;
const HEARTBEAT: i16 = 3;

/// Errors while the client finds a coordinator, or the coordinator loads.
const NOT_READY: [i16; 3] = [14, 15, 16];

/// A member on a connection of its own.
#[derive(Debug)]
pub struct Member {
    conn: Connection,
    join: Option<Sent<JoinGroupRequest>>,
    sync: Option<Sent<SyncGroupRequest>>,
    /// `group.id`.
    pub group: String,
    /// The member id from the coordinator.
    pub id: String,
    /// `group.instance.id`.
    pub instance: Option<String>,
    /// The generation that the member has joined.
    pub generation: i32,
    /// `session.timeout.ms`.
    pub session_ms: i32,
    /// `max.poll.interval.ms`.
    pub rebalance_ms: i32,
    /// The names of its protocols, and the metadata of each.
    pub protocols: Vec<(String, String)>,
}

impl World {
    /// Returns a client that is not a member yet.
    ///
    /// # Errors
    /// When it cannot connect.
    pub fn member(&self, group: &str) -> Result<Member> {
        Ok(Member {
            conn: self.connect()?,
            join: None,
            sync: None,
            group: group.to_owned(),
            id: String::new(),
            instance: None,
            generation: -1,
            session_ms: 10_000,
            rebalance_ms: 10_000,
            protocols: vec![("range".into(), "m".into())],
        })
    }

    /// Returns a client that is not a member yet, for a group that does not exist yet.
    ///
    /// # Errors
    /// When it cannot connect.
    pub fn newcomer(&self) -> Result<Member> {
        self.member(&self.fresh("g"))
    }

    /// Returns the only member of a stable group.
    ///
    /// # Errors
    /// As [`Member::lead`].
    pub fn leader(&self) -> Result<Member> {
        let mut member = self.newcomer()?;
        member.lead()?;
        Ok(member)
    }

    /// Returns a client that joins as a static member.
    ///
    /// # Errors
    /// When it cannot connect.
    pub fn static_member(&self, group: &str, instance: &str) -> Result<Member> {
        let mut member = self.member(group)?;
        member.instance = Some(instance.to_owned());
        Ok(member)
    }

    /// Returns a static member that is the only member of a stable group.
    ///
    /// # Errors
    /// As [`Member::lead`].
    pub fn static_leader(&self, instance: &str) -> Result<Member> {
        let mut member = self.static_member(&self.fresh("g"), instance)?;
        member.lead()?;
        Ok(member)
    }
}

/// Repeats a request while the coordinator is not ready.
pub(crate) fn ready<T>(mut ask: impl FnMut() -> Result<T>, code: impl Fn(&T) -> i16) -> Result<T> {
    for _ in 0..1_000 {
        let answer = ask()?;
        if !NOT_READY.contains(&code(&answer)) {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    ask()
}

impl Member {
    /// Returns the generation and the id of this member.
    pub fn by(&self) -> (i32, &str) {
        (self.generation, &self.id)
    }

    /// Sends heartbeats until the coordinator requires a rejoin.
    ///
    /// # Errors
    /// When no rebalance begins in time.
    pub fn rebalances(&mut self, world: &World) -> Result<()> {
        world.until("it rebalances", || Ok(self.beat()? == 27))
    }

    fn join_request(&self) -> JoinGroupRequest {
        let protocols = self.protocols.iter().map(|(name, metadata)| {
            JoinGroupRequestProtocol::default()
                .with_name(text(name))
                .with_metadata(Bytes::from(metadata.clone()))
        });
        JoinGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_session_timeout_ms(self.session_ms)
            .with_rebalance_timeout_ms(self.rebalance_ms)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_protocol_type(text("consumer"))
            .with_protocols(protocols.collect())
    }

    /// Sends JoinGroup in a given version. Returns the response.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn join_as(&mut self, version: i16) -> Result<JoinGroupResponse> {
        let request = self.join_request();
        let ask = || Ok(self.conn.exchange_as(version, &request, soon())?);
        ready(ask, |it| it.error_code)
    }

    /// Sends JoinGroup. Returns the response.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn join_once(&mut self) -> Result<JoinGroupResponse> {
        self.join_as(JOIN)
    }

    /// Sends JoinGroup. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn join_code(&mut self) -> Result<i16> {
        Ok(self.join_once()?.error_code)
    }

    /// Sends a JoinGroup that the broker holds. A new dynamic member requests its id first.
    ///
    /// # Errors
    /// When the broker returns no id, or the connection is closed.
    pub fn send_join(&mut self) -> Result<()> {
        self.have_id()?;
        let request = self.join_request();
        self.join = Some(self.conn.send_as(JOIN, &request, soon())?);
        Ok(())
    }

    /// Receives the response to [`Member::send_join`], and takes the member's id and generation from it.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn joined(&mut self) -> Result<JoinGroupResponse> {
        let sent = self.join.take().context("no JoinGroup was sent")?;
        let answer = self.conn.receive(sent, soon())?;
        self.take(&answer);
        Ok(answer)
    }

    /// Joins. A new dynamic member requests its id first.
    ///
    /// # Errors
    /// When the coordinator returns an error.
    pub fn join(&mut self) -> Result<JoinGroupResponse> {
        self.have_id()?;
        let answer = self.join_once()?;
        ensure!(answer.error_code == 0, "JoinGroup: {}", answer.error_code);
        self.take(&answer);
        Ok(answer)
    }

    fn have_id(&mut self) -> Result<()> {
        if self.id.is_empty() && self.instance.is_none() {
            self.ask_for_id()?;
        }
        Ok(())
    }

    /// Sends the first JoinGroup of a dynamic member, which only returns an id.
    ///
    /// # Errors
    /// When the coordinator returns any other code than "member id required".
    pub fn ask_for_id(&mut self) -> Result<()> {
        let answer = self.join_once()?;
        ensure!(answer.error_code == 79, "JoinGroup: {}", answer.error_code);
        self.id = answer.member_id.to_string();
        Ok(())
    }

    fn take(&mut self, answer: &JoinGroupResponse) {
        if answer.error_code == 0 {
            self.id = answer.member_id.to_string();
            self.generation = answer.generation_id;
        }
    }

    fn sync_request(&self, assignments: &[(&str, &str)]) -> SyncGroupRequest {
        let assignments = assignments.iter().map(|(id, assignment)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(id))
                .with_assignment(Bytes::from((*assignment).to_owned()))
        });
        SyncGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_assignments(assignments.collect())
    }

    /// Sends a SyncGroup that the broker may hold.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn send_sync(&mut self, assignments: &[(&str, &str)]) -> Result<()> {
        let request = self.sync_request(assignments);
        self.sync = Some(self.conn.send_as(SYNC, &request, soon())?);
        Ok(())
    }

    /// Receives the response to [`Member::send_sync`].
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn synced(&mut self) -> Result<SyncGroupResponse> {
        let sent = self.sync.take().context("no SyncGroup was sent")?;
        Ok(self.conn.receive(sent, soon())?)
    }

    /// Sends SyncGroup. Returns the error code and the assignment.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn sync(&mut self, assignments: &[(&str, &str)]) -> Result<(i16, String)> {
        self.send_sync(assignments)?;
        let answer = self.synced()?;
        let assignment = String::from_utf8_lossy(&answer.assignment).into_owned();
        Ok((answer.error_code, assignment))
    }

    /// Joins as the leader, and assigns all partitions to this member.
    ///
    /// # Errors
    /// When the coordinator refuses a request.
    pub fn lead(&mut self) -> Result<()> {
        self.join()?;
        let id = self.id.clone();
        let (error, _) = self.sync(&[(&id, "all")])?;
        ensure!(error == 0, "SyncGroup: {error}");
        Ok(())
    }

    /// Sends a heartbeat. Returns the error code.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn beat(&mut self) -> Result<i16> {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text));
        let answer = self.conn.exchange_as(HEARTBEAT, &request, soon())?;
        Ok(answer.error_code)
    }

    /// Sends LeaveGroup with (member id, instance id) of each member. Returns the error code of the response, then
    /// those of the members.
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn leave_as(&mut self, members: &[(&str, Option<&str>)]) -> Result<(i16, Vec<i16>)> {
        let members = members.iter().map(|(id, instance)| {
            MemberIdentity::default()
                .with_member_id(text(id))
                .with_group_instance_id(instance.map(text))
        });
        let request = LeaveGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_members(members.collect());
        let answer = self.conn.exchange_as(3, &request, soon())?;
        let codes = answer.members.iter().map(|it| it.error_code).collect();
        Ok((answer.error_code, codes))
    }

    /// Leaves the group. Returns the same codes as [`Member::leave_as`].
    ///
    /// # Errors
    /// When the broker returns no response.
    pub fn leave(&mut self) -> Result<(i16, Vec<i16>)> {
        let (id, instance) = (self.id.clone(), self.instance.clone());
        self.leave_as(&[(&id, instance.as_deref())])
    }

    /// Returns whether the broker sends no response within this time.
    ///
    /// # Errors
    /// When the timeout of the socket cannot be set.
    pub fn is_held(&mut self, time: Duration) -> Result<bool> {
        Ok(self.conn.is_silent(Instant::now() + time)?)
    }
}
