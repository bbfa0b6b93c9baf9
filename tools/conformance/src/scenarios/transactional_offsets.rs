//! Offsets that commit with a transaction.

use std::time::Duration;

use anyhow::Result;

use super::Script;
use super::fencing::race;
use crate::groups::Member;
use crate::place::{METADATA, Place};
use crate::transactions::Producer;
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("offsets_count_when_the_transaction_commits", |world| {
        let place = world.place()?;
        let producer = pending(world, &place, 5)?;
        world.same("before", place.committed(false)?, (0, -1, String::new()));
        world.end(&producer, true)?;
        place.holds("after", (0, 5, METADATA))
    }),
    ("offsets_of_an_aborted_transaction_never_count", |world| {
        let place = world.place()?;
        world.same("committed", place.commit(1, "kept")?, 0);
        let producer = pending(world, &place, 5)?;
        world.end(&producer, false)?;
        place.holds("after", (0, 1, "kept"))
    }),
    (
        "an_unstable_offset_is_an_error_of_a_stable_fetch",
        |world| {
            let place = world.place()?;
            place.commit(1, "kept")?;
            let producer = pending(world, &place, 5)?;
            place.holds("stable", (88, -1, ""))?;
            world.end(&producer, true)?;
            place.holds("after", (0, 5, METADATA))
        },
    ),
    ("an_unstable_offset_is_ignored_by_another_fetch", |world| {
        let place = world.place()?;
        place.commit(1, "kept")?;
        let producer = pending(world, &place, 5)?;
        world.same("seen", place.committed(false)?, (0, 1, "kept".into()));
        world.end(&producer, true)
    }),
    ("another_partition_stays_stable", |world| {
        let place = world.place()?;
        let other = world.place_of(&place.group)?;
        other.commit(3, "kept")?;
        let producer = pending(world, &place, 5)?;
        other.holds("other", (0, 3, "kept"))?;
        world.end(&producer, true)
    }),
    ("offsets_need_to_be_added_first", |world| {
        let (place, producer) = (world.place()?, world.producer()?);
        world.same("sent", place.send(&producer, 5)?, 48);
        world.add(&producer, &place.topic)?;
        world.same("within a transaction", place.send(&producer, 5)?, 48);
        world.end(&producer, false)
    }),
    ("offsets_of_another_group_need_to_be_added", |world| {
        let (own, producer) = (world.place()?, world.producer()?);
        // The coordinator adds the partition of Kafka's offsets topic, and the two groups are in different partitions.
        let other = world.place_in(&other_partition(&own.group), own.topic.clone());
        let added = world.add_offsets(&producer, &own.group)?;
        world.same("own group", (added, own.send(&producer, 5)?), (0, 0));
        world.same("another group", other.send(&producer, 5)?, 48);
        world.end(&producer, false)
    }),
    ("a_fenced_producer_sends_no_offsets", |world| {
        let place = world.place()?;
        let first = pending(world, &place, 5)?;
        world.init(&first.id)?;
        world.same("sent", place.send(&first, 6)?, 47);
        place.holds("seen", (0, -1, ""))
    }),
    ("an_old_generation_sends_no_offsets", |world| {
        let (place, member, producer) = of_a_member(world)?;
        let old = (member.generation - 1, &*member.id);
        let codes = (
            place.send_by(&producer, 5, old, None)?,
            place.send_by(&producer, 5, member.by(), None)?,
        );
        world.same("codes", codes, (22, 0));
        world.end(&producer, true)
    }),
    ("an_unknown_member_sends_no_offsets", |world| {
        let (place, member, producer) = of_a_member(world)?;
        let by = (member.generation, "unknown");
        world.same("sent", place.send_by(&producer, 5, by, None)?, 25);
        world.end(&producer, false)
    }),
    ("a_fenced_instance_sends_no_offsets", |world| {
        let first = world.static_leader("i")?;
        let mut second = world.static_member(&first.group, "i")?;
        second.join()?;
        let (place, producer) = (world.place_of(&first.group)?, world.producer()?);
        world.add_offsets(&producer, &first.group)?;
        let sent = place.send_by(&producer, 5, first.by(), Some("i"))?;
        world.same("sent", sent, 82);
        world.end(&producer, false)
    }),
    ("a_generation_of_an_unknown_group", |world| {
        let (place, producer) = (world.place()?, world.producer()?);
        world.add_offsets(&producer, &place.group)?;
        let sent = place.send_by(&producer, 5, (3, "unknown"), None)?;
        world.same("sent", sent, 22);
        world.end(&producer, false)
    }),
    ("without_a_member_offsets_are_unfenced", |world| {
        let (place, _member, producer) = of_a_member(world)?;
        world.same("sent", place.send(&producer, 5)?, 0);
        world.end(&producer, true)?;
        place.holds("seen", (0, 5, METADATA))
    }),
    ("offsets_are_accepted_while_the_group_rebalances", |world| {
        let (place, mut member, producer) = of_a_member(world)?;
        let mut other = world.member(&place.group)?;
        other.send_join()?;
        member.rebalances(world)?;
        world.same("sent", place.send_by(&producer, 5, member.by(), None)?, 0);
        world.end(&producer, true)?;
        place.holds("seen", (0, 5, METADATA))?;
        member.send_join()?;
        member.joined()?;
        other.joined()?;
        let old = (member.generation - 1, &*member.id);
        let late = place.send_by(&producer, 6, old, None);
        world.returns("outside of a transaction", late, 48)
    }),
    ("a_plain_commit_overtakes_a_pending_one", |world| {
        let place = world.place()?;
        let producer = pending(world, &place, 5)?;
        place.commit(9, "plain")?;
        world.end(&producer, true)?;
        place.holds("seen", (0, 9, "plain"))
    }),
    ("the_later_offset_of_two_transactions_wins", |world| {
        let place = world.place()?;
        let first = pending(world, &place, 5)?;
        let second = pending(world, &place, 7)?;
        world.end(&second, true)?;
        world.same("one is open", place.committed(true)?.0, 88);
        world.end(&first, true)?;
        place.holds("seen", (0, 7, METADATA))
    }),
    ("a_timed_out_transaction_frees_its_offsets", |world| {
        let (topic, limit) = (world.topic()?, Duration::from_millis(500));
        let (place, id, codes) = race(limit, |clock| {
            let id = world.fresh("x");
            let place = world.place_in(&world.fresh("g"), topic.clone());
            let producer = world.init_with(&id, 500)?;
            clock.start();
            let added = world.add_offsets(&producer, &place.group)?;
            let sent = place.send(&producer, 5)?;
            let held = place.committed(true)?.0;
            clock.stop();
            Ok((place, id, (added, sent, held)))
        })?;
        world.same("added, sent and held", codes, (0, 0, 88));
        world.becomes(&id, "CompleteAbort")?;
        place.holds("freed", (0, -1, ""))
    }),
    ("offsets_of_an_unknown_partition", |world| {
        let nowhere = world.place_in(&world.fresh("g"), world.fresh("nowhere"));
        let producer = world.producer()?;
        world.add_offsets(&producer, &nowhere.group)?;
        // Sent once: a broker returns "unknown topic" also while it creates a topic.
        world.same("sent", nowhere.send_once(&producer, 5, (-1, ""), None)?, 3);
        world.end(&producer, false)
    }),
    ("metadata_comes_back", |world| {
        let place = world.place()?;
        let producer = pending(world, &place, 5)?;
        world.end(&producer, true)?;
        world.same("metadata", place.committed(true)?.2, METADATA.into());
        Ok(())
    }),
    ("groups_without_outputs_commit_too", |world| {
        let place = world.place()?;
        let producer = pending(world, &place, 5)?;
        world.same("open", world.state_of(&producer.id)?, (0, "Ongoing".into()));
        world.end(&producer, true)?;
        let end = world.offset_at(&place.topic, -1, 0);
        world.returns("nothing written", end, (0, 0, -1))
    }),
];

