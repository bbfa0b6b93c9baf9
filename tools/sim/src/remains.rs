//! The remains of a run: records, topics and databases.

use std::collections::BTreeMap;

use eos_core::spi::stepped::TaskHome;
use eos_protocol::TaskId;
use eos_protocol::state::Standing;
use eos_state::{Direction, KeyRange, StoreBackend, StoreError};

use super::clocks::Clocks;
use super::record::Given;
use super::topics::APP;
use eos_oracle::{
    Contents, Evidence, Expectation, Fold, Input, Keys, LogEnd, Output, Row, StateCopy, judge, text,
};
use eos_testkit::client::Cluster;
use eos_testkit::crash_backend::CrashHome;
use eos_testkit::ledger::ModelLedger;

/// The length of the store's id in a changelog's key. The key of a commit record has no other bytes.
const STORE_ID: usize = 4;

/// The rows of a process's copy of a global table, by key.
pub(super) type GlobalCopy = BTreeMap<String, Vec<u8>>;

/// A copy of a task's database, from the end of its process.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) task: TaskId,
    /// Whether a worker had the database open at the end.
    pub(crate) open: bool,
    /// The stored offsets of the inputs, by topic. Empty if the database is not whole or was never written.
    pub(super) positions: BTreeMap<String, i64>,
    /// The stored stream time.
    pub(super) stream_time: Option<i64>,
    /// Whether the database was written to.
    pub(super) written: bool,
    /// Whether the database contains the state of a transaction, and not a part of a changelog.
    pub(super) whole: bool,
    /// The rows of each store that has some.
    pub(super) stores: Vec<Contents>,
    /// The rows of all stores in one map. Only shapes without a common key in two stores read it.
    pub(super) contents: Contents,
}

impl Copied {
    /// Reads the databases of an ended process. `known` has the number of workers that had each one open at the end.
    pub(super) fn all(
        disk: &CrashHome,
        known: Vec<(TaskHome, u32)>,
        found: &mut Found,
    ) -> Vec<Self> {
        let mut copies = Vec::new();
        for (home, by) in known {
            let read = match disk.look(&home) {
                Ok(Some(database)) => {
                    Self::read(home.task, by > 0, &*database).map_err(|error| error.to_string())
                }
                Ok(None) => Err("it is open".into()),
                Err(error) => Err(error.to_string()),
            };
            match read {
                Ok(copy) => copies.push(copy),
                Err(why) => found
                    .wrong
                    .push(format!("the database of task {}: {why}", home.task)),
            }
        }
        copies
    }

    pub(crate) fn read(
        task: TaskId,
        open: bool,
        from: &dyn StoreBackend,
    ) -> Result<Copied, StoreError> {
        let stores = held(from)?;
        let mut copied = Copied {
            task,
            open,
            positions: BTreeMap::new(),
            stream_time: None,
            written: from.position().is_some(),
            whole: false,
            contents: stores.iter().flatten().map(owned).collect(),
            stores,
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

    /// Returns the stored offset of this input.
    pub(super) fn position(&self, topic: &str) -> Option<i64> {
        self.positions.get(topic).copied()
    }
}

/// The findings of a run.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Violations.
    pub(super) wrong: Vec<String>,
    /// The number of occurrences of each behaviour that a shape covers.
    pub(super) seen: BTreeMap<&'static str, u64>,
}

impl Found {
    pub(super) fn saw(&mut self, what: &'static str, times: usize) {
        *self.seen.entry(what).or_default() += times as u64;
    }

    /// Adds the oracle's violations in front, because they explain most.
    pub(super) fn judged(&mut self, by_oracle: Vec<String>) {
        self.wrong.splice(0..0, by_oracle);
    }
}

/// The time for which a transaction was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Undecided {
    pub(super) partition: i32,
    pub(super) from: i64,
    pub(super) until: i64,
}

/// The final state of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) cluster: &'a Cluster,
    /// The changelog, if the app has one.
    pub(super) changelog: Option<&'static str>,
    /// The partition count of each input and output.
    pub(super) partitions: i32,
    pub(super) given: &'a [Given],
    /// The number of rows of a global table that were there before the first process started.
    pub(super) before_start: usize,
    /// The number of records that arrived before the last start. The others all arrived before any of them was
    /// processed.
    pub(super) before_last: usize,
    /// The number of records that arrived before the last fault ended and all records were committed.
    pub(super) after_faults: usize,
    pub(super) databases: &'a [Copied],
    /// The copies of the global table, by process.
    pub(super) globals: &'a [(String, GlobalCopy)],
    pub(super) clocks: &'a Clocks,
    pub(super) ledger: &'a ModelLedger,
    /// The transactions of other producers in the input.
    pub(super) foreign: &'a [Undecided],
}

