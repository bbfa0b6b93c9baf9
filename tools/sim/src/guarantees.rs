//! Apps without transactions: records at most once, and counts at least once.

use std::collections::BTreeMap;

use eos_core::Guarantee;

use super::case::Case;
use super::plain::{self, COUNTING, STATELESS};
use super::remains::{Found, Left};
use super::topics::{INPUT, OUTPUTS};
use eos_oracle::Contents;

pub(super) const AT_MOST_ONCE: Case = Case {
    guarantee: Guarantee::AtMostOnce,
    judge: at_most_once,
    ..STATELESS
};

pub(super) const COUNTED_AT_LEAST_ONCE: Case = Case {
    guarantee: Guarantee::AtLeastOnce,
    judge: counted_at_least_once,
    ..COUNTING
};

/// The header of a changelog record that names its attempt: version (1) · number (8) · nonce (8).
const ATTEMPT: &[u8] = b"eos-attempt";

/// Checks that no record is twice in an output, and that none is lost after the last fault. A zombie may write its claimed
/// records behind those of the new owner.
fn at_most_once(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for topic in OUTPUTS {
        let times = times_in(left, topic, &mut wrong)?;
        let mut lost = 0;
        for (at, it) in left.given.iter().enumerate() {
            match times.get(&it.seq).copied().unwrap_or(0) {
                0 if at < left.after_faults => lost += 1,
                0 => wrong.push(format!(
                    "VIOLATED lost: seq {} is not in {topic}, and it came after the last fault",
                    it.seq
                )),
                1 => {}
                times => wrong.push(format!(
                    "VIOLATED doubled: seq {} is {times} times in {topic}",
                    it.seq
                )),
            }
        }
        found.saw("records were lost", lost);
    }
    Ok(wrong)
}

/// Returns how often each record is in an output.
fn times_in(
    left: Left<'_>,
    topic: &str,
    wrong: &mut Vec<String>,
) -> Result<BTreeMap<u64, u64>, String> {
    let mut times = BTreeMap::new();
    for partition in 0..left.partitions {
        for record in left.cluster.read(topic, partition) {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            let seq = value.split(' ').next().and_then(|it| it.parse().ok());
            let seq: u64 = seq.ok_or_else(|| format!("{topic}: the value {value:?}"))?;
            let given = usize::try_from(seq).ok().and_then(|at| left.given.get(at));
            if given.is_none_or(|it| record.key.as_deref() != Some(it.key.as_bytes())) {
                wrong.push(format!("VIOLATED unexpected: seq {seq} in {topic}"));
            }
            *times.entry(seq).or_default() += 1;
        }
    }
    Ok(times)
}

/// Checks that each record is in each output at least once, and that no copy of the state lacks a record.
fn counted_at_least_once(left: Left<'_>, found: &mut Found) -> Result<Vec<String>, String> {
    let violations = plain::repeated(left, found)?;
    for partition in 0..left.partitions {
        if let Some(topic) = left.changelog {
            let name = format!("changelog {topic}-{partition}");
            let contents = restored(left, topic, partition);
            lacks_none(left, &name, partition, i64::MAX, &contents, found);
        }
    }
    for it in left.databases {
        // An interrupted restore has no position.
        if let Some(position) = it.position(INPUT) {
            let name = format!("database of task {}", it.task);
            let partition = it.task.partition.get();
            lacks_none(left, &name, partition, position, &it.contents, found);
        }
    }
    after_faults_counts_are_consecutive(left, found);
    Ok(violations)
}

/// Returns the state that the changelog gives: a record of an attempt that comes after records of a newer one does not
/// count.
fn restored(left: Left<'_>, topic: &str, partition: i32) -> Contents {
    let (mut contents, mut newest) = (Contents::new(), 0);
    for record in left.cluster.read(topic, partition) {
        let mut headers = record.headers.iter();
        let attempt = headers.find(|(name, _)| name.as_bytes() == ATTEMPT);
        let number = attempt.and_then(|(_, value)| value.as_ref()?.get(1..9)?.try_into().ok());
        let number = number.map_or(newest, u64::from_be_bytes);
        if number < newest {
            continue;
        }
        newest = number;
        let key = record.key.unwrap_or_default();
        if let (Some(key), Some(value)) = (key.get(4..).filter(|it| !it.is_empty()), record.value) {
            contents.insert(key.to_vec(), value.to_vec());
        }
    }
    contents
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

/// Checks that a copy of the state counts each record of its partition before this offset.
fn lacks_none(
    left: Left<'_>,
    name: &str,
    partition: i32,
    before: i64,
    contents: &Contents,
    found: &mut Found,
) {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    let of_it = |it: &&super::record::Given| it.partition == partition && it.offset < before;
    for it in left.of(INPUT).filter(of_it) {
        *expected.entry(&it.key).or_default() += 1;
    }
    for (key, least) in expected {
        let held = contents.get(key.as_bytes()).map_or(0, |it| number(it));
        if held < least {
            found.wrong.push(format!(
                "VIOLATED state_behind: {name} counts {held} of {key} up to offset {before}, but there are {least}"
            ));
        }
        found.saw(
            "records counted twice",
            usize::try_from(held.saturating_sub(least)).unwrap_or(0),
        );
    }
}

/// Checks that records after the last fault count once: the counts of a key go up by one.
fn after_faults_counts_are_consecutive(left: Left<'_>, found: &mut Found) {
    for partition in 0..left.partitions {
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for record in left.cluster.read(OUTPUTS[0], partition) {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            let mut words = value.split(' ');
            let seq: usize = words.next().and_then(|it| it.parse().ok()).unwrap_or(0);
            let count: u64 = words.nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
            let Some(given) = left.given.get(seq).filter(|_| seq >= left.after_faults) else {
                continue;
            };
            let before = last.insert(given.key.clone(), count);
            if before.is_some_and(|before| count != before + 1) {
                found.wrong.push(format!(
                    "VIOLATED repeated: seq {seq} is number {count} of {}, behind {before:?}",
                    given.key
                ));
            }
        }
    }
}
