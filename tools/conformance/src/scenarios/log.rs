//! Produce, Fetch, ListOffsets, DeleteRecords without transactions.

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::messages::DeleteRecordsRequest;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_wire::requests::topic_name;

use super::Script;
use crate::reading::{Batch, owned};
use crate::world::World;

pub(super) const ALL: &[Script] = &[
    ("offsets_follow_each_other", |world| {
        let topic = world.topic()?;
        let first = world.put(&topic, &["a=1", "b=1"])?;
        let second = world.put(&topic, &["c=1"])?;
        world.same("produced", (first, second), ((0, 0), (0, 2)));
        let seen = world.read(&topic, 0)?;
        let expected = [(0, "a=1"), (1, "b=1"), (2, "c=1")];
        world.same("records", seen.records, owned(&expected));
        world.same("marks", (seen.start, seen.stable, seen.high), (0, 3, 3));
        Ok(())
    }),
    ("a_batch_is_read_whole_from_its_middle", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1", "c=1"])?;
        let (all, rest) = (world.read(&topic, 0)?, world.read(&topic, 2)?);
        world.same("bytes", rest.bytes, all.bytes);
        world.same("records", rest.records, owned(&[(2, "c=1")]));
        Ok(())
    }),
    ("nothing_is_read_at_the_end", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1"])?;
        let seen = world.read(&topic, 1)?;
        let seen = (seen.error, seen.high, seen.bytes.len());
        world.same("answer", seen, (0, 1, 0));
        Ok(())
    }),
    ("behind_the_end_is_out_of_range", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1"])?;
        let seen = world.read(&topic, 2)?;
        world.same("answer", (seen.error, seen.bytes.len()), (1, 0));
        Ok(())
    }),
    ("before_the_start_is_out_of_range", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        delete(world, &topic, 1)?;
        let seen = (world.read(&topic, 0)?.error, world.read(&topic, 1)?.error);
        world.same("errors", seen, (1, 0));
        Ok(())
    }),
    ("an_unknown_topic_is_an_error", |world| {
        let topic = world.fresh("nowhere");
        world.same("produce", world.put(&topic, &["a=1"])?, (3, -1));
        let seen = world.read(&topic, 0)?;
        world.same("fetch", (seen.error, seen.high), (3, -1));
        Ok(())
    }),
    ("an_unknown_partition_is_an_error", |world| {
        let topic = world.topic()?;
        let produced = world.produce_to(&topic, 1, &Batch::of(&["a=1"]), None)?;
        world.same("produce", produced, (3, -1));
        world.same("fetch", world.fetch(&topic, 1, 0, 0, 1_000)?.error, 3);
        Ok(())
    }),
    ("a_negative_offset_is_out_of_range", |world| {
        let topic = world.topic()?;
        world.same("error", world.read(&topic, -5)?.error, 1);
        Ok(())
    }),
    ("the_first_batch_is_returned_at_any_size", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=long", "b=longer"])?;
        let seen = world.fetch(&topic, 0, 0, 0, 1)?;
        world.same("offsets", seen.offsets(), vec![0, 1]);
        Ok(())
    }),
    (
        "the_limit_of_a_partition_holds_for_the_second_batch",
        |world| {
            let topic = world.topic()?;
            for _ in 0..3 {
                world.put(&topic, &["a=1"])?;
            }
            let one = world.fetch(&topic, 0, 2, 0, 1_000)?.bytes.len() as i32;
            let seen = world.fetch(&topic, 0, 0, 0, 2 * one)?;
            world.same("offsets", seen.offsets(), vec![0, 1]);
            Ok(())
        },
    ),
    ("an_empty_topic_has_both_ends_at_zero", |world| {
        let topic = world.topic()?;
        world.same("earliest", world.offset_at(&topic, -2, 0)?, (0, 0, -1));
        world.same("latest", world.offset_at(&topic, -1, 0)?, (0, 0, -1));
        world.returns("by time", world.offset_at(&topic, 0, 0), (0, -1, -1))
    }),
    ("earliest_and_latest", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        world.same("earliest", world.offset_at(&topic, -2, 0)?, (0, 0, -1));
        world.returns("latest", world.offset_at(&topic, -1, 0), (0, 2, -1))
    }),
    ("by_time_between_records", |world| {
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
    }),
    ("by_time_behind_the_last", |world| {
        let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
        world.produce(&topic, &Batch::at(&[100]))?;
        world.returns("behind", world.offset_at(&topic, 101, 0), (0, -1, -1))
    }),
    ("by_time_of_an_unknown_partition", |world| {
        let topic = world.fresh("nowhere");
        world.returns("answer", world.offset_at(&topic, -1, 0), (3, -1, -1))
    }),
    ("the_largest_timestamp", |world| {
        let topic = world.topic_with(1, &[("retention.ms", "-1")])?;
        world.produce(&topic, &Batch::at(&[100, 500]))?;
        world.produce(&topic, &Batch::at(&[300]))?;
        world.returns("answer", world.offset_at(&topic, -3, 0), (0, 1, 500))
    }),
    ("the_largest_timestamp_of_an_empty_topic", |world| {
        let topic = world.topic()?;
        world.returns("answer", world.offset_at(&topic, -3, 0), (0, -1, -1))
    }),
    ("deleted_records_move_the_start", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1", "c=1"])?;
        world.same("deleted", delete(world, &topic, 2)?, (0, 2));
        let seen = world.read(&topic, 2)?;
        world.same("marks", (seen.start, seen.high), (2, 3));
        world.same("records", seen.records, owned(&[(2, "c=1")]));
        world.returns("earliest", world.offset_at(&topic, -2, 0), (0, 2, -1))
    }),
    ("deleting_to_the_end", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        world.same("deleted", delete(world, &topic, -1)?, (0, 2));
        let seen = world.read(&topic, 2)?;
        let marks = (seen.start, seen.high, seen.bytes.len());
        world.same("marks", marks, (2, 2, 0));
        Ok(())
    }),
    ("deleting_behind_the_end_is_out_of_range", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1"])?;
        world.returns("deleted", delete(world, &topic, 2), (1, -1))
    }),
    ("deleting_twice_does_not_go_back", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        delete(world, &topic, 2)?;
        world.returns("deleted", delete(world, &topic, 1), (0, 2))
    }),
    ("deleting_in_a_compacted_topic_is_refused", |world| {
        let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
        world.put(&topic, &["a=1"])?;
        world.returns("deleted", delete(world, &topic, 1), (44, -1))
    }),
    ("deleting_in_an_unknown_topic", |world| {
        let topic = world.fresh("nowhere");
        world.returns("deleted", delete(world, &topic, 1), (3, -1))
    }),
    ("a_batch_with_a_wrong_checksum", |world| {
        let topic = world.topic()?;
        let mut bytes = Batch::of(&["a=1"]).encode().to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let answer = world.produce_bytes(&topic, 0, Bytes::from(bytes), None, -1);
        world.returns("answer", answer, (2, -1))
    }),
    ("a_batch_cut_short", |world| {
        let topic = world.topic()?;
        let bytes = Batch::of(&["a=1"]).encode();
        let answer = world.produce_bytes(&topic, 0, bytes.slice(..bytes.len() - 1), None, -1)?;
        world.same("answer", answer, (87, -1));
        world.returns("end", world.offset_at(&topic, -1, 0), (0, 0, -1))
    }),
    ("two_batches_in_one_request", |world| {
        let topic = world.topic()?;
        let one = Batch::of(&["a=1"]).encode();
        let bytes = Bytes::from([&one[..], &one[..]].concat());
        let answer = world.produce_bytes(&topic, 0, bytes, None, -1);
        world.returns("answer", answer, (87, -1))
    }),
    ("a_batch_above_the_topics_limit", |world| {
        let topic = world.topic_with(1, &[("max.message.bytes", "100")])?;
        let long = format!("a={}", "x".repeat(100));
        world.same("answer", world.put(&topic, &[&long])?, (10, -1));
        world.returns("a small one", world.put(&topic, &["a=1"]), (0, 0))
    }),
    ("no_key_in_a_compacted_topic", |world| {
        let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
        world.returns("answer", world.put(&topic, &["=1"]), (87, -1))
    }),
    ("a_tombstone_in_a_compacted_topic", |world| {
        let topic = world.topic_with(1, &[("cleanup.policy", "compact")])?;
        world.same("answer", world.put(&topic, &["a=1", "a"])?, (0, 0));
        let seen = world.read(&topic, 0)?;
        world.same("records", seen.records, owned(&[(0, "a=1"), (1, "a")]));
        Ok(())
    }),
    ("the_brokers_clock_stamps_a_topic", |world| {
        let topic = world.topic_with(1, &[("message.timestamp.type", "LogAppendTime")])?;
        world.same("answer", world.produce(&topic, &Batch::at(&[5]))?, (0, 0));
        let (error, offset, time) = world.offset_at(&topic, -3, 0)?;
        world.same("stamped", (error, offset, time > 1_000_000), (0, 0, true));
        let by_old_time = world.offset_at(&topic, 6, 0)?;
        world.same("found later", (by_old_time.0, by_old_time.1), (0, 0));
        Ok(())
    }),
    ("a_timestamp_far_ahead", |world| {
        let topic = world.topic()?;
        let answer = world.produce(&topic, &Batch::at(&[i64::MAX - 1]));
        world.returns("answer", answer, (32, -1))
    }),
    ("wrong_acks", |world| {
        let topic = world.topic()?;
        let bytes = Batch::of(&["a=1"]).encode();
        let answer = world.produce_bytes(&topic, 0, bytes, None, 2);
        world.returns("answer", answer, (21, -1))
    }),
    ("offsets_go_on_behind_deleted_records", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        delete(world, &topic, -1)?;
        world.returns("answer", world.put(&topic, &["c=1"]), (0, 2))
    }),
];

/// Sends DeleteRecords for partition 0. Returns the error code and the low watermark.
pub(super) fn delete(world: &World, topic: &str, before: i64) -> Result<(i16, i64)> {
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
