//! Whether a run processed each record exactly once, from what it left behind.

use std::collections::BTreeMap;

use eos_core::WorkerError;
use eos_protocol::partition_for;
use eos_state::{Direction, KeyRange, StoreBackend};

use super::disk::Disk;
use super::shape::{APP, INPUT, OUTPUTS, Shape};
use crate::client::Cluster;

/// A record of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) seq: u64,
    pub(crate) key: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// Why a worker must never end so: nothing that the simulation does loses what Kafka acknowledged.
pub(crate) fn never(error: &WorkerError) -> Option<&'static str> {
    match error {
        WorkerError::Restart(_) | WorkerError::Start(_) => {
            Some("a task is refused although nothing was lost")
        }
        WorkerError::OffsetOutOfRange { .. } => Some("an offset is gone that nobody deleted"),
        WorkerError::Changelog(_) | WorkerError::OtherStore { .. } => {
            Some("a changelog holds what is not its own")
        }
        WorkerError::Record { .. } | WorkerError::Results { .. } => Some("a record failed"),
        WorkerError::Store { .. } => Some("a database failed"),
        WorkerError::OutOfOrder(_) => Some("a record came out of order"),
        WorkerError::Recreated { .. } => Some("a topic is another one"),
        _ => None,
    }
}

/// The topics that the app reads.
fn inputs(shape: Shape) -> Vec<String> {
    let mut topics = vec![INPUT.to_owned()];
    if shape == Shape::Repartitioned {
        topics.push(format!("{APP}-by-digit-repartition"));
    }
    topics
}

fn changelog(shape: Shape) -> Option<String> {
    match shape {
        Shape::Stateless => None,
        Shape::Counting => Some(format!("{APP}-{INPUT}-changelog")),
        Shape::Repartitioned => Some(format!("{APP}-by-digit-repartition-changelog")),
    }
}

/// The topics that tell how far it is.
pub(crate) fn topics(shape: Shape) -> Vec<String> {
    let outputs = OUTPUTS.iter().map(|it| (*it).to_owned());
    inputs(shape).into_iter().chain(changelog(shape)).chain(outputs).collect()
}

/// Whether the group has committed everything that there is to read, and every transaction has ended.
pub(crate) fn is_committed(cluster: &Cluster, shape: Shape) -> bool {
    let ended = topics(shape).iter().all(|topic| {
        let mut partitions = 0..cluster.partitions(topic);
        partitions.all(|partition| {
            let (stable, high) = cluster.ends(topic, partition);
            stable == high
        })
    });
    ended &&
    inputs(shape).iter().all(|topic| {
        (0..cluster.partitions(topic)).all(|partition| {
            let (stable, high) = cluster.ends(topic, partition);
            let last = cluster.read(topic, partition).last().map(|it| it.offset + 1);
            let committed = cluster.committed(APP, topic, partition);
            let there = committed.map(|it| last.is_none_or(|last| it.unwrap_or(0) >= last));
            stable == high && there == Ok(true)
        })
    })
}

/// What is wrong.
pub(crate) fn judge<'a>(
    cluster: &Cluster,
    shape: Shape,
    partitions: i32,
    inputs: &[Input],
    disks: impl Iterator<Item = &'a Disk>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for output in OUTPUTS {
        output_is_right(cluster, shape, partitions, inputs, output, &mut wrong);
    }
    for topic in OUTPUTS.iter().map(|it| (*it).to_owned()).chain(changelog(shape)) {
        for partition in 0..cluster.partitions(&topic) {
            let (stable, high) = cluster.ends(&topic, partition);
            if stable != high {
                wrong.push(format!(
                    "{topic}-{partition}: a transaction is open: stable {stable}, end {high}"
                ));
            }
        }
    }
    if let Some(topic) = changelog(shape) {
        state_is_right(cluster, shape, inputs, &topic, disks, &mut wrong);
    }
    wrong
}

