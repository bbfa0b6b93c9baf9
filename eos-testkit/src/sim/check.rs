//! Whether a run processed each record exactly once, from what it left behind.

use std::collections::BTreeMap;

use eos_core::WorkerError;
use eos_protocol::state::Standing;
use eos_protocol::{TaskId, partition_for};
use eos_state::{Direction, KeyRange, StoreBackend, StoreError};

use super::shape::{APP, INPUT, OUTPUTS, Shape};
use crate::client::Cluster;
use crate::oracle::{
    Contents, Evidence, Expectation, Fold, Input, Keys, LogEnd, Output, Row, StateCopy, judge, text,
};

/// How many bytes of a changelog's key the store's id takes; a commit record has nothing behind it.
const STORE_ID: usize = 4;

/// A record of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) seq: u64,
    pub(crate) key: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// A copy of a task's database, as its process left it.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) task: TaskId,
    /// Somebody had it open at the end.
    pub(crate) open: bool,
    /// The input offset that it says it is at; nothing if it is not whole, or was never written.
    position: Option<i64>,
    /// It was written to.
    written: bool,
    /// It says that it is the state of a transaction, and not a part of a changelog.
    whole: bool,
    contents: Contents,
}

impl Copied {
    pub(crate) fn read(
        task: TaskId,
        open: bool,
        from: &dyn StoreBackend,
    ) -> Result<Copied, StoreError> {
        Ok(Copied {
            task,
            open,
            position: position(from),
            written: from.position().is_some(),
            whole: (from.position()).is_some_and(|it| matches!(it.standing, Standing::At { .. })),
            contents: held(from)?,
        })
    }
}

/// Why a worker must not end so: nothing that the simulation does loses what Kafka acknowledged, or takes a right
/// away. Its identity may be somebody else's for a moment, when a request of the process before it arrives late.
pub(crate) fn never(error: &WorkerError) -> Option<&'static str> {
    match error {
        WorkerError::TwoOwners { .. } => None,
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
        WorkerError::TopicChanged(_) => Some("a topic is another one"),
        _ => Some("a worker ended although it could have gone on"),
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
    inputs(shape)
        .into_iter()
        .chain(changelog(shape))
        .chain(outputs)
        .collect()
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
    ended
        && inputs(shape).iter().all(|topic| {
            (0..cluster.partitions(topic)).all(|partition| {
                let committed = cluster.committed(APP, topic, partition);
                // Behind it there may be markers.
                committed.is_ok_and(|it| {
                    let rest = cluster.read_from(topic, partition, it.unwrap_or(0));
                    rest.is_empty()
                })
            })
        })
}

