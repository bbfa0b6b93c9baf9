//! The audit: one loop that counts every line in Kafka's log again, and shares no code with the framework.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::Result;
use kafka_wire::{Client, Isolation};

use super::book::words;
use super::topics::{INPUT, OUTPUTS};

/// The number of kept examples of one kind.
const EXAMPLES: usize = 5;

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Lines in the input.
    pub(crate) input: u64,
    /// Words in these lines, and different words.
    pub(crate) words: u64,
    pub(crate) different: u64,
    /// Each output with its number of committed records.
    pub(crate) outputs: Vec<(String, u64)>,
    /// All kinds of violation, each with its count.
    pub(crate) findings: Vec<Finding>,
}

/// A kind of violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: &'static str,
    pub(crate) count: u64,
    /// The first violations, at most [`EXAMPLES`].
    pub(crate) examples: Vec<String>,
}

impl Audit {
    /// Reads the input and the output from their beginnings.
    pub(crate) fn of(client: &mut Client) -> Result<Audit> {
        let mut count = Count::default();
        client.read_all(INPUT, Isolation::ReadCommitted, |_, record| {
            count.line(&String::from_utf8_lossy(
                record.value.as_deref().unwrap_or_default(),
            ));
        })?;
        let mut outputs = Vec::new();
        for topic in OUTPUTS {
            let mut committed = 0;
            client.read_all(topic, Isolation::ReadCommitted, |partition, record| {
                committed += 1;
                let place = format!("{topic}-{partition}@{}", record.offset);
                count.update(record.key.as_deref(), record.value.as_deref(), &place);
            })?;
            outputs.push((topic.to_owned(), committed));
        }
        Ok(count.audit(outputs))
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.count == 0)
    }

    pub(crate) fn count(&self, kind: &str) -> u64 {
        let of_kind = self.findings.iter().filter(|finding| finding.kind == kind);
        of_kind.map(|finding| finding.count).sum()
    }
}

/// The count of a word in the input, and its highest count in the output.
#[derive(Debug, Default)]
struct Word {
    expected: u64,
    said: u64,
}

#[derive(Debug, Default)]
struct Count {
    lines: u64,
    words: BTreeMap<String, Word>,
    doubled: Found,
    skipped: Found,
    unreadable: Found,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    examples: Vec<String>,
}

impl Found {
    fn add(&mut self, count: u64, example: impl FnOnce() -> String) {
        self.count += count;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }

    fn finding(self, kind: &'static str) -> Finding {
        Finding {
            kind,
            count: self.count,
            examples: self.examples,
        }
    }
}

impl Count {
    fn line(&mut self, line: &str) {
        self.lines += 1;
        for word in words(line) {
            self.words.entry(word.to_lowercase()).or_default().expected += 1;
        }
    }

    /// Checks that an update of a word is one more than the update before it.
    fn update(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, place: &str) {
        let word = key.map(|key| String::from_utf8_lossy(key).into_owned());
        let said = value.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?)));
        let (Some(word), Some(said)) = (word, said) else {
            let example = || format!("{place}: {key:?} {value:?}");
            return self.unreadable.add(1, example);
        };
        let known = match self.words.entry(word) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let example = format!("{place}: {:?} is not in the input", unknown.key());
                return self.unreadable.add(1, || example);
            }
        };
        let next = known.said + 1;
        if said < next {
            let example = || format!("{place}: count {said} comes again");
            self.doubled.add(1, example);
        } else if said > next {
            let example = || format!("{place}: {said} comes after {}", known.said);
            self.skipped.add(1, example);
        }
        known.said = known.said.max(said);
    }

    fn audit(mut self, outputs: Vec<(String, u64)>) -> Audit {
        let mut lost = Found::default();
        for (word, Word { expected, said }) in &self.words {
            let example = || format!("{word:?} is there {expected} times, and counted {said}");
            if said < expected {
                lost.add(expected - said, example);
            } else if said > expected {
                self.doubled.add(said - expected, example);
            }
        }
        Audit {
            input: self.lines,
            words: self.words.values().map(|word| word.expected).sum(),
            different: self.words.len() as u64,
            outputs,
            findings: vec![
                lost.finding("lost"),
                self.doubled.finding("doubled"),
                self.skipped.finding("skipped"),
                self.unreadable.finding("unreadable"),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for these updates of `a` and `b`, with the input line `A b, a!`.
    fn found(updates: &[(&str, u64)]) -> Vec<(&'static str, u64)> {
        let mut count = Count::default();
        count.line("A b, a!");
        for (word, said) in updates {
            count.update(Some(word.as_bytes()), Some(&said.to_be_bytes()), "x");
        }
        let audit = count.audit(Vec::new());
        assert_eq!((audit.input, audit.words, audit.different), (1, 3, 2));
        assert_eq!(
            audit.is_clean(),
            audit.findings.iter().all(|f| f.count == 0)
        );
        let bad = audit.findings.iter().filter(|f| f.count > 0);
        bad.map(|f| (f.kind, f.count)).collect()
    }

    #[test]
    fn every_way_to_count_wrong_is_seen() {
        assert_eq!(found(&[("a", 1), ("b", 1), ("a", 2)]), []);
        assert_eq!(found(&[("a", 1), ("b", 1)]), [("lost", 1)]);
        let again = [("a", 1), ("a", 1), ("a", 2), ("b", 1)];
        assert_eq!(found(&again), [("doubled", 1)]);
        let beyond = [("a", 1), ("a", 2), ("a", 3), ("b", 1)];
        assert_eq!(found(&beyond), [("doubled", 1)]);
        assert_eq!(found(&[("a", 2), ("b", 1)]), [("skipped", 1)]);
        let invented = [("a", 1), ("a", 2), ("b", 1), ("c", 1)];
        assert_eq!(found(&invented), [("unreadable", 1)]);
    }

    #[test]
    fn an_output_that_is_not_a_count_is_found() {
        let mut count = Count::default();
        count.update(None, Some(b"12345678"), "x");
        count.update(Some(b"a"), Some(b"1"), "x");
        assert_eq!(count.audit(Vec::new()).count("unreadable"), 2);
    }
}
