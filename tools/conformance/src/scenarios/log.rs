//! Produce, Fetch, ListOffsets, DeleteRecords without transactions.

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::messages::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_wire::requests::topic_name;

use super::scenarios;
use crate::reading::Batch;
use crate::world::World;

scenarios! { "log":
    offsets_follow_each_other,
    a_batch_is_read_whole_from_its_middle,
    nothing_is_read_at_the_end,
    behind_the_end_is_out_of_range,
    before_the_start_is_out_of_range,
    an_unknown_topic_is_named,
    an_unknown_partition_is_named,
    a_negative_offset_is_out_of_range,
    the_first_batch_comes_whatever_its_size,
    the_limit_of_a_partition_holds_for_the_second_batch,
    an_empty_topic_has_both_ends_at_zero,
    earliest_and_latest,
    by_time_between_records,
    by_time_behind_the_last,
    by_time_of_an_unknown_partition,
    the_largest_timestamp,
    the_largest_timestamp_of_an_empty_topic,
    deleted_records_move_the_start,
    deleting_to_the_end,
    deleting_behind_the_end_is_out_of_range,
    deleting_twice_does_not_go_back,
    deleting_in_a_compacted_topic_is_refused,
    deleting_in_an_unknown_topic,
    a_batch_with_a_wrong_checksum,
    a_batch_cut_short,
    two_batches_in_one_request,
    a_batch_above_the_topics_limit,
    no_key_in_a_compacted_topic,
    a_tombstone_in_a_compacted_topic,
    the_brokers_clock_stamps_a_topic,
    a_timestamp_far_ahead,
    wrong_acks,
    offsets_go_on_behind_deleted_records,
}

fn offsets_follow_each_other(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let first = world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    let second = world.produce(&topic, &Batch::of(&["c=1"]))?;
    world.same("produced", (first, second), ((0, 0), (0, 2)));
    let seen = world.read(&topic, 0)?;
    let expected = [(0, "a=1"), (1, "b=1"), (2, "c=1")];
    world.same("records", seen.records, owned(&expected));
    world.same("marks", (seen.start, seen.stable, seen.high), (0, 3, 3));
    Ok(())
}

pub(super) fn owned(records: &[(i64, &str)]) -> Vec<(i64, String)> {
    records
        .iter()
        .map(|(at, it)| (*at, (*it).to_owned()))
        .collect()
}

fn a_batch_is_read_whole_from_its_middle(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1", "c=1"]))?;
    let (all, rest) = (world.read(&topic, 0)?, world.read(&topic, 2)?);
    world.same("bytes", rest.bytes, all.bytes);
    world.same("records", rest.records, owned(&[(2, "c=1")]));
    Ok(())
}

fn nothing_is_read_at_the_end(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1"]))?;
    let seen = world.read(&topic, 1)?;
    world.same(
        "answer",
        (seen.error, seen.high, seen.bytes.len()),
        (0, 1, 0),
    );
    Ok(())
}

fn behind_the_end_is_out_of_range(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1"]))?;
    let seen = world.read(&topic, 2)?;
    world.same("answer", (seen.error, seen.bytes.len()), (1, 0));
    Ok(())
}

fn before_the_start_is_out_of_range(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    delete(world, &topic, 1)?;
    let seen = (world.read(&topic, 0)?.error, world.read(&topic, 1)?.error);
    world.same("errors", seen, (1, 0));
    Ok(())
}

fn an_unknown_topic_is_named(world: &mut World) -> Result<()> {
    let topic = world.fresh("nowhere");
    let produced = world.produce(&topic, &Batch::of(&["a=1"]))?;
    world.same("produce", produced, (3, -1));
    let seen = world.read(&topic, 0)?;
    world.same("fetch", (seen.error, seen.high), (3, -1));
    Ok(())
}

fn an_unknown_partition_is_named(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let produced = world.produce_to(&topic, 1, &Batch::of(&["a=1"]), None)?;
    world.same("produce", produced, (3, -1));
    let seen = world.fetch(&topic, 1, 0, 0, 1_000)?;
    world.same("fetch", seen.error, 3);
    Ok(())
}

fn a_negative_offset_is_out_of_range(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let seen = world.read(&topic, -5)?;
    world.same("error", seen.error, 1);
    Ok(())
}