/// How often each key came.
fn counts() -> Fold {
    Fold::new(|contents, record| {
        let key = record.key.unwrap_or_default().to_vec();
        let count = contents.entry(key).or_insert_with(|| vec![0; 8]);
        let next = number(count) + 1;
        *count = next.to_be_bytes().to_vec();
        i64::try_from(next).unwrap_or(i64::MAX)
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// What is wrong.
pub(crate) fn violations(
    cluster: &Cluster,
    shape: Shape,
    partitions: i32,
    given: &[Given],
    databases: &[Copied],
) -> Vec<String> {
    let mut keys = Keys::default();
    let rows = given.iter().map(|it| Row {
        seq: Some(it.seq),
        key: keys.intern(Some(shape.key(&it.key).as_bytes())),
        partition: it.partition,
        offset: it.offset,
        value: 0,
    });
    let ends = (0..partitions).map(|it| cluster.ends(INPUT, it).1);
    let input = match Input::new(INPUT, rows.collect(), ends.collect()) {
        Ok(input) => input,
        Err(error) => return vec![error.to_string()],
    };
    let outputs = OUTPUTS.map(|topic| output(cluster, shape, partitions, topic, &mut keys));
    let committed = (0..partitions).map(|it| cluster.committed(APP, INPUT, it).ok());
    let mut wrong = in_parts(cluster, shape, databases);
    let state = match shape {
        Shape::Stateless => Vec::new(),
        Shape::Counting => copies(cluster, shape, databases),
        // A task counts what comes from several partitions of the input: nothing that one of them folds into.
        Shape::Repartitioned => {
            counted_across(cluster, shape, given, databases, &mut wrong);
            Vec::new()
        }
    };
    let evidence = Evidence {
        input,
        outputs: outputs.into(),
        committed: committed.collect(),
        state,
        keys,
        ..Evidence::default()
    };
    let verdict = judge(&evidence, Expectation::Finished);
    if !verdict.is_clean() {
        wrong.insert(0, text(&evidence, &verdict));
    }
    wrong
}

fn output(
    cluster: &Cluster,
    shape: Shape,
    partitions: i32,
    topic: &str,
    keys: &mut Keys,
) -> Output {
    let mut rows = Vec::new();
    let mut ends = Vec::new();
    for partition in 0..partitions {
        let (last_stable, high_watermark) = cluster.ends(topic, partition);
        ends.push(LogEnd {
            last_stable,
            high_watermark,
        });
        for record in cluster.read(topic, partition) {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            let mut words = value.split(' ');
            rows.push(Row {
                seq: words.next().and_then(|it| it.parse().ok()),
                key: keys.intern(record.key.as_deref()),
                partition,
                offset: record.offset,
                // Behind the digit that its input brings along.
                value: words.nth(1).and_then(|it| it.parse().ok()).unwrap_or(0),
            });
        }
    }
    Output {
        topic: topic.to_owned(),
        uncommitted: rows.len() as u64,
        rows,
        ends,
        running: (shape == Shape::Counting).then(counts),
        ..Output::default()
    }
}

/// Databases that are open and not whole, although there is something to restore: everything has come to its end,
/// and no task takes a record before its state is there. One that was cleared as damaged and never restored would
/// be nothing to compare, else.
fn in_parts(cluster: &Cluster, shape: Shape, databases: &[Copied]) -> Vec<String> {
    let Some(topic) = changelog(shape) else {
        return Vec::new();
    };
    let open = databases.iter().filter(|it| it.open && !it.whole);
    let wrong = open.filter_map(|it| {
        let (task, partition) = (it.task, it.task.partition.get());
        let count = cluster.read(&topic, partition).len();
        (count > 0).then(|| {
            format!(
                "the database of task {task} is open and not whole, although {topic}-{partition} has {count} \
                 records"
            )
        })
    });
    wrong.collect()
}

/// The changelog and the databases, each as what the input partition of its task is to make of it.
fn copies(cluster: &Cluster, shape: Shape, databases: &[Copied]) -> Vec<StateCopy> {
    let fold = counts();
    let mut copies = Vec::new();
    if let Some(topic) = changelog(shape) {
        for partition in 0..cluster.partitions(&topic) {
            let name = format!("changelog {topic}-{partition}");
            let contents = logged(cluster, &topic, partition);
            copies.push(StateCopy::new(name, &fold, partition, contents));
        }
    }
    for it in databases {
        // A restore that was interrupted says of itself that it is nothing yet.
        if it.position.is_none() {
            continue;
        }
        let name = format!("database of task {}", it.task);
        let partition = it.task.partition.get();
        let copy = StateCopy::new(name, &fold, partition, it.contents.clone());
        copies.push(StateCopy {
            position: it.position,
            // That of a process which has not got the task any more is what it was then.
            may_lag: !it.open,
            ..copy
        });
    }
    copies
}

/// The input offset that a database says it is at; nothing before it was whole.
fn position(database: &dyn StoreBackend) -> Option<i64> {
    match &database.position()?.standing {
        Standing::At { inputs, .. } => {
            let mut inputs = inputs.iter();
            let input = inputs.find(|(partition, _)| partition.topic.as_str() == INPUT);
            input.map(|(_, offset)| offset.get())
        }
        _ => None,
    }
}

/// What a changelog's partition adds up to.
fn logged(cluster: &Cluster, topic: &str, partition: i32) -> Contents {
    let mut contents = Contents::new();
    for record in cluster.read(topic, partition) {
        let key = record.key.unwrap_or_default();
        if key.len() <= STORE_ID {
            continue;
        }
        let key = key[STORE_ID..].to_vec();
        match record.value {
            Some(value) => contents.insert(key, value.to_vec()),
            None => contents.remove(&key),
        };
    }
    contents
}

/// What a database holds.
fn held(database: &dyn StoreBackend) -> Result<Contents, StoreError> {
    let mut contents = Contents::new();
    for store in database.stores()? {
        let all = KeyRange::prefix(&[]);
        let mut cursor = database.scan(store, &all, Direction::Forward)?;
        while let Some((key, value)) = cursor.entry() {
            contents.insert(key.to_vec(), value.to_vec());
            cursor.advance()?;
        }
    }
    Ok(contents)
}

/// Counts of what came through a repartition topic: each update one more, and state as a loop would have it.
fn counted_across(
    cluster: &Cluster,
    shape: Shape,
    given: &[Given],
    databases: &[Copied],
    wrong: &mut Vec<String>,
) {
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for it in given {
        *expected.entry(shape.key(&it.key).into_bytes()).or_default() += 1;
    }
    for topic in OUTPUTS {
        let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for partition in 0..cluster.partitions(topic) {
            for record in cluster.read(topic, partition) {
                let count = counts
                    .entry(record.key.clone().unwrap_or_default().to_vec())
                    .or_default();
                *count += 1;
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                let told = value
                    .split(' ')
                    .nth(2)
                    .and_then(|it| it.parse::<u64>().ok());
                if told != Some(*count) {
                    let offset = record.offset;
                    wrong.push(format!(
                        "{topic}-{partition}, offset {offset}: count {told:?} instead of {count}"
                    ));
                }
            }
        }
    }
    if let Some(topic) = changelog(shape) {
        let width = cluster.partitions(&topic);
        for partition in 0..width {
            let of_it = |key: &[u8]| {
                let count = u32::try_from(width).unwrap_or(1);
                partition_for(key, count).get() == partition
            };
            let due = expected.iter().filter(|(key, _)| of_it(key));
            let due: Contents = due
                .map(|(key, count)| (key.clone(), count.to_be_bytes().to_vec()))
                .collect();
            let found = logged(cluster, &topic, partition);
            if found != due {
                wrong.push(format!("{topic}-{partition} holds {found:?}, not {due:?}"));
            }
            // Only tasks that keep counts hold anything.
            let own = databases.iter().filter(|it| {
                let of_it = it.task.partition.get() == partition;
                of_it && it.open && it.written
            });
            for it in own {
                let (found, task) = (&it.contents, it.task);
                if *found != due {
                    wrong.push(format!("database of {task} holds {found:?}, not {due:?}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eos_protocol::{Partition, StageId};

    use super::*;
    use crate::broker::{Broker, BrokerOptions};
    use crate::client::Written;

    const SHAPE: Shape = Shape::Counting;

    /// The database of a task that nobody has written to.
    fn nothing(partition: i32, open: bool) -> Copied {
        Copied {
            task: TaskId {
                stage: StageId(0),
                partition: Partition::new(partition).unwrap(),
            },
            open,
            position: None,
            written: false,
            whole: false,
            contents: Contents::new(),
        }
    }

    #[test]
    fn an_open_database_is_whole_in_the_end_if_there_is_something_to_restore() {
        let cluster = Cluster::new(Broker::new(BrokerOptions::default()), 0);
        let topic = changelog(SHAPE).unwrap();
        cluster.add_topic(&topic, 2).unwrap();
        let record = Written {
            timestamp: 0,
            key: Some(b"\0\0\0\x01a"),
            value: Some(b"1"),
            headers: &[],
        };
        cluster.produce(&topic, 1, &record).unwrap();
        let wrong = |databases: &[Copied]| in_parts(&cluster, SHAPE, databases);
        // There is nothing to restore, and nobody has it open.
        assert!(wrong(&[nothing(0, true), nothing(1, false)]).is_empty());
        let restored = Copied {
            whole: true,
            written: true,
            ..nothing(1, true)
        };
        assert!(wrong(&[restored]).is_empty());
        let found = wrong(&[nothing(0, true), nothing(1, true)]);
        assert_eq!(
            found,
            [
                "the database of task 0_1 is open and not whole, although sim-in-changelog-1 has 1 records"
            ]
        );
        assert!(in_parts(&cluster, Shape::Stateless, &[nothing(1, true)]).is_empty());
    }
}
