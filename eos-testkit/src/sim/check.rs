//! Whether a run processed each record exactly once, from what it left behind.

use std::collections::BTreeMap;

use eos_core::WorkerError;
use eos_protocol::state::Standing;
use eos_protocol::{TaskId, partition_for};
use eos_state::{Direction, KeyRange, StoreBackend, StoreError};

use super::policies::{self, Kind};
use super::shape::{APP, INPUT, OUTPUTS, Shape};
use super::{joined, merged, windowed};
use crate::client::Cluster;
use crate::oracle::{
    Contents, Evidence, Expectation, Fold, Input, Keys, LogEnd, Output, Row, StateCopy, judge, text,
};

/// How many bytes of a changelog's key the store's id takes; a commit record has nothing behind it.
const STORE_ID: usize = 4;

/// A record of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) seq: u64,
    pub(crate) topic: &'static str,
    pub(crate) key: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    /// Whether it deletes the row of its key.
    pub(crate) tombstone: bool,
    /// Its effect on the app's closure.
    pub(crate) kind: Kind,
    /// The committed offset of the sibling topic when this record arrived. Records below it are processed
    /// before this one.
    pub(crate) behind: i64,
}

/// A copy of a task's database, as its process left it.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) task: TaskId,
    /// Somebody had it open at the end.
    pub(crate) open: bool,
    /// The stored offsets of the inputs, by topic. Empty if the database is not whole or was never written.
    pub(super) positions: BTreeMap<String, i64>,
    /// The stored stream time.
    pub(super) stream_time: Option<i64>,
    /// It was written to.
    pub(super) written: bool,
    /// It says that it is the state of a transaction, and not a part of a changelog.
    pub(super) whole: bool,
    pub(super) contents: Contents,
}

impl Copied {
    pub(crate) fn read(
        task: TaskId,
        open: bool,
        from: &dyn StoreBackend,
    ) -> Result<Copied, StoreError> {
        let mut copied = Copied {
            task,
            open,
            positions: BTreeMap::new(),
            stream_time: None,
            written: from.position().is_some(),
            whole: false,
            contents: held(from)?,
        };
        // No earlier copy was whole.
        if let Some(position) = from.position()
            && let Standing::At {
                inputs,
                stream_time,
                ..
            } = &position.standing
        {
            copied.whole = true;
            copied.stream_time = stream_time.map(|it| it.0);
            let inputs = inputs.iter();
            copied.positions = inputs
                .map(|(partition, offset)| (partition.topic.to_string(), offset.get()))
                .collect();
        }
        Ok(copied)
    }

    /// The stored offset of this input.
    pub(super) fn position(&self, topic: &str) -> Option<i64> {
        self.positions.get(topic).copied()
    }
}

/// The findings of a run.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Violations.
    pub(super) wrong: Vec<String>,
    /// How often the behaviour that a shape covers has occurred.
    pub(super) seen: BTreeMap<&'static str, u64>,
}

impl Found {
    pub(super) fn saw(&mut self, what: &'static str, times: usize) {
        *self.seen.entry(what).or_default() += times as u64;
    }

    /// Adds the oracle's violations in front, because they say most.
    fn judged(&mut self, by_oracle: Vec<String>) {
        self.wrong.splice(0..0, by_oracle);
    }
}

/// The final state of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) shape: Shape,
    /// The partition count of each input and output.
    pub(super) partitions: i32,
    pub(super) given: &'a [Given],
    /// The number of records that arrived before the last start. The others were all there before any was processed.
    pub(super) before_last: usize,
    /// The number of records that arrived before the last fault ended and all records were committed.
    pub(super) after_faults: usize,
    pub(super) databases: &'a [Copied],
}