/// Opens a transaction with an offset of a group without members.
fn pending(world: &World, place: &Place<'_>, offset: i64) -> Result<Producer> {
    let producer = world.producer()?;
    world.same("added", world.add_offsets(&producer, &place.group)?, 0);
    world.same("sent", place.send(&producer, offset)?, 0);
    Ok(producer)
}

/// Returns the partition of a group in Kafka's offsets topic, which has four partitions on the brokers of tests.
fn offsets_partition(group: &str) -> i32 {
    let hash = (group.bytes()).fold(0_i32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(i32::from(byte))
    });
    hash.checked_abs().unwrap_or(0) % 4
}

/// Returns a group whose offsets are in another partition.
fn other_partition(group: &str) -> String {
    let names = (0..).map(|n| format!("{group}-{n}"));
    let mut others = names.filter(|name| offsets_partition(name) != offsets_partition(group));
    others
        .next()
        .expect("digits differ by one, and so do the hashes")
}

/// Returns a stable group of one, and a producer that may commit its offsets.
fn of_a_member(world: &World) -> Result<(Place<'_>, Member, Producer)> {
    let (member, producer) = (world.leader()?, world.producer()?);
    world.add_offsets(&producer, &member.group)?;
    Ok((world.place_of(&member.group)?, member, producer))
}
