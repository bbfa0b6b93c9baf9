//! Classic groups: ids, generations, assignments, rebalances, sessions, static members.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::fencing::race;
use super::offsets::describe;
use super::scenarios;
use crate::groups::Member;
use crate::world::World;

scenarios! { "groups":
    a_new_member_is_told_its_id_first,
    an_old_client_joins_at_once,
    the_first_member_leads_generation_one,
    the_leader_assigns,
    a_second_member_makes_everybody_join_again,
    followers_do_not_see_the_members,
    followers_wait_for_the_leader,
    a_missing_assignment_is_empty,
    an_unknown_member_cannot_join,
    an_unknown_member_cannot_beat,
    an_old_generation_cannot_beat,
    nobody_beats_in_an_unknown_group,
    nobody_syncs_in_an_unknown_group,
    an_old_generation_cannot_sync,
    syncing_during_a_join_is_told_to_join,
    syncing_again_gives_the_same,
    a_follower_that_joins_again_is_told_the_same,
    a_leader_that_joins_again_makes_a_new_generation,
    new_metadata_makes_a_new_generation,
    a_member_that_leaves_makes_a_rebalance,
    the_last_one_to_leave_empties_the_group,
    a_group_goes_on_behind_its_last_generation,
    leaving_an_unknown_group,
    leaving_as_an_unknown_member,
    a_silent_member_is_put_out,
    heartbeats_keep_a_session,
    a_join_ends_without_those_who_do_not_come,
    a_member_without_an_assignment_is_put_out_if_it_does_not_sync,
    a_session_timeout_out_of_bounds,
    no_protocol_is_refused,
    a_protocol_that_nobody_else_knows,
    the_protocol_that_all_know_is_chosen,
    the_protocol_that_most_prefer_is_chosen,
    an_empty_group_id,
    a_static_member_needs_no_id,
    a_static_member_that_returns_makes_no_rebalance,
    a_static_member_that_returns_fences_its_old_self,
    an_unknown_instance_is_an_unknown_member,
    a_static_member_leaves_by_its_instance,
    an_unknown_instance_cannot_leave,
    a_static_member_that_returns_with_other_metadata,
    a_static_leader_that_returns_in_the_newest_version,
    a_static_follower_keeps_its_assignment,
    a_group_is_described,
    a_given_id_that_never_joins_is_forgotten,
    a_pending_id_may_leave,
    a_rebalance_is_told_to_those_who_wait_for_an_assignment,
}

/// A stable group of two: the leader and a follower.
fn two(world: &mut World) -> Result<(Member, Member)> {
    let group = world.fresh("g");
    let mut leader = world.member(&group)?;
    leader.lead("all")?;
    let mut follower = world.member(&group)?;
    together(world, &mut leader, &mut follower)?;
    Ok((leader, follower))
}

/// The second joins the group of the first, and both get a part.
fn together(world: &mut World, leader: &mut Member, follower: &mut Member) -> Result<()> {
    if follower.instance.is_none() {
        follower.ask_for_id()?;
    }
    follower.send_join()?;
    rebalancing(world, leader)?;
    leader.send_join()?;
    leader.joined()?;
    follower.joined()?;
    follower.send_sync(&[])?;
    let (one, two) = (leader.id.clone(), follower.id.clone());
    leader.send_sync(&[(&one, "one"), (&two, "two")])?;
    leader.synced()?;
    follower.synced()?;
    Ok(())
}

fn rebalancing(world: &mut World, member: &mut Member) -> Result<()> {
    world.until("it rebalances", |_| Ok(member.beat()? == 27))
}

fn a_new_member_is_told_its_id_first(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    let answer = member.join_once()?;
    world.same("code", (answer.error_code, answer.generation_id), (79, -1));
    let named = answer.member_id.starts_with("conformance-");
    world.same("named after the client", named, true);
    member.id = answer.member_id.to_string();
    let answer = member.join_once()?;
    world.same("joined", (answer.error_code, answer.generation_id), (0, 1));
    world.same("same id", answer.member_id.as_str() == member.id, true);
    Ok(())
}

fn an_old_client_joins_at_once(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    let answer = member.join_as(3)?;
    world.same("code", (answer.error_code, answer.generation_id), (0, 1));
    world.same("leads", answer.leader == answer.member_id, true);
    Ok(())
}

