//! Offsets that commit with a transaction.

use std::time::Duration;

use anyhow::Result;

use super::fencing::race;
use super::scenarios;
use crate::transactions::Producer;
use crate::world::World;

scenarios! { "transactional offsets":
    offsets_count_when_the_transaction_commits,
    offsets_of_an_aborted_transaction_never_count,
    an_unstable_offset_is_named_if_asked,
    an_unstable_offset_is_ignored_if_not_asked,
    another_partition_stays_stable,
    offsets_need_to_be_added_first,
    offsets_of_another_group_need_to_be_added,
    a_producer_that_is_fenced_sends_no_offsets,
    an_old_generation_sends_no_offsets,
    an_unknown_member_sends_no_offsets,
    a_fenced_instance_sends_no_offsets,
    a_generation_of_a_group_that_is_not_there,
    without_a_member_offsets_are_unfenced,
    offsets_are_taken_while_the_group_rebalances,
    a_plain_commit_overtakes_a_pending_one,
    the_later_offset_of_two_transactions_wins,
    a_timed_out_transaction_frees_its_offsets,
    offsets_of_an_unknown_partition,
    metadata_comes_back,
    groups_without_outputs_commit_too,
}

/// A transaction that holds an offset of a group of nobody.
fn pending(world: &mut World, group: &str, topic: &str, offset: i64) -> Result<Producer> {
    let producer = world.producer()?;
    let added = world.add_offsets(&producer, group)?;
    world.same("added", added, 0);
    let sent = world.send_offset(&producer, group, topic, offset, (-1, "", None))?;
    world.same("sent", sent, 0);
    Ok(producer)
}

fn none() -> (i16, i64, String) {
    (0, -1, String::new())
}

fn some(offset: i64) -> (i16, i64, String) {
    (0, offset, "of a transaction".into())
}

fn offsets_count_when_the_transaction_commits(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let producer = pending(world, &group, &topic, 5)?;
    let before = world.committed(&group, &topic, false)?;
    world.same("before", before, none());
    world.end(&producer, true)?;
    let after = world.committed(&group, &topic, true)?;
    world.same("after", after, some(5));
    Ok(())
}

fn offsets_of_an_aborted_transaction_never_count(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let kept = world.commit(&group, &topic, 1, "kept", (-1, ""))?;
    world.same("committed", kept, 0);
    let producer = pending(world, &group, &topic, 5)?;
    world.end(&producer, false)?;
    let after = world.committed(&group, &topic, true)?;
    world.same("after", after, (0, 1, "kept".into()));
    Ok(())
}

fn an_unstable_offset_is_named_if_asked(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 1, "kept", (-1, ""))?;
    let producer = pending(world, &group, &topic, 5)?;
    let stable = world.committed(&group, &topic, true)?;
    world.same("stable", stable, (88, -1, String::new()));
    world.end(&producer, true)?;
    let after = world.committed(&group, &topic, true)?;
    world.same("after", after, some(5));
    Ok(())
}

fn an_unstable_offset_is_ignored_if_not_asked(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    world.commit(&group, &topic, 1, "kept", (-1, ""))?;
    let producer = pending(world, &group, &topic, 5)?;
    let seen = world.committed(&group, &topic, false)?;
    world.same("seen", seen, (0, 1, "kept".into()));
    world.end(&producer, true)
}

fn another_partition_stays_stable(world: &mut World) -> Result<()> {
    let (topic, other, group) = (world.topic()?, world.topic()?, world.fresh("g"));
    world.commit(&group, &other, 3, "kept", (-1, ""))?;
    let producer = pending(world, &group, &topic, 5)?;
    let seen = world.committed(&group, &other, true)?;
    world.same("other", seen, (0, 3, "kept".into()));
    world.end(&producer, true)
}

