//! Topics, configurations, and the metadata of a broker.

use anyhow::{Context, Result};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreatePartitionsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, FindCoordinatorRequest, IncrementalAlterConfigsRequest,
    OffsetForLeaderEpochRequest,
};
use kafka_protocol::protocol::{HeaderVersion, Request};
use kafka_wire::frame;
use kafka_wire::requests::{text, topic_name};

use super::Script;
use crate::world::{World, soon};

pub(super) const ALL: &[Script] = &[
    ("a_topic_is_created_once", |world| {
        let topic = world.topic()?;
        world.returns("again", world.create(&topic, 1, 1, &[]), 36)
    }),
    ("names_that_a_topic_cannot_have", |world| {
        let long = "x".repeat(250);
        for name in ["", ".", "..", "a b", "a/b", &long] {
            let code = world.create(name, 1, 1, &[])?;
            world.same(name, code, 17);
        }
        Ok(())
    }),
    ("partitions_that_a_topic_cannot_have", |world| {
        let name = world.fresh("t");
        for count in [0, -2] {
            world.same("code", world.create(&name, count, 1, &[])?, 37);
        }
        Ok(())
    }),
    ("replicas_that_a_topic_cannot_have", |world| {
        let name = world.fresh("t");
        for count in [0, 2] {
            world.same("code", world.create(&name, 1, count, &[])?, 38);
        }
        Ok(())
    }),
    ("configurations_that_a_topic_cannot_have", |world| {
        let name = world.fresh("t");
        for (key, value) in [
            ("no.such.thing", "1"),
            ("retention.ms", "soon"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "shred"),
            ("message.timestamp.type", "Never"),
            ("min.cleanable.dirty.ratio", "2"),
        ] {
            let code = world.create(&name, 1, 1, &[(key, value)])?;
            world.same(&format!("{key}={value}"), code, 40);
        }
        Ok(())
    }),
    ("a_deleted_topic_is_gone", |world| {
        let topic = world.topic()?;
        world.same("code", delete_topic(world, &topic)?, 0);
        world.until("it is gone", || Ok(world.read(&topic, 0)?.error == 3))?;
        world.returns("produce", world.put(&topic, &["a=1"]), (3, -1))
    }),
    ("an_unknown_topic_cannot_be_deleted", |world| {
        let topic = world.fresh("nowhere");
        world.returns("code", delete_topic(world, &topic), 3)
    }),
    ("a_recreated_topic_has_another_id", |world| {
        let topic = world.topic()?;
        let (before, after) = recreate(world, &topic)?;
        let seen = (before.is_nil(), after.is_nil(), before == after);
        world.same("ids", seen, (false, false, false));
        Ok(())
    }),
    ("a_recreated_topic_is_empty", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1"])?;
        recreate(world, &topic)?;
        let seen = world.read(&topic, 0)?;
        world.same("marks", (seen.start, seen.high), (0, 0));
        Ok(())
    }),
    ("partitions_are_added", |world| {
        let topic = world.topic()?;
        world.same("code", grow(world, &topic, 3)?, 0);
        world.until("they are there", || {
            Ok(world.fetch(&topic, 2, 0, 0, 1_000)?.error == 0)
        })?;
        world.returns("partitions", known_of(world, &topic), (0, 3))
    }),
    ("partitions_are_never_removed", |world| {
        let topic = world.topic_with(3, &[])?;
        world.returns("code", grow(world, &topic, 2), 37)
    }),
    ("as_many_partitions_as_before", |world| {
        let topic = world.topic_with(3, &[])?;
        world.returns("code", grow(world, &topic, 3), 37)
    }),
    ("partitions_of_an_unknown_topic", |world| {
        let topic = world.fresh("nowhere");
        world.returns("code", grow(world, &topic, 3), 3)
    }),
    ("an_unknown_topic_has_no_metadata", |world| {
        let topic = world.fresh("nowhere");
        world.returns("code", known_of(world, &topic), (3, 0))
    }),
    ("a_bad_name_has_no_metadata", |world| {
        world.returns("code", known_of(world, "a b"), (17, 0))
    }),
    ("a_configuration_is_described", |world| {
        let topic = world.topic_with(1, &[("retention.ms", "1000")])?;
        let set = configured(world, TOPIC, &topic, "retention.ms")?;
        world.same("set", set, (0, Some(("1000".into(), 1))));
        for (key, value) in [
            ("cleanup.policy", "delete"),
            ("delete.retention.ms", "86400000"),
            ("min.compaction.lag.ms", "0"),
            ("message.timestamp.type", "CreateTime"),
            ("max.message.bytes", "1048588"),
            ("segment.bytes", "1073741824"),
            ("retention.bytes", "-1"),
            ("min.insync.replicas", "1"),
            ("compression.type", "producer"),
            ("message.timestamp.after.max.ms", "3600000"),
        ] {
            let (error, found) = configured(world, TOPIC, &topic, key)?;
            let value = (0, Some(value.to_owned()));
            world.same(key, (error, found.map(|it| it.0)), value);
        }
        Ok(())
    }),
    ("a_configuration_is_changed_and_reset", |world| {
        let topic = world.topic()?;
        let code = change(world, &topic, "retention.ms", 0, Some("5"))?;
        becomes(world, &topic, "retention.ms", "5")?;
        let reset = change(world, &topic, "retention.ms", 1, None)?;
        becomes(world, &topic, "retention.ms", "604800000")?;
        world.same("codes", (code, reset), (0, 0));
        Ok(())
    }),
    ("a_value_is_added_to_a_list", |world| {
        let topic = world.topic()?;
        let code = change(world, &topic, "cleanup.policy", 2, Some("compact"))?;
        world.same("code", code, 0);
        becomes(world, &topic, "cleanup.policy", "delete,compact")
    }),
    ("a_value_is_removed_from_a_list", |world| {
        let topic = world.topic_with(1, &[("cleanup.policy", "compact,delete")])?;
        let code = change(world, &topic, "cleanup.policy", 3, Some("compact"))?;
        world.same("code", code, 0);
        becomes(world, &topic, "cleanup.policy", "delete")
    }),
    ("a_wrong_value_changes_nothing", |world| {
        let topic = world.topic()?;
        let code = change(world, &topic, "retention.ms", 0, Some("soon"))?;
        world.same("code", code, 40);
        let seen = configured(world, TOPIC, &topic, "retention.ms")?.1;
        world.same("value", seen.map(|it| it.0), Some("604800000".into()));
        Ok(())
    }),
    ("an_unknown_configuration_cannot_be_changed", |world| {
        let topic = world.topic()?;
        let code = change(world, &topic, "no.such.thing", 0, Some("1"));
        world.returns("code", code, 40)
    }),
    ("configurations_of_an_unknown_topic", |world| {
        let topic = world.fresh("nowhere");
        let described = configured(world, TOPIC, &topic, "retention.ms")?;
        let changed = change(world, &topic, "retention.ms", 0, Some("1"))?;
        world.same("codes", (described, changed), ((3, None), 3));
        Ok(())
    }),
    ("brokers_verify_transactions", |world| {
        let key = "transaction.partition.verification.enable";
        let (error, found) = configured(world, BROKER, "1", key)?;
        let value = found.map(|it| it.0);
        world.same("verification", (error, value), (0, Some("true".into())));
        let other = configured(world, BROKER, "77", key);
        world.returns("another broker", other, (42, None))
    }),
    ("a_coordinator_is_found", |world| {
        for kind in [0, 1] {
            let request = FindCoordinatorRequest::default()
                .with_key(text("some-key"))
                .with_key_type(kind);
            let ask = || world.call(2, &request);
            let answer = world.settled(ask, |it| it.error_code)?;
            world.same("found", (answer.error_code, answer.node_id.0), (0, 1));
            world.same("host", answer.host.to_string(), "127.0.0.1".into());
        }
        Ok(())
    }),
    ("a_coordinator_of_an_unknown_kind", |world| {
        let request = FindCoordinatorRequest::default()
            .with_key(text("some-key"))
            .with_key_type(9);
        let answer = world.call(2, &request)?;
        world.same("refused", (answer.error_code, answer.node_id.0), (42, -1));
        Ok(())
    }),
    ("a_version_that_is_too_new_is_refused", |world| {
        let mut conn = world.connect()?;
        // Key 18 in version 99, correlation id 7, no client id: a header of version 2.
        let body = [0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0];
        let request = frame::encode(|to| {
            to.extend(body);
            Ok(())
        })?;
        conn.send_raw(&request, soon())?;
        let frame = conn.receive_raw(soon())?;
        // Correlation id and error, then an array with the supported versions.
        world.same("answer", frame[..6].to_vec(), vec![0, 0, 0, 7, 0, 35]);
        let header = <ApiVersionsRequest as Request>::Response::header_version(3);
        world.same("its header never changes", header, 0);
        Ok(())
    }),
    ("the_end_of_an_epoch", |world| {
        let topic = world.topic()?;
        world.put(&topic, &["a=1", "b=1"])?;
        for (epoch, expected) in [(0, (0, 0, 2)), (9, (0, -1, -1))] {
            let partition = OffsetForLeaderPartition::default()
                .with_partition(0)
                .with_current_leader_epoch(-1)
                .with_leader_epoch(epoch);
            let topic = OffsetForLeaderTopic::default()
                .with_topic(topic_name(&topic))
                .with_partitions(vec![partition]);
            let request = OffsetForLeaderEpochRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_topics(vec![topic]);
            let answer = world.call(3, &request)?;
            let topic = answer.topics.first().context("no topic")?;
            let it = topic.partitions.first().context("no partition")?;
            let seen = (it.error_code, it.leader_epoch, it.end_offset);
            world.same(&format!("epoch {epoch}"), seen, expected);
        }
        Ok(())
    }),
];

