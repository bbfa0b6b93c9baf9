//! `eos kafka topic | produce | read`: topics and records by hand, to try a pipeline.
//!
//! The commands use the cluster that `up` started, or the cluster in `EOS_BOOTSTRAP_SERVERS`.

use std::io::{BufRead, ErrorKind, Write};
use std::time::Duration;

use anyhow::{Result, bail};
use kafka_wire::lines::{self, Extras, Keys};
use kafka_wire::{Client, Isolation, Producer};

use super::local;
use crate::program::program;

const PATIENCE: Duration = Duration::from_secs(20);

/// The default number of partitions. The examples use it, and all inputs of one stage should have the same number.
const PARTITIONS: i32 = 6;

/// Replicas of a topic, if there are as many brokers.
const REPLICAS: usize = 3;

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewTopic {
    name: String,
    partitions: i32,
}

impl std::str::FromStr for NewTopic {
    type Err = String;

    /// `name` or `name:partitions`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, partitions) = match text.split_once(':') {
            None => (text, PARTITIONS),
            Some((name, count)) => (
                name,
                count.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                    format!("{count:?} is not a number of partitions: write name:{PARTITIONS}")
                })?,
            ),
        };
        if name.is_empty() {
            return Err("a topic needs a name".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            partitions,
        })
    }
}

/// Creates topics unless they exist. Returns the resulting topics as text.
///
/// # Errors
/// When no cluster is up, a name is refused, or a topic exists with another number of partitions.
pub(crate) fn create_topics(topics: &[NewTopic]) -> Result<String> {
    let mut client = connect()?;
    let before = client.metadata(None)?;
    let replicas = before.brokers.len().clamp(1, REPLICAS) as i16;
    let mut lines = Vec::new();
    for NewTopic { name, partitions } in topics {
        client.create_topic(name, *partitions, replicas, &[])?;
        let there = if before.topics.contains_key(name) {
            "was there"
        } else {
            "created"
        };
        lines.push(format!("{name}: {partitions} partitions, {there}"));
    }
    Ok(lines.join("\n"))
}

/// A header of produced records: `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    name: String,
    value: String,
}

impl std::str::FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(format!("{text:?} is no header: write `name=value`")),
        }
    }
}

impl Header {
    fn parts(&self) -> (&str, &[u8]) {
        (&self.name, self.value.as_bytes())
    }
}

/// Sends each line as a record with these headers, to the partition that Java's producer selects for its key. The
/// timestamp is in milliseconds since 1970; `None` is the current time. Returns the number of acknowledged records.
///
/// # Errors
/// When no cluster is up, there is no such topic, or a line can't be parsed; the lines before it are
/// sent all the same.
pub(crate) fn produce(
    topic: &str,
    lines: impl BufRead,
    keys: Keys,
    headers: &[Header],
    timestamp: Option<i64>,
) -> Result<u64> {
    let bootstrap = local::address()?;
    must_exist(&mut Client::connect(&bootstrap, PATIENCE)?, topic)?;
    let mut producer = Producer::with_patience(&bootstrap, PATIENCE)?;
    let headers: Vec<_> = headers.iter().map(Header::parts).collect();
    let extras = Extras {
        headers: &headers,
        timestamp,
    };
    lines::produce(&mut producer, topic, lines, keys, extras)
}

/// Writes the records of a topic, partition by partition. `timestamps` adds them in milliseconds since 1970.
///
/// # Errors
/// When no cluster is up, there is no such topic, or `out` can't be written to. A closed pipe (`| head`)
/// is no error.
pub(crate) fn read(
    topic: &str,
    isolation: Isolation,
    timestamps: bool,
    out: &mut impl Write,
) -> Result<()> {
    let mut client = connect()?;
    must_exist(&mut client, topic)?;
    let mut written = Ok(());
    client.read_all(topic, isolation, |partition, record| {
        if written.is_ok() {
            written = writeln!(out, "{}", lines::render(partition, record, timestamps));
        }
    })?;
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn connect() -> Result<Client> {
    Client::connect(&local::address()?, PATIENCE)
}

/// Fails if the topic does not exist. Otherwise the client would wait for it, as for a topic that is being created.
fn must_exist(client: &mut Client, topic: &str) -> Result<()> {
    if client.metadata(None)?.topics.contains_key(topic) {
        return Ok(());
    }
    bail!(
        "topic {topic:?} does not exist: create it with `{} kafka topic {topic}`",
        program()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_name_and_maybe_a_number() {
        let parse = |text: &str| text.parse::<NewTopic>().map(|t| (t.name, t.partitions));
        assert_eq!(parse("orders"), Ok(("orders".into(), PARTITIONS)));
        assert_eq!(parse("orders:12"), Ok(("orders".into(), 12)));
        for wrong in ["orders:many", "orders:0", ":3", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
