//! Committed offsets without transactions, and what becomes of groups that only have them.

use anyhow::{Context, Result};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetDeleteRequest,
};
use kafka_wire::requests::{group_id, topic_name};

use super::scenarios;
use crate::world::World;

scenarios! { "offsets":
    a_group_without_members_commits,
    nothing_is_committed_at_first,
    an_unknown_group_has_no_offsets,
    the_last_commit_holds,
    offsets_may_go_back,
    metadata_up_to_its_limit,
    metadata_above_its_limit,
    an_unknown_topic_cannot_be_committed,
    a_generation_of_no_group,
    a_generation_of_no_group_in_the_newest_version,
    an_empty_group_id_is_a_group_like_others,
    a_stable_group_refuses_strangers,
    a_stable_group_refuses_an_unknown_member,
    a_stable_group_refuses_an_old_generation,
    a_member_commits,
    offsets_outlive_their_members,
    a_member_commits_while_others_join,
    a_joined_member_must_sync_before_it_commits,
    deleted_offsets_are_gone,
    deleting_offsets_of_an_unknown_group,
    a_group_is_deleted_with_its_offsets,
    a_group_with_members_is_not_deleted,
    an_unknown_group_cannot_be_deleted,
    a_group_of_offsets_is_listed_as_empty,
    an_unknown_group_is_described_as_dead,
    offsets_of_a_deleted_topic_are_gone,
}

fn a_group_without_members_commits(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let code = world.commit(&group, &topic, 5, "m", (-1, ""))?;
    world.same("commit", code, 0);
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, 5, "m".into()));
    Ok(())
}

fn nothing_is_committed_at_first(world: &mut World) -> Result<()> {
    let (topic, other, group) = (world.topic()?, world.topic()?, world.fresh("g"));
    world.commit(&group, &other, 5, "m", (-1, ""))?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, -1, String::new()));
    Ok(())
}

fn an_unknown_group_has_no_offsets(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let seen = world.committed(&group, &topic, false)?;
    world.same("seen", seen, (0, -1, String::new()));
    Ok(())
}

fn the_last_commit_holds(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "first", (-1, ""))?;
    world.commit(&group, &topic, 6, "", (-1, ""))?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, 6, String::new()));
    Ok(())
}

fn offsets_may_go_back(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "", (-1, ""))?;
    world.commit(&group, &topic, 2, "", (-1, ""))?;
    let seen = world.committed(&group, &topic, true)?.1;
    world.same("seen", seen, 2);
    Ok(())
}

fn metadata_up_to_its_limit(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let code = world.commit(&group, &topic, 5, &"m".repeat(4_096), (-1, ""))?;
    world.same("code", code, 0);
    Ok(())
}

fn metadata_above_its_limit(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let code = world.commit(&group, &topic, 5, &"m".repeat(4_097), (-1, ""))?;
    world.same("code", code, 12);
    let seen = world.committed(&group, &topic, true)?.1;
    world.same("seen", seen, -1);
    Ok(())
}

fn an_unknown_topic_cannot_be_committed(world: &mut World) -> Result<()> {
    let (nowhere, group) = (world.fresh("nowhere"), world.fresh("g"));
    let code = world.commit(&group, &nowhere, 5, "", (-1, ""))?;
    world.same("code", code, 3);
    Ok(())
}

fn a_generation_of_no_group(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let code = world.commit(&group, &topic, 5, "", (2, "somebody"))?;
    world.same("code", code, 22);
    Ok(())
}

fn a_generation_of_no_group_in_the_newest_version(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let code = world.commit_as(&group, &topic, 5, "", (2, "somebody"), 9)?;
    world.same("code", code, 69);
    Ok(())
}

fn an_empty_group_id_is_a_group_like_others(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let code = world.commit("", &topic, 5, "", (2, "somebody"))?;
    world.same("no such generation", code, 22);
    let code = world.commit("", &topic, 5, "m", (-1, ""))?;
    world.same("a stranger", code, 0);
    let seen = world.committed("", &topic, true)?;
    world.same("seen", seen, (0, 5, "m".into()));
    Ok(())
}

fn a_stable_group_refuses_strangers(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let code = world.commit(&group, &topic, 5, "", (-1, ""))?;
    world.same("code", code, 25);
    Ok(())
}

fn a_stable_group_refuses_an_unknown_member(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let code = world.commit(&group, &topic, 5, "", (member.generation, "somebody"))?;
    world.same("code", code, 25);
    Ok(())
}

fn a_stable_group_refuses_an_old_generation(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let (old, ahead) = (member.generation - 1, member.generation + 1);
    let codes = (
        world.commit(&group, &topic, 5, "", (old, &member.id))?,
        world.commit(&group, &topic, 5, "", (ahead, &member.id))?,
    );
    world.same("codes", codes, (22, 22));
    Ok(())
}

