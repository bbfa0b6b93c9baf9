//! A check of the results of joins. Plain loops over the input compute the expected results.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail, ensure};
use kafka_wire::{Client, Isolation, Record};

use crate::joined::FOREIGN;
use crate::joined_records::{is_right, ms, time_ms};
use crate::records::{Input, VALUE_BYTES, number};
use crate::side::Side;
use crate::work::{GRACE, HOT_REACH, REACH, Work};

/// A result: its partition, and the numbers of the left record and of the right one.
type Found = (i32, u64, Option<u64>);

/// The numbers of the records of a key: those of the left topic and those of the right one.
type Sides = [Vec<u64>; 2];

/// Checks results as they are read, and keeps the first violation.
pub(crate) struct JoinedCheck {
    work: Work,
    side: Side,
    partitions: i32,
    input: Input,
    found: Vec<Found>,
    wrong: Option<String>,
}

impl JoinedCheck {
    pub(crate) fn new(work: Work, side: Side, partitions: i32, keys: u64) -> Self {
        Self {
            work,
            side,
            partitions,
            input: Input::of(work, keys),
            found: Vec::new(),
            wrong: None,
        }
    }

    /// Checks that a result has the key and the values of its records.
    pub(crate) fn take(&mut self, partition: i32, key: &[u8], value: Option<&[u8]>) {
        match self.read(partition, key, value) {
            Ok(found) => self.found.push(found),
            Err(why) => {
                let key = String::from_utf8_lossy(key);
                let wrong = || format!("partition {partition}, key {key}: {why:#}");
                self.wrong.get_or_insert_with(wrong);
            }
        }
    }

    fn read(&mut self, partition: i32, key: &[u8], value: Option<&[u8]>) -> Result<Found> {
        let value = value.context("a tombstone, and no row was deleted")?;
        let (left, right) = value
            .split_at_checked(VALUE_BYTES)
            .context("a value that is too short")?;
        let numbers = [left, right].map(|half| number(half).map(|seq| (seq, half)));
        let (seq, _) = numbers[0].context("no number")?;
        for (seq, half) in numbers.into_iter().flatten() {
            self.input.set(seq);
            let is_left = half.as_ptr() == left.as_ptr();
            ensure!(self.input.value == half, "another value of {seq}");
            ensure!(
                is_right(seq, self.work) != is_left,
                "{seq} is of the other side"
            );
            ensure!(
                !is_left
                    || (self.input.key == key
                        && self.input.partition(self.partitions) == partition),
                "{seq} has another key"
            );
        }
        let right = numbers[1].map(|(seq, _)| seq);
        ensure!(
            right.is_some() || value.len() == VALUE_BYTES,
            "no right number"
        );
        Ok((partition, seq, right))
    }

    /// Checks the results of the first `records`. Returns their number.
    pub(crate) fn complete(mut self, records: u64) -> Result<u64> {
        if let Some(wrong) = &self.wrong {
            bail!("the output is wrong: {wrong}");
        }
        match self.work {
            Work::StreamTable => self.stream_table(records)?,
            Work::TableTable => self.tables(records)?,
            Work::Foreign | Work::Orders => self.foreign(records)?,
            _ => self.streams(records)?,
        }
        Ok(self.found.len() as u64)
    }

    /// Returns the numbers of the records of each key.
    fn by_key(&mut self, records: u64) -> HashMap<Vec<u8>, Sides> {
        let mut keys = HashMap::<Vec<u8>, Sides>::new();
        for seq in 0..records {
            self.input.set(seq);
            let sides = keys.entry(self.input.key.clone()).or_default();
            sides[usize::from(is_right(seq, self.work))].push(seq);
        }
        keys
    }

    /// Returns the results of each key, in order.
    fn found_by_key(&mut self) -> HashMap<Vec<u8>, Vec<(u64, u64)>> {
        let mut keys = HashMap::<Vec<u8>, Vec<(u64, u64)>>::new();
        for (_, left, right) in &self.found {
            self.input.set(*left);
            let results = keys.entry(self.input.key.clone()).or_default();
            results.push((*left, right.unwrap_or(u64::MAX)));
        }
        keys
    }

    /// Requires each record of the stream once, in order, with the row of its key.
    fn stream_table(&mut self, records: u64) -> Result<()> {
        let keys = self.by_key(records);
        let mut last = HashMap::new();
        for (partition, left, right) in &self.found {
            self.input.set(*left);
            let row = keys[&self.input.key][1].last();
            ensure!(
                *right == row.copied(),
                "{left} has the row {right:?}, not {row:?}"
            );
            let before = last.insert(*partition, *left);
            ensure!(
                before < Some(*left),
                "partition {partition}: {left} after {before:?}"
            );
        }
        let expected: usize = keys.values().map(|[lefts, _]| lefts.len()).sum();
        ensure!(
            self.found.len() == expected,
            "{} results of {expected}",
            self.found.len()
        );
        Ok(())
    }

