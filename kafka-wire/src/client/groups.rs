//! Committed offsets and members of consumer groups.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ConsumerProtocolAssignment;
use kafka_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use kafka_protocol::messages::describe_groups_response::DescribedGroupMember;
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponse;
use kafka_protocol::protocol::Decodable;

use super::Client;
use super::routing::Node;
use crate::connection::{Failure, check};
use crate::requests::{self, group_id, topic_name};

/// A consumer group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`.
    pub state: String,
    /// The members of the group.
    pub members: Vec<GroupMember>,
}

/// The offset and metadata of each partition of a topic, or `None` where no offset is committed.
pub type Offsets = Vec<Option<(i64, String)>>;

/// One member of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the coordinator assigned.
    pub member_id: String,
    /// The `client.id` of the member.
    pub client_id: String,
    /// The static id, if the member has one.
    pub group_instance_id: Option<String>,
    /// The number of partitions in the member's assignment. A member that still joins has none.
    pub assigned: usize,
}

impl Client {
    /// Returns the offset and metadata that a group committed for each partition of a topic.
    ///
    /// Waits until no open transaction withholds the offsets.
    ///
    /// # Errors
    /// If the coordinator does not respond in time, or such a transaction does not end in time.
    pub fn committed(&mut self, group: &str, topic: &str) -> Result<Offsets> {
        let what = format!("read the offsets of group {group} on {topic}");
        let count = self.retry(&what, |client, deadline| client.partitions(topic, deadline))?;
        let request = requests::offset_fetch(group, topic, (0..count).collect(), true);
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Group(group), &request, deadline)?;
            offsets(&answer, topic, count)
        })
    }

    /// As [`Client::committed`], but returns `None` if an open transaction withholds an offset longer than `patience`.
    ///
    /// # Errors
    /// If the coordinator does not respond in time.
    pub fn committed_unless_held(
        &mut self,
        group: &str,
        topic: &str,
        patience: Duration,
    ) -> Result<Option<Offsets>> {
        let what = format!("read the offsets of group {group} on {topic}");
        let count = self.retry(&what, |client, deadline| client.partitions(topic, deadline))?;
        let request = requests::offset_fetch(group, topic, (0..count).collect(), true);
        let mut held_since = None;
        let limit = self.timeout() + patience;
        self.retry_for(limit, &what, |client, deadline| {
            let answer = client.exchange(Node::Group(group), &request, deadline)?;
            let read = offsets(&answer, topic, count);
            if matches!(&read, Err(Failure::Retry(error)) if is_held(error)) {
                // The time counts from the first response, because the delay of that response is unrelated to the
                // transaction.
                let since: &mut Instant = held_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= patience {
                    return Ok(None);
                }
            }
            read.map(Some)
        })
    }

    /// Sets an offset of a group without members, as an administrator would.
    ///
    /// # Errors
    /// If the group has members (`UnknownMemberId`: stop them first), or its coordinator does not respond in time.
    pub fn commit_offset(
        &mut self,
        group: &str,
        topic: &str,
        partition: i32,
        offset: i64,
        metadata: &str,
    ) -> Result<()> {
        let by = (-1, "");
        let request = requests::offset_commit(group, topic, partition, offset, metadata, by);
        let what = format!("commit offset {offset} of {topic}-{partition} for group {group}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Group(group), &request, deadline)?;
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|p| check(p.error_code, || format!("{topic}-{partition}")))
        })
    }

    /// Deletes an offset of a group without members, like `kafka-consumer-groups.sh --delete-offsets`.
    ///
    /// # Errors
    /// If the group has members that read the topic, or its coordinator does not respond in time.
    pub fn delete_offset(&mut self, group: &str, topic: &str, partition: i32) -> Result<()> {
        let partitions =
            vec![OffsetDeleteRequestPartition::default().with_partition_index(partition)];
        let request = OffsetDeleteRequest::default()
            .with_group_id(group_id(group))
            .with_topics(vec![
                OffsetDeleteRequestTopic::default()
                    .with_name(topic_name(topic))
                    .with_partitions(partitions),
            ]);
        let what = format!("delete the offset of {topic}-{partition} of group {group}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Group(group), &request, deadline)?;
            check(answer.error_code, || group.to_owned())?;
            let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.try_for_each(|p| check(p.error_code, || format!("{topic}-{partition}")))
        })
    }

    /// Returns the state and the members of a group. A group that does not exist is `Dead`.
    ///
    /// Supports classic groups only. A group of the newer consumer protocol appears as `Dead`, too.
    ///
    /// # Errors
    /// If the coordinator does not respond in time.
    pub fn group_members(&mut self, group: &str) -> Result<GroupState> {
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let what = format!("describe group {group}");
        self.retry(&what, |client, deadline| {
            let answer = client.exchange(Node::Group(group), &request, deadline)?;
            let found = answer
                .groups
                .first()
                .context("response without the group")?;
            check(found.error_code, || group.to_owned())?;
            Ok(GroupState {
                state: found.group_state.to_string(),
                members: found.members.iter().map(member).collect(),
            })
        })
    }
}

fn member(described: &DescribedGroupMember) -> GroupMember {
    let instance = described.group_instance_id.as_ref();
    GroupMember {
        member_id: described.member_id.to_string(),
        client_id: described.client_id.to_string(),
        group_instance_id: instance.map(ToString::to_string),
        assigned: assigned(&described.member_assignment),
    }
}

/// Returns the number of partitions in the assignment of a consumer. Other kinds of groups have other formats, and
/// count as zero.
fn assigned(assignment: &Bytes) -> usize {
    let mut rest = assignment.clone();
    let version = rest.try_get_i16().unwrap_or(-1);
    let decoded = ConsumerProtocolAssignment::decode(&mut rest, version.clamp(0, 3));
    let topics = decoded.map_or_else(|_| Vec::new(), |it| it.assigned_partitions);
    topics.iter().map(|topic| topic.partitions.len()).sum()
}

/// Returns whether an open transaction withholds the offsets (KIP-447).
fn is_held(error: &anyhow::Error) -> bool {
    error.downcast_ref() == Some(&ResponseError::UnstableOffsetCommit)
}

/// Returns the coordinator's offsets of the partitions of a topic.
fn offsets(answer: &OffsetFetchResponse, topic: &str, count: i32) -> Result<Offsets, Failure> {
    let answer = answer
        .groups
        .first()
        .context("response without the group")?;
    check(answer.error_code, || answer.group_id.to_string())?;
    let mut committed = vec![None; count as usize];
    for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        let id = partition.partition_index;
        check(partition.error_code, || format!("{topic}-{id}"))?;
        let metadata = partition.metadata.as_ref().map_or("", |text| text.as_str());
        if let Some(slot) = committed.get_mut(id as usize)
            && partition.committed_offset >= 0
        {
            *slot = Some((partition.committed_offset, metadata.to_owned()));
        }
    }
    Ok(committed)
}