fn a_member_commits(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let code = world.commit(&group, &topic, 5, "m", (member.generation, &member.id))?;
    world.same("code", code, 0);
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, 5, "m".into()));
    Ok(())
}

fn offsets_outlive_their_members(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    world.commit(&group, &topic, 5, "m", (member.generation, &member.id))?;
    member.leave()?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, 5, "m".into()));
    let code = world.commit(&group, &topic, 6, "", (-1, ""))?;
    world.same("a stranger, now that it is empty", code, 0);
    Ok(())
}

fn a_member_commits_while_others_join(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let mut other = world.member(&group)?;
    other.ask_for_id()?;
    other.send_join()?;
    world.until("it rebalances", |_| Ok(member.beat()? == 27))?;
    let code = world.commit(&group, &topic, 5, "m", (member.generation, &member.id))?;
    world.same("code", code, 0);
    Ok(())
}

fn a_joined_member_must_sync_before_it_commits(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut member = world.member(&group)?;
    member.join()?;
    let code = world.commit(&group, &topic, 5, "m", (member.generation, &member.id))?;
    world.same("code", code, 27);
    Ok(())
}

fn delete_offset(world: &mut World, group: &str, topic: &str) -> Result<(i16, i16)> {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = OffsetDeleteRequest::default()
        .with_group_id(group_id(group))
        .with_topics(vec![topic]);
    let answer = world.call(0, &request)?;
    let of_partition = answer.topics.first().and_then(|it| it.partitions.first());
    Ok((
        answer.error_code,
        of_partition.map_or(0, |it| it.error_code),
    ))
}

fn deleted_offsets_are_gone(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "m", (-1, ""))?;
    let codes = delete_offset(world, &group, &topic)?;
    world.same("codes", codes, (0, 0));
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, -1, String::new()));
    Ok(())
}

fn deleting_offsets_of_an_unknown_group(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let codes = delete_offset(world, &group, &topic)?;
    world.same("codes", codes, (69, 0));
    Ok(())
}

fn delete_group(world: &mut World, group: &str) -> Result<i16> {
    let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
    let answer = world.call(1, &request)?;
    Ok(answer.results.first().context("no result")?.error_code)
}

fn a_group_is_deleted_with_its_offsets(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "m", (-1, ""))?;
    let code = delete_group(world, &group)?;
    world.same("code", code, 0);
    let seen = world.committed(&group, &topic, true)?.1;
    world.same("seen", seen, -1);
    let again = delete_group(world, &group)?;
    world.same("again", again, 69);
    Ok(())
}

fn a_group_with_members_is_not_deleted(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let code = delete_group(world, &group)?;
    world.same("code", code, 68);
    Ok(())
}

fn an_unknown_group_cannot_be_deleted(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let code = delete_group(world, &group)?;
    world.same("code", code, 69);
    Ok(())
}

fn a_group_of_offsets_is_listed_as_empty(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "m", (-1, ""))?;
    let answer = world.call(4, &ListGroupsRequest::default())?;
    let found = answer
        .groups
        .iter()
        .find(|it| it.group_id.as_str() == group);
    let found = found.map(|it| (it.protocol_type.to_string(), it.group_state.to_string()));
    world.same("listed", found, Some((String::new(), "Empty".into())));
    let described = describe(world, &group, 5)?;
    world.same(
        "described",
        described,
        (0, "Empty".into(), String::new(), 0),
    );
    Ok(())
}

/// DescribeGroups: error, state, protocol type, number of members.
pub(super) fn describe(
    world: &mut World,
    group: &str,
    version: i16,
) -> Result<(i16, String, String, usize)> {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
    let answer = world.call(version, &request)?;
    let it = answer.groups.first().context("no group")?;
    let (state, kind) = (it.group_state.to_string(), it.protocol_type.to_string());
    Ok((it.error_code, state, kind, it.members.len()))
}

fn an_unknown_group_is_described_as_dead(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let old = describe(world, &group, 5)?;
    world.same(
        "before version 6",
        old,
        (0, "Dead".into(), String::new(), 0),
    );
    let new = describe(world, &group, 6)?;
    world.same(
        "from version 6 on",
        new,
        (69, "Dead".into(), String::new(), 0),
    );
    Ok(())
}

fn offsets_of_a_deleted_topic_are_gone(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 5, "m", (-1, ""))?;
    let code = super::admin::delete_topic(world, &topic)?;
    world.same("deleted", code, 0);
    world.until("the offset is gone", |world| {
        Ok(world.committed(&group, &topic, true)?.1 == -1)
    })
}