    /// Requires each pair once. For a left join, also requires each record of the left topic without a pair once, if
    /// stream time is beyond its grace.
    fn streams(&mut self, records: u64) -> Result<()> {
        let reach = ms(match self.work {
            Work::HotKey | Work::ColdKeys => HOT_REACH,
            _ => REACH,
        });
        let mut found = HashSet::new();
        let mut last_alone = HashMap::<i32, i64>::new();
        for (partition, left, right) in &self.found {
            ensure!(found.insert((*left, *right)), "{left} and {right:?} twice");
            if right.is_none() {
                let last = last_alone.entry(*partition).or_insert(i64::MIN);
                *last = time_ms(*left, self.work).max(*last);
            }
        }
        let mut stream_times = HashMap::<i32, i64>::new();
        for seq in 0..records {
            self.input.set(seq);
            let at = self.input.partition(self.partitions);
            let latest = stream_times.entry(at).or_insert(i64::MIN);
            *latest = time_ms(seq, self.work).max(*latest);
        }
        for [lefts, rights] in self.by_key(records).values() {
            for left in lefts {
                let time = time_ms(*left, self.work);
                let pairs = rights
                    .iter()
                    .filter(|right| time.abs_diff(time_ms(**right, self.work)) <= reach as u64);
                let mut is_alone = self.work != Work::Inner;
                for right in pairs {
                    is_alone = false;
                    ensure!(
                        found.remove(&(*left, Some(*right))),
                        "no pair {left} and {right}"
                    );
                }
                self.input.set(*left);
                let at = self.input.partition(self.partitions);
                let ends = time + reach + ms(GRACE);
                if !is_alone || ends > stream_times[&at] {
                    continue;
                }
                // Kafka Streams looks for these records once per second. It may not have looked after the last ones closed.
                let is_out = found.remove(&(*left, None));
                let must = match self.side {
                    Side::Streams => last_alone.get(&at).is_some_and(|last| time < *last),
                    _ => ends < stream_times[&at],
                };
                ensure!(is_out || !must, "{left} has no pair and is no result");
            }
        }
        let more = found.iter().next();
        ensure!(more.is_none(), "{} more results, as {more:?}", found.len());
        Ok(())
    }

    /// Requires one result for each update after the first result of a key. The last result is that of the last rows.
    fn tables(&mut self, records: u64) -> Result<()> {
        let mut found = self.found_by_key();
        for (key, [lefts, rights]) in self.by_key(records) {
            let results = found.remove(&key).unwrap_or_default();
            let place = |(left, right): &(u64, u64)| {
                let left = lefts.binary_search(left).ok()?;
                Some((left, rights.binary_search(right).ok()?))
            };
            let name = String::from_utf8_lossy(&key);
            let mut before = None;
            for result in &results {
                let now = place(result).with_context(|| format!("{name}: {result:?}"))?;
                let follows = match before {
                    None => now.0 == 0 || now.1 == 0,
                    Some((left, right)) => now == (left + 1, right) || now == (left, right + 1),
                };
                ensure!(follows, "{name}: {now:?} follows {before:?}");
                before = Some(now);
            }
            let last = lefts.len().checked_sub(1).zip(rights.len().checked_sub(1));
            ensure!(
                before == last,
                "{name}: the last result is {before:?}, not {last:?}"
            );
        }
        ensure!(found.is_empty(), "results of keys without records");
        Ok(())
    }

    /// Requires that the last result of each key is that of the last rows, and that no result is older than the one
    /// before it.
    fn foreign(&mut self, records: u64) -> Result<()> {
        let mut found = self.found_by_key();
        let keys = self.by_key(records);
        for (key, [lefts, _]) in &keys {
            let Some(last) = lefts.last() else { continue };
            let results = found.remove(key).unwrap_or_default();
            self.input.set(*last);
            let partner = keys.get(self.input.value.get(FOREIGN).unwrap_or_default());
            let row = partner.and_then(|[_, rights]| rights.last());
            let expected = row.map(|row| (*last, *row));
            let name = String::from_utf8_lossy(key);
            ensure!(
                results.last().copied() == expected,
                "{name}: the last result is {:?}, not {expected:?}",
                results.last()
            );
            for pair in results.windows(2) {
                let ((left, right), (new_left, new_right)) = (pair[0], pair[1]);
                ensure!(left <= new_left && right <= new_right, "{name}: {pair:?}");
            }
            // No row is updated, so there is one result.
            ensure!(
                self.work != Work::Orders || results.len() == 1,
                "{name}: {} results of one order",
                results.len()
            );
        }
        ensure!(found.is_empty(), "results of keys without records");
        Ok(())
    }
}