impl<'a> Left<'a> {
    /// The records of an input, in the order of their numbers.
    pub(super) fn of(&self, topic: &str) -> impl Iterator<Item = &'a Given> {
        self.given.iter().filter(move |it| it.topic == topic)
    }

    /// The records of a partition before the last start, for two topics that one task reads in order of time. The
    /// older record comes first; at equal times, the first topic's record does.
    pub(super) fn by_time(&self, topics: [&str; 2], partition: i32) -> Vec<&'a Given> {
        let last = self.given.get(self.before_last..).unwrap_or_default();
        let of = |topic| {
            let its = move |it: &&Given| it.topic == topic && it.partition == partition;
            last.iter().filter(its).peekable()
        };
        let [mut first, mut second] = topics.map(of);
        let next = || match (first.peek(), second.peek()) {
            (Some(one), Some(other)) if other.timestamp < one.timestamp => second.next(),
            (Some(_), _) => first.next(),
            (None, _) => second.next(),
        };
        std::iter::from_fn(next).collect()
    }

    /// Evidence of these records of an input, with the offsets that the group committed for it.
    pub(super) fn evidence(
        &self,
        topic: &str,
        rows: Vec<Row>,
        keys: Keys,
    ) -> Result<Evidence, String> {
        let ends = (0..self.partitions).map(|it| self.cluster.ends(topic, it).1);
        let input = Input::new(topic, rows, ends.collect()).map_err(|error| error.to_string())?;
        let committed = (0..self.partitions).map(|it| self.cluster.committed(APP, topic, it).ok());
        Ok(Evidence {
            input,
            committed: committed.collect(),
            keys,
            ..Evidence::default()
        })
    }

    /// The contents of an output. `running` is the fold that its values follow.
    pub(super) fn output(&self, topic: &str, keys: &mut Keys, running: Option<Fold>) -> Output {
        output(self.cluster, self.partitions, topic, keys, running)
    }

    /// The contents of a task's changelog.
    pub(super) fn logged(&self, topic: &str, partition: i32) -> Contents {
        logged(self.cluster, topic, partition)
    }

    /// Finds outputs outside the partition of their input, or not in the order of their inputs. This is stricter
    /// than Kafka's order by key, because a task processes its input in order.
    pub(super) fn out_of_order(&self, output: &str, found: &mut Found) {
        for partition in 0..self.cluster.partitions(output) {
            let mut before: BTreeMap<&str, i64> = BTreeMap::new();
            for record in self.cluster.read(output, partition) {
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                let seq = value.split(' ').next().and_then(|it| it.parse().ok());
                let given = seq.and_then(|it: usize| self.given.get(it));
                let Some(given) = given else {
                    continue;
                };
                let at = before.insert(given.topic, given.offset).unwrap_or(-1);
                if given.partition != partition || given.offset <= at {
                    let (offset, topic) = (record.offset, given.topic);
                    found.wrong.push(format!(
                        "VIOLATED reordered: {output}-{partition}, offset {offset} is of {topic}-{}, offset {}, \
                         behind {at}",
                        given.partition, given.offset
                    ));
                }
            }
        }
    }
}

/// The violations, if there are any.
pub(super) fn verdict(evidence: &Evidence) -> Option<String> {
    let verdict = judge(evidence, Expectation::Finished);
    (!verdict.is_clean()).then(|| text(evidence, &verdict))
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
    let inputs = shape.inputs().iter().map(|it| (*it).to_owned());
    let mut topics: Vec<_> = inputs.collect();
    if shape == Shape::Repartitioned {
        topics.push(format!("{APP}-by-digit-repartition"));
    }
    topics
}

pub(super) fn changelog(shape: Shape) -> Option<String> {
    match shape {
        Shape::Stateless | Shape::Merged | Shape::AtLeastOnce => None,
        Shape::Counting | Shape::Skipping | Shape::DeadLetters => {
            Some(format!("{APP}-{INPUT}-changelog"))
        }
        Shape::Repartitioned => Some(format!("{APP}-by-digit-repartition-changelog")),
        Shape::Windowed => Some(format!("{APP}-{INPUT}-windowed-changelog")),
        // The stage has the name of the topic that is declared first.
        Shape::Joined => Some(format!("{APP}-{}-changelog", joined::ROWS)),
    }
}

