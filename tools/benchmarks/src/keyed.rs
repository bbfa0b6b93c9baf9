//! A store of any size: an input that has each key once, and the records after it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use eos_protocol::partition_for;
use kafka_wire::{Isolation, Producer};

use crate::bench::{Bench, Play, now_ms};
use crate::running::Running;

/// The value of every record. Sides count the records and do not read the value.
const VALUE: &[u8] = b"one more";

/// The time limit for a side without progress.
const PATIENCE: Duration = Duration::from_secs(180);

/// The time between two records of each partition, after all keys are in the input.
const PACE: Duration = Duration::from_millis(5);

/// Returns the key with a number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key-{number:09}").into_bytes()
}

fn partition(key: &[u8], partitions: i32) -> i32 {
    partition_for(key, partitions.unsigned_abs()).get()
}

/// Creates a topic with this number of keys, each once.
pub(crate) fn filled(bench: &mut Bench, name: &str, keys: u64) -> Result<String> {
    let topic = bench.topic(name)?;
    let mut producer = Producer::new(&bench.bootstrap)?;
    let time = now_ms()?;
    for number in 0..keys {
        let key = key(number);
        let to = partition(&key, bench.partitions);
        producer.send(&topic, to, Some(&key), Some(VALUE), &[], time)?;
    }
    producer.flush()?;
    Ok(topic)
}

/// A sample of keys. A restore must keep their counts.
#[derive(Debug)]
pub(crate) struct Sample {
    keys: BTreeSet<Vec<u8>>,
    /// The ends of the output before the keys were sent again.
    ends: Vec<i64>,
}

impl Sample {
    /// The number of keys in a sample.
    const KEYS: u64 = 10_000;

    /// Sends some of these keys again, in all partitions.
    pub(crate) fn send(bench: &mut Bench, play: &Play, keys: u64) -> Result<Self> {
        let ends = (bench.client).end_offsets(&play.task.output, Isolation::ReadCommitted)?;
        let step = (keys / Self::KEYS).max(1);
        let sent = (0..keys).step_by(usize::try_from(step)?).map(key);
        let sent: BTreeSet<Vec<u8>> = sent.collect();
        let mut producer = Producer::new(&bench.bootstrap)?;
        let time = now_ms()?;
        for key in &sent {
            let to = partition(key, bench.partitions);
            producer.send(&play.task.input, to, Some(key), Some(VALUE), &[], time)?;
        }
        producer.flush()?;
        Ok(Self { keys: sent, ends })
    }

    pub(crate) fn len(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Checks that each of the keys has this count now, in the output since they were sent.
    pub(crate) fn check(mut self, bench: &mut Bench, play: &Play, count: u64) -> Result<()> {
        let output = &play.task.output;
        let ends = (bench.client).end_offsets(output, Isolation::ReadCommitted)?;
        for (partition, (mut from, end)) in (0..).zip(self.ends.iter().copied().zip(ends)) {
            while from < end {
                let read =
                    (bench.client).fetch(output, partition, from, Isolation::ReadCommitted)?;
                from = read.next_offset;
                for record in read.records {
                    let key = record.key.unwrap_or_default();
                    let value = record.value.unwrap_or_default();
                    let name = String::from_utf8_lossy(&key);
                    ensure!(
                        value[..] == count.to_be_bytes() && self.keys.remove(&key[..]),
                        "{}: after a restore, {name} has the count {value:?}, not {count}, or was counted twice",
                        play.side.name()
                    );
                }
            }
        }
        ensure!(
            self.keys.is_empty(),
            "{}: after a restore, {} keys have no new count",
            play.side.name(),
            self.keys.len()
        );
        Ok(())
    }
}

/// Waits until a side has committed this number of records of its input.
pub(crate) fn wait_for(
    bench: &mut Bench,
    play: &Play,
    running: &mut Running,
    records: u64,
) -> Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        running.check()?;
        let finished = bench.finished(&play.task.group, &play.task.input);
        let finished = finished.unwrap_or(last);
        if finished >= records {
            return Ok(());
        }
        if finished != last {
            (last, since) = (finished, Instant::now());
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "{} stands still at {last} of {records} records",
            play.side.name()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// A thread that sends existing keys again, in every partition, until it is stopped.
#[derive(Debug)]
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Stream {
    pub(crate) fn start(bench: &Bench, topic: &str, keys: u64) -> Result<Self> {
        let mut producer = Producer::new(&bench.bootstrap)?;
        let topic = topic.to_owned();
        // One key of each partition is enough, because only the time of new commits is measured.
        let partitions = bench.partitions;
        let of = |at: i32| {
            (0..keys)
                .map(key)
                .find(|key| partition(key, partitions) == at)
        };
        let keys: Option<Vec<_>> = (0..partitions).map(of).collect();
        let keys = keys.context("too few keys for every partition to have one")?;
        let stop = Arc::<AtomicBool>::default();
        let asked = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let time = now_ms()?;
                for (partition, key) in (0..).zip(&keys) {
                    producer.send(&topic, partition, Some(key), Some(VALUE), &[], time)?;
                }
                producer.flush()?;
                thread::sleep(PACE);
            }
            Ok(())
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| {
            ended.unwrap_or_else(|_| Err(anyhow!("the thread that goes on sending panicked")))
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _another_error_is_told = thread.join();
        }
    }
}
