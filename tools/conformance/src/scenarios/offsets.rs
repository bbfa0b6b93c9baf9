//! Committed offsets without transactions, and groups that only have offsets.

use anyhow::{Context, Result};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetDeleteRequest,
};
use kafka_wire::requests::{group_id, topic_name};

use super::Script;
use super::admin::delete_topic;
use crate::place::Place;
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("a_group_without_members_commits", |world| {
        let place = world.place()?;
        world.same("commit", place.commit(5, "m")?, 0);
        place.holds("seen", (0, 5, "m"))
    }),
    ("nothing_is_committed_at_first", |world| {
        let place = world.place()?;
        world.place_of(&place.group)?.commit(5, "m")?;
        place.holds("seen", (0, -1, ""))
    }),
    ("an_unknown_group_has_no_offsets", |world| {
        let place = world.place()?;
        world.returns("seen", place.committed(false), (0, -1, String::new()))
    }),
    ("the_last_commit_holds", |world| {
        let place = world.place()?;
        place.commit(5, "first")?;
        place.commit(6, "")?;
        place.holds("seen", (0, 6, ""))
    }),
    ("offsets_may_go_back", |world| {
        let place = world.place()?;
        place.commit(5, "")?;
        place.commit(2, "")?;
        world.returns("seen", place.offset(), 2)
    }),
    ("metadata_up_to_its_limit", |world| {
        let place = world.place()?;
        world.returns("code", place.commit(5, &"m".repeat(4_096)), 0)
    }),
    ("metadata_above_its_limit", |world| {
        let place = world.place()?;
        world.same("code", place.commit(5, &"m".repeat(4_097))?, 12);
        world.returns("seen", place.offset(), -1)
    }),
    ("an_unknown_topic_cannot_be_committed", |world| {
        let nowhere = world.place_in(&world.fresh("g"), world.fresh("nowhere"));
        world.returns("code", nowhere.commit(5, ""), 3)
    }),
    ("a_generation_of_no_group", |world| {
        let place = world.place()?;
        world.returns("code", place.commit_by((2, "unknown")), 22)
    }),
    ("a_generation_of_no_group_in_the_newest_version", |world| {
        let place = world.place()?;
        world.returns("code", place.commit_as(5, "", (2, "unknown"), 9), 69)
    }),
    ("an_empty_group_id_is_a_group_like_others", |world| {
        let place = world.place_of("")?;
        world.same("no such generation", place.commit_by((2, "unknown"))?, 22);
        world.same("a stranger", place.commit(5, "m")?, 0);
        place.holds("seen", (0, 5, "m"))
    }),
    ("a_stable_group_refuses_strangers", |world| {
        let member = world.leader()?;
        let place = world.place_of(&member.group)?;
        world.returns("code", place.commit(5, ""), 25)
    }),
    ("a_stable_group_refuses_an_unknown_member", |world| {
        let member = world.leader()?;
        let place = world.place_of(&member.group)?;
        let by = (member.generation, "unknown");
        world.returns("code", place.commit_by(by), 25)
    }),
    ("a_stable_group_refuses_an_old_generation", |world| {
        let member = world.leader()?;
        let place = world.place_of(&member.group)?;
        let (old, ahead) = (member.generation - 1, member.generation + 1);
        let codes = (
            place.commit_by((old, &member.id))?,
            place.commit_by((ahead, &member.id))?,
        );
        world.same("codes", codes, (22, 22));
        Ok(())
    }),
    ("a_member_commits", |world| {
        let member = world.leader()?;
        let place = world.place_of(&member.group)?;
        world.same("code", place.commit_by(member.by())?, 0);
        place.holds("seen", (0, 5, "m"))
    }),
    ("offsets_outlive_their_members", |world| {
        let mut member = world.leader()?;
        let place = world.place_of(&member.group)?;
        place.commit_by(member.by())?;
        member.leave()?;
        place.holds("seen", (0, 5, "m"))?;
        world.returns(
            "a stranger, after the group is empty",
            place.commit(6, ""),
            0,
        )
    }),
    ("a_member_commits_while_others_join", |world| {
        let mut member = world.leader()?;
        let place = world.place_of(&member.group)?;
        let mut other = world.member(&member.group)?;
        other.send_join()?;
        member.rebalances(world)?;
        world.returns("code", place.commit_by(member.by()), 0)
    }),
    ("a_joined_member_must_sync_before_it_commits", |world| {
        let mut member = world.newcomer()?;
        let place = world.place_of(&member.group)?;
        member.join()?;
        world.returns("code", place.commit_by(member.by()), 27)
    }),
    ("deleted_offsets_are_gone", |world| {
        let place = world.place()?;
        place.commit(5, "m")?;
        world.same("codes", delete_offset(world, &place)?, (0, 0));
        place.holds("seen", (0, -1, ""))
    }),
    ("deleting_offsets_of_an_unknown_group", |world| {
        let place = world.place()?;
        world.returns("codes", delete_offset(world, &place), (69, 0))
    }),
    ("a_group_is_deleted_with_its_offsets", |world| {
        let place = world.place()?;
        place.commit(5, "m")?;
        world.same("code", delete_group(world, &place.group)?, 0);
        world.same("seen", place.offset()?, -1);
        world.returns("again", delete_group(world, &place.group), 69)
    }),
    ("a_group_with_members_is_not_deleted", |world| {
        let member = world.leader()?;
        world.returns("code", delete_group(world, &member.group), 68)
    }),
    ("an_unknown_group_cannot_be_deleted", |world| {
        world.returns("code", delete_group(world, &world.fresh("g")), 69)
    }),
    ("a_group_of_offsets_is_listed_as_empty", |world| {
        let place = world.place()?;
        place.commit(5, "m")?;
        let answer = world.call(4, &ListGroupsRequest::default())?;
        let mut groups = answer.groups.iter();
        let found = groups.find(|it| it.group_id.as_str() == place.group);
        let found = found.map(|it| (it.protocol_type.to_string(), it.group_state.to_string()));
        world.same("listed", found, Some((String::new(), "Empty".into())));
        let expected = (0, "Empty".into(), String::new(), 0);
        world.returns("described", describe(world, &place.group), expected)
    }),
    ("an_unknown_group_is_described_as_dead", |world| {
        let group = world.fresh("g");
        for (version, code) in [(5, 0), (6, 69)] {
            let seen = describe_as(world, &group, version)?;
            let expected = (code, "Dead".into(), String::new(), 0);
            world.same(&format!("version {version}"), seen, expected);
        }
        Ok(())
    }),
    ("offsets_of_a_deleted_topic_are_gone", |world| {
        let place = world.place()?;
        place.commit(5, "m")?;
        world.same("deleted", delete_topic(world, &place.topic)?, 0);
        world.until("the offset is gone", || Ok(place.offset()? == -1))
    }),
];

fn delete_offset(world: &World, place: &Place<'_>) -> Result<(i16, i16)> {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic_name(&place.topic))
        .with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default()
        .with_group_id(group_id(&place.group))
        .with_topics(vec![topic]);
    let answer = world.call(0, &request)?;
    let of_partition = answer.topics.first().and_then(|it| it.partitions.first());
    let code = of_partition.map_or(0, |it| it.error_code);
    Ok((answer.error_code, code))
}

fn delete_group(world: &World, group: &str) -> Result<i16> {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
    let answer = world.call(1, &request)?;
    Ok(answer.results.first().context("no result")?.error_code)
}

/// The error code, the group's state, its protocol type, and the number of its members.
type Described = (i16, String, String, usize);

/// Sends DescribeGroups.
pub(super) fn describe(world: &World, group: &str) -> Result<Described> {
    describe_as(world, group, 5)
}

fn describe_as(world: &World, group: &str, version: i16) -> Result<Described> {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
    let answer = world.call(version, &request)?;
    let it = answer.groups.first().context("no group")?;
    let (state, kind) = (it.group_state.to_string(), it.protocol_type.to_string());
    Ok((it.error_code, state, kind, it.members.len()))
}
