//! Classic groups: ids, generations, assignments, rebalances, sessions, static members.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Script;
use super::fencing::race;
use super::offsets::describe;
use crate::groups::Member;
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("a_new_member_receives_its_id_first", |world| {
        let mut member = world.newcomer()?;
        let answer = member.join_once()?;
        world.same("code", (answer.error_code, answer.generation_id), (79, -1));
        let named = answer.member_id.starts_with("conformance-");
        world.same("named after the client", named, true);
        member.id = answer.member_id.to_string();
        let answer = member.join_once()?;
        world.same("joined", (answer.error_code, answer.generation_id), (0, 1));
        world.same("same id", answer.member_id.as_str() == member.id, true);
        Ok(())
    }),
    ("an_old_client_joins_at_once", |world| {
        let mut member = world.newcomer()?;
        let answer = member.join_as(3)?;
        world.same("code", (answer.error_code, answer.generation_id), (0, 1));
        world.same("leads", answer.leader == answer.member_id, true);
        Ok(())
    }),
    ("the_first_member_leads_generation_one", |world| {
        let mut member = world.newcomer()?;
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
    }),
    ("the_leader_assigns", |world| {
        let mut member = world.newcomer()?;
        member.join()?;
        let id = member.id.clone();
        world.same("synced", member.sync(&[(&id, "mine")])?, (0, "mine".into()));
        world.returns("beat", member.beat(), 0)
    }),
    ("a_second_member_makes_the_first_rejoin", |world| {
        let mut first = world.leader()?;
        let mut second = world.member(&first.group)?;
        second.send_join()?;
        first.rebalances(world)?;
        world.same("held", second.is_held(Duration::from_millis(100))?, true);
        first.send_join()?;
        let (one, two) = (first.joined()?, second.joined()?);
        let generations = (one.generation_id, two.generation_id);
        world.same("generations", generations, (2, 2));
        let leaders = (
            one.leader.as_str() == first.id,
            two.leader.as_str() == first.id,
        );
        world.same("leaders", leaders, (true, true));
        Ok(())
    }),
    ("followers_do_not_see_the_members", |world| {
        let mut first = world.leader()?;
        let mut second = world.member(&first.group)?;
        one_after_the_other(world, &mut second, &mut first)?;
        let seen = (
            first.joined()?.members.len(),
            second.joined()?.members.len(),
        );
        world.same("members", seen, (2, 0));
        Ok(())
    }),
    ("followers_wait_for_the_leader", |world| {
        let (mut leader, mut follower) = waiting(world)?;
        let id = follower.id.clone();
        leader.send_sync(&[(&id, "theirs")])?;
        let answer = follower.synced()?;
        let got = String::from_utf8_lossy(&answer.assignment).into_owned();
        world.same("assigned", (answer.error_code, got), (0, "theirs".into()));
        Ok(())
    }),
    ("a_missing_assignment_is_empty", |world| {
        let mut member = world.newcomer()?;
        member.join()?;
        world.returns("synced", member.sync(&[]), (0, String::new()))
    }),
    ("an_unknown_member_cannot_join", |world| {
        let mut member = world.newcomer()?;
        member.id = "unknown".into();
        let nowhere = member.join_code()?;
        let mut leader = world.member(&member.group)?;
        leader.lead()?;
        let somewhere = member.join_code()?;
        world.same("codes", (nowhere, somewhere), (25, 25));
        Ok(())
    }),
    ("an_unknown_member_cannot_beat", |world| {
        let mut leader = world.leader()?;
        leader.id = "unknown".into();
        world.returns("code", leader.beat(), 25)
    }),
    ("an_old_generation_cannot_beat", |world| {
        let (_leader, mut follower) = two(world)?;
        follower.generation -= 1;
        world.returns("code", follower.beat(), 22)
    }),
    ("a_heartbeat_in_an_unknown_group", |world| {
        let mut member = world.newcomer()?;
        member.id = "unknown".into();
        member.generation = 1;
        world.returns("code", member.beat(), 25)
    }),
    ("a_sync_in_an_unknown_group", |world| {
        let mut member = world.newcomer()?;
        member.id = "unknown".into();
        member.generation = 1;
        world.same("code", member.sync(&[])?.0, 25);
        Ok(())
    }),
    ("an_old_generation_cannot_sync", |world| {
        let (_leader, mut follower) = two(world)?;
        follower.generation -= 1;
        world.same("code", follower.sync(&[])?.0, 22);
        Ok(())
    }),
    ("a_sync_during_a_join_requires_a_rejoin", |world| {
        let (mut leader, mut follower) = two(world)?;
        leader.send_join()?;
        follower.rebalances(world)?;
        world.same("code", follower.sync(&[])?.0, 27);
        Ok(())
    }),
    ("a_second_sync_returns_the_same_assignment", |world| {
        let (mut leader, mut follower) = two(world)?;
        let id = leader.id.clone();
        let seen = (leader.sync(&[(&id, "other")])?, follower.sync(&[])?);
        world.same("assignments", seen, ((0, "one".into()), (0, "two".into())));
        Ok(())
    }),
    ("a_follower_that_rejoins_makes_no_rebalance", |world| {
        let (mut leader, mut follower) = two(world)?;
        let answer = follower.join_once()?;
        let seen = (answer.error_code, answer.generation_id);
        world.same("generation", seen, (0, 2));
        world.returns("no rebalance", leader.beat(), 0)
    }),
    ("a_leader_that_rejoins_makes_a_new_generation", |world| {
        let (mut leader, mut follower) = two(world)?;
        one_after_the_other(world, &mut leader, &mut follower)?;
        let generations = (
            leader.joined()?.generation_id,
            follower.joined()?.generation_id,
        );
        world.same("generations", generations, (3, 3));
        Ok(())
    }),
    ("new_metadata_makes_a_new_generation", |world| {
        let (mut leader, mut follower) = two(world)?;
        follower.protocols[0].1 = "other".into();
        one_after_the_other(world, &mut follower, &mut leader)?;
        let answer = leader.joined()?;
        follower.joined()?;
        let said = answer
            .members
            .iter()
            .find(|it| it.member_id.as_str() == follower.id);
        let said = said.map(|it| String::from_utf8_lossy(&it.metadata).into_owned());
        world.same("metadata", said, Some("other".into()));
        Ok(())
    }),
    ("a_member_that_leaves_makes_a_rebalance", |world| {
        let (mut leader, mut follower) = two(world)?;
        world.same("left", follower.leave()?, (0, vec![0]));
        world.same("beat", leader.beat()?, 27);
        let answer = leader.join()?;
        let seen = (answer.generation_id, answer.members.len());
        world.same("generation", seen, (3, 1));
        world.returns("gone", follower.beat(), 25)
    }),
    ("a_group_is_empty_after_its_last_member_leaves", |world| {
        let mut member = world.leader()?;
        member.leave()?;
        described(world, "described", &member.group, "Empty", 0)
    }),
    ("a_group_goes_on_behind_its_last_generation", |world| {
        let mut member = world.leader()?;
        member.leave()?;
        let mut next = world.member(&member.group)?;
        let answer = next.join()?;
        // The empty group counted as one generation.
        world.same("generation", answer.generation_id, 3);
        Ok(())
    }),
    ("leaving_an_unknown_group", |world| {
        let mut member = world.newcomer()?;
        member.id = "unknown".into();
        world.returns("left", member.leave(), (0, vec![25]))
    }),
    ("leaving_as_an_unknown_member", |world| {
        let mut member = world.leader()?;
        let left = member.leave_as(&[("unknown", None)])?;
        world.same("left", left, (0, vec![25]));
        Ok(())
    }),
    ("a_silent_member_is_removed", |world| {
        let session = Duration::from_secs(1);
        let (mut member, before) = race(session, |clock| {
            let mut member = world.newcomer()?;
            member.session_ms = 1_000;
            clock.start();
            member.lead()?;
            std::thread::sleep(Duration::from_millis(600));
            let before = member.beat()?;
            clock.stop();
            Ok((member, before))
        })?;
        world.same("in time", before, 0);
        world.until("it is removed", || {
            Ok(describe(world, &member.group)?.3 == 0)
        })?;
        world.returns("too late", member.beat(), 25)
    }),
    ("heartbeats_keep_a_session", |world| {
        let session = Duration::from_secs(1);
        let beats = race(session, |clock| {
            let mut member = world.newcomer()?;
            member.session_ms = 1_000;
            clock.start();
            member.lead()?;
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
    }),
    ("a_join_ends_without_absent_members", |world| {
        let mut first = world.newcomer()?;
        first.rebalance_ms = 1_000;
        first.lead()?;
        let mut second = world.member(&first.group)?;
        second.rebalance_ms = 1_000;
        second.send_join()?;
        let answer = second.joined()?;
        let seen = (answer.generation_id, answer.members.len());
        world.same("generation", seen, (2, 1));
        world.returns("put out", first.beat(), 25)
    }),
    (
        "a_member_without_an_assignment_is_removed_if_it_does_not_sync",
        |world| {
            let mut member = world.newcomer()?;
            member.rebalance_ms = 1_000;
            member.join()?;
            for _ in 0..20 {
                member.beat()?;
                std::thread::sleep(Duration::from_millis(100));
            }
            world.returns("put out", member.beat(), 25)
        },
    ),
    ("a_session_timeout_out_of_bounds", |world| {
        let group = world.fresh("g");
        let mut codes = Vec::new();
        for session in [999, 1_800_001] {
            let mut member = world.member(&group)?;
            member.session_ms = session;
            codes.push(member.join_code()?);
        }
        world.same("codes", codes, vec![26, 26]);
        Ok(())
    }),
    ("no_protocol_is_refused", |world| {
        let mut member = world.newcomer()?;
        member.protocols.clear();
        world.returns("code", member.join_code(), 23)
    }),
    ("a_protocol_that_no_other_member_supports", |world| {
        let first = world.leader()?;
        let mut second = world.member(&first.group)?;
        second.protocols = vec![("own".into(), "m".into())];
        world.returns("code", second.join_code(), 23)
    }),
    ("the_protocol_that_all_support_is_chosen", |world| {
        let name = chosen(world, [&["a", "b"], &["c", "b"], &["b", "a"]]);
        world.returns("protocol", name, Some("b".into()))
    }),
    ("the_protocol_that_most_prefer_is_chosen", |world| {
        let name = chosen(world, [&["a", "b"], &["b", "a"], &["b", "a"]]);
        world.returns("protocol", name, Some("b".into()))
    }),
    ("an_empty_group_id", |world| {
        let mut member = world.member("")?;
        let codes = (member.join_code()?, member.sync(&[])?.0, member.beat()?);
        world.same("codes", codes, (24, 24, 24));
        Ok(())
    }),
    ("a_static_member_needs_no_id", |world| {
        let mut member = world.static_member(&world.fresh("g"), "i")?;
        let answer = member.join_once()?;
        world.same("code", (answer.error_code, answer.generation_id), (0, 1));
        let named = answer.member_id.starts_with("i-");
        world.same("named after the instance", named, true);
        Ok(())
    }),
    ("a_static_member_that_returns_makes_no_rebalance", |world| {
        let mut leader = world.leader()?;
        let mut first = world.static_member(&leader.group, "i")?;
        together(world, &mut leader, &mut first)?;
        let mut second = world.static_member(&leader.group, "i")?;
        let answer = second.join()?;
        world.same("generation", answer.generation_id, first.generation);
        world.same("another id", answer.member_id.as_str() != first.id, true);
        world.same("no rebalance", leader.beat()?, 0);
        world.returns("assignment", second.sync(&[]), (0, "two".into()))
    }),
    (
        "a_static_member_that_returns_fences_its_old_self",
        |world| {
            let mut first = world.static_leader("i")?;
            let mut second = world.static_member(&first.group, "i")?;
            second.join()?;
            let codes = (first.beat()?, first.sync(&[])?.0, first.join_code()?);
            world.same("codes", codes, (82, 82, 82));
            Ok(())
        },
    ),
    ("an_unknown_instance_is_an_unknown_member", |world| {
        let mut member = world.leader()?;
        member.instance = Some("unknown".into());
        world.returns("code", member.beat(), 25)
    }),
    ("a_static_member_leaves_by_its_instance", |world| {
        let mut member = world.static_leader("i")?;
        world.same("left", member.leave_as(&[("", Some("i"))])?, (0, vec![0]));
        described(world, "described", &member.group, "Empty", 0)
    }),
    ("an_unknown_instance_cannot_leave", |world| {
        let mut member = world.static_leader("i")?;
        let left = member.leave_as(&[("", Some("other")), ("unknown", Some("i"))])?;
        world.same("left", left, (0, vec![25, 82]));
        Ok(())
    }),
    (
        "a_static_member_that_returns_with_other_metadata",
        |world| {
            let mut leader = world.leader()?;
            let mut first = world.static_member(&leader.group, "i")?;
            together(world, &mut leader, &mut first)?;
            let mut second = world.static_member(&leader.group, "i")?;
            second.protocols[0].1 = "other".into();
            let answer = second.join()?;
            // The protocol stays the same, and Kafka does not compare its metadata.
            world.same("generation", answer.generation_id, first.generation);
            Ok(())
        },
    ),
    (
        "a_static_leader_that_returns_in_the_newest_version",
        |world| {
            let first = world.static_leader("i")?;
            let old = first.id.clone();
            let mut second = world.static_member(&first.group, "i")?;
            let before = second.join_as(8)?;
            let told = (before.leader.as_str() == old, before.members.len());
            world.same("before version 9", told, (true, 0));
            let mut third = world.static_member(&first.group, "i")?;
            let since = third.join_as(9)?;
            let leads = since.leader == since.member_id;
            let told = (leads, since.skip_assignment, since.members.len());
            world.same("from version 9 on", told, (true, true, 1));
            Ok(())
        },
    ),
    ("a_static_follower_keeps_its_assignment", |world| {
        let mut leader = world.static_leader("l")?;
        let mut follower = world.static_member(&leader.group, "f")?;
        together(world, &mut leader, &mut follower)?;
        // Static members do not leave when they stop, and the group keeps their place.
        described(world, "described", &leader.group, "Stable", 2)?;
        let mut again = world.static_member(&leader.group, "f")?;
        let answer = again.join_once()?;
        world.same("joined", (answer.error_code, answer.generation_id), (0, 2));
        let renamed = answer.member_id.as_str() != follower.id;
        world.same("another member id", renamed, true);
        again.id = answer.member_id.to_string();
        again.generation = answer.generation_id;
        world.same("assignment", again.sync(&[])?, (0, "two".into()));
        world.returns("the one before", follower.beat(), 82)
    }),
    ("a_group_is_described", |world| {
        let mut member = world.newcomer()?;
        member.join()?;
        described(world, "joined", &member.group, "CompletingRebalance", 1)?;
        let id = member.id.clone();
        member.sync(&[(&id, "all")])?;
        described(world, "stable", &member.group, "Stable", 1)?;
        member.send_join()?;
        member.joined()?;
        let mut other = world.member(&member.group)?;
        other.send_join()?;
        member.rebalances(world)?;
        described(world, "preparing", &member.group, "PreparingRebalance", 2)
    }),
    ("a_given_id_that_never_joins_is_forgotten", |world| {
        let mut member = world.newcomer()?;
        member.session_ms = 1_000;
        member.ask_for_id()?;
        std::thread::sleep(Duration::from_millis(1_500));
        world.returns("code", member.join_code(), 25)
    }),
    ("a_pending_id_may_leave", |world| {
        let mut member = world.newcomer()?;
        member.ask_for_id()?;
        world.same("left", member.leave()?, (0, vec![0]));
        world.returns("code", member.join_code(), 25)
    }),
    ("a_rebalance_ends_the_wait_for_an_assignment", |world| {
        let (mut leader, mut follower) = waiting(world)?;
        leader.leave()?;
        world.same("code", follower.synced()?.error_code, 27);
        Ok(())
    }),
];

/// Returns a stable group of two: the leader and a follower.
fn two(world: &World) -> Result<(Member, Member)> {
    let mut leader = world.leader()?;
    let mut follower = world.member(&leader.group)?;
    together(world, &mut leader, &mut follower)?;
    Ok((leader, follower))
}

/// Joins the follower to the group of the leader, and assigns partitions to both.
fn together(world: &World, leader: &mut Member, follower: &mut Member) -> Result<()> {
    one_after_the_other(world, follower, leader)?;
    leader.joined()?;
    follower.joined()?;
    follower.send_sync(&[])?;
    let (one, two) = (leader.id.clone(), follower.id.clone());
    leader.send_sync(&[(&one, "one"), (&two, "two")])?;
    leader.synced()?;
    follower.synced()?;
    Ok(())
}

/// Joins the first member, which makes the second one rejoin.
fn one_after_the_other(world: &World, first: &mut Member, second: &mut Member) -> Result<()> {
    first.send_join()?;
    second.rebalances(world)?;
    second.send_join()
}

/// Starts a new generation. The follower waits for the assignment of the leader.
fn waiting(world: &World) -> Result<(Member, Member)> {
    let (mut leader, mut follower) = two(world)?;
    one_after_the_other(world, &mut leader, &mut follower)?;
    leader.joined()?;
    follower.joined()?;
    follower.send_sync(&[])?;
    let held = follower.is_held(Duration::from_millis(100));
    world.returns("held", held, true)?;
    Ok((leader, follower))
}

/// Compares the state of a consumer group and the number of its members.
fn described(world: &World, what: &str, group: &str, state: &str, members: usize) -> Result<()> {
    let expected = (0, state.to_owned(), "consumer".to_owned(), members);
    world.returns(what, describe(world, group), expected)
}

/// Returns the protocol that a group chooses. Each member lists its protocols in order of preference.
fn chosen(world: &World, protocols: [&[&str]; 3]) -> Result<Option<String>> {
    let group = world.fresh("g");
    let mut members: Vec<Member> = Vec::new();
    let mut chosen = None;
    for names in protocols {
        let mut member = world.member(&group)?;
        member.protocols = names
            .iter()
            .map(|it| ((*it).to_owned(), "m".to_owned()))
            .collect();
        member.send_join()?;
        for earlier in &mut members {
            earlier.rebalances(world)?;
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
