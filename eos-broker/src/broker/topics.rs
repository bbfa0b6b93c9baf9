//! Topics: their partitions and configurations.

use kafka_protocol::ResponseError as Error;
use uuid::Uuid;

use super::Broker;
use super::configs::TopicConfigs;
use crate::log::{Isolation, PartitionLog, Place};

/// The maximum length of a topic's name.
const LONGEST_NAME: usize = 249;

/// A topic.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) id: Uuid,
    pub(super) partitions: Vec<PartitionLog>,
    configs: TopicConfigs,
    /// The parsed configurations, which are text.
    place: Place,
}

impl Topic {
    pub(super) fn new(id: Uuid, partitions: usize, configs: TopicConfigs) -> Topic {
        Topic {
            id,
            partitions: (0..partitions).map(|_| PartitionLog::default()).collect(),
            place: configs.place(),
            configs,
        }
    }

    pub(super) fn configs(&self) -> &TopicConfigs {
        &self.configs
    }

    pub(super) fn configure(&mut self, configs: TopicConfigs) {
        self.place = configs.place();
        self.configs = configs;
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn bytes(&self) -> usize {
        self.partitions.iter().map(PartitionLog::bytes).sum()
    }
}

/// Checks whether a topic may have this name. Returns the reason if it may not.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let legal = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    if name.is_empty() {
        Err("Topic name is invalid: the empty string is not allowed".into())
    } else if name == "." || name == ".." {
        Err("Topic name is invalid: '.' or '..' is not allowed".into())
    } else if name.len() > LONGEST_NAME {
        Err(format!(
            "Topic name is invalid: the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
        ))
    } else if !name.chars().all(legal) {
        Err(format!(
            "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ))
    } else {
        Ok(())
    }
}

impl Broker {
    /// Returns the end offset of a partition's log.
    #[cfg(test)]
    pub(crate) fn end_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        let log = self.partition(topic, partition).ok()?;
        Some(log.end())
    }

    /// Returns the id of a topic.
    pub fn id_of(&self, topic: &str) -> Option<Uuid> {
        self.topics.get(topic).map(|it| it.id)
    }

    /// Returns the number of topics that were created or deleted so far. While it is unchanged, each name has the same
    /// id.
    pub fn topic_changes(&self) -> u64 {
        self.topic_changes
    }

    /// Returns the last stable offset and the end offset of a partition, or `None` if the partition does not exist.
    pub fn ends_of(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let log = self.partition(topic, partition).ok()?;
        Some((log.end_for(Isolation::ReadCommitted), log.end()))
    }

    /// Returns the number of partitions of a topic, or 0 if the topic does not exist.
    pub fn partitions_of(&self, topic: &str) -> i32 {
        let found = self.topics.get(topic);
        found.map_or(0, |it| {
            i32::try_from(it.partitions.len()).unwrap_or(i32::MAX)
        })
    }

    pub(super) fn partition(&self, topic: &str, partition: i32) -> Result<&PartitionLog, Error> {
        let found = self.topics.get(topic);
        let index = usize::try_from(partition).ok();
        found
            .and_then(|topic| topic.partitions.get(index?))
            .ok_or(Error::UnknownTopicOrPartition)
    }

    pub(super) fn partition_mut(
        &mut self,
        topic: &str,
        partition: i32,
    ) -> Result<&mut PartitionLog, Error> {
        let found = self.topics.get_mut(topic);
        let index = usize::try_from(partition).ok();
        found
            .and_then(|topic| topic.partitions.get_mut(index?))
            .ok_or(Error::UnknownTopicOrPartition)
    }

    pub(super) fn recount_bytes(&mut self) {
        self.bytes = self.topics.values().map(Topic::bytes).sum();
        self.fetches.recheck();
    }

    pub(super) fn partition_count(&self) -> usize {
        self.topics.values().map(|it| it.partitions.len()).sum()
    }

    pub(super) fn create_topic(
        &mut self,
        name: &str,
        partitions: usize,
        configs: TopicConfigs,
    ) -> Uuid {
        let id = self.fresh(0x656f_735f_746f_7069);
        let topic = Topic::new(id, partitions, configs);
        self.topics.insert(name.to_owned(), topic);
        self.topic_changes += 1;
        id
    }

    /// Deletes the expired records of topics with `cleanup.policy=delete`, as Kafka does periodically.
    pub fn apply_retention(&mut self, now: i64) {
        for topic in self.topics.values_mut() {
            if !topic.configs.is_deleted() {
                continue;
            }
            let older_than = topic.configs.retention_ms().map(|it| now - it);
            let max_bytes = topic.configs.retention_bytes();
            for log in &mut topic.partitions {
                log.retain(older_than, max_bytes);
            }
        }
        self.recount_bytes();
    }

    /// Compacts topics with `cleanup.policy=compact`, as Kafka's cleaner does periodically. Returns the number of
    /// removed bytes.
    pub fn compact(&mut self, now: i64) -> usize {
        let before = self.bytes;
        for topic in self.topics.values_mut() {
            if !topic.configs.is_compacted() {
                continue;
            }
            let delete_retention_ms = topic.configs.delete_retention_ms();
            for log in &mut topic.partitions {
                log.compact(now, delete_retention_ms);
            }
        }
        self.recount_bytes();
        before.saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kafka_does() {
        for name in ["a", "A-1_b.c", &"x".repeat(249)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "a b", "ü", "a/b", &"x".repeat(250)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
