//! Transactions: what becomes visible when, and what is refused.

use anyhow::Result;
use kafka_protocol::messages::ListTransactionsRequest;
use kafka_wire::requests::text;

use super::idempotence::describe;
use super::log::{delete, owned};
use super::scenarios;
use crate::reading::Batch;
use crate::transactions::Producer;
use crate::world::World;

scenarios! { "transactions":
    an_id_begins_at_epoch_zero,
    a_committed_transaction_is_read,
    an_aborted_transaction_is_listed,
    an_open_transaction_holds_the_last_stable_offset,
    plain_records_behind_an_open_transaction_wait,
    two_open_transactions_hold_the_first_offset,
    the_stable_end_moves_to_the_next_open_transaction,
    an_end_for_each_isolation,
    by_time_within_an_open_transaction,
    aborted_transactions_of_one_producer_in_a_row,
    an_aborted_list_begins_where_it_is_read,
    nothing_is_listed_for_uncommitted_reads,
    markers_take_an_offset,
    every_partition_gets_its_marker,
    a_partition_without_records_gets_a_marker,
    ending_without_a_partition_is_refused,
    committing_twice_is_answered_twice,
    aborting_twice_is_answered_twice,
    aborting_what_was_committed_is_refused,
    committing_what_was_aborted_is_refused,
    an_unknown_id_cannot_add_or_end,
    another_producers_id_is_refused,
    adding_an_unknown_partition,
    adding_some_unknown_partitions_adds_none,
    adding_twice_is_the_same,
    producing_without_adding_is_refused,
    producing_to_another_partition_is_refused,
    producing_before_the_first_transaction_is_refused,
    producing_behind_the_end_is_refused,
    the_second_batch_needs_no_verification,
    a_plain_batch_within_a_transaction_is_refused,
    a_transactional_batch_without_an_id,
    a_duplicate_within_a_transaction,
    sequences_go_on_in_the_next_transaction,
    a_transaction_is_described,
    an_unknown_transaction_is_named,
    an_empty_id_is_refused,
    a_timeout_of_zero_is_refused,
    a_timeout_above_the_limit_is_refused,
    open_transactions_are_listed,
    an_unknown_state_filter_is_named,
    an_open_transaction_is_seen_at_its_partition,
    the_start_of_a_log_moves_over_an_open_transaction,
}

fn an_id_begins_at_epoch_zero(world: &mut World) -> Result<()> {
    let first = world.producer()?;
    let other = world.producer()?;
    world.same("epochs", (first.epoch, other.epoch), (0, 0));
    world.same("ids differ", first.producer_id != other.producer_id, true);
    let again = world.init(&first.id)?;
    let seen = (again.producer_id == first.producer_id, again.epoch);
    world.same("again", seen, (true, 1));
    Ok(())
}

fn a_committed_transaction_is_read(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let at = world.transaction(&producer, &topic, 0, &["a=1", "b=1"], true)?;
    world.same("offset", at, 0);
    let seen = world.read_stable(&topic, 0)?;
    let expected = [(0, "a=1"), (1, "b=1"), (2, "commit")];
    world.same("records", seen.records, owned(&expected));
    world.same(
        "marks",
        (seen.stable, seen.high, seen.aborted),
        (3, 3, vec![]),
    );
    Ok(())
}

fn an_aborted_transaction_is_listed(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "abort")]));
    world.same("aborted", seen.aborted, vec![(producer.producer_id, 0)]);
    Ok(())
}

fn open(world: &mut World, topic: &str, records: &[&str]) -> Result<Producer> {
    let producer = world.producer()?;
    world.add(&producer, topic)?;
    world.write(&producer, topic, 0, records)?;
    Ok(producer)
}

fn an_open_transaction_holds_the_last_stable_offset(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["before=1"]))?;
    let producer = open(world, &topic, &["a=1"])?;
    let (all, stable) = (world.read(&topic, 0)?, world.read_stable(&topic, 0)?);
    world.same("all", all.records, owned(&[(0, "before=1"), (1, "a=1")]));
    world.same("stable", stable.records, owned(&[(0, "before=1")]));
    world.same("marks", (stable.stable, stable.high), (1, 2));
    let behind = world.read_stable(&topic, 2)?;
    world.same("behind", (behind.error, behind.bytes.len()), (0, 0));
    world.end(&producer, true)
}

fn plain_records_behind_an_open_transaction_wait(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    world.produce(&topic, &Batch::of(&["plain=1"]))?;
    let before = world.read_stable(&topic, 0)?;
    world.same("before", before.records, vec![]);
    world.end(&producer, false)?;
    let after = world.read_stable(&topic, 0)?;
    let expected = [(0, "a=1"), (1, "plain=1"), (2, "abort")];
    world.same("after", after.records, owned(&expected));
    world.same("aborted", after.aborted, vec![(producer.producer_id, 0)]);
    Ok(())
}