/// The topics that tell how far it is.
pub(crate) fn topics(shape: Shape) -> Vec<String> {
    let outputs = shape.outputs().iter().map(|it| (*it).to_owned());
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

/// The violations, and the behaviour that occurred.
pub(super) fn judged(left: Left<'_>) -> Found {
    let mut found = Found {
        wrong: in_parts(left.cluster, left.shape, left.databases),
        ..Found::default()
    };
    let by_oracle = match left.shape {
        Shape::Stateless | Shape::Counting | Shape::Repartitioned | Shape::AtLeastOnce => {
            counts_of(left, &mut found)
        }
        Shape::Windowed => windowed::judge(left, &mut found),
        Shape::Joined => joined::judge(left, &mut found),
        Shape::Merged => merged::judge(left, &mut found),
        Shape::Skipping | Shape::DeadLetters => policies::judge(left, &mut found),
    };
    found.judged(by_oracle.unwrap_or_else(|why| vec![why]));
    found
}

/// Checks an app that counts by key, or one that counts nothing.
fn counts_of(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let shape = left.shape;
    let mut keys = Keys::default();
    let rows = left.of(INPUT).map(|it| Row {
        seq: Some(it.seq),
        key: keys.intern(Some(shape.key(&it.key).as_bytes())),
        partition: it.partition,
        offset: it.offset,
        value: 0,
    });
    let rows = rows.collect();
    let running = (shape == Shape::Counting).then(counts);
    let outputs = OUTPUTS.map(|topic| left.output(topic, &mut keys, running.clone()));
    let state = match shape {
        Shape::Counting => copies(left, INPUT, &counts()),
        // A task counts what comes from several partitions of the input: nothing that one of them folds into.
        Shape::Repartitioned => {
            counted_across(left, &mut found.wrong);
            Vec::new()
        }
        _ => Vec::new(),
    };
    let evidence = Evidence {
        outputs: outputs.into(),
        state,
        ..left.evidence(INPUT, rows, keys)?
    };
    if shape == Shape::AtLeastOnce {
        return Ok(repeated(left, &evidence, found).into_iter().collect());
    }
    Ok(verdict(&evidence).into_iter().collect())
}

/// Checks an app that may repeat records: only the first copy counts. Records after the last fault must not be
/// repeated.
fn repeated(left: Left<'_>, evidence: &Evidence, found: &mut Found) -> Option<String> {
    let mut verdict = judge(evidence, Expectation::Finished);
    let doubled = std::mem::take(&mut verdict.doubled);
    let times = usize::try_from(doubled.count).unwrap_or(usize::MAX);
    found.saw("records were repeated", times);
    for output in &evidence.outputs {
        let mut times = BTreeMap::new();
        for seq in output.rows.iter().filter_map(|row| row.seq) {
            *times.entry(seq).or_insert(0) += 1;
        }
        let after = left.given.get(left.after_faults..).unwrap_or_default();
        for it in after {
            let (topic, seq) = (&output.topic, it.seq);
            match times.get(&seq) {
                Some(times) if *times > 1 => found.wrong.push(format!(
                    "VIOLATED repeated: seq {seq} is {times} times in {topic}, and it came after the last fault"
                )),
                _ => {}
            }
        }
    }
    (!verdict.is_clean()).then(|| text(evidence, &verdict))
}

fn output(
    cluster: &Cluster,
    partitions: i32,
    topic: &str,
    keys: &mut Keys,
    running: Option<Fold>,
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
        running,
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

/// The changelog and the databases, each with the expected result of the task's input partition.
pub(super) fn copies(left: Left<'_>, topic: &str, fold: &Fold) -> Vec<StateCopy> {
    let mut copies = Vec::new();
    if let Some(changelog) = changelog(left.shape) {
        for partition in 0..left.cluster.partitions(&changelog) {
            let name = format!("changelog {changelog}-{partition}");
            let contents = left.logged(&changelog, partition);
            copies.push(StateCopy::new(name, fold, partition, contents));
        }
    }
    for it in left.databases {
        // A restore that was interrupted says of itself that it is nothing yet.
        let Some(position) = it.position(topic) else {
            continue;
        };
        let name = format!("database of task {}", it.task);
        let partition = it.task.partition.get();
        copies.push(StateCopy {
            position: Some(position),
            // That of a process which has not got the task any more is what it was then.
            may_lag: !it.open,
            ..StateCopy::new(name, fold, partition, it.contents.clone())
        });
    }
    copies
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
fn counted_across(left: Left<'_>, wrong: &mut Vec<String>) {
    let Left {
        cluster,
        shape,
        given,
        databases,
        ..
    } = left;
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
            positions: BTreeMap::new(),
            stream_time: None,
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