impl<'a> Left<'a> {
    /// Returns the records of an input, in the order of their numbers.
    pub(super) fn of(&self, topic: &str) -> impl Iterator<Item = &'a Given> {
        self.given.iter().filter(move |it| it.topic == topic)
    }

    /// Returns the records of a partition before the last start, for two topics that one task reads in order of time.
    /// The older record comes first. At equal times, the record of the first topic comes first.
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

    /// Returns evidence of these records of an input, with the offsets that the group committed for it.
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

    /// Returns the contents of an output. `running` is the fold of its values.
    pub(super) fn output(&self, topic: &str, keys: &mut Keys, running: Option<Fold>) -> Output {
        let mut rows = Vec::new();
        let mut ends = Vec::new();
        for partition in 0..self.partitions {
            let (last_stable, high_watermark) = self.cluster.ends(topic, partition);
            ends.push(LogEnd {
                last_stable,
                high_watermark,
            });
            for record in self.cluster.read(topic, partition) {
                let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
                let mut words = value.split(' ');
                rows.push(Row {
                    seq: words.next().and_then(|it| it.parse().ok()),
                    key: keys.intern(record.key.as_deref()),
                    partition,
                    offset: record.offset,
                    // The count follows the digit of the input.
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

    /// Returns the contents of a partition of a changelog of one store.
    pub(super) fn logged(&self, topic: &str, partition: i32) -> Contents {
        let stores = self.logged_by_store(topic, partition);
        stores.iter().flatten().map(owned).collect()
    }

    /// Returns the contents of each store in a partition of a changelog.
    pub(super) fn logged_by_store(&self, topic: &str, partition: i32) -> Vec<Contents> {
        let mut stores: BTreeMap<Vec<u8>, Contents> = BTreeMap::new();
        for record in self.cluster.read(topic, partition) {
            let key = record.key.unwrap_or_default();
            let Some((store, key)) = key.split_at_checked(STORE_ID).filter(|it| !it.1.is_empty())
            else {
                continue;
            };
            let (contents, key) = (stores.entry(store.to_vec()).or_default(), key.to_vec());
            match record.value {
                Some(value) => contents.insert(key, value.to_vec()),
                None => contents.remove(&key),
            };
        }
        stores.into_values().collect()
    }

    /// Returns the changelog and the databases, each with the expected result of the task's input partition.
    pub(super) fn copies(&self, topic: &str, fold: &Fold) -> Vec<StateCopy> {
        let mut copies = Vec::new();
        if let Some(changelog) = self.changelog {
            for partition in 0..self.cluster.partitions(changelog) {
                let name = format!("changelog {changelog}-{partition}");
                let contents = self.logged(changelog, partition);
                copies.push(StateCopy::new(name, fold, partition, contents));
            }
        }
        for it in self.databases {
            // An interrupted restore has no position.
            let Some(position) = it.position(topic) else {
                continue;
            };
            let name = format!("database of task {}", it.task);
            let partition = it.task.partition.get();
            copies.push(StateCopy {
                position: Some(position),
                // A process that lost the task keeps an old copy.
                may_lag: !it.open,
                ..StateCopy::new(name, fold, partition, it.contents.clone())
            });
        }
        copies
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

/// Returns the violations, if there are any.
pub(super) fn verdict(evidence: &Evidence) -> Option<String> {
    let verdict = judge(evidence, Expectation::Finished);
    (!verdict.is_clean()).then(|| text(evidence, &verdict))
}

fn owned((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

/// Returns the contents of each store of a database.
fn held(database: &dyn StoreBackend) -> Result<Vec<Contents>, StoreError> {
    let mut stores = Vec::new();
    for store in database.stores()? {
        let mut contents = Contents::new();
        let all = KeyRange::prefix(&[]);
        let mut cursor = database.scan(store, &all, Direction::Forward)?;
        while let Some((key, value)) = cursor.entry() {
            contents.insert(key.to_vec(), value.to_vec());
            cursor.advance()?;
        }
        stores.push(contents);
    }
    Ok(stores)
}