fn two_open_transactions_hold_the_first_offset(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic, &["a=1"])?;
    let second = open(world, &topic, &["b=1"])?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("stable", (seen.stable, seen.high), (0, 2));
    world.end(&second, true)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("after the second", (seen.stable, seen.high), (0, 3));
    world.end(&first, true)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("after both", (seen.stable, seen.high), (4, 4));
    Ok(())
}

fn the_stable_end_moves_to_the_next_open_transaction(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = open(world, &topic, &["a=1"])?;
    let second = open(world, &topic, &["b=1"])?;
    world.end(&first, true)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("stable", (seen.stable, seen.high), (1, 3));
    world.same("records", seen.records, owned(&[(0, "a=1")]));
    world.end(&second, true)
}

fn an_end_for_each_isolation(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1", "b=1"])?;
    let ends = (
        world.offset_at(&topic, -1, 0)?,
        world.offset_at(&topic, -1, 1)?,
    );
    world.same("open", ends, ((0, 2, -1), (0, 0, -1)));
    world.end(&producer, true)?;
    let ends = (
        world.offset_at(&topic, -1, 0)?,
        world.offset_at(&topic, -1, 1)?,
    );
    world.same("ended", ends, ((0, 3, -1), (0, 3, -1)));
    Ok(())
}

fn by_time_within_an_open_transaction(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
    world.produce(&topic, &Batch::at(&[100]))?;
    let producer = world.producer()?;
    world.add(&producer, &topic)?;
    let batch = Batch::at(&[1_000]).by(producer.producer_id, 0, 0);
    let batch = batch.in_transaction();
    world.produce_to(&topic, 0, &batch, Some(&producer.id))?;
    let seen = (
        world.offset_at(&topic, 101, 0)?,
        world.offset_at(&topic, 101, 1)?,
    );
    world.same("by time", seen, ((0, 1, 1_000), (0, -1, -1)));
    world.end(&producer, true)
}

fn aborted_transactions_of_one_producer_in_a_row(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
    world.transaction(&producer, &topic, 1, &["b=1"], true)?;
    world.transaction(&producer, &topic, 2, &["c=1"], false)?;
    let seen = world.read_stable(&topic, 0)?;
    let expected = [
        (0, "a=1"),
        (1, "abort"),
        (2, "b=1"),
        (3, "commit"),
        (4, "c=1"),
        (5, "abort"),
    ];
    world.same("records", seen.records, owned(&expected));
    let id = producer.producer_id;
    world.same("aborted", seen.aborted, vec![(id, 0), (id, 4)]);
    Ok(())
}

fn an_aborted_list_begins_where_it_is_read(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
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
}

fn nothing_is_listed_for_uncommitted_reads(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
    let seen = world.read(&topic, 0)?;
    world.same("aborted", seen.aborted, vec![]);
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "abort")]));
    Ok(())
}

fn markers_take_an_offset(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], true)?;
    let next = world.produce(&topic, &Batch::of(&["plain=1"]))?;
    world.same("next", next, (0, 2));
    let from_marker = world.read_stable(&topic, 1)?;
    world.same(
        "from the marker",
        from_marker.records,
        owned(&[(1, "commit"), (2, "plain=1")]),
    );
    Ok(())
}

fn every_partition_gets_its_marker(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic_with(2, &[])?, world.producer()?);
    let codes = world.add_once(&producer, &[(&topic, 0), (&topic, 1)], 0)?;
    world.same("added", codes, vec![0, 0]);
    for partition in [0, 1] {
        let batch = Batch::of(&["a=1"])
            .by(producer.producer_id, 0, 0)
            .in_transaction();
        let answer = world.produce_to(&topic, partition, &batch, Some(&producer.id))?;
        world.same("produced", answer, (0, 0));
    }
    world.end(&producer, true)?;
    for partition in [0, 1] {
        let seen = world.fetch(&topic, partition, 0, 1, 1_000)?;
        world.same("records", seen.records, owned(&[(0, "a=1"), (1, "commit")]));
    }
    Ok(())
}

fn a_partition_without_records_gets_a_marker(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.add(&producer, &topic)?;
    world.end(&producer, false)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "abort")]));
    world.same("aborted", seen.aborted, vec![]);
    Ok(())
}

fn ending_without_a_partition_is_refused(world: &mut World) -> Result<()> {
    let producer = world.producer()?;
    let codes = (
        world.end_once(&producer, true, 1)?,
        world.end_once(&producer, false, 1)?,
    );
    world.same("codes", codes, (48, 48));
    Ok(())
}