fn the_first_member_leads_generation_one(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    let answer = member.join()?;
    world.same("generation", answer.generation_id, 1);
    world.same("leads", answer.leader.as_str() == member.id, true);
    world.same("members", answer.members.len(), 1);
    let protocol = answer
        .protocol_name
        .as_deref()
        .unwrap_or_default()
        .to_owned();
    world.same("protocol", protocol, "range".into());
    Ok(())
}

fn the_leader_assigns(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.join()?;
    let id = member.id.clone();
    let synced = member.sync(&[(&id, "mine")])?;
    world.same("synced", synced, (0, "mine".into()));
    let beat = member.beat()?;
    world.same("beat", beat, 0);
    Ok(())
}

fn a_second_member_makes_everybody_join_again(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.member(&group)?;
    first.lead("all")?;
    let mut second = world.member(&group)?;
    second.ask_for_id()?;
    second.send_join()?;
    rebalancing(world, &mut first)?;
    let held = second.is_held(Duration::from_millis(100))?;
    world.same("held", held, true);
    first.send_join()?;
    let (one, two) = (first.joined()?, second.joined()?);
    world.same(
        "generations",
        (one.generation_id, two.generation_id),
        (2, 2),
    );
    let leaders = (
        one.leader.as_str() == first.id,
        two.leader.as_str() == first.id,
    );
    world.same("leaders", leaders, (true, true));
    Ok(())
}

fn followers_do_not_see_the_members(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.member(&group)?;
    first.lead("all")?;
    let mut second = world.member(&group)?;
    second.ask_for_id()?;
    second.send_join()?;
    rebalancing(world, &mut first)?;
    first.send_join()?;
    let seen = (
        first.joined()?.members.len(),
        second.joined()?.members.len(),
    );
    world.same("members", seen, (2, 0));
    Ok(())
}

fn followers_wait_for_the_leader(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    leader.send_join()?;
    rebalancing(world, &mut follower)?;
    follower.send_join()?;
    leader.joined()?;
    follower.joined()?;
    follower.send_sync(&[])?;
    let held = follower.is_held(Duration::from_millis(100))?;
    world.same("held", held, true);
    let id = follower.id.clone();
    leader.send_sync(&[(&id, "theirs")])?;
    let answer = follower.synced()?;
    let got = String::from_utf8_lossy(&answer.assignment).into_owned();
    world.same("assigned", (answer.error_code, got), (0, "theirs".into()));
    Ok(())
}

fn a_missing_assignment_is_empty(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.join()?;
    let synced = member.sync(&[])?;
    world.same("synced", synced, (0, String::new()));
    Ok(())
}

fn an_unknown_member_cannot_join(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.id = "somebody".into();
    let nowhere = member.join_once()?.error_code;
    let mut leader = world.member(&group)?;
    leader.lead("all")?;
    let somewhere = member.join_once()?.error_code;
    world.same("codes", (nowhere, somewhere), (25, 25));
    Ok(())
}

fn an_unknown_member_cannot_beat(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut leader = world.member(&group)?;
    leader.lead("all")?;
    leader.id = "somebody".into();
    let code = leader.beat()?;
    world.same("code", code, 25);
    Ok(())
}

fn an_old_generation_cannot_beat(world: &mut World) -> Result<()> {
    let (_leader, mut follower) = two(world)?;
    follower.generation -= 1;
    let code = follower.beat()?;
    world.same("code", code, 22);
    Ok(())
}

fn nobody_beats_in_an_unknown_group(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.id = "somebody".into();
    member.generation = 1;
    let code = member.beat()?;
    world.same("code", code, 25);
    Ok(())
}

fn nobody_syncs_in_an_unknown_group(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.id = "somebody".into();
    member.generation = 1;
    let code = member.sync(&[])?.0;
    world.same("code", code, 25);
    Ok(())
}

fn an_old_generation_cannot_sync(world: &mut World) -> Result<()> {
    let (_leader, mut follower) = two(world)?;
    follower.generation -= 1;
    let code = follower.sync(&[])?.0;
    world.same("code", code, 22);
    Ok(())
}

fn syncing_during_a_join_is_told_to_join(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    leader.send_join()?;
    rebalancing(world, &mut follower)?;
    let code = follower.sync(&[])?.0;
    world.same("code", code, 27);
    Ok(())
}

fn syncing_again_gives_the_same(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    let id = leader.id.clone();
    let seen = (leader.sync(&[(&id, "other")])?, follower.sync(&[])?);
    world.same("assignments", seen, ((0, "one".into()), (0, "two".into())));
    Ok(())
}

