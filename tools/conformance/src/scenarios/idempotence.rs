//! Producer ids and sequences without transactions.

use anyhow::{Context, Result};
use kafka_protocol::messages::DescribeProducersRequest;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_wire::requests::topic_name;

use super::log::owned;
use super::scenarios;
use crate::reading::Batch;
use crate::world::World;

scenarios! { "idempotence":
    each_producer_has_an_id_of_its_own,
    a_batch_sent_twice_is_written_once,
    a_gap_is_out_of_order,
    an_older_batch_than_five_is_out_of_order,
    the_fifth_batch_back_is_a_duplicate,
    a_part_of_a_batch_is_no_duplicate,
    an_older_epoch_is_refused,
    a_newer_epoch_begins_at_zero,
    a_newer_epoch_may_not_begin_later,
    an_unknown_producer_may_begin_anywhere,
    sequences_are_kept_for_each_partition,
    two_producers_do_not_meet,
    a_producer_is_described,
    describing_an_unknown_partition,
    a_duplicate_is_known_behind_deleted_records,
    epoch_bump_of_an_id_without_transactions,
    an_id_without_its_epoch_is_refused,
}

fn producer(world: &mut World) -> Result<i64> {
    let ask = |world: &mut World| world.init_once(None, 60_000, (-1, -1), 4);
    Ok(world.settled(ask, |it| it.0)?.1)
}

fn each_producer_has_an_id_of_its_own(world: &mut World) -> Result<()> {
    let ask = |world: &mut World| world.init_once(None, 60_000, (-1, -1), 4);
    let first = world.settled(ask, |it| it.0)?;
    let second = world.settled(ask, |it| it.0)?;
    world.same(
        "errors and epochs",
        (first.0, first.2, second.0, second.2),
        (0, 0, 0, 0),
    );
    world.same("ids differ", first.1 != second.1 && first.1 >= 0, true);
    Ok(())
}

fn a_batch_sent_twice_is_written_once(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    let batch = Batch::of(&["a=1", "b=1"]).by(id, 0, 0);
    let answers = (
        world.produce(&topic, &batch)?,
        world.produce(&topic, &batch)?,
    );
    world.same("answers", answers, ((0, 0), (0, 0)));
    let seen = world.read(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "b=1")]));
    Ok(())
}

fn a_gap_is_out_of_order(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 0))?;
    let gap = world.produce(&topic, &Batch::of(&["b=1"]).by(id, 0, 2))?;
    let next = world.produce(&topic, &Batch::of(&["b=1"]).by(id, 0, 1))?;
    world.same("answers", (gap, next), ((45, -1), (0, 1)));
    Ok(())
}

fn six(world: &mut World) -> Result<(String, i64)> {
    let (topic, id) = (world.topic()?, producer(world)?);
    for sequence in 0..6 {
        world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, sequence))?;
    }
    Ok((topic, id))
}

fn an_older_batch_than_five_is_out_of_order(world: &mut World) -> Result<()> {
    let (topic, id) = six(world)?;
    let answer = world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 0))?;
    world.same("answer", answer, (45, -1));
    Ok(())
}

fn the_fifth_batch_back_is_a_duplicate(world: &mut World) -> Result<()> {
    let (topic, id) = six(world)?;
    let answer = world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 1))?;
    world.same("answer", answer, (0, 1));
    let end = world.offset_at(&topic, -1, 0)?;
    world.same("end", end, (0, 6, -1));
    Ok(())
}

fn a_part_of_a_batch_is_no_duplicate(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]).by(id, 0, 0))?;
    let answer = world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 0))?;
    world.same("answer", answer, (45, -1));
    Ok(())
}

fn an_older_epoch_is_refused(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1"]).by(id, 3, 0))?;
    let answer = world.produce(&topic, &Batch::of(&["b=1"]).by(id, 2, 1))?;
    world.same("answer", answer, (47, -1));
    Ok(())
}

fn a_newer_epoch_begins_at_zero(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]).by(id, 0, 0))?;
    let answer = world.produce(&topic, &Batch::of(&["c=1"]).by(id, 1, 0))?;
    world.same("answer", answer, (0, 2));
    Ok(())
}

fn a_newer_epoch_may_not_begin_later(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 0))?;
    let answer = world.produce(&topic, &Batch::of(&["b=1"]).by(id, 1, 1))?;
    world.same("answer", answer, (45, -1));
    Ok(())
}

fn an_unknown_producer_may_begin_anywhere(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    let answer = world.produce(&topic, &Batch::of(&["a=1"]).by(id, 0, 17))?;
    world.same("answer", answer, (0, 0));
    Ok(())
}

fn sequences_are_kept_for_each_partition(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic_with(2, &[])?, producer(world)?);
    let batch = Batch::of(&["a=1"]).by(id, 0, 0);
    let answers = (
        world.produce_to(&topic, 0, &batch, None)?,
        world.produce_to(&topic, 1, &batch, None)?,
    );
    world.same("answers", answers, ((0, 0), (0, 0)));
    let end = world.fetch(&topic, 1, 0, 0, 1_000)?.high;
    world.same("end", end, 1);
    Ok(())
}

fn two_producers_do_not_meet(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let (one, two) = (producer(world)?, producer(world)?);
    let first = world.produce(&topic, &Batch::of(&["a=1"]).by(one, 0, 0))?;
    let second = world.produce(&topic, &Batch::of(&["b=1"]).by(two, 0, 0))?;
    world.same("answers", (first, second), ((0, 0), (0, 1)));
    Ok(())
}

/// A producer's epoch, last sequence, and the start of its transaction.
type Described = (i32, i32, i64);

/// DescribeProducers of one partition: error code and producers.
pub(super) fn describe(
    world: &mut World,
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
    let producers = it.active_producers.iter();
    let producers = producers.map(|it| {
        (
            it.producer_epoch,
            it.last_sequence,
            it.current_txn_start_offset,
        )
    });
    Ok((it.error_code, producers.collect()))
}

fn a_producer_is_described(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]).by(id, 4, 0))?;
    let seen = describe(world, &topic, 0)?;
    world.same("producers", seen, (0, vec![(4, 1, -1)]));
    Ok(())
}

fn describing_an_unknown_partition(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let seen = describe(world, &topic, 7)?;
    world.same("producers", seen, (3, vec![]));
    Ok(())
}

fn a_duplicate_is_known_behind_deleted_records(world: &mut World) -> Result<()> {
    let (topic, id) = (world.topic()?, producer(world)?);
    let batch = Batch::of(&["a=1"]).by(id, 0, 0);
    world.produce(&topic, &batch)?;
    super::log::delete(world, &topic, -1)?;
    let answer = world.produce(&topic, &batch)?;
    world.same("answer", answer, (0, 0));
    Ok(())
}

fn epoch_bump_of_an_id_without_transactions(world: &mut World) -> Result<()> {
    let id = producer(world)?;
    let (error, other, epoch) = world.init_once(None, 60_000, (id, 0), 4)?;
    world.same("answer", (error, other != id, epoch), (0, true, 0));
    Ok(())
}

fn an_id_without_its_epoch_is_refused(world: &mut World) -> Result<()> {
    let answer = world.init_once(None, 60_000, (5, -1), 4)?;
    world.same("answer", answer, (42, -1, -1));
    Ok(())
}
