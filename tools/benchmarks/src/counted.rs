//! A check of counts. For each key it requires every update in turn, or at least increasing ones, and in the end the
//! number of its records.

use anyhow::{Context, Result, bail, ensure};
use eos_protocol::partition_for;
use kafka_wire::{Client, Isolation, Record};

use crate::records::{key_number, number_of_key};
use crate::work::Work;

/// Checks counts as they are read, and keeps the first violation.
#[derive(Debug)]
pub(crate) struct Counted {
    work: Work,
    partitions: u32,
    keys: u64,
    last: Vec<u64>,
    outputs: u64,
    wrong: Option<String>,
}

impl Counted {
    pub(crate) fn new(work: Work, partitions: i32, keys: u64) -> Self {
        Self {
            work,
            partitions: partitions.unsigned_abs(),
            keys,
            last: vec![0; usize::try_from(keys).unwrap_or(0)],
            outputs: 0,
            wrong: None,
        }
    }

    /// Checks one more count.
    pub(crate) fn take(&mut self, partition: i32, key: &[u8], value: &[u8]) {
        self.outputs += 1;
        if let Err(why) = self.judge(partition, key, value) {
            self.wrong.get_or_insert_with(|| {
                let key = String::from_utf8_lossy(key);
                format!("partition {partition}, key {key}: {why:#}")
            });
        }
    }

    fn judge(&mut self, partition: i32, key: &[u8], value: &[u8]) -> Result<()> {
        let number = number_of_key(key, self.keys).context("this key was never sent")?;
        let last = usize::try_from(number)
            .ok()
            .and_then(|at| self.last.get_mut(at));
        let last = last.context("this key was never sent")?;
        let count = u64::from_be_bytes(value.try_into().context("no count")?);
        match self.work {
            Work::Count if count != *last + 1 => bail!("{count} follows {last}"),
            _ if count <= *last => bail!("{count} follows {last}"),
            _ => *last = count,
        }
        let expected = partition_for(key, self.partitions).get();
        ensure!(expected == partition, "it belongs to partition {expected}");
        Ok(())
    }

    /// Fails if one of the counts so far is wrong. Returns their number.
    pub(crate) fn so_far(&self) -> Result<u64> {
        match &self.wrong {
            Some(wrong) => bail!("the output is wrong: {wrong}"),
            None => Ok(self.outputs),
        }
    }

    /// Fails if the last counts are not those of the first `records`. Returns the number of outputs.
    pub(crate) fn complete(&self, records: u64) -> Result<u64> {
        self.so_far()?;
        let mut expected = vec![0_u64; self.last.len()];
        for seq in 0..records {
            let at = usize::try_from(key_number(seq, self.keys)).ok();
            if let Some(count) = at.and_then(|at| expected.get_mut(at)) {
                *count += 1;
            }
        }
        let differs = self.last.iter().zip(&expected).position(|(a, b)| a != b);
        if let Some(at) = differs {
            bail!(
                "key number {at} was counted {:?} times, and it came {:?} times",
                self.last.get(at),
                expected.get(at)
            );
        }
        Ok(self.outputs)
    }
}

/// Reads all counts as a reader of committed records.
pub(crate) fn read(client: &mut Client, topic: &str, mut counted: Counted) -> Result<Counted> {
    let each = |partition: i32, record: &Record| {
        let key = record.key.as_deref().unwrap_or_default();
        counted.take(partition, key, record.value.as_deref().unwrap_or_default());
    };
    client.read_all(topic, Isolation::ReadCommitted, each)?;
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Input, KEYS, PARTITIONS};

    const RECORDS: u64 = 300_000;

    fn outcome(work: Work, change: impl Fn(&mut Vec<(Vec<u8>, u64)>)) -> String {
        let (mut input, mut counts) = (Input::default(), std::collections::HashMap::new());
        let mut outputs = Vec::new();
        for seq in 0..RECORDS {
            input.set(seq);
            let count: &mut u64 = counts.entry(input.key.clone()).or_default();
            *count += 1;
            outputs.push((input.key.clone(), *count));
        }
        change(&mut outputs);
        let mut counted = Counted::new(work, PARTITIONS, KEYS);
        for (key, count) in &outputs {
            let partition = partition_for(key, PARTITIONS.unsigned_abs()).get();
            counted.take(partition, key, &count.to_be_bytes());
        }
        let complete = counted.complete(RECORDS);
        complete.err().map_or(String::new(), |e| e.to_string())
    }

    #[test]
    fn the_right_counts_pass_and_each_planted_fault_is_found() {
        use Work::{Count, CountPerCommit};
        let second = |all: &Vec<(Vec<u8>, u64)>| all.iter().position(|(_, n)| *n == 2).unwrap();
        for work in [Count, CountPerCommit] {
            assert_eq!(outcome(work, |_| {}), "");
            let last = outcome(work, |all| drop(all.pop()));
            assert!(last.contains("and it came"), "{last}");
            let again = outcome(work, |all| all.push(all[second(all)].clone()));
            assert!(again.contains("2 follows"), "{again}");
        }
        let without = |all: &mut Vec<(Vec<u8>, u64)>| {
            let third = all.iter().find(|(_, n)| *n == 3).unwrap().0.clone();
            all.retain(|(key, n)| (key, *n) != (&third, 2));
        };
        assert!(outcome(Count, without).contains("3 follows 1"));
        assert_eq!(outcome(CountPerCommit, without), "");
        let foreign = outcome(Count, |all| all.push((b"u9".to_vec(), 1)));
        assert!(foreign.contains("this key was never sent"), "{foreign}");
    }
}