fn the_first_batch_comes_whatever_its_size(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=long", "b=longer"]))?;
    let seen = world.fetch(&topic, 0, 0, 0, 1)?;
    world.same("offsets", seen.offsets(), vec![0, 1]);
    Ok(())
}

fn the_limit_of_a_partition_holds_for_the_second_batch(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    for _ in 0..3 {
        world.produce(&topic, &Batch::of(&["a=1"]))?;
    }
    let one = world.fetch(&topic, 0, 2, 0, 1_000)?.bytes.len() as i32;
    let seen = world.fetch(&topic, 0, 0, 0, 2 * one)?;
    world.same("offsets", seen.offsets(), vec![0, 1]);
    Ok(())
}

fn an_empty_topic_has_both_ends_at_zero(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let ends = (
        world.offset_at(&topic, -2, 0)?,
        world.offset_at(&topic, -1, 0)?,
    );
    world.same("ends", ends, ((0, 0, -1), (0, 0, -1)));
    let by_time = world.offset_at(&topic, 0, 0)?;
    world.same("by time", by_time, (0, -1, -1));
    Ok(())
}

fn earliest_and_latest(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    let ends = (
        world.offset_at(&topic, -2, 0)?,
        world.offset_at(&topic, -1, 0)?,
    );
    world.same("ends", ends, ((0, 0, -1), (0, 2, -1)));
    Ok(())
}

fn by_time_between_records(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
    world.produce(&topic, &Batch::at(&[100, 300, 200]))?;
    world.produce(&topic, &Batch::at(&[400]))?;
    for (time, expected) in [
        (0, (0, 0, 100)),
        (100, (0, 0, 100)),
        (101, (0, 1, 300)),
        (301, (0, 3, 400)),
    ] {
        let seen = world.offset_at(&topic, time, 0)?;
        world.same(&format!("at {time}"), seen, expected);
    }
    Ok(())
}

fn by_time_behind_the_last(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
    world.produce(&topic, &Batch::at(&[100]))?;
    let seen = world.offset_at(&topic, 101, 0)?;
    world.same("behind", seen, (0, -1, -1));
    Ok(())
}

fn by_time_of_an_unknown_partition(world: &mut World) -> Result<()> {
    let topic = world.fresh("nowhere");
    let seen = world.offset_at(&topic, -1, 0)?;
    world.same("answer", seen, (3, -1, -1));
    Ok(())
}

fn the_largest_timestamp(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
    world.produce(&topic, &Batch::at(&[100, 500]))?;
    world.produce(&topic, &Batch::at(&[300]))?;
    let seen = world.offset_at(&topic, -3, 0)?;
    world.same("answer", seen, (0, 1, 500));
    Ok(())
}

fn the_largest_timestamp_of_an_empty_topic(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let seen = world.offset_at(&topic, -3, 0)?;
    world.same("answer", seen, (0, -1, -1));
    Ok(())
}

/// DeleteRecords of partition 0: error code and low watermark.
pub(super) fn delete(world: &mut World, topic: &str, before: i64) -> Result<(i16, i64)> {
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(before);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(10_000);
    let answer = world.call(1, &request)?;
    let topic = answer.topics.first().context("no topic")?;
    let it = topic.partitions.first().context("no partition")?;
    Ok((it.error_code, it.low_watermark))
}

fn deleted_records_move_the_start(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1", "c=1"]))?;
    let deleted = delete(world, &topic, 2)?;
    world.same("deleted", deleted, (0, 2));
    let seen = world.read(&topic, 2)?;
    world.same("marks", (seen.start, seen.high), (2, 3));
    world.same("records", seen.records, owned(&[(2, "c=1")]));
    let earliest = world.offset_at(&topic, -2, 0)?;
    world.same("earliest", earliest, (0, 2, -1));
    Ok(())
}

fn deleting_to_the_end(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    let deleted = delete(world, &topic, -1)?;
    world.same("deleted", deleted, (0, 2));
    let seen = world.read(&topic, 2)?;
    world.same(
        "marks",
        (seen.start, seen.high, seen.bytes.len()),
        (2, 2, 0),
    );
    Ok(())
}

