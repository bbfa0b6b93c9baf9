//! The committed results, and their comparison with the expected ones.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use kafka_wire::{Client, Isolation, Record};

/// A result of a key and a window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// The end of a window, or the last record of a session. Results are in the order of ends, then of keys.
    pub(super) end: i64,
    pub(super) key: String,
    pub(super) start: i64,
    pub(super) count: u64,
    /// The timestamp of the result.
    pub(super) time: i64,
}

/// Parses a result. Returns `None` if the record is not a result.
pub(super) type Reader = fn(&Record) -> Option<Row>;

/// The results of each partition, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results(pub(super) BTreeMap<i32, Vec<Row>>);

impl Results {
    pub(super) fn len(&self) -> u64 {
        self.0.values().map(|rows| rows.len() as u64).sum()
    }

    /// Reads the committed results of a topic.
    pub(super) fn read(client: &mut Client, topic: &str, reader: Reader) -> Result<Results> {
        let (mut found, mut wrong) = (Results::default(), Vec::new());
        client.read_all(topic, Isolation::ReadCommitted, |at, record| {
            match reader(record) {
                Some(row) => found.0.entry(at).or_default().push(row),
                None => wrong.push(format!("{at}@{}", record.offset)),
            }
        })?;
        ensure!(wrong.is_empty(), "{topic}: no results: {wrong:?}");
        Ok(found)
    }

    /// Fails unless each partition has the expected results, once and in order.
    pub(super) fn must_be(&self, expected: &Results) -> Result<()> {
        let mut difference = Difference::default();
        let mut counts = BTreeMap::<(i32, &Row), i64>::new();
        for (results, step) in [(self, 1), (expected, -1)] {
            for (at, rows) in &results.0 {
                for row in rows {
                    *counts.entry((*at, row)).or_default() += step;
                }
            }
        }
        for ((at, row), count) in counts {
            let (word, total) = match count {
                0 => continue,
                ..0 => ("missing", &mut difference.missing),
                _ => ("too many", &mut difference.extra),
            };
            *total += count.unsigned_abs();
            difference.example(format!("{word} in partition {at}: {row:?}"));
        }
        for (at, rows) in &self.0 {
            for pair in rows.windows(2) {
                if pair[0] >= pair[1] {
                    difference.disorder += 1;
                    difference.example(format!(
                        "partition {at}: {:?} before {:?}",
                        pair[0], pair[1]
                    ));
                }
            }
        }
        ensure!(difference == Difference::default(), "{difference}");
        ensure!(self == expected, "another order");
        Ok(())
    }
}

/// The difference between the found and the expected results.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    missing: u64,
    extra: u64,
    disorder: u64,
    examples: Vec<String>,
}

impl Difference {
    fn example(&mut self, words: String) {
        if self.examples.len() < 10 {
            self.examples.push(words);
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            missing,
            extra,
            disorder,
            examples,
        } = self;
        write!(
            f,
            "{missing} results are missing, {extra} are too many or wrong, {disorder} are out of order: {}",
            examples.join("; ")
        )
    }
}

/// Parses a result of a session. The key ends in the times of the last and the first record, as in Kafka Streams.
pub(super) fn session(record: &Record) -> Option<Row> {
    let (rest, start) = record.key.as_deref()?.split_last_chunk::<8>()?;
    let (key, last) = rest.split_last_chunk::<8>()?;
    row(
        record,
        key,
        i64::from_be_bytes(*start),
        i64::from_be_bytes(*last),
    )
}

/// Parses a result of a window. The key ends in the start of the window, which also replaces its end in the row.
pub(super) fn window(record: &Record) -> Option<Row> {
    let (key, start) = record.key.as_deref()?.split_last_chunk::<8>()?;
    let start = i64::from_be_bytes(*start);
    row(record, key, start, start)
}

fn row(record: &Record, key: &[u8], start: i64, end: i64) -> Option<Row> {
    Some(Row {
        end,
        key: String::from_utf8_lossy(key).into_owned(),
        start,
        count: u64::from_be_bytes(record.value.as_deref()?.try_into().ok()?),
        time: record.timestamp,
    })
}
