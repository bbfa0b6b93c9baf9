//! Many partitions of two topics that are merged by time, one full and one empty. The empty topic must not delay the
//! full one, and its late records must not wait behind the full one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_wire::Producer;
use serde_json::{Value, json};

use crate::bench::{Bench, Play};
use crate::check::{self, Check};
use crate::options::Options;
use crate::records::{Input, is_kept};
use crate::running::Running;
use crate::side::Side;
use crate::stats::rounded;
use crate::work::Work;

/// The number of partitions of each of the two topics.
pub(crate) const PARTITIONS: i32 = 64;

/// The time without progress after which a run counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of the run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) records: u64,
    pub(crate) records_per_second: f64,
    /// The time from sent to committed of one record per partition of the empty topic, in milliseconds, during the work
    /// on the full topic.
    pub(crate) late_ms: f64,
    /// The fraction of the full topic that was left when these records were committed.
    pub(crate) left: f64,
    pub(crate) peak_mib: f64,
}

/// Processes a full topic beside an empty one, which receives one old record per partition during the run.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let records = options.records.unwrap_or(6_000_000);
    let mut bench = Bench::open(PARTITIONS)?;
    let input = bench.filled("full", Work::Map, records)?;
    let sibling = bench.topic("empty")?;
    let interval = options.interval();
    let mut play = bench.play(Side::Eos, "siblings", &input, Work::Map, records, interval)?;
    play.task.sibling = Some(sibling.clone());
    let late = one_each(records);
    let mut running = bench.start(&play, None)?;
    let outcome = watch(&mut bench, &play, &mut running, &sibling, &late)?;
    running.stop()?;

    bench.ensure_finished(&play)?;
    let numbers: Vec<_> = late.iter().map(|(seq, _)| *seq).collect();
    let check = Check::new(Work::Map, PARTITIONS, records).beside(&numbers);
    check::read(&mut bench.client, &play.task.output, check)?.complete(records)?;
    println!("{}", outcome.json());
    Ok(outcome)
}

fn watch(
    bench: &mut Bench,
    play: &Play,
    running: &mut Running,
    sibling: &str,
    late: &[(u64, Input)],
) -> Result<Outcome> {
    let (task, total) = (&play.task, play.task.records);
    let (mut moved, mut done) = (Instant::now(), 0);
    let (mut first, mut sent, mut through) = (None, None, None);
    while done < total || through.is_none() {
        running.check()?;
        ensure!(
            moved.elapsed() < PATIENCE,
            "it hangs: {done} of {total} records, the late ones {}",
            if through.is_some() { "too" } else { "not" }
        );
        std::thread::sleep(Duration::from_millis(10));
        let now = bench.finished(&task.group, &task.input);
        if let Some(now) = now.filter(|now| *now > done) {
            (done, moved) = (now, Instant::now());
        }
        if done > 0 {
            first.get_or_insert((done, Instant::now()));
        }
        if sent.is_none() && done * 10 >= total {
            send(&bench.bootstrap, sibling, late)?;
            sent = Some(Instant::now());
        }
        let arrived = bench.finished(&task.group, sibling).unwrap_or(0);
        if through.is_none() && arrived == late.len() as u64 {
            through = sent.map(|sent| (sent.elapsed(), done));
        }
    }
    let end = Instant::now();
    let ((already, first), (took, at)) = first.zip(through).context("nothing was seen")?;
    Ok(Outcome {
        records: total,
        records_per_second: (total - already) as f64 / (end - first).as_secs_f64(),
        late_ms: took.as_secs_f64() * 1e3,
        left: (total - at) as f64 / total as f64,
        peak_mib: running.peak_mib()?,
    })
}

/// Returns for each partition the first record after `records` that belongs there and is not dropped.
fn one_each(records: u64) -> Vec<(u64, Input)> {
    let mut found = vec![None; PARTITIONS.unsigned_abs() as usize];
    let mut missing = found.len();
    let mut input = Input::default();
    let mut numbers = (records..).filter(|seq| is_kept(*seq, Work::Map));
    while missing > 0
        && let Some(seq) = numbers.next()
    {
        input.set(seq);
        let at = input.partition(PARTITIONS).unsigned_abs() as usize;
        if let Some(place @ None) = found.get_mut(at) {
            *place = Some((seq, input.clone()));
            missing -= 1;
        }
    }
    found.into_iter().flatten().collect()
}

fn send(bootstrap: &str, topic: &str, late: &[(u64, Input)]) -> Result<()> {
    let mut producer = Producer::new(bootstrap)?;
    for (_, input) in late {
        let (key, value) = (Some(&input.key[..]), Some(&input.value[..]));
        // Older than all records of the full topic, so eos processes them next.
        producer.send(topic, input.partition(PARTITIONS), key, value, &[], 1)?;
    }
    producer.flush()
}

impl Outcome {
    fn json(&self) -> Value {
        json!({
            "benchmark": "siblings",
            "side": Side::Eos.name(),
            "partitions": PARTITIONS,
            "records": self.records,
            "records_per_second": self.records_per_second.round(),
            "late_ms": rounded(self.late_ms),
            "left_then": rounded(self.left),
            "peak_mib": rounded(self.peak_mib),
            "verified": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_gets_one() {
        let late = one_each(1_000);
        let partitions = late.iter().map(|(_, input)| input.partition(PARTITIONS));
        assert_eq!(
            partitions.collect::<Vec<_>>(),
            (0..PARTITIONS).collect::<Vec<_>>()
        );
        assert!(
            late.iter()
                .all(|(seq, _)| *seq >= 1_000 && is_kept(*seq, Work::Map))
        );
    }
}