fn deleting_behind_the_end_is_out_of_range(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1"]))?;
    let deleted = delete(world, &topic, 2)?;
    world.same("deleted", deleted, (1, -1));
    Ok(())
}

fn deleting_twice_does_not_go_back(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    delete(world, &topic, 2)?;
    let deleted = delete(world, &topic, 1)?;
    world.same("deleted", deleted, (0, 2));
    Ok(())
}

fn deleting_in_a_compacted_topic_is_refused(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
    world.produce(&topic, &Batch::of(&["a=1"]))?;
    let deleted = delete(world, &topic, 1)?;
    world.same("deleted", deleted, (44, -1));
    Ok(())
}

fn deleting_in_an_unknown_topic(world: &mut World) -> Result<()> {
    let topic = world.fresh("nowhere");
    let deleted = delete(world, &topic, 1)?;
    world.same("deleted", deleted, (3, -1));
    Ok(())
}

fn a_batch_with_a_wrong_checksum(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let mut bytes = Batch::of(&["a=1"]).encode().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let answer = world.produce_bytes(&topic, 0, Bytes::from(bytes), None, -1)?;
    world.same("answer", answer, (2, -1));
    Ok(())
}

fn a_batch_cut_short(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let bytes = Batch::of(&["a=1"]).encode();
    let answer = world.produce_bytes(&topic, 0, bytes.slice(..bytes.len() - 1), None, -1)?;
    world.same("answer", answer, (87, -1));
    let end = world.offset_at(&topic, -1, 0)?;
    world.same("end", end, (0, 0, -1));
    Ok(())
}

fn two_batches_in_one_request(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let one = Batch::of(&["a=1"]).encode();
    let bytes = Bytes::from([&one[..], &one[..]].concat());
    let answer = world.produce_bytes(&topic, 0, bytes, None, -1)?;
    world.same("answer", answer, (87, -1));
    Ok(())
}

fn a_batch_above_the_topics_limit(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("max.message.bytes", "100")])?;
    let long = format!("a={}", "x".repeat(100));
    let answer = world.produce(&topic, &Batch::of(&[&long]))?;
    world.same("answer", answer, (10, -1));
    let answer = world.produce(&topic, &Batch::of(&["a=1"]))?;
    world.same("a small one", answer, (0, 0));
    Ok(())
}

fn no_key_in_a_compacted_topic(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
    let answer = world.produce(&topic, &Batch::of(&["=1"]))?;
    world.same("answer", answer, (87, -1));
    Ok(())
}

fn a_tombstone_in_a_compacted_topic(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
    let answer = world.produce(&topic, &Batch::of(&["a=1", "a"]))?;
    world.same("answer", answer, (0, 0));
    let seen = world.read(&topic, 0)?;
    world.same("records", seen.records, owned(&[(0, "a=1"), (1, "a")]));
    Ok(())
}

fn the_brokers_clock_stamps_a_topic(world: &mut World) -> Result<()> {
    let topic = world.topic_with(1, &[("message.timestamp.type", "LogAppendTime")])?;
    let answer = world.produce(&topic, &Batch::at(&[5]))?;
    world.same("answer", answer, (0, 0));
    let (error, offset, time) = world.offset_at(&topic, -3, 0)?;
    world.same("stamped", (error, offset, time > 1_000_000), (0, 0, true));
    let by_old_time = world.offset_at(&topic, 6, 0)?;
    world.same("found later", (by_old_time.0, by_old_time.1), (0, 0));
    Ok(())
}

fn a_timestamp_far_ahead(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let answer = world.produce(&topic, &Batch::at(&[i64::MAX - 1]))?;
    world.same("answer", answer, (32, -1));
    Ok(())
}

fn wrong_acks(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    let bytes = Batch::of(&["a=1"]).encode();
    let answer = world.produce_bytes(&topic, 0, bytes, None, 2)?;
    world.same("answer", answer, (21, -1));
    Ok(())
}

fn offsets_go_on_behind_deleted_records(world: &mut World) -> Result<()> {
    let topic = world.topic()?;
    world.produce(&topic, &Batch::of(&["a=1", "b=1"]))?;
    delete(world, &topic, -1)?;
    let answer = world.produce(&topic, &Batch::of(&["c=1"]))?;
    world.same("answer", answer, (0, 2));
    Ok(())
}