fn output_is_right(
    cluster: &Cluster,
    shape: Shape,
    partitions: i32,
    inputs: &[Input],
    output: &str,
    wrong: &mut Vec<String>,
) {
    let mut seen: BTreeMap<u64, i64> = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut last: BTreeMap<(String, i32), i64> = BTreeMap::new();
    for partition in 0..partitions {
        for record in cluster.read(output, partition) {
            let at = format!("{output}-{partition}@{}", record.offset);
            let text = |bytes: Option<&[u8]>| {
                String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
            };
            let key = text(record.key.as_deref());
            let value = text(record.value.as_deref());
            let mut words = value.split(' ');
            let seq = words.next().and_then(|it| it.parse::<u64>().ok());
            let input = seq.and_then(|seq| inputs.get(usize::try_from(seq).ok()?));
            let Some(input) = input else {
                wrong.push(format!("{at}: no input led to it: {value:?}"));
                continue;
            };
            if let Some(before) = seen.insert(input.seq, record.offset) {
                wrong.push(format!("{at}: doubled: {} is at {before} too", input.seq));
            }
            if key != shape.key(&input.key) {
                wrong.push(format!("{at}: of {:?}, under the key {key:?}", input.key));
            }
            let of = (key.clone(), input.partition);
            if let Some(before) = last.insert(of, input.offset)
                && before > input.offset
            {
                wrong.push(format!("{at}: reordered: {} after {before}", input.offset));
            }
            if shape.counts() {
                let count = counts.entry(key).or_default();
                *count += 1;
                let told = words.nth(1).and_then(|it| it.parse::<u64>().ok());
                if told != Some(*count) {
                    wrong.push(format!("{at}: count {told:?} instead of {count}"));
                }
            }
        }
    }
    for input in inputs {
        if !seen.contains_key(&input.seq) {
            wrong.push(format!("{output}: lost: {input:?}"));
        }
    }
}

fn state_is_right<'a>(
    cluster: &Cluster,
    shape: Shape,
    inputs: &[Input],
    topic: &str,
    disks: impl Iterator<Item = &'a Disk>,
    wrong: &mut Vec<String>,
) {
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for input in inputs {
        *expected.entry(shape.key(&input.key).into_bytes()).or_default() += 1;
    }
    let width = cluster.partitions(topic);
    let number = |value: &[u8]| value.try_into().map_or(u64::MAX, u64::from_be_bytes);
    let mut logged: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for partition in 0..width {
        for record in cluster.read(topic, partition) {
            let key = record.key.unwrap_or_default();
            // A store's id comes first; a commit record has nothing behind it.
            if key.len() > 4 {
                let value = record.value.unwrap_or_default();
                logged.insert(key[4..].to_vec(), number(&value));
            }
        }
    }
    if logged != expected {
        wrong.push(format!("{topic} holds {logged:?}, expected {expected:?}"));
    }
    for disk in disks {
        for (home, database) in disk.open() {
            let of_task = expected.iter().filter(|(key, _)| {
                let count = u32::try_from(width).unwrap_or(1);
                partition_for(key, count) == home.task.partition
            });
            let of_task: BTreeMap<_, _> = of_task.map(|(key, it)| (key.clone(), *it)).collect();
            let mut found = BTreeMap::new();
            for store in database.stores().unwrap_or_default() {
                let all = KeyRange::prefix(&[]);
                let Ok(mut cursor) = database.scan(store, &all, Direction::Forward) else {
                    continue;
                };
                while let Some((key, value)) = cursor.entry() {
                    found.insert(key.to_vec(), number(value));
                    if cursor.advance().is_err() {
                        break;
                    }
                }
            }
            let keeps = !of_task.is_empty() || !found.is_empty();
            if keeps && found != of_task {
                wrong.push(format!(
                    "the database of {} holds {found:?}, expected {of_task:?}",
                    home.task
                ));
            }
        }
    }
}