fn committing_twice_is_answered_twice(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], true)?;
    let again = world.end_once(&producer, true, 1)?;
    world.same("again", again, 0);
    let end = world.offset_at(&topic, -1, 0)?;
    world.same("one marker", end, (0, 2, -1));
    Ok(())
}

fn aborting_twice_is_answered_twice(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
    let again = world.end_once(&producer, false, 1)?;
    world.same("again", again, 0);
    Ok(())
}

fn aborting_what_was_committed_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], true)?;
    let code = world.end_once(&producer, false, 1)?;
    world.same("code", code, 48);
    Ok(())
}

fn committing_what_was_aborted_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], false)?;
    let code = world.end_once(&producer, true, 1)?;
    world.same("code", code, 48);
    Ok(())
}

fn an_unknown_id_cannot_add_or_end(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let known = world.producer()?;
    let nobody = Producer {
        id: world.fresh("nobody"),
        ..known
    };
    let codes = (
        world.add(&nobody, &topic)?,
        world.end_once(&nobody, true, 1)?,
    );
    world.same("codes", codes, (49, 49));
    Ok(())
}

fn another_producers_id_is_refused(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (one, two) = (world.producer()?, world.producer()?);
    let mixed = Producer {
        producer_id: two.producer_id,
        ..one
    };
    let codes = (world.add(&mixed, &topic)?, world.end_once(&mixed, true, 1)?);
    world.same("codes", codes, (49, 49));
    Ok(())
}

fn adding_an_unknown_partition(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let nowhere = world.fresh("nowhere");
    let codes = world.add_once(&producer, &[(&nowhere, 0), (&topic, 5)], 0)?;
    world.same("codes", codes, vec![3, 3]);
    Ok(())
}

fn adding_some_unknown_partitions_adds_none(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let nowhere = world.fresh("nowhere");
    let codes = world.add_once(&producer, &[(&topic, 0), (&nowhere, 0)], 0)?;
    world.same("codes", codes, vec![55, 3]);
    let state = world.state_of(&producer.id)?;
    world.same("state", state, (0, "Empty".into()));
    Ok(())
}

fn adding_twice_is_the_same(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let codes = (world.add(&producer, &topic)?, world.add(&producer, &topic)?);
    world.same("codes", codes, (0, 0));
    world.end(&producer, true)?;
    let end = world.offset_at(&topic, -1, 0)?;
    world.same("one marker", end, (0, 1, -1));
    Ok(())
}

fn producing_without_adding_is_refused(world: &mut World) -> Result<()> {
    let (topic, other, producer) = (world.topic()?, world.topic()?, world.producer()?);
    world.add(&producer, &other)?;
    let answer = world.write(&producer, &topic, 0, &["a=1"])?;
    world.same("answer", answer, (48, -1));
    world.end(&producer, false)
}

fn producing_to_another_partition_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic_with(2, &[])?, world.producer()?);
    world.add(&producer, &topic)?;
    let batch = Batch::of(&["a=1"])
        .by(producer.producer_id, 0, 0)
        .in_transaction();
    let answer = world.produce_to(&topic, 1, &batch, Some(&producer.id))?;
    world.same("answer", answer, (48, -1));
    world.end(&producer, false)
}

fn producing_before_the_first_transaction_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let answer = world.write(&producer, &topic, 0, &["a=1"])?;
    world.same("answer", answer, (48, -1));
    Ok(())
}

fn producing_behind_the_end_is_refused(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], true)?;
    let answer = world.write(&producer, &topic, 1, &["late=1"])?;
    world.same("answer", answer, (48, -1));
    let end = world.offset_at(&topic, -1, 1)?;
    world.same("end", end, (0, 2, -1));
    Ok(())
}

fn the_second_batch_needs_no_verification(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    let batch = Batch::of(&["b=1"])
        .by(producer.producer_id, 0, 1)
        .in_transaction();
    let answer = world.produce_to(&topic, 0, &batch, Some(&producer.id))?;
    world.same("answer", answer, (0, 1));
    world.end(&producer, true)
}

fn a_plain_batch_within_a_transaction_is_refused(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    let plain = Batch::of(&["b=1"]).by(producer.producer_id, 0, 1);
    let answer = world.produce(&topic, &plain)?;
    world.same("answer", answer, (48, -1));
    world.end(&producer, false)
}

fn a_transactional_batch_without_an_id(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.add(&producer, &topic)?;
    let batch = Batch::of(&["a=1"])
        .by(producer.producer_id, 0, 0)
        .in_transaction();
    let answer = world.produce(&topic, &batch)?;
    world.same("answer", answer, (53, -1));
    world.end(&producer, false)
}

