//! Transactions: visibility of records, and refused requests.

use anyhow::Result;
use kafka_protocol::messages::ListTransactionsRequest;
use kafka_wire::requests::text;

use super::Script;
use super::idempotence::describe;
use super::log::delete;
use crate::reading::{Batch, owned};
use crate::transactions::Producer;
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("an_id_begins_at_epoch_zero", |world| {
        let first = world.producer()?;
        let other = world.producer()?;
        world.same("epochs", (first.epoch, other.epoch), (0, 0));
        world.same("ids differ", first.producer_id != other.producer_id, true);
        let again = world.init(&first.id)?;
        let seen = (again.producer_id == first.producer_id, again.epoch);
        world.same("again", seen, (true, 1));
        Ok(())
    }),
    ("a_committed_transaction_is_read", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        let at = world.transaction(&producer, &topic, 0, &["a=1", "b=1"], true)?;
        world.same("offset", at, 0);
        let expected = [(0, "a=1"), (1, "b=1"), (2, "commit")];
        let seen = world.reads(&topic, &expected)?;
        let marks = (seen.stable, seen.high, seen.aborted);
        world.same("marks", marks, (3, 3, vec![]));
        Ok(())
    }),
    ("an_aborted_transaction_is_listed", |world| {
        let (topic, producer) = world.ended(false)?;
        let seen = world.reads(&topic, &[(0, "a=1"), (1, "abort")])?;
        world.same("aborted", seen.aborted, vec![(producer.producer_id, 0)]);
        Ok(())
    }),
    (
        "an_open_transaction_holds_the_last_stable_offset",
        |world| {
            let topic = world.topic()?;
            world.put(&topic, &["before=1"])?;
            let producer = world.open_in(&topic, &["a=1"])?;
            let (all, stable) = (world.read(&topic, 0)?, world.read_stable(&topic, 0)?);
            world.same("all", all.records, owned(&[(0, "before=1"), (1, "a=1")]));
            world.same("stable", stable.records, owned(&[(0, "before=1")]));
            world.same("marks", (stable.stable, stable.high), (1, 2));
            let behind = world.read_stable(&topic, 2)?;
            world.same("behind", (behind.error, behind.bytes.len()), (0, 0));
            world.end(&producer, true)
        },
    ),
    ("plain_records_behind_an_open_transaction_wait", |world| {
        let (topic, producer) = world.open()?;
        world.put(&topic, &["plain=1"])?;
        world.same("before", world.read_stable(&topic, 0)?.records, vec![]);
        world.end(&producer, false)?;
        let after = world.read_stable(&topic, 0)?;
        let expected = [(0, "a=1"), (1, "plain=1"), (2, "abort")];
        world.same("after", after.records, owned(&expected));
        world.same("aborted", after.aborted, vec![(producer.producer_id, 0)]);
        Ok(())
    }),
    ("two_open_transactions_hold_the_first_offset", |world| {
        let (topic, first) = world.open()?;
        let second = world.open_in(&topic, &["b=1"])?;
        ends(world, "stable", &topic, (0, 2))?;
        world.end(&second, true)?;
        ends(world, "after the second", &topic, (0, 3))?;
        world.end(&first, true)?;
        ends(world, "after both", &topic, (4, 4))
    }),
    (
        "the_stable_end_moves_to_the_next_open_transaction",
        |world| {
            let (topic, first) = world.open()?;
            let second = world.open_in(&topic, &["b=1"])?;
            world.end(&first, true)?;
            let seen = world.read_stable(&topic, 0)?;
            world.same("stable", (seen.stable, seen.high), (1, 3));
            world.same("records", seen.records, owned(&[(0, "a=1")]));
            world.end(&second, true)
        },
    ),
    ("an_end_for_each_isolation", |world| {
        let topic = world.topic()?;
        let producer = world.open_in(&topic, &["a=1", "b=1"])?;
        let ends = at_each_isolation(world, &topic, -1)?;
        world.same("open", ends, [(0, 2, -1), (0, 0, -1)]);
        world.end(&producer, true)?;
        let ends = at_each_isolation(world, &topic, -1);
        world.returns("ended", ends, [(0, 3, -1); 2])
    }),
    ("by_time_within_an_open_transaction", |world| {
        let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
        world.produce(&topic, &Batch::at(&[100]))?;
        let producer = world.producer()?;
        world.add(&producer, &topic)?;
        let batch = Batch::at(&[1_000]).by(producer.producer_id, 0, 0);
        let batch = batch.in_transaction();
        world.produce_to(&topic, 0, &batch, Some(&producer.id))?;
        let seen = at_each_isolation(world, &topic, 101)?;
        world.same("by time", seen, [(0, 1, 1_000), (0, -1, -1)]);
        world.end(&producer, true)
    }),
    ("aborted_transactions_of_one_producer_in_a_row", |world| {
        let (topic, producer) = world.ended(false)?;
        world.transaction(&producer, &topic, 1, &["b=1"], true)?;
        world.transaction(&producer, &topic, 2, &["c=1"], false)?;
        let expected = [
            (0, "a=1"),
            (1, "abort"),
            (2, "b=1"),
            (3, "commit"),
            (4, "c=1"),
            (5, "abort"),
        ];
        let seen = world.reads(&topic, &expected)?;
        let id = producer.producer_id;
        world.same("aborted", seen.aborted, vec![(id, 0), (id, 4)]);
        Ok(())
    }),
    ("an_aborted_list_begins_where_it_is_read", |world| {
        let (topic, producer) = world.ended(false)?;
        world.transaction(&producer, &topic, 1, &["b=1"], false)?;
        let id = producer.producer_id;
        for (from, expected) in [
            (0, vec![(id, 0), (id, 2)]),
            (1, vec![(id, 0), (id, 2)]),
            (2, vec![(id, 2)]),
        ] {
            let seen = world.read_stable(&topic, from)?;
            world.same(&format!("from {from}"), seen.aborted, expected);
        }
        Ok(())
    }),
    ("nothing_is_listed_for_uncommitted_reads", |world| {
        let (topic, _) = world.ended(false)?;
        let seen = world.read(&topic, 0)?;
        world.same("aborted", seen.aborted, vec![]);
        world.same("records", seen.records, owned(&[(0, "a=1"), (1, "abort")]));
        Ok(())
    }),
    ("markers_take_an_offset", |world| {
        let (topic, _) = world.ended(true)?;
        world.same("next", world.put(&topic, &["plain=1"])?, (0, 2));
        let seen = world.read_stable(&topic, 1)?.records;
        let expected = [(1, "commit"), (2, "plain=1")];
        world.same("from the marker", seen, owned(&expected));
        Ok(())
    }),
    ("every_partition_gets_its_marker", |world| {
        let (topic, producer) = (world.topic_with(2, &[])?, world.producer()?);
        let codes = world.add_once(&producer, &[(&topic, 0), (&topic, 1)], 0)?;
        world.same("added", codes, vec![0, 0]);
        for partition in [0, 1] {
            let batch = producer.batch(0, &["a=1"]);
            let answer = world.produce_to(&topic, partition, &batch, Some(&producer.id))?;
            world.same("produced", answer, (0, 0));
        }
        world.end(&producer, true)?;
        for partition in [0, 1] {
            let seen = world.fetch(&topic, partition, 0, 1, 1_000)?;
            world.same("records", seen.records, owned(&[(0, "a=1"), (1, "commit")]));
        }
        Ok(())
    }),
    ("a_partition_without_records_gets_a_marker", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        world.add(&producer, &topic)?;
        world.end(&producer, false)?;
        let seen = world.reads(&topic, &[(0, "abort")])?;
        world.same("aborted", seen.aborted, vec![]);
        Ok(())
    }),
    ("ending_without_a_partition_is_refused", |world| {
        let producer = world.producer()?;
        let codes = (
            world.end_once(&producer, true, 1)?,
            world.end_once(&producer, false, 1)?,
        );
        world.same("codes", codes, (48, 48));
        Ok(())
    }),
    ("a_second_commit_succeeds", |world| {
        let (topic, producer) = world.ended(true)?;
        world.same("again", world.end_once(&producer, true, 1)?, 0);
        world.returns("one marker", world.offset_at(&topic, -1, 0), (0, 2, -1))
    }),
    ("a_second_abort_succeeds", |world| {
        let (_, producer) = world.ended(false)?;
        world.returns("again", world.end_once(&producer, false, 1), 0)
    }),
    ("aborting_a_committed_transaction_is_refused", |world| {
        let (_, producer) = world.ended(true)?;
        world.returns("code", world.end_once(&producer, false, 1), 48)
    }),
    ("committing_an_aborted_transaction_is_refused", |world| {
        let (_, producer) = world.ended(false)?;
        world.returns("code", world.end_once(&producer, true, 1), 48)
    }),
    ("an_unknown_id_cannot_add_or_end", |world| {
        let topic = world.topic()?;
        let known = world.producer()?;
        let unknown = Producer {
            id: world.fresh("unknown"),
            ..known
        };
        world.returns("codes", world.add_and_end(&unknown, &topic), (49, 49))
    }),
    ("another_producers_id_is_refused", |world| {
        let topic = world.topic()?;
        let (one, two) = (world.producer()?, world.producer()?);
        let mixed = Producer {
            producer_id: two.producer_id,
            ..one
        };
        world.returns("codes", world.add_and_end(&mixed, &topic), (49, 49))
    }),
    ("adding_an_unknown_partition", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        let nowhere = world.fresh("nowhere");
        let codes = world.add_once(&producer, &[(&nowhere, 0), (&topic, 5)], 0);
        world.returns("codes", codes, vec![3, 3])
    }),
    ("adding_some_unknown_partitions_adds_none", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        let nowhere = world.fresh("nowhere");
        let codes = world.add_once(&producer, &[(&topic, 0), (&nowhere, 0)], 0)?;
        world.same("codes", codes, vec![55, 3]);
        world.returns("state", world.state_of(&producer.id), (0, "Empty".into()))
    }),
    ("adding_twice_is_the_same", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        let codes = (world.add(&producer, &topic)?, world.add(&producer, &topic)?);
        world.same("codes", codes, (0, 0));
        world.end(&producer, true)?;
        world.returns("one marker", world.offset_at(&topic, -1, 0), (0, 1, -1))
    }),
    ("producing_without_adding_is_refused", |world| {
        let (topic, other, producer) = (world.topic()?, world.topic()?, world.producer()?);
        world.add(&producer, &other)?;
        let answer = world.write(&producer, &topic, 0, &["a=1"])?;
        world.same("answer", answer, (48, -1));
        world.end(&producer, false)
    }),
    ("producing_to_another_partition_is_refused", |world| {
        let (topic, producer) = (world.topic_with(2, &[])?, world.producer()?);
        world.add(&producer, &topic)?;
        let batch = producer.batch(0, &["a=1"]);
        let answer = world.produce_to(&topic, 1, &batch, Some(&producer.id))?;
        world.same("answer", answer, (48, -1));
        world.end(&producer, false)
    }),
    (
        "producing_before_the_first_transaction_is_refused",
        |world| {
            let (topic, producer) = (world.topic()?, world.producer()?);
            let answer = world.write(&producer, &topic, 0, &["a=1"]);
            world.returns("answer", answer, (48, -1))
        },
    ),
    ("producing_behind_the_end_is_refused", |world| {
        let (topic, producer) = world.ended(true)?;
        let answer = world.write(&producer, &topic, 1, &["late=1"])?;
        world.same("answer", answer, (48, -1));
        world.returns("end", world.offset_at(&topic, -1, 1), (0, 2, -1))
    }),
    ("the_second_batch_needs_no_verification", |world| {
        let (topic, producer) = world.open()?;
        let answer = world.write(&producer, &topic, 1, &["b=1"])?;
        world.same("answer", answer, (0, 1));
        world.end(&producer, true)
    }),
    ("a_plain_batch_within_a_transaction_is_refused", |world| {
        let (topic, producer) = world.open()?;
        let plain = Batch::of(&["b=1"]).by(producer.producer_id, 0, 1);
        world.same("answer", world.produce(&topic, &plain)?, (48, -1));
        world.end(&producer, false)
    }),
    ("a_transactional_batch_without_an_id", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        world.add(&producer, &topic)?;
        let batch = producer.batch(0, &["a=1"]);
        world.same("answer", world.produce(&topic, &batch)?, (53, -1));
        world.end(&producer, false)
    }),
    ("a_duplicate_within_a_transaction", |world| {
        let (topic, producer) = world.open()?;
        let again = world.write(&producer, &topic, 0, &["a=1"])?;
        world.same("again", again, (0, 0));
        world.end(&producer, true)?;
        world.reads(&topic, &[(0, "a=1"), (1, "commit")])?;
        Ok(())
    }),
    ("sequences_go_on_in_the_next_transaction", |world| {
        let (topic, producer) = world.ended(true)?;
        world.add(&producer, &topic)?;
        let gap = world.write(&producer, &topic, 2, &["b=1"])?;
        let next = world.write(&producer, &topic, 1, &["b=1"])?;
        world.same("answers", (gap, next), ((45, -1), (0, 2)));
        world.end(&producer, true)
    }),
    ("a_transaction_is_described", |world| {
        let (topic, producer) = (world.topic()?, world.producer()?);
        world.same("fresh", world.state_of(&producer.id)?, (0, "Empty".into()));
        world.add(&producer, &topic)?;
        world.same("open", world.state_of(&producer.id)?, (0, "Ongoing".into()));
        world.end(&producer, true)?;
        let ended = world.state_of(&producer.id)?;
        world.same("ended", ended, (0, "CompleteCommit".into()));
        let again = world.init(&producer.id)?;
        world.returns("again", world.state_of(&again.id), (0, "Empty".into()))
    }),
    ("an_unknown_transaction_is_an_error", |world| {
        world.producer()?;
        let id = world.fresh("unknown");
        world.returns("state", world.state_of(&id), (105, String::new()))
    }),
    ("an_empty_id_is_refused", |world| {
        let answer = world.init_once(Some(""), 60_000, (-1, -1), 4);
        world.returns("answer", answer, (42, -1, -1))
    }),
    ("a_timeout_of_zero_is_refused", |world| {
        let id = world.fresh("x");
        let answer = world.init_once(Some(&id), 0, (-1, -1), 4);
        world.returns("answer", answer, (50, -1, -1))
    }),
    ("a_timeout_above_the_limit_is_refused", |world| {
        let id = world.fresh("x");
        let answer = world.init_once(Some(&id), 900_001, (-1, -1), 4);
        world.returns("answer", answer, (50, -1, -1))
    }),
    ("open_transactions_are_listed", |world| {
        let (_, producer) = world.open()?;
        let request = ListTransactionsRequest::default()
            .with_state_filters(vec![text("Ongoing")])
            .with_producer_id_filters(vec![producer.producer_id.into()])
            .with_duration_filter(-1);
        let answer = world.call(0, &request)?;
        let states = answer.transaction_states.iter();
        let ids: Vec<_> = states.map(|it| it.transactional_id.as_str()).collect();
        world.same("open", (answer.error_code, ids), (0, vec![&*producer.id]));
        world.end(&producer, true)?;
        let answer = world.call(0, &request)?;
        world.same("ended", answer.transaction_states.len(), 0);
        Ok(())
    }),
    ("an_unknown_state_filter_is_returned", |world| {
        let request = ListTransactionsRequest::default()
            .with_state_filters(vec![text("Dreaming")])
            .with_duration_filter(-1);
        let answer = world.call(0, &request)?;
        let unknown = answer.unknown_state_filters;
        world.same("unknown", unknown, vec![text("Dreaming")]);
        world.same("states", answer.transaction_states.len(), 0);
        Ok(())
    }),
    ("an_open_transaction_is_seen_at_its_partition", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["plain=1"])?;
        let producer = world.open_in(&topic, &["a=1", "b=1"])?;
        world.same("open", describe(world, &topic, 0)?, (0, vec![(0, 1, 1)]));
        world.end(&producer, true)?;
        world.returns("ended", describe(world, &topic, 0), (0, vec![(0, 1, -1)]))
    }),
    (
        "the_start_of_a_log_moves_over_an_open_transaction",
        |world| {
            let (topic, producer) = world.open()?;
            world.put(&topic, &["plain=1"])?;
            world.same("deleted", delete(world, &topic, 1)?, (0, 1));
            let seen = world.read_stable(&topic, 1)?;
            world.same("marks", (seen.start, seen.stable, seen.high), (1, 1, 2));
            world.end(&producer, true)?;
            let seen = world.read_stable(&topic, 1)?;
            world.same("after", (seen.start, seen.stable, seen.high), (1, 3, 3));
            Ok(())
        },
    ),
];

/// Sends ListOffsets with each isolation level: read uncommitted, then read committed.
fn at_each_isolation(world: &World, topic: &str, time: i64) -> Result<[(i16, i64, i64); 2]> {
    Ok([
        world.offset_at(topic, time, 0)?,
        world.offset_at(topic, time, 1)?,
    ])
}

/// Compares the last stable offset and the high watermark.
fn ends(world: &World, what: &str, topic: &str, expected: (i64, i64)) -> Result<()> {
    let seen = world.read_stable(topic, 0)?;
    world.same(what, (seen.stable, seen.high), expected);
    Ok(())
}
