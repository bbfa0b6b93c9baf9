//! A check of output records: each once, with the right key and value, and in order.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use kafka_wire::{Client, Isolation, Record};

use crate::records::{Input, KEYS, kept, number};
use crate::work::Work;

/// Checks output records as they are read, and keeps the first violation.
#[derive(Debug)]
pub(crate) struct Check {
    work: Work,
    seen: Vec<bool>,
    count: u64,
    last: Vec<Option<u64>>,
    /// Numbers of records of another input. Their order relative to the other records is undefined.
    beside: BTreeSet<u64>,
    expected: Input,
    wrong: Option<String>,
}

impl Check {
    /// Creates the check of an output of at most the first `records`.
    pub(crate) fn new(work: Work, partitions: i32, records: u64) -> Self {
        Self {
            work,
            seen: vec![false; usize::try_from(records).unwrap_or(0)],
            count: 0,
            last: vec![None; partitions.unsigned_abs() as usize],
            beside: BTreeSet::new(),
            expected: Input::of(work, KEYS),
            wrong: None,
        }
    }

    /// Expects these records in addition to the first `records`.
    pub(crate) fn beside(mut self, numbers: &[u64]) -> Self {
        self.beside = numbers.iter().copied().collect();
        self
    }

    /// Checks one more record. Returns its number if it has one.
    pub(crate) fn take(&mut self, partition: i32, key: &[u8], value: &[u8]) -> Option<u64> {
        let seq = number(value);
        self.count += 1;
        if let Err(why) = self.judge(partition, key, value, seq) {
            self.wrong.get_or_insert_with(|| {
                let text = String::from_utf8_lossy(value);
                format!("partition {partition}: {why}: {text}")
            });
        }
        seq
    }

    fn judge(
        &mut self,
        partition: i32,
        key: &[u8],
        value: &[u8],
        seq: Option<u64>,
    ) -> Result<(), &'static str> {
        let seq = seq.ok_or("a record without a number")?;
        let beside = self.beside.remove(&seq);
        let at = usize::try_from(seq).unwrap_or(usize::MAX);
        match self.seen.get_mut(at) {
            _ if beside => self.count -= 1,
            None => return Err("it was never sent, or it came twice"),
            Some(seen) if *seen => return Err("it came twice"),
            Some(seen) => *seen = true,
        }
        self.expected.set(seq);
        if !self.expected.becomes_output(seq, self.work) {
            return Err("it should have been dropped");
        }
        if self.expected.key != key || self.expected.value != value {
            return Err("another key or value was expected");
        }
        if self.expected.partition(self.partitions()) != partition {
            return Err("it belongs to another partition");
        }
        if beside {
            return Ok(());
        }
        let last = self.last.get_mut(partition.unsigned_abs() as usize);
        let last = last.ok_or("no such partition")?;
        if *last >= Some(seq) {
            return Err("a later one came before it");
        }
        *last = Some(seq);
        Ok(())
    }

    fn partitions(&self) -> i32 {
        i32::try_from(self.last.len()).unwrap_or(i32::MAX)
    }

    /// Returns the number of records so far, without those of the other input.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Fails if one of the records so far is wrong. Missing records are no error here.
    pub(crate) fn so_far(&self) -> Result<()> {
        match &self.wrong {
            Some(wrong) => bail!("the output is wrong: {wrong}"),
            None => Ok(()),
        }
    }

    /// Fails if a record is wrong, or if one of the first `records` is missing.
    pub(crate) fn complete(&self, records: u64) -> Result<()> {
        self.so_far()?;
        let expected = kept(records, self.work);
        ensure!(
            self.count == expected,
            "{} records are in the output, and {expected} should be",
            self.count
        );
        ensure!(self.beside.is_empty(), "missing: {:?}", self.beside);
        Ok(())
    }
}

/// Reads all of a topic as a reader of committed records.
pub(crate) fn read(client: &mut Client, topic: &str, mut check: Check) -> Result<Check> {
    let each = |partition: i32, record: &Record| {
        let key = record.key.as_deref().unwrap_or_default();
        check.take(partition, key, record.value.as_deref().unwrap_or_default());
    };
    client.read_all(topic, Isolation::ReadCommitted, each)?;
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::PARTITIONS;

    #[test]
    fn a_repetition_in_the_output_is_found() {
        let outcome = |repeats: bool| {
            let mut check = Check::new(Work::Dedup, PARTITIONS, 100);
            let mut record = Input::of(Work::Dedup, KEYS);
            for seq in 0..100 {
                record.set(seq);
                if record.becomes_output(seq, Work::Dedup) || (repeats && seq == 19) {
                    check.take(record.partition(PARTITIONS), &record.key, &record.value);
                }
            }
            let complete = check.complete(100);
            complete.err().map_or(String::new(), |e| e.to_string())
        };
        assert_eq!(outcome(false), "");
        assert!(outcome(true).contains("it came twice"));
    }

    fn outcome(change: impl Fn(&mut Vec<Input>)) -> String {
        let mut outputs = Vec::new();
        for seq in 0..100 {
            let mut record = Input::default();
            record.set(seq);
            if record.becomes_output(seq, Work::Map) {
                outputs.push(record);
            }
        }
        let mut beside = Input::default();
        beside.set(201);
        beside.becomes_output(201, Work::Map);
        outputs.insert(40, beside);
        change(&mut outputs);
        let mut check = Check::new(Work::Map, PARTITIONS, 100).beside(&[201]);
        for output in &outputs {
            check.take(output.partition(PARTITIONS), &output.key, &output.value);
        }
        check
            .complete(100)
            .err()
            .map_or(String::new(), |e| e.to_string())
    }

    #[test]
    fn the_right_output_passes_and_each_planted_fault_is_found() {
        let flipped = |all: &mut Vec<Input>| {
            if let Some(byte) = all[7].value.iter_mut().rev().nth(30) {
                *byte = b'y';
            }
        };
        let swapped = |all: &mut Vec<Input>| {
            let second = (1..all.len())
                .find(|&n| all[n].partition(PARTITIONS) == all[0].partition(PARTITIONS));
            all.swap(0, second.unwrap());
        };
        let dropped = |all: &mut Vec<Input>| {
            let mut record = Input::default();
            record.set(20);
            record.becomes_output(20, Work::Map);
            all.push(record);
        };
        assert_eq!(outcome(|_| {}), "");
        assert!(outcome(|all| drop(all.pop())).contains("89 records"));
        assert!(outcome(|all| drop(all.remove(40))).contains("missing: {201}"));
        assert!(outcome(|all| all.push(all[40].clone())).contains("it was never sent"));
        assert!(outcome(|all| all.push(all[3].clone())).contains("twice"));
        assert!(outcome(flipped).contains("another key or value"));
        assert!(outcome(swapped).contains("a later one came before"));
        assert!(outcome(dropped).contains("should have been dropped"));
    }
}