fn a_duplicate_within_a_transaction(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    let again = world.write(&producer, &topic, 0, &["a=1"])?;
    world.same("again", again, (0, 0));
    world.end(&producer, true)?;
    let seen = world.read_stable(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "commit")]));
    Ok(())
}

fn sequences_go_on_in_the_next_transaction(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    world.transaction(&producer, &topic, 0, &["a=1"], true)?;
    world.add(&producer, &topic)?;
    let gap = world.write(&producer, &topic, 2, &["b=1"])?;
    let next = world.write(&producer, &topic, 1, &["b=1"])?;
    world.same("answers", (gap, next), ((45, -1), (0, 2)));
    world.end(&producer, true)
}

fn a_transaction_is_described(world: &mut World) -> Result<()> {
    let (topic, producer) = (world.topic()?, world.producer()?);
    let empty = world.state_of(&producer.id)?;
    world.same("fresh", empty, (0, "Empty".into()));
    world.add(&producer, &topic)?;
    let open = world.state_of(&producer.id)?;
    world.same("open", open, (0, "Ongoing".into()));
    world.end(&producer, true)?;
    let ended = world.state_of(&producer.id)?;
    world.same("ended", ended, (0, "CompleteCommit".into()));
    let again = world.init(&producer.id)?;
    let fresh = world.state_of(&again.id)?;
    world.same("again", fresh, (0, "Empty".into()));
    Ok(())
}

fn an_unknown_transaction_is_named(world: &mut World) -> Result<()> {
    world.producer()?;
    let id = world.fresh("nobody");
    let state = world.state_of(&id)?;
    world.same("state", state, (105, String::new()));
    Ok(())
}

fn an_empty_id_is_refused(world: &mut World) -> Result<()> {
    let answer = world.init_once(Some(""), 60_000, (-1, -1), 4)?;
    world.same("answer", answer, (42, -1, -1));
    Ok(())
}

fn a_timeout_of_zero_is_refused(world: &mut World) -> Result<()> {
    let id = world.fresh("x");
    let answer = world.init_once(Some(&id), 0, (-1, -1), 4)?;
    world.same("answer", answer, (50, -1, -1));
    Ok(())
}

fn a_timeout_above_the_limit_is_refused(world: &mut World) -> Result<()> {
    let id = world.fresh("x");
    let answer = world.init_once(Some(&id), 900_001, (-1, -1), 4)?;
    world.same("answer", answer, (50, -1, -1));
    Ok(())
}

fn open_transactions_are_listed(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    let request = ListTransactionsRequest::default()
        .with_state_filters(vec![text("Ongoing")])
        .with_producer_id_filters(vec![producer.producer_id.into()])
        .with_duration_filter(-1);
    let answer = world.call(0, &request)?;
    let ids: Vec<String> = answer
        .transaction_states
        .iter()
        .map(|it| it.transactional_id.to_string())
        .collect();
    world.same(
        "open",
        (answer.error_code, ids),
        (0, vec![producer.id.clone()]),
    );
    world.end(&producer, true)?;
    let answer = world.call(0, &request)?;
    world.same("ended", answer.transaction_states.len(), 0);
    Ok(())
}

fn an_unknown_state_filter_is_named(world: &mut World) -> Result<()> {
    let request = ListTransactionsRequest::default()
        .with_state_filters(vec![text("Dreaming")])
        .with_duration_filter(-1);
    let answer = world.call(0, &request)?;
    let unknown: Vec<String> = answer
        .unknown_state_filters
        .iter()
        .map(|it| it.to_string())
        .collect();
    world.same("unknown", unknown, vec!["Dreaming".into()]);
    world.same("states", answer.transaction_states.len(), 0);
    Ok(())
}

fn an_open_transaction_is_seen_at_its_partition(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["plain=1"]))?;
    let producer = open(world, &topic, &["a=1", "b=1"])?;
    let seen = describe(world, &topic, 0)?;
    world.same("open", seen, (0, vec![(0, 1, 1)]));
    world.end(&producer, true)?;
    let seen = describe(world, &topic, 0)?;
    world.same("ended", seen, (0, vec![(0, 1, -1)]));
    Ok(())
}

fn the_start_of_a_log_moves_over_an_open_transaction(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let producer = open(world, &topic, &["a=1"])?;
    world.produce(&topic, &Batch::of(&["plain=1"]))?;
    let deleted = delete(world, &topic, 1)?;
    world.same("deleted", deleted, (0, 1));
    let seen = world.read_stable(&topic, 1)?;
    world.same("marks", (seen.start, seen.stable, seen.high), (1, 1, 2));
    world.end(&producer, true)?;
    let seen = world.read_stable(&topic, 1)?;
    world.same("after", (seen.start, seen.stable, seen.high), (1, 3, 3));
    Ok(())
}
