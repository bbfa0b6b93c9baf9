//! Shared parts of requests.

use std::collections::BTreeMap;

use eos_protocol::TopicPartition;

pub(super) use kafka_wire::requests::text;

/// Groups values of partitions by topic.
pub(super) fn by_topic<T>(
    partitions: impl IntoIterator<Item = (TopicPartition, T)>,
) -> BTreeMap<String, Vec<(i32, T)>> {
    let mut topics: BTreeMap<String, Vec<(i32, T)>> = BTreeMap::new();
    for (partition, it) in partitions {
        let topic = topics.entry(partition.topic.as_str().to_owned());
        topic.or_default().push((partition.partition.get(), it));
    }
    topics
}
