//! Checks the counts by key that an app left in its output, its changelog and its databases. The expected counts
//! come from one loop over the input.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use kafka_wire::{Client, Isolation};

use crate::partitioner::partition;
use crate::process::{Program, build};

/// The number of records of each key.
pub type Counts = BTreeMap<String, u64>;

/// The places where an app keeps its counts.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// The topic of the updates. Each record has the key's text, and the count as eight bytes (big-endian).
    pub output: &'a str,
    /// The changelog of the store.
    pub changelog: &'a str,
    /// The number of partitions of each of the two topics.
    pub partitions: i32,
    /// The state directory of all processes.
    pub state: &'a Path,
}

/// The errors in the counts.
#[derive(Debug, Default)]
pub struct Findings {
    /// Updates in the output that do not raise the count of their key by one, or are in the wrong partition.
    pub jumps: usize,
    /// Keys with fewer updates in the output than records.
    pub lost: usize,
    /// Keys with more updates in the output than records.
    pub doubled: usize,
    /// Keys whose last count in the changelog is wrong.
    pub logged: usize,
    /// Keys whose count in the databases is wrong.
    pub stored: usize,
    /// Descriptions of some of the errors.
    examples: Vec<String>,
}

impl Findings {
    /// Returns whether there are no errors in the counts.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.jumps + self.lost + self.doubled + self.logged + self.stored == 0
    }

    /// Fails if there is an error in the counts.
    ///
    /// # Errors
    /// Describes some of the errors.
    pub fn ensure_clean(&self) -> Result<()> {
        ensure!(self.is_clean(), "{self}: {}", self.examples.join("; "));
        Ok(())
    }

    /// Adds the numbers of another app's errors, without its examples.
    pub fn add(&mut self, other: &Findings) {
        self.jumps += other.jumps;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.logged += other.logged;
        self.stored += other.stored;
    }

    fn differ(&mut self, what: &str, found: &Counts, expected: &Counts) -> usize {
        let keys = found.keys().chain(expected.keys());
        let mut wrong: Vec<&String> = keys.filter(|k| found.get(*k) != expected.get(*k)).collect();
        wrong.sort();
        wrong.dedup();
        let some = wrong.iter().take(5).map(|key| {
            let (found, expected) = (found.get(*key), expected.get(*key));
            format!("{key} is {found:?} in {what}, not {expected:?}")
        });
        self.examples.extend(some);
        wrong.len()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            jumps,
            lost,
            doubled,
            logged,
            stored,
            ..
        } = self;
        write!(
            f,
            "lost {lost}, doubled {doubled}, jumps {jumps}, wrong in the changelog {logged}, in the \
             databases {stored}"
        )
    }
}

impl Counted<'_> {
    /// Compares the output, the changelog and the databases with the expected counts.
    ///
    /// # Errors
    /// When a topic or a database can't be read. Wrong counts are returned as findings.
    pub fn check(&self, client: &mut Client, expected: &Counts) -> Result<Findings> {
        let mut findings = Findings::default();
        let counted = self.updates(client, &mut findings)?;
        let either = counted.keys().chain(expected.keys());
        for key in either.collect::<std::collections::BTreeSet<_>>() {
            let (found, wanted) = (counted.get(key), expected.get(key));
            findings.lost += usize::from(found < wanted);
            findings.doubled += usize::from(found > wanted);
        }
        findings.differ("the output", &counted, expected);
        let logged = self.logged(client)?;
        findings.logged = findings.differ("the changelog", &logged, expected);
        let stored = self.stored()?;
        findings.stored = findings.differ("the databases", &stored, expected);
        Ok(findings)
    }

    /// Returns the number of updates of each key in the output.
    fn updates(&self, client: &mut Client, findings: &mut Findings) -> Result<Counts> {
        let (mut counted, mut last) = (Counts::new(), Counts::new());
        client.read_all(self.output, Isolation::ReadCommitted, |at, record| {
            let key = text(record.key.as_deref());
            *counted.entry(key.clone()).or_default() += 1;
            let found = number(record.value.as_deref()).unwrap_or(0);
            let before = last.insert(key.clone(), found).unwrap_or(0);
            if found != before + 1 || partition(key.as_bytes(), self.partitions) != at {
                findings.jumps += 1;
                let offset = record.offset;
                let words = format!("{key} at {at}@{offset} is {found} after {before}");
                findings
                    .examples
                    .extend((findings.jumps <= 5).then_some(words));
            }
        })?;
        Ok(counted)
    }

    /// Returns the last count of each key in the changelog. Eight bytes of time come before each count.
    fn logged(&self, client: &mut Client) -> Result<Counts> {
        let mut logged = Counts::new();
        client.read_all(self.changelog, Isolation::ReadCommitted, |_, record| {
            let key = record.key.as_deref().unwrap_or_default();
            if let Some((_, word)) = key
                .split_first_chunk::<4>()
                .filter(|(_, word)| !word.is_empty())
            {
                let value = record.value.as_deref();
                let count = value.and_then(|value| number(value.get(8..)));
                logged.insert(text(Some(word)), count.unwrap_or(0));
            }
        })?;
        Ok(logged)
    }

    /// Returns the counts in the databases. A task that moved left an older copy behind. Counts only grow, so the
    /// largest count is the latest.
    fn stored(&self) -> Result<Counts> {
        let mut stored = Counts::new();
        for (key, value) in stored_in(self.state)? {
            let count = stored.entry(text(Some(&key))).or_default();
            *count = (*count).max(number(value.get(8..)).context("a count")?);
        }
        Ok(stored)
    }
}

/// Reads the keys and values of all databases below a state directory with the program `stored`.
///
/// # Errors
/// When the program cannot be run, or cannot read a database.
pub fn stored_in(state: &Path) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let output = Command::new(program()?).arg(state).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut stored = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let mut fields = line.split(' ').skip(1).map(unhex);
        if let (Some(key), Some(value)) = (fields.next(), fields.next()) {
            stored.push((key?, value?));
        }
    }
    Ok(stored)
}

/// Returns the program `stored`, which opens databases. It is built once.
///
/// # Errors
/// When it does not compile.
pub fn program() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(|broken| broken.into_inner());
    if let Some(path) = &*built {
        return Ok(path.clone());
    }
    let stored = Program::Bin("stored");
    let path = build("integration-tests", stored, &["--features=stored"])?;
    Ok(built.insert(path).clone())
}

/// Returns the number of records of a topic that are visible to a `read_committed` reader.
///
/// # Errors
/// When the topic can't be read.
pub fn visible(client: &mut Client, topic: &str) -> Result<u64> {
    let ends = client.end_offsets(topic, Isolation::ReadCommitted)?;
    let mut count = 0;
    for (partition, end) in (0..).zip(ends) {
        let mut next = 0;
        while next < end {
            let tally = client.tally(topic, partition, next)?;
            if tally.next_offset <= next {
                break;
            }
            count += tally.visible;
            next = tally.next_offset;
        }
    }
    Ok(count)
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?))
        .collect()
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

fn number(bytes: Option<&[u8]>) -> Option<u64> {
    Some(u64::from_be_bytes(bytes?.try_into().ok()?))
}