/// Requests the metadata of a topic. Returns the error code and the number of partitions.
fn known_of(world: &World, topic: &str) -> Result<(i16, usize)> {
    let answer = world.metadata(&[topic])?;
    let it = answer.topics.first().context("no topic")?;
    Ok((it.error_code, it.partitions.len()))
}

pub(super) fn delete_topic(world: &World, name: &str) -> Result<i16> {
    let request = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic_name(name)])
        .with_timeout_ms(10_000);
    let answer = world.call(3, &request)?;
    Ok(answer.responses.first().context("no result")?.error_code)
}

/// Deletes and recreates a topic. Returns its ids before and after.
fn recreate(world: &World, topic: &str) -> Result<(uuid::Uuid, uuid::Uuid)> {
    let before = id_of(world, topic)?;
    delete_topic(world, topic)?;
    world.until("it is gone", || Ok(world.read(topic, 0)?.error == 3))?;
    world.until("its name is free", || {
        Ok(world.create(topic, 1, 1, &[])? == 0)
    })?;
    world.until("it is back", || Ok(world.read(topic, 0)?.error == 0))?;
    Ok((before, id_of(world, topic)?))
}

fn id_of(world: &World, topic: &str) -> Result<uuid::Uuid> {
    use kafka_protocol::messages::MetadataRequest;
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default().with_topics(Some(vec![topic]));
    let answer = world.call(12, &request)?;
    Ok(answer.topics.first().context("no topic")?.topic_id)
}

