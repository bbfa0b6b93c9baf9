//! The topics of the pipeline. The demo creates the missing ones, and removes them at its end.

use std::time::Duration;

use anyhow::{Result, bail};
use kafka_launcher::BOOTSTRAP_VAR;
use kafka_wire::{Client, Isolation};

use super::broker::Broker;
use super::stop::Stop;

/// The input, the outputs and the application id of `06-word-count`.
pub(crate) const INPUT: &str = "lines";
pub(crate) const OUTPUTS: [&str; 1] = ["word-counts"];
pub(crate) const APP: &str = "word-count-v1";

/// The internal topics that the pipeline creates.
const OWN: [&str; 2] = [
    "word-count-v1-words-repartition",
    "word-count-v1-words-repartition-changelog",
];

/// Partitions of each topic.
pub(crate) const PARTITIONS: i32 = 6;

/// The default replication factor of the cluster.
const BROKERS_CHOICE: i16 = -1;

/// Time limit of one call of the client, retries included.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for a free group. Members of an earlier run stay in it for half a minute after they
/// were killed.
const GROUP_LIMIT: Duration = Duration::from_secs(45);

/// Topics that exist. In a cluster that the demo did not start, drop deletes the topics that it
/// created.
#[derive(Debug)]
pub(crate) struct Topics {
    client: Client,
    created: Vec<&'static str>,
}

impl Topics {
    /// Creates the missing topics. Fails if the topics hold records, or if the group stays in use.
    pub(crate) fn create(kafka: &Broker, stop: &Stop) -> Result<Topics> {
        let client = Client::connect(kafka.bootstrap(), TIMEOUT)?;
        let created = Vec::new();
        let mut topics = Topics { client, created };
        let shared = kafka.is_external();
        if shared {
            topics.leave_others_alone(kafka.bootstrap())?;
            topics.wait_for_free_group(stop)?;
        }
        for name in all() {
            let known = topics.client.metadata(Some(&[name]))?;
            // Noted before the creation, so that a creation that fails halfway is undone as well.
            if shared && !known.topics.contains_key(name) {
                topics.created.push(name);
            }
            if OWN.contains(&name) {
                continue;
            }
            topics
                .client
                .create_topic(name, PARTITIONS, BROKERS_CHOICE, &[])?;
        }
        Ok(topics)
    }

    /// Fails if one of the topics has records. The demo must not count or delete records of others.
    fn leave_others_alone(&mut self, bootstrap: &str) -> Result<()> {
        for name in all() {
            let known = self.client.metadata(Some(&[name]))?;
            if !known.topics.contains_key(name) {
                continue;
            }
            let ends = self.client.end_offsets(name, Isolation::ReadUncommitted)?;
            if ends.iter().any(|end| *end > 0) {
                bail!(
                    "topic {name} at {bootstrap} is in use: the demo counts records and needs {} \
                     to be absent or empty. Unset {BOOTSTRAP_VAR} to have a Kafka started for the \
                     demo, or delete these topics",
                    all().collect::<Vec<_>>().join(", ")
                );
            }
        }
        Ok(())
    }

    /// Waits until the group has no members. Killed members hold their partitions until their
    /// session expires.
    fn wait_for_free_group(&mut self, stop: &Stop) -> Result<()> {
        if !self.client.group_members(APP)?.members.is_empty() {
            println!(
                "Waiting for group {APP}: members of an earlier run hold it for half a minute"
            );
        }
        let what = format!("group {APP} has no members: stop the other programs that use it");
        stop.wait_for(GROUP_LIMIT, &what, || {
            let free = self.client.group_members(APP)?.members.is_empty();
            Ok(free.then_some(()))
        })
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        for name in &self.created {
            // The cluster may be gone already.
            let _ = self.client.delete_topic(name);
        }
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    [INPUT].into_iter().chain(OUTPUTS).chain(OWN)
}
