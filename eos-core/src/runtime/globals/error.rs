//! Errors of global tables.

use std::time::Duration;

use eos_protocol::global::{GlobalStalled, StaleCopy};
use eos_protocol::{Offset, TopicChange, TopicName, TopicPartition, code};

use crate::advice::advice;
use crate::client::ClientError;
use crate::worker::HomeError;

/// An error of a global table, which ends the app.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// The reader made no progress towards the end of a topic at the start.
    #[error(transparent)]
    Stalled(#[from] GlobalStalled),
    /// The brokers did not report the beginnings and ends of the topics.
    #[error(
        "the global tables can't be read: the brokers did not report the ends of {} within {waited_s} s. Are the leaders of \
         their partitions reachable, and may this user describe the topics (kafka-acls.sh --add --operation Describe)?",
        listed(.topics)
    )]
    NoEnds {
        /// The topics.
        topics: Vec<TopicName>,
        /// The wait in seconds.
        waited_s: u64,
    },
    /// A record can't be decoded.
    #[error(
        "record {offset} of {partition} can't become a row of the global table {table}: {reason}. Write a valid record, or a \
         tombstone, and delete this one (kafka-delete-records.sh), or skip such records with `.on_error(ErrorPolicy::skip())`"
    )]
    Undecodable {
        /// The global table.
        table: String,
        /// The partition.
        partition: TopicPartition,
        /// The offset.
        offset: Offset,
        /// The cause.
        reason: String,
    },
    /// The topic has changed while the app ran.
    #[error(
        "the topic {topic} of the global table {table} {change}. The tasks have committed what they processed. {}Restart every \
         instance: each reads the topic from the beginning",
        if matches!(change, TopicChange::Deleted { .. }) { "Create the topic again. " } else { "" }
    )]
    Changed {
        /// The global table.
        table: String,
        /// The topic.
        topic: TopicName,
        /// How it has changed.
        change: TopicChange,
    },
    /// Records were deleted before they were read.
    #[error(
        "the global table {table}: the records of {partition} from offset {next} on were deleted before they were read, so rows \
         may be missing or remain. Restart the process: it reads the topic from the beginning"
    )]
    Deleted {
        /// The global table.
        table: String,
        /// The partition.
        partition: TopicPartition,
        /// The next offset to read.
        next: Offset,
    },
    /// Tombstones may have been compacted away before they were read.
    #[error(
        "the copy of the global table {table} is not up to date with its topic {topic} any more: {why}. Restart the process: it \
         reads the topic from the beginning"
    )]
    Stale {
        /// The global table.
        table: String,
        /// The topic.
        topic: TopicName,
        /// The cause.
        why: StaleCopy,
    },
    /// The start read for longer than tombstones exist.
    #[error(
        "reading the topic {topic} of the global table {table} took {} s at the start. Its delete.retention.ms is {} s, and later \
         deletions may be compacted away, so rows may be left that were deleted. Raise it above the duration of a start \
         (kafka-configs.sh --alter --topic {topic} --add-config delete.retention.ms=..), then restart the process",
        took.as_secs(), retention.as_secs()
    )]
    SlowStart {
        /// The global table.
        table: String,
        /// The topic.
        topic: TopicName,
        /// The duration of the start.
        took: Duration,
        /// `delete.retention.ms` of the topic.
        retention: Duration,
    },
    /// The local copy failed.
    #[error(
        "the copy of the global table {table} failed: {source}. After a restart, a damaged copy is deleted and read again \
         from its topic"
    )]
    Copy {
        /// The global table.
        table: String,
        /// The cause.
        source: Box<HomeError>,
    },
    /// The Kafka client failed.
    #[error("the global tables can't be read from {}: {source}{}", listed(.topics), fix(.source))]
    Client {
        /// The topics.
        topics: Vec<TopicName>,
        /// The cause.
        source: ClientError,
    },
}

/// Returns the fix for an error of the client.
fn fix(error: &ClientError) -> &'static str {
    match error.fault.code {
        code::TOPIC_AUTHORIZATION_FAILED => {
            ". Give this app the right to read the topics of its global tables (kafka-acls.sh --add --operation Read \
             --topic ..)"
        }
        _ => advice(error),
    }
}

fn listed(topics: &[TopicName]) -> String {
    let names: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
    names.join(", ")
}