fn a_follower_that_joins_again_is_told_the_same(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    let answer = follower.join_once()?;
    world.same(
        "generation",
        (answer.error_code, answer.generation_id),
        (0, 2),
    );
    let beat = leader.beat()?;
    world.same("no rebalance", beat, 0);
    Ok(())
}

fn a_leader_that_joins_again_makes_a_new_generation(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    leader.send_join()?;
    rebalancing(world, &mut follower)?;
    follower.send_join()?;
    let generations = (
        leader.joined()?.generation_id,
        follower.joined()?.generation_id,
    );
    world.same("generations", generations, (3, 3));
    Ok(())
}

fn new_metadata_makes_a_new_generation(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    follower.protocols[0].1 = "other".into();
    follower.send_join()?;
    rebalancing(world, &mut leader)?;
    leader.send_join()?;
    let answer = leader.joined()?;
    follower.joined()?;
    let said = answer
        .members
        .iter()
        .find(|it| it.member_id.as_str() == follower.id);
    let said = said.map(|it| String::from_utf8_lossy(&it.metadata).into_owned());
    world.same("metadata", said, Some("other".into()));
    Ok(())
}

fn a_member_that_leaves_makes_a_rebalance(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    let left = follower.leave()?;
    world.same("left", left, (0, vec![0]));
    let beat = leader.beat()?;
    world.same("beat", beat, 27);
    let answer = leader.join()?;
    world.same(
        "generation",
        (answer.generation_id, answer.members.len()),
        (3, 1),
    );
    let gone = follower.beat()?;
    world.same("gone", gone, 25);
    Ok(())
}

fn the_last_one_to_leave_empties_the_group(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    member.leave()?;
    let seen = describe(world, &group, 5)?;
    world.same("described", seen, (0, "Empty".into(), "consumer".into(), 0));
    Ok(())
}

fn a_group_goes_on_behind_its_last_generation(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    member.leave()?;
    let mut next = world.member(&group)?;
    let answer = next.join()?;
    // One generation was the empty group's.
    world.same("generation", answer.generation_id, 3);
    Ok(())
}

fn leaving_an_unknown_group(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.id = "somebody".into();
    let left = member.leave()?;
    world.same("left", left, (0, vec![25]));
    Ok(())
}

fn leaving_as_an_unknown_member(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let left = member.leave_as(&[("somebody", None)])?;
    world.same("left", left, (0, vec![25]));
    Ok(())
}

fn a_silent_member_is_put_out(world: &mut World) -> Result<()> {
    let session = Duration::from_secs(1);
    let (group, mut member, before) = race(world, session, |world, clock| {
        let group = world.fresh("g");
        let mut member = world.member(&group)?;
        member.session_ms = 1_000;
        clock.start();
        member.lead("all")?;
        std::thread::sleep(Duration::from_millis(600));
        let before = member.beat()?;
        clock.stop();
        Ok((group, member, before))
    })?;
    world.same("in time", before, 0);
    world.until("it is put out", |world| {
        Ok(describe(world, &group, 5)?.3 == 0)
    })?;
    let after = member.beat()?;
    world.same("too late", after, 25);
    Ok(())
}

fn heartbeats_keep_a_session(world: &mut World) -> Result<()> {
    let session = Duration::from_secs(1);
    let beats = race(world, session, |world, clock| {
        let group = world.fresh("g");
        let mut member = world.member(&group)?;
        member.session_ms = 1_000;
        clock.start();
        member.lead("all")?;
        let mut beats = Vec::new();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(400));
            let sent = Instant::now();
            beats.push(member.beat()?);
            clock.renewed(sent);
        }
        clock.stop();
        Ok(beats)
    })?;
    world.same("beats", beats, vec![0; 5]);
    Ok(())
}

fn a_join_ends_without_those_who_do_not_come(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.member(&group)?;
    first.rebalance_ms = 1_000;
    first.lead("all")?;
    let mut second = world.member(&group)?;
    second.rebalance_ms = 1_000;
    second.ask_for_id()?;
    second.send_join()?;
    let answer = second.joined()?;
    let seen = (answer.generation_id, answer.members.len());
    world.same("generation", seen, (2, 1));
    let late = first.beat()?;
    world.same("put out", late, 25);
    Ok(())
}