fn grow(world: &World, topic: &str, count: i32) -> Result<i16> {
    let topic = CreatePartitionsTopic::default()
        .with_name(topic_name(topic))
        .with_count(count)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(10_000);
    let answer = world.call(1, &request)?;
    Ok(answer.results.first().context("no result")?.error_code)
}

/// Sends DescribeConfigs. Returns the error code, then the value and its source.
fn configured(
    world: &World,
    kind: i8,
    name: &str,
    key: &str,
) -> Result<(i16, Option<(String, i8)>)> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = world.call(1, &request)?;
    let it = answer.results.first().context("no result")?;
    let found = it.configs.first();
    let value = found.map(|it| {
        (
            it.value.as_deref().unwrap_or_default().to_owned(),
            it.config_source,
        )
    });
    Ok((it.error_code, value))
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Sends IncrementalAlterConfigs for a topic. Returns the error code.
fn change(world: &World, topic: &str, key: &str, how: i8, value: Option<&str>) -> Result<i16> {
    let config = AlterableConfig::default()
        .with_name(text(key))
        .with_config_operation(how)
        .with_value(value.map(text));
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(topic))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = world.call(1, &request)?;
    Ok(answer.responses.first().context("no result")?.error_code)
}

/// Waits until a configuration has this value. A change is not visible at once.
fn becomes(world: &World, topic: &str, key: &str, value: &str) -> Result<()> {
    world.until(&format!("{key}={value}"), || {
        let (_, found) = configured(world, TOPIC, topic, key)?;
        Ok(found.is_some_and(|it| it.0 == value))
    })
}