fn offsets_need_to_be_added_first(world: &mut World) -> Result<()> {
    let (topic, group, producer) = (world.topic()?, world.fresh("g"), world.producer()?);
    let sent = world.send_offset(&producer, &group, &topic, 5, (-1, "", None))?;
    world.same("sent", sent, 48);
    world.add(&producer, &topic)?;
    let sent = world.send_offset(&producer, &group, &topic, 5, (-1, "", None))?;
    world.same("within a transaction", sent, 48);
    world.end(&producer, false)
}

/// The partition that Kafka keeps a group's offsets in, of the four that brokers of tests have.
fn offsets_partition(group: &str) -> i32 {
    let hash = (group.bytes()).fold(0_i32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(i32::from(byte))
    });
    hash.checked_abs().unwrap_or(0) % 4
}

/// A group whose offsets are in another one.
fn other_partition(group: &str) -> String {
    let names = (0..).map(|n| format!("{group}-{n}"));
    let mut others = names.filter(|name| offsets_partition(name) != offsets_partition(group));
    others
        .next()
        .expect("digits differ by one, and so do the hashes")
}

fn offsets_of_another_group_need_to_be_added(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    // Each of them has a partition of Kafka's own for its offsets, which is what is added.
    let own = world.fresh("g");
    let other = other_partition(&own);
    let added = world.add_offsets(&producer, &own)?;
    let sent = world.send_offset(&producer, &own, &topic, 5, (-1, "", None))?;
    world.same("own group", (added, sent), (0, 0));
    let sent = world.send_offset(&producer, &other, &topic, 5, (-1, "", None))?;
    world.same("another group", sent, 48);
    world.end(&producer, false)
}

fn a_producer_that_is_fenced_sends_no_offsets(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let first = pending(world, &group, &topic, 5)?;
    world.init(&first.id)?;
    let sent = world.send_offset(&first, &group, &topic, 6, (-1, "", None))?;
    world.same("sent", sent, 47);
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, none());
    Ok(())
}

/// A stable group of one, and a producer that may send its offsets.
fn of_a_member(world: &mut World) -> Result<(String, crate::groups::Member, Producer)> {
    let group = world.fresh("g");
    let mut member = world.member(&group)?;
    member.lead("all")?;
    let producer = world.producer()?;
    world.add_offsets(&producer, &group)?;
    Ok((group, member, producer))
}

fn an_old_generation_sends_no_offsets(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (group, member, producer) = of_a_member(world)?;
    let (old, id) = (member.generation - 1, member.id.clone());
    let sent = world.send_offset(&producer, &group, &topic, 5, (old, &id, None))?;
    let now = world.send_offset(&producer, &group, &topic, 5, (member.generation, &id, None))?;
    world.same("codes", (sent, now), (22, 0));
    world.end(&producer, true)
}

fn an_unknown_member_sends_no_offsets(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (group, member, producer) = of_a_member(world)?;
    let by = (member.generation, "somebody", None);
    let sent = world.send_offset(&producer, &group, &topic, 5, by)?;
    world.same("sent", sent, 25);
    world.end(&producer, false)
}

fn a_fenced_instance_sends_no_offsets(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let mut first = world.static_member(&group, "i")?;
    first.lead("all")?;
    let mut second = world.static_member(&group, "i")?;
    second.join()?;
    let producer = world.producer()?;
    world.add_offsets(&producer, &group)?;
    let by = (first.generation, first.id.as_str(), Some("i"));
    let sent = world.send_offset(&producer, &group, &topic, 5, by)?;
    world.same("sent", sent, 82);
    world.end(&producer, false)
}

fn a_generation_of_a_group_that_is_not_there(world: &mut World) -> Result<()> {
    let (topic, group, producer) = (world.topic()?, world.fresh("g"), world.producer()?);
    world.add_offsets(&producer, &group)?;
    let sent = world.send_offset(&producer, &group, &topic, 5, (3, "somebody", None))?;
    world.same("sent", sent, 22);
    world.end(&producer, false)
}

