//! What a run left behind, in compact form: millions of rows fit into memory.

use std::collections::HashMap;

use anyhow::{Result, bail};
use xtask::wire::{LoggedTransaction, OpenProducer, Span, TransactionState};

/// Everything a verdict rests on.
#[derive(Debug)]
pub struct Evidence {
    /// The keys that rows refer to.
    pub keys: Keys,
    /// The input, all of it.
    pub input: Input,
    /// The outputs as a read_committed reader sees them.
    pub outputs: Vec<Output>,
    /// The group's offset for each input partition; `None` when an unfinished transaction still
    /// holds some of them.
    pub committed: Option<Vec<Option<i64>>>,
    /// The transactions that are not at their end.
    pub open: Vec<TransactionState>,
    /// The transactions that the coordinators decided to commit.
    pub commits: Vec<LoggedTransaction>,
    /// Offsets of any group that are held by a transaction which no coordinator knows to be open; not
    /// looked for while the group's offsets can be read.
    pub hanging_offsets: Vec<OpenProducer>,
}

/// One record: its number, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number in its value; none when the value holds no number.
    pub seq: Option<u64>,
    /// Its key.
    pub key: Key,
    /// The partition it is in.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}

/// A key, as its position among the [`Keys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u32);

/// Every distinct key, kept once. No key is a key, too.
#[derive(Debug, Default)]
pub struct Keys {
    names: Vec<Option<Box<[u8]>>>,
    numbers: HashMap<Option<Box<[u8]>>, u32>,
}

/// The input topic, in the order of the numbers.
#[derive(Debug)]
pub struct Input {
    /// The topic.
    pub topic: String,
    /// The end offset of each partition.
    pub ends: Vec<i64>,
    records: Vec<Numbered>,
}

/// An input record, whose number is certain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered {
    pub(super) seq: u64,
    pub(super) key: Key,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// An output topic.
#[derive(Debug)]
pub struct Output {
    /// The topic.
    pub topic: String,
    /// The rows visible to read_committed, partition by partition in offset order.
    pub rows: Vec<Row>,
    /// How many rows a read_uncommitted reader sees: more, where transactions were aborted.
    pub uncommitted: u64,
    /// What a read_uncommitted reader sees, batch by batch, and how the markers end it: by partition,
    /// in offset order.
    pub spans: Vec<Vec<Span>>,
    /// The transactions that are open here although no coordinator knows them to be.
    pub hanging: Vec<OpenProducer>,
    /// Where each partition ends.
    pub ends: Vec<LogEnd>,
}

/// Where a partition ends, for either kind of reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The end of what is decided.
    pub last_stable: i64,
    /// The end of what is replicated; above `last_stable` while a transaction is open.
    pub high_watermark: i64,
}

impl Keys {
    /// The key with these bytes.
    pub fn intern(&mut self, bytes: Option<&[u8]>) -> Key {
        let bytes = bytes.map(Box::from);
        if let Some(number) = self.numbers.get(&bytes) {
            return Key(*number);
        }
        let number = self.names.len() as u32;
        self.names.push(bytes.clone());
        self.numbers.insert(bytes, number);
        Key(number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The key as text, for people.
    pub(super) fn name(&self, key: Key) -> String {
        match self.names.get(key.0 as usize) {
            Some(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "(none)".to_owned(),
        }
    }
}

impl Key {
    /// Its position, to index a table by.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Input {
    /// The input, provided that its numbers tell its records apart.
    ///
    /// # Errors
    /// When a record has no number or two have the same: then nothing can be judged.
    pub fn new(topic: &str, rows: Vec<Row>, ends: Vec<i64>) -> Result<Input> {
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(seq) = row.seq else {
                bail!(
                    "input {topic}-{} has a record without `seq` at offset {}: produce it with the generator",
                    row.partition,
                    row.offset
                );
            };
            records.push(Numbered {
                seq,
                key: row.key,
                partition: row.partition,
                offset: row.offset,
            });
        }
        records.sort_unstable_by_key(|record: &Numbered| (record.seq, record.partition));
        for pair in records.windows(2) {
            if pair[0].seq == pair[1].seq {
                bail!(
                    "input {topic} has seq {} twice ({}-{} and {}-{}): continue a topic with --first-seq",
                    pair[0].seq,
                    pair[0].partition,
                    pair[0].offset,
                    pair[1].partition,
                    pair[1].offset
                );
            }
        }
        Ok(Input {
            topic: topic.to_owned(),
            ends,
            records,
        })
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in the order of their numbers.
    pub(super) fn records(&self) -> &[Numbered] {
        &self.records
    }

    /// Where in [`Input::records`] a number is.
    pub(super) fn find(&self, seq: u64) -> Option<usize> {
        // Numbers of one run are gapless, so the first look mostly hits.
        let first = self.records.first()?.seq;
        let guess = usize::try_from(seq.checked_sub(first)?).ok()?;
        if self.records.get(guess).is_some_and(|r| r.seq == seq) {
            return Some(guess);
        }
        self.records.binary_search_by_key(&seq, |r| r.seq).ok()
    }
}
