//! Producer ids and sequences without transactions.

use anyhow::{Context, Result};
use kafka_protocol::messages::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_wire::requests::topic_name;

use super::Script;
use crate::reading::{Batch, owned};
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("each_producer_has_an_id_of_its_own", |world| {
        let (first, second) = (init(world)?, init(world)?);
        world.same("errors", (first.0, second.0), (0, 0));
        world.same("epochs", (first.2, second.2), (0, 0));
        world.same("ids differ", first.1 != second.1 && first.1 >= 0, true);
        Ok(())
    }),
    ("a_batch_sent_twice_is_written_once", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        let batch = Batch::of(&["a=1", "b=1"]).by(id, 0, 0);
        for _ in 0..2 {
            world.same("answer", world.produce(&topic, &batch)?, (0, 0));
        }
        let seen = world.read(&topic, 0)?;
        world.same("records", seen.records, owned(&[(0, "a=1"), (1, "b=1")]));
        Ok(())
    }),
    ("a_gap_is_out_of_order", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 0, 0), &["a=1"])?;
        let gap = send(world, &topic, (id, 0, 2), &["b=1"])?;
        let next = send(world, &topic, (id, 0, 1), &["b=1"])?;
        world.same("answers", (gap, next), ((45, -1), (0, 1)));
        Ok(())
    }),
    ("an_older_batch_than_five_is_out_of_order", |world| {
        let (topic, id) = six(world)?;
        let answer = send(world, &topic, (id, 0, 0), &["a=1"]);
        world.returns("answer", answer, (45, -1))
    }),
    ("the_fifth_batch_back_is_a_duplicate", |world| {
        let (topic, id) = six(world)?;
        let answer = send(world, &topic, (id, 0, 1), &["a=1"])?;
        world.same("answer", answer, (0, 1));
        world.returns("end", world.offset_at(&topic, -1, 0), (0, 6, -1))
    }),
    ("a_part_of_a_batch_is_no_duplicate", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 0, 0), &["a=1", "b=1"])?;
        let answer = send(world, &topic, (id, 0, 0), &["a=1"]);
        world.returns("answer", answer, (45, -1))
    }),
    ("an_older_epoch_is_refused", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 3, 0), &["a=1"])?;
        let answer = send(world, &topic, (id, 2, 1), &["b=1"]);
        world.returns("answer", answer, (47, -1))
    }),
    ("a_newer_epoch_begins_at_zero", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 0, 0), &["a=1", "b=1"])?;
        let answer = send(world, &topic, (id, 1, 0), &["c=1"]);
        world.returns("answer", answer, (0, 2))
    }),
    ("a_newer_epoch_may_not_begin_later", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 0, 0), &["a=1"])?;
        let answer = send(world, &topic, (id, 1, 1), &["b=1"]);
        world.returns("answer", answer, (45, -1))
    }),
    ("an_unknown_producer_may_begin_anywhere", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        let answer = send(world, &topic, (id, 0, 17), &["a=1"]);
        world.returns("answer", answer, (0, 0))
    }),
    ("sequences_are_kept_for_each_partition", |world| {
        let (topic, id) = (world.topic_with(2, &[])?, producer(world)?);
        let batch = Batch::of(&["a=1"]).by(id, 0, 0);
        for partition in [0, 1] {
            let answer = world.produce_to(&topic, partition, &batch, None)?;
            world.same("answer", answer, (0, 0));
        }
        world.same("end", world.fetch(&topic, 1, 0, 0, 1_000)?.high, 1);
        Ok(())
    }),
    ("two_producers_do_not_interfere", |world| {
        let (topic, one, two) = (world.topic()?, producer(world)?, producer(world)?);
        let first = send(world, &topic, (one, 0, 0), &["a=1"])?;
        let second = send(world, &topic, (two, 0, 0), &["b=1"])?;
        world.same("answers", (first, second), ((0, 0), (0, 1)));
        Ok(())
    }),
    ("a_producer_is_described", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        send(world, &topic, (id, 4, 0), &["a=1", "b=1"])?;
        let seen = describe(world, &topic, 0);
        world.returns("producers", seen, (0, vec![(4, 1, -1)]))
    }),
    ("describing_an_unknown_partition", |world| {
        let topic = world.topic()?;
        world.returns("producers", describe(world, &topic, 7), (3, vec![]))
    }),
    ("a_duplicate_is_known_behind_deleted_records", |world| {
        let (topic, id) = (world.topic()?, producer(world)?);
        let batch = Batch::of(&["a=1"]).by(id, 0, 0);
        world.produce(&topic, &batch)?;
        super::log::delete(world, &topic, -1)?;
        world.returns("answer", world.produce(&topic, &batch), (0, 0))
    }),
    ("epoch_bump_of_an_id_without_transactions", |world| {
        let id = producer(world)?;
        let (error, other, epoch) = world.init_once(None, 60_000, (id, 0), 4)?;
        world.same("answer", (error, other != id, epoch), (0, true, 0));
        Ok(())
    }),
    ("an_id_without_its_epoch_is_refused", |world| {
        let answer = world.init_once(None, 60_000, (5, -1), 4);
        world.returns("answer", answer, (42, -1, -1))
    }),
];

/// Sends InitProducerId without a transactional id. Returns the error code, the producer id and the epoch.
fn init(world: &World) -> Result<(i16, i64, i16)> {
    let ask = || world.init_once(None, 60_000, (-1, -1), 4);
    world.settled(ask, |it| it.0)
}

fn producer(world: &World) -> Result<i64> {
    Ok(init(world)?.1)
}

/// Produces as (producer id, epoch, sequence). Returns the error code and the base offset.
fn send(world: &World, topic: &str, by: (i64, i16, i32), records: &[&str]) -> Result<(i16, i64)> {
    world.produce(topic, &Batch::of(records).by(by.0, by.1, by.2))
}

fn six(world: &World) -> Result<(String, i64)> {
    let (topic, id) = (world.topic()?, producer(world)?);
    for sequence in 0..6 {
        send(world, &topic, (id, 0, sequence), &["a=1"])?;
    }
    Ok((topic, id))
}

/// A producer's epoch, last sequence, and the start of its transaction.
type Described = (i32, i32, i64);

/// Sends DescribeProducers for one partition. Returns the error code and the producers.
pub(super) fn describe(
    world: &World,
    topic: &str,
    partition: i32,
) -> Result<(i16, Vec<Described>)> {
    let topic = TopicRequest::default()
        .with_name(topic_name(topic))
        .with_partition_indexes(vec![partition]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let answer = world.call(0, &request)?;
    let topic = answer.topics.first().context("no topic")?;
    let it = topic.partitions.first().context("no partition")?;
    let mut producers = Vec::new();
    for it in &it.active_producers {
        let start = it.current_txn_start_offset;
        producers.push((it.producer_epoch, it.last_sequence, start));
    }
    Ok((it.error_code, producers))
}