fn without_a_member_offsets_are_unfenced(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (group, _member, producer) = of_a_member(world)?;
    let sent = world.send_offset(&producer, &group, &topic, 5, (-1, "", None))?;
    world.same("sent", sent, 0);
    world.end(&producer, true)?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, some(5));
    Ok(())
}

fn offsets_are_taken_while_the_group_rebalances(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (group, mut member, producer) = of_a_member(world)?;
    let mut other = world.member(&group)?;
    other.ask_for_id()?;
    other.send_join()?;
    world.until("it rebalances", |_| Ok(member.beat()? == 27))?;
    let by = (member.generation, member.id.as_str(), None);
    let sent = world.send_offset(&producer, &group, &topic, 5, by)?;
    world.same("sent", sent, 0);
    world.end(&producer, true)?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, some(5));
    member.send_join()?;
    member.joined()?;
    other.joined()?;
    let late = world.send_offset(
        &producer,
        &group,
        &topic,
        6,
        (member.generation - 1, &member.id, None),
    )?;
    world.same("outside of a transaction", late, 48);
    Ok(())
}

fn a_plain_commit_overtakes_a_pending_one(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let producer = pending(world, &group, &topic, 5)?;
    world.commit(&group, &topic, 9, "plain", (-1, ""))?;
    world.end(&producer, true)?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, (0, 9, "plain".into()));
    Ok(())
}

fn the_later_offset_of_two_transactions_wins(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let first = pending(world, &group, &topic, 5)?;
    let second = pending(world, &group, &topic, 7)?;
    world.end(&second, true)?;
    let unstable = world.committed(&group, &topic, true)?;
    world.same("one is open", unstable.0, 88);
    world.end(&first, true)?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("seen", seen, some(7));
    Ok(())
}

fn a_timed_out_transaction_frees_its_offsets(world: &mut World) -> Result<()> {
    let (topic, limit) = (world.topic()?, Duration::from_millis(500));
    let (group, id, codes) = race(world, limit, |world, clock| {
        let (group, id) = (world.fresh("g"), world.fresh("x"));
        let producer = world.init_with(&id, 500)?;
        clock.start();
        let added = world.add_offsets(&producer, &group)?;
        let sent = world.send_offset(&producer, &group, &topic, 5, (-1, "", None))?;
        let held = world.committed(&group, &topic, true)?.0;
        clock.stop();
        Ok((group, id, (added, sent, held)))
    })?;
    world.same("added, sent and held", codes, (0, 0, 88));
    world.until("it timed out", |world| {
        Ok(world.state_of(&id)?.1 == "CompleteAbort")
    })?;
    let seen = world.committed(&group, &topic, true)?;
    world.same("freed", seen, none());
    Ok(())
}

fn offsets_of_an_unknown_partition(world: &mut World) -> Result<()> {
    let (group, producer) = (world.fresh("g"), world.producer()?);
    let nowhere = world.fresh("nowhere");
    world.add_offsets(&producer, &group)?;
    // Not asked again: "unknown topic" is also said while a topic is being made.
    let sent = world.send_offset_once(&producer, &group, &nowhere, 5, (-1, "", None))?;
    world.same("sent", sent, 3);
    world.end(&producer, false)
}

fn metadata_comes_back(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let producer = pending(world, &group, &topic, 5)?;
    world.end(&producer, true)?;
    let seen = world.committed(&group, &topic, true)?.2;
    world.same("metadata", seen, "of a transaction".into());
    Ok(())
}

fn groups_without_outputs_commit_too(world: &mut World) -> Result<()> {
    let (topic, group) = (world.topic()?, world.fresh("g"));
    let producer = pending(world, &group, &topic, 5)?;
    let state = world.state_of(&producer.id)?;
    world.same("open", state, (0, "Ongoing".into()));
    world.end(&producer, true)?;
    let end = world.offset_at(&topic, -1, 0)?;
    world.same("nothing written", end, (0, 0, -1));
    Ok(())
}