fn a_member_without_an_assignment_is_put_out_if_it_does_not_sync(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.rebalance_ms = 1_000;
    member.join()?;
    for _ in 0..20 {
        member.beat()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let code = member.beat()?;
    world.same("put out", code, 25);
    Ok(())
}

fn a_session_timeout_out_of_bounds(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut codes = Vec::new();
    for session in [999, 1_800_001] {
        let mut member = world.member(&group)?;
        member.session_ms = session;
        codes.push(member.join_once()?.error_code);
    }
    world.same("codes", codes, vec![26, 26]);
    Ok(())
}

fn no_protocol_is_refused(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.protocols.clear();
    let code = member.join_once()?.error_code;
    world.same("code", code, 23);
    Ok(())
}

fn a_protocol_that_nobody_else_knows(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.member(&group)?;
    first.lead("all")?;
    let mut second = world.member(&group)?;
    second.protocols = vec![("own".into(), "m".into())];
    let code = second.join_once()?.error_code;
    world.same("code", code, 23);
    Ok(())
}

/// What a group of members chooses that know these protocols, the first one best.
fn chosen(world: &mut World, protocols: [&[&str]; 3]) -> Result<Option<String>> {
    let group = world.fresh("g");
    let mut members: Vec<Member> = Vec::new();
    let mut chosen = None;
    for names in protocols {
        let mut member = world.member(&group)?;
        member.protocols = names
            .iter()
            .map(|it| ((*it).to_owned(), "m".to_owned()))
            .collect();
        member.ask_for_id()?;
        member.send_join()?;
        for earlier in &mut members {
            rebalancing(world, earlier)?;
        }
        for earlier in &mut members {
            earlier.send_join()?;
        }
        members.push(member);
        for member in &mut members {
            chosen = member.joined()?.protocol_name;
        }
    }
    Ok(chosen.map(|it| it.to_string()))
}

fn the_protocol_that_all_know_is_chosen(world: &mut World) -> Result<()> {
    let name = chosen(world, [&["a", "b"], &["c", "b"], &["b", "a"]])?;
    world.same("protocol", name, Some("b".into()));
    Ok(())
}

fn the_protocol_that_most_prefer_is_chosen(world: &mut World) -> Result<()> {
    let name = chosen(world, [&["a", "b"], &["b", "a"], &["b", "a"]])?;
    world.same("protocol", name, Some("b".into()));
    Ok(())
}

fn an_empty_group_id(world: &mut World) -> Result<()> {
    let mut member = world.member("")?;
    let codes = (
        member.join_once()?.error_code,
        member.sync(&[])?.0,
        member.beat()?,
    );
    world.same("codes", codes, (24, 24, 24));
    Ok(())
}

fn a_static_member_needs_no_id(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.static_member(&group, "i")?;
    let answer = member.join_once()?;
    world.same("code", (answer.error_code, answer.generation_id), (0, 1));
    world.same(
        "named after the instance",
        answer.member_id.starts_with("i-"),
        true,
    );
    Ok(())
}

fn a_static_member_that_returns_makes_no_rebalance(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut leader = world.member(&group)?;
    leader.lead("all")?;
    let mut first = world.static_member(&group, "i")?;
    together(world, &mut leader, &mut first)?;
    let mut second = world.static_member(&group, "i")?;
    let answer = second.join()?;
    world.same("generation", answer.generation_id, first.generation);
    world.same("another id", answer.member_id.as_str() != first.id, true);
    let beat = leader.beat()?;
    world.same("no rebalance", beat, 0);
    let synced = second.sync(&[])?;
    world.same("assignment", synced, (0, "two".into()));
    Ok(())
}

fn a_static_member_that_returns_fences_its_old_self(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.static_member(&group, "i")?;
    first.lead("all")?;
    let mut second = world.static_member(&group, "i")?;
    second.join()?;
    let codes = (
        first.beat()?,
        first.sync(&[])?.0,
        first.join_once()?.error_code,
    );
    world.same("codes", codes, (82, 82, 82));
    Ok(())
}

fn an_unknown_instance_is_an_unknown_member(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    member.instance = Some("nobody".into());
    let code = member.beat()?;
    world.same("code", code, 25);
    Ok(())
}

fn a_static_member_leaves_by_its_instance(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.static_member(&group, "i")?;
    member.lead("all")?;
    let left = member.leave_as(&[("", Some("i"))])?;
    world.same("left", left, (0, vec![0]));
    let seen = describe(world, &group, 5)?.3;
    world.same("members", seen, 0);
    Ok(())
}

fn an_unknown_instance_cannot_leave(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.static_member(&group, "i")?;
    member.lead("all")?;
    let left = member.leave_as(&[("", Some("other")), ("somebody", Some("i"))])?;
    world.same("left", left, (0, vec![25, 82]));
    Ok(())
}

fn a_static_member_that_returns_with_other_metadata(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut leader = world.member(&group)?;
    leader.lead("all")?;
    let mut first = world.static_member(&group, "i")?;
    together(world, &mut leader, &mut first)?;
    let mut second = world.static_member(&group, "i")?;
    second.protocols[0].1 = "other".into();
    let answer = second.join()?;
    // The protocol stays the same: Kafka does not compare what is said about it.
    world.same("generation", answer.generation_id, first.generation);
    Ok(())
}

fn a_static_leader_that_returns_in_the_newest_version(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut first = world.static_member(&group, "i")?;
    first.lead("all")?;
    let old = first.id.clone();
    let mut second = world.static_member(&group, "i")?;
    let before = second.join_as(8)?;
    let told = (before.leader.as_str() == old, before.members.len());
    world.same("before version 9", told, (true, 0));
    let mut third = world.static_member(&group, "i")?;
    let since = third.join_as(9)?;
    let leads = since.leader == since.member_id;
    let told = (leads, since.skip_assignment, since.members.len());
    world.same("from version 9 on", told, (true, true, 1));
    Ok(())
}

fn a_static_follower_keeps_its_assignment(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut leader = world.static_member(&group, "l")?;
    leader.lead("all")?;
    let mut follower = world.static_member(&group, "f")?;
    together(world, &mut leader, &mut follower)?;
    // Static members do not leave when they go; their place is kept.
    let seen = describe(world, &group, 5)?;
    world.same(
        "described",
        seen,
        (0, "Stable".into(), "consumer".into(), 2),
    );
    let mut again = world.static_member(&group, "f")?;
    let answer = again.join_once()?;
    world.same("joined", (answer.error_code, answer.generation_id), (0, 2));
    let renamed = answer.member_id.as_str() != follower.id;
    world.same("another member id", renamed, true);
    again.id = answer.member_id.to_string();
    again.generation = answer.generation_id;
    let kept = again.sync(&[])?;
    world.same("assignment", kept, (0, "two".into()));
    let gone = follower.beat()?;
    world.same("the one before", gone, 82);
    Ok(())
}

fn a_group_is_described(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.join()?;
    let joined = describe(world, &group, 5)?;
    world.same(
        "joined",
        joined,
        (0, "CompletingRebalance".into(), "consumer".into(), 1),
    );
    let id = member.id.clone();
    member.sync(&[(&id, "all")])?;
    let stable = describe(world, &group, 5)?;
    world.same("stable", stable, (0, "Stable".into(), "consumer".into(), 1));
    member.send_join()?;
    member.joined()?;
    let mut other = world.member(&group)?;
    other.ask_for_id()?;
    other.send_join()?;
    rebalancing(world, &mut member)?;
    let seen = describe(world, &group, 5)?;
    world.same(
        "preparing",
        seen,
        (0, "PreparingRebalance".into(), "consumer".into(), 2),
    );
    Ok(())
}

fn a_given_id_that_never_joins_is_forgotten(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.session_ms = 1_000;
    member.ask_for_id()?;
    std::thread::sleep(Duration::from_millis(1_500));
    let code = member.join_once()?.error_code;
    world.same("code", code, 25);
    Ok(())
}

fn a_pending_id_may_leave(world: &mut World) -> Result<()> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.ask_for_id()?;
    let left = member.leave()?;
    world.same("left", left, (0, vec![0]));
    let code = member.join_once()?.error_code;
    world.same("code", code, 25);
    Ok(())
}

fn a_rebalance_is_told_to_those_who_wait_for_an_assignment(world: &mut World) -> Result<()> {
    let (mut leader, mut follower) = two(world)?;
    leader.send_join()?;
    rebalancing(world, &mut follower)?;
    follower.send_join()?;
    leader.joined()?;
    follower.joined()?;
    follower.send_sync(&[])?;
    let held = follower.is_held(Duration::from_millis(50))?;
    world.same("held", held, true);
    leader.leave()?;
    let answer = follower.synced()?;
    world.same("told", answer.error_code, 27);
    Ok(())
}