/// Reads all results as a reader of committed records.
pub(crate) fn read(
    client: &mut Client,
    topic: &str,
    mut check: JoinedCheck,
) -> Result<JoinedCheck> {
    let each = |partition: i32, record: &Record| {
        let key = record.key.as_deref().unwrap_or_default();
        check.take(partition, key, record.value.as_deref());
    };
    client.read_all(topic, Isolation::ReadCommitted, each)?;
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::PARTITIONS;

    const RECORDS: u64 = 40_000;
    const FEW: u64 = 100;

    /// Checks a result of records with these numbers.
    fn take(check: &mut JoinedCheck, left: u64, right: Option<u64>) {
        let mut input = Input::of(check.work, FEW);
        let mut value = Vec::new();
        if let Some(right) = right {
            input.set(right);
            value.clone_from(&input.value);
        }
        input.set(left);
        value.splice(0..0, input.value.clone());
        let at = input.partition(PARTITIONS);
        check.take(at, &input.key, Some(&value));
    }

    fn check(work: Work) -> JoinedCheck {
        JoinedCheck::new(work, Side::Eos, PARTITIONS, FEW)
    }

    fn pairs() -> Vec<(u64, Option<u64>)> {
        let mut all = Vec::new();
        let keys = check(Work::Inner).by_key(RECORDS);
        for [lefts, rights] in keys.values() {
            for left in lefts {
                let near = |right: &&u64| {
                    let apart = time_ms(*left, Work::Inner) - time_ms(**right, Work::Inner);
                    apart.abs() <= ms(REACH)
                };
                all.extend(
                    rights
                        .iter()
                        .filter(near)
                        .map(|right| (*left, Some(*right))),
                );
            }
        }
        all
    }

    fn outcome(results: &[(u64, Option<u64>)]) -> String {
        let mut check = check(Work::Inner);
        for (left, right) in results {
            take(&mut check, *left, *right);
        }
        let outcome = check.complete(RECORDS);
        outcome.err().map_or(String::new(), |e| e.to_string())
    }

    #[test]
    fn the_pairs_pass_and_each_planted_fault_is_found() {
        let right = pairs();
        assert_eq!(outcome(&right), "");
        assert!(outcome(&right[1..]).contains("no pair"));
        let twice = [&right[..], &right[..1]].concat();
        assert!(outcome(&twice).contains("twice"));
        let alone = [&right[..], &[(right[0].0, None)]].concat();
        assert!(outcome(&alone).contains("1 more results"));
    }

    #[test]
    fn a_table_that_goes_back_or_skips_an_update_is_found() {
        let keys = check(Work::TableTable).by_key(RECORDS);
        let outcome = |skip: usize| {
            let mut check = check(Work::TableTable);
            for [lefts, rights] in keys.values() {
                let firsts = lefts.iter().map(|left| (*left, rights[0]));
                let last = lefts[lefts.len() - 1];
                let seconds = rights[1..].iter().map(|right| (last, *right));
                for (left, right) in firsts.chain(seconds).skip(skip) {
                    take(&mut check, left, Some(right));
                }
            }
            check.found.swap(skip * 2, skip * 2 + skip);
            check.complete(RECORDS).is_ok()
        };
        assert!(outcome(0));
        assert!(!outcome(1));
    }

    #[test]
    fn an_order_without_its_result_or_with_two_is_found() {
        let keys = check(Work::Orders).by_key(RECORDS);
        let outcome = |skip: usize, again: usize| {
            let mut check = check(Work::Orders);
            let orders: Vec<u64> = keys
                .values()
                .filter_map(|[lefts, _]| lefts.first().copied())
                .collect();
            for left in orders.iter().skip(skip).chain(&orders[..again]) {
                let mut order = Input::of(Work::Orders, FEW);
                order.set(*left);
                let customer = keys[order.value.get(FOREIGN).unwrap_or_default()][1][0];
                take(&mut check, *left, Some(customer));
            }
            let outcome = check.complete(RECORDS);
            outcome.err().map_or(String::new(), |e| e.to_string())
        };
        assert_eq!(outcome(0, 0), "");
        assert!(outcome(1, 0).contains("the last result is None"));
        assert!(outcome(0, 1).contains("2 results of one order"));
    }
}
